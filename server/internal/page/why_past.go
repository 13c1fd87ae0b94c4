package page

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A past reads what is kept of an entity and a resource around a time.
type past struct {
	page *page
	q    *whyQuery

	lineage []string                       // the entity and its parents as they are now
	read    map[string][]zlimit.AuditEvent // by subject, the latest first
	cut     []string                       // subjects with more changes than were read
}

// refusals returns what processes reported of the entity, and what this process has not reported yet.
func (p *past) refusals(ctx context.Context) (all []refusedThen, err error) {
	from, to := p.q.window()
	minutes, err := p.page.Limiter.Usage.RejectedByMinute(ctx, zlimit.RejectedQuery{From: from, To: to, Resource: p.q.resource})
	if err != nil {
		return nil, err
	}
	if own := p.page.Limiter.Rejected(); !own.From.Before(from) && own.From.Before(to) {
		own.From = own.From.Truncate(time.Minute)
		minutes = append(minutes, own)
	}
	for _, minute := range minutes {
		for _, r := range minute.Heaviest {
			if r.Entity == p.q.id && r.Resource == p.q.resource {
				all = append(all, refusedThen{r, minute.From, minute.To})
			}
		}
	}
	return all, nil
}

// mostPast bounds the changes of a subject that are read. Each top-up is one.
const mostPast = 5000

// events are the last changes of a subject, the latest first.
func (p *past) events(ctx context.Context, subject string) ([]zlimit.AuditEvent, error) {
	if events, ok := p.read[subject]; ok {
		return events, nil
	}
	var events []zlimit.AuditEvent
	n := 0
	for e, err := range p.page.Limiter.Audit.Events(ctx, subject, zlimit.AuditQuery{Reverse: true, Limit: mostPast}) {
		if err != nil {
			return nil, err
		}
		n++
		if e.Resource == "" || e.Resource == p.q.resource || e.Resource == zlimit.DefaultResource {
			events = append(events, e)
		}
	}
	if p.read[subject] = events; n == mostPast {
		p.cut = append(p.cut, named(subject))
	}
	return events, nil
}

// changes adds the changes around the time, and for each level the last one before.
func (p *past) changes(ctx context.Context, body *whyBody) error {
	from, to := p.q.window()
	known := false
	for _, subject := range append(slices.Clone(p.lineage), zlimit.AuditResource(p.q.resource), zlimit.AuditSystem) {
		events, err := p.events(ctx, subject)
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
	if len(p.cut) > 0 {
		body.Notes = append(body.Notes, fmt.Sprintf("Of %s only the last %s changes were looked at.", listed(p.cut), grouped(mostPast)))
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

// A levelThen is what a level said at a time.
type levelThen struct {
	source zlimit.Source
	limits map[string]*zlimit.Limit
	off    any                // true, "bypass", another value for a switch that is on, nil for none
	by     *zlimit.AuditEvent // which set it; nil where that is not kept
}

// set says by whom a level was set, beginning with a comma.
func (l *levelThen) set(now time.Time) string {
	if l.by == nil {
		return ""
	}
	c := changeOf(l.by)
	return ", set by " + c.Who + " at " + moment(c.Time, now, time.UTC)
}

// levels returns the levels of an entity at the time in question, the narrowest first. One without events is as it is now.
func (p *past) levels(ctx context.Context, entity string) (all []levelThen, err error) {
	resolved, err := p.page.Limiter.Limits.Resolve(ctx, entity, p.q.resource)
	if err != nil && !isNoLimits(err) {
		return nil, err
	}
	for _, of := range []struct {
		level   zlimit.Level
		subject string
	}{
		{zlimit.Level{Entity: entity, Resource: p.q.resource}, entity},
		{zlimit.Level{Entity: entity}, entity},
		{zlimit.Level{Resource: p.q.resource}, zlimit.AuditResource(p.q.resource)},
		{zlimit.Level{}, zlimit.AuditSystem},
	} {
		events, err := p.events(ctx, of.subject)
		if err != nil {
			return nil, err
		}
		then, ok := levelAt(events, of.level.Resource, p.q.end)
		then.source = of.level.Source()
		if !ok {
			config, err := p.page.Limiter.Limits.Get(ctx, of.level)
			if err != nil {
				return nil, err
			}
			then.limits = map[string]*zlimit.Limit{}
			for i := range config.Limits {
				then.limits[config.Limits[i].Name] = &config.Limits[i]
			}
			switch then.source {
			case resolved.DisabledBy:
				then.off = true
			case resolved.BypassedBy:
				then.off = string(zlimit.SwitchBypassed)
			default:
			}
		}
		all = append(all, then)
	}
	return all, nil
}

// levelAt returns what events say that a level was at a time: the last event until then, or what the first one after it replaced. It returns
// false if none is of the level.
func levelAt(events []zlimit.AuditEvent, resource string, at time.Time) (then levelThen, known bool) {
	for i := range events { // the latest first
		e := &events[i]
		of, deleted := e.Resource, e.Action == zlimit.ActionLimitsDeleted
		if of == zlimit.DefaultResource {
			of = ""
		}
		if of != resource || e.Action != zlimit.ActionLimitsSet && !deleted {
			continue
		}
		replaced, _ := e.Details["before"].(map[string]any)
		set := e.Details
		if deleted {
			replaced, set = e.Details, nil
		}
		if !e.Time.After(at) {
			return levelThen{limits: limitsOf(set), off: set["disabled"], by: e}, true
		}
		then, known = levelThen{limits: limitsOf(replaced), off: replaced["disabled"]}, true
	}
	return then, known
}

// off returns the level that had a switch which counted for the entity at the time; nil for none.
func (p *past) off(ctx context.Context) (*levelThen, error) {
	levels, err := p.levels(ctx, p.q.id)
	for i := range levels {
		if levels[i].off != nil {
			return &levels[i], err
		}
	}
	return nil, err
}

// limit returns a limit of an entity as it was at the time, and the level that it came from; nil if that is not known.
func (p *past) limit(ctx context.Context, entity, name string) (*zlimit.Limit, *levelThen, error) {
	levels, err := p.levels(ctx, entity)
	for i := range levels {
		if len(levels[i].limits) > 0 { // the first level with limits wins as a whole
			return levels[i].limits[name], &levels[i], err
		}
	}
	return nil, nil, err
}
