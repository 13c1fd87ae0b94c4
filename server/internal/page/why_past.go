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
	lineage []string // the entity and its parents as they are now
}

// changes adds the changes around the time, and for each level the last one before.
func (p *past) changes(ctx context.Context, body *whyBody) error {
	from, to := p.q.window()
	known := false
	for _, subject := range append(slices.Clone(p.lineage), zlimit.AuditResource(p.q.resource), zlimit.AuditSystem) {
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
	for _, subject := range p.lineage {
		q := zlimit.UsageQuery{Entity: subject, Resource: p.q.resource, Window: zlimit.WindowHourly, From: zlimit.WindowHourly.Start(from), To: to}
		for s, err := range p.page.Limiter.Usage.Snapshots(ctx, q) {
			if err != nil {
				return err
			}
			known = true
			var parts []string
			for _, limit := range slices.Sorted(maps.Keys(s.Consumed)) {
				parts = append(parts, amount(limit, s.Consumed[limit].Float64())+" "+titled(limit))
			}
			body.Rows = append(body.Rows, whyRow{at: s.Start, Tag: "used", Class: "off", Whose: named(subject), URL: entityURL(subject, p.q.resource), What: strings.Join(parts, ", ") + ", in the hour from here"})
		}
	}
	if !known {
		body.Notes = append(body.Notes, "No usage is counted in these hours.")
	}
	return nil
}
