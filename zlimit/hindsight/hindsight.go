// Package hindsight explains what happened: why requests of an entity were refused at a time, what the limits were then and who had set them,
// and what a change of a budget did to its running period. It knows what the store keeps: audit events, the refusals that processes report
// (see [zlimit.WithRejectionReports]), and usage that an aggregator has counted.
//
//	found, err := hindsight.Explain(ctx, limiter, hindsight.Question{Entity: "acme", Resource: "gpt", At: at, Now: time.Now()})
//	if err == nil && found.ByLimit() {
//		fmt.Println(found.During[0].Limit, found.During[0].Count)
//	}
//
// All amounts are in tokens, and of a limit in money in billionths of a dollar. The functions read, and write nothing. They are safe for concurrent use.
package hindsight

import (
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Most bounds the events of a subject that are read, the latest ones. Each top-up is one.
const Most = 5000

// A past reads what is kept of a resource, of each subject once. It is for one goroutine.
type past struct {
	limiter   *zlimit.RateLimiter
	resource  string
	resources []string // the resource, and the wider ones that are known so far
	read      map[string][]zlimit.AuditEvent
	histories map[zlimit.Level]*history
	records   map[string]zlimit.Entity
	cut       []string  // the subjects with more events than were read
	since     time.Time // of the events that are read; the zero time for all
}

// newPast returns the past of a resource. It makes no call.
func newPast(l *zlimit.RateLimiter, resource string) *past {
	return &past{
		limiter: l, resource: resource, resources: []string{resource}, read: map[string][]zlimit.AuditEvent{}, histories: map[zlimit.Level]*history{},
		records: map[string]zlimit.Entity{},
	}
}

// events returns the last [Most] events of a subject, the latest first, that are about the resource or the wider ones that [past.charged]
// has found. The first call for a subject makes a query.
func (p *past) events(ctx context.Context, subject string) (events []zlimit.AuditEvent, err error) {
	all, err := p.all(ctx, subject)
	for i := range all {
		if r := all[i].Resource; r == "" || r == zlimit.DefaultResource || slices.Contains(p.resources, r) {
			events = append(events, all[i])
		}
	}
	return events, err
}

// all returns the last events of a subject, the latest first.
func (p *past) all(ctx context.Context, subject string) ([]zlimit.AuditEvent, error) {
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
