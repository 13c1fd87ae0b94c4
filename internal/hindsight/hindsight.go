// Package hindsight says which switches and limits refused at a time: what they were then, as audit events have it, and what limits refused,
// as processes report it.
package hindsight

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Most bounds the events of a subject that are read. Each top-up is one.
const Most = 5000

// A Past reads what is kept of a resource, of each subject once. It is for one goroutine.
type Past struct {
	limiter   *zlimit.RateLimiter
	resource  string
	resources []string // the resource, and the wider ones that are known so far
	read      map[string][]zlimit.AuditEvent
	histories map[zlimit.Level]*History
	records   map[string]zlimit.Entity
	cut       []string
	since     time.Time // of the events that are read; the zero time for all
}

// New returns the past of a resource. It makes no call.
func New(l *zlimit.RateLimiter, resource string) *Past {
	return &Past{
		limiter: l, resource: resource, resources: []string{resource}, read: map[string][]zlimit.AuditEvent{}, histories: map[zlimit.Level]*History{},
		records: map[string]zlimit.Entity{},
	}
}

// Cut returns the subjects with more events than were read.
func (p *Past) Cut() []string { return slices.Clone(p.cut) }

// Events returns the last [Most] events of a subject, the latest first, that are about the resource or the wider ones that [Past.Charged]
// has found. The first call for a subject makes a query.
func (p *Past) Events(ctx context.Context, subject string) (events []zlimit.AuditEvent, err error) {
	all, err := p.all(ctx, subject)
	for i := range all {
		if r := all[i].Resource; r == "" || r == zlimit.DefaultResource || slices.Contains(p.resources, r) {
			events = append(events, all[i])
		}
	}
	return events, err
}

// all returns the last events of a subject, the latest first.
func (p *Past) all(ctx context.Context, subject string) ([]zlimit.AuditEvent, error) {
	if events, ok := p.read[subject]; ok {
		return events, nil
	}
	var events []zlimit.AuditEvent
	for e, err := range p.limiter.Audit.Events(ctx, subject, zlimit.AuditQuery{From: p.since, Reverse: true, Limit: Most}) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	if p.read[subject] = events; len(events) == Most {
		p.cut = append(p.cut, subject)
	}
	return events, nil
}

// Limits returns the limits in details of an event, by name.
func Limits(details map[string]any) map[string]*zlimit.Limit {
	all := map[string]*zlimit.Limit{}
	list, _ := details["limits"].([]any)
	for _, each := range list {
		fields, ok := each.(map[string]any)
		if !ok {
			continue
		}
		text, err := json.Marshal(fields)
		var l zlimit.Limit
		if err == nil && json.Unmarshal(text, &l) == nil {
			all[l.Name] = &l
		}
	}
	return all
}
