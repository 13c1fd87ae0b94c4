package page

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A past reads what is kept of an entity and a resource around a time.
type past struct {
	page *page
	q    *whyQuery

	kept    *hindsight.Past
	charged hindsight.Charged
}

// changes adds the changes around the time, and for each level the last one before.
func (p *past) changes(ctx context.Context, body *whyBody) error {
	from, to := p.q.window()
	known := false
	subjects := slices.Clone(p.charged.Entities)
	for _, resource := range p.charged.Resources {
		subjects = append(subjects, zlimit.AuditResource(resource))
	}
	for _, subject := range append(subjects, zlimit.AuditSystem) {
		events, err := p.kept.Events(ctx, subject)
		if err != nil {
			return err
		}
		known = known || len(events) > 0
		before := map[string]bool{}
		for i := range events {
			e := &events[i]
			level := e.Resource + " " + string(e.Action)
			if !e.Time.Before(to) || e.Time.Before(from) && (before[level] || e.Action == zlimit.ActionEntityCreated) {
				continue
			}
			before[level] = before[level] || e.Time.Before(from)
			c := changeOf(e)
			body.Rows = append(body.Rows, whyRow{at: e.Time, Tag: "changed", Class: "low", Whose: c.Subject, URL: c.URL, What: c.What, By: "by " + c.Who + c.Where})
		}
	}
	if cut := p.kept.Cut(); len(cut) > 0 {
		for i := range cut {
			cut[i] = named(cut[i])
		}
		body.Notes = append(body.Notes, fmt.Sprintf("Of %s only the last %s changes were looked at.", listed(cut), grouped(hindsight.Most)))
	}
	if !known {
		body.Notes = append(body.Notes, "No changes of its limits are kept. Audit events are kept for 90 days, unless the system says otherwise.")
	}
	return nil
}

// usage adds what the entity and its parents used in the hours around the time.
func (p *past) usage(ctx context.Context, body *whyBody) error {
	from, to := p.q.window()
	known := false
	for _, at := range p.charged.Levels() {
		subject, wider := at.Entity, ""
		if at.Resource != p.q.resource {
			wider = " of " + named(at.Resource)
		}
		q := zlimit.UsageQuery{Entity: subject, Resource: at.Resource, Window: zlimit.WindowHourly, From: zlimit.WindowHourly.Start(from), To: to}
		for s, err := range p.page.Limiter.Usage.Snapshots(ctx, q) {
			if err != nil {
				return err
			}
			known = true
			var parts []string
			for _, limit := range slices.Sorted(maps.Keys(s.Consumed)) {
				parts = append(parts, amount(limit, s.Consumed[limit].Float64())+" "+titled(limit))
			}
			body.Rows = append(body.Rows, whyRow{at: s.Start, Tag: "used", Class: "off", Whose: named(subject), URL: entityURL(subject, at.Resource), What: strings.Join(parts, ", ") + wider + ", in the hour from here"})
		}
	}
	if !known {
		body.Notes = append(body.Notes, "No usage is counted in these hours.")
	}
	return nil
}
