package hindsight

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Level is what a level said at a time.
type Level struct {
	At     zlimit.Level
	Limits map[string]*zlimit.Limit // by name
	Within string                   // the wider resource; "" for none
	State  zlimit.Switch            // of its switch
	By     *zlimit.AuditEvent       // which set it; nil where that is not kept
}

// A history is what the levels of an entity and a resource said, the narrowest first.
type history struct{ levels []record }

// A record is the history of a level.
type record struct {
	at      zlimit.Level
	events  []zlimit.AuditEvent // of its subject, the latest first
	present Level               // for a level without events
}

// history returns the history of an entity and a resource. The first call for both makes a query for each level, and a read for each without
// events. Queries of one subject are made once.
func (p *past) history(ctx context.Context, entity, resource string) (*history, error) {
	own := zlimit.Level{Entity: entity, Resource: resource}
	if h := p.histories[own]; h != nil {
		return h, nil
	}
	resolved, err := p.limiter.Limits.Resolve(ctx, entity, resource)
	if err != nil && !errors.Is(err, zlimit.ErrNoLimits) {
		return nil, err
	}
	h := &history{}
	for _, of := range []struct {
		level   zlimit.Level
		subject string
	}{
		{own, entity},
		{zlimit.Level{Entity: entity}, entity},
		{zlimit.Level{Resource: resource}, zlimit.AuditResource(resource)},
		{zlimit.Level{}, zlimit.AuditSystem},
	} {
		r := record{at: of.level}
		if r.events, err = p.all(ctx, of.subject); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(r.events, func(e zlimit.AuditEvent) bool { return r.set(&e) }) {
			if r.present, err = p.present(ctx, of.level, &resolved); err != nil {
				return nil, err
			}
		}
		h.levels = append(h.levels, r)
	}
	p.histories[own] = h
	return h, nil
}

// present reads what a level says now. Its switch is known where it decides.
func (p *past) present(ctx context.Context, at zlimit.Level, resolved *zlimit.Resolved) (Level, error) {
	l := Level{At: at, Limits: map[string]*zlimit.Limit{}}
	config, err := p.limiter.Limits.Get(ctx, at)
	if err != nil {
		return l, err
	}
	l.Within = config.Within
	for i := range config.Limits {
		l.Limits[config.Limits[i].Name] = &config.Limits[i]
	}
	switch at.Source() {
	case resolved.DisabledBy:
		l.State = zlimit.SwitchDisabled
	case resolved.BypassedBy:
		l.State = zlimit.SwitchBypassed
	default:
	}
	return l, nil
}

// off returns the level whose switch counted at a time; nil for none.
func (h *history) off(at time.Time) *Level {
	for i := range h.levels {
		if then := h.levels[i].then(at); then.State != zlimit.SwitchInherit {
			return &then
		}
	}
	return nil
}

// limit returns a limit as it was at a time, and the level that it came from; nil if that is not known. The first level with limits wins as
// a whole.
func (h *history) limit(name string, at time.Time) (*zlimit.Limit, *Level) {
	for i := range h.levels {
		if then := h.levels[i].then(at); len(then.Limits) > 0 {
			return then.Limits[name], &then
		}
	}
	return nil, nil
}

// within returns the wider resource at a time, "" for none.
func (h *history) within(at time.Time) string {
	for i := range h.levels {
		if r := &h.levels[i]; r.at.Entity == "" && r.at.Resource != "" {
			then := r.then(at)
			return then.Within
		}
	}
	return ""
}

// limited reports whether there were limits at a time.
func (h *history) limited(at time.Time) bool {
	return slices.ContainsFunc(h.levels, func(r record) bool {
		then := r.then(at)
		return len(then.Limits) > 0
	})
}

// then returns what events say that the level was at a time: the last event until then, or what the first one after it replaced. A level
// without events is as it is now.
func (r *record) then(at time.Time) Level {
	then := r.present
	for i := range r.events { // the latest first
		e := &r.events[i]
		if !r.set(e) {
			continue
		}
		replaced, _ := e.Details["before"].(map[string]any)
		set, kept := e.Details, e.Details
		if e.Action == zlimit.ActionLimitsDeleted { // what it lies within stays
			replaced, set = e.Details, nil
		}
		if !e.Time.After(at) {
			within, _ := kept["within"].(string)
			return Level{At: r.at, Limits: Limits(set), Within: within, State: stateOf(set["disabled"]), By: e}
		}
		within, _ := replaced["within"].(string)
		then = Level{At: r.at, Limits: Limits(replaced), Within: within, State: stateOf(replaced["disabled"])}
	}
	return then
}

// stateOf returns the switch that an event has: true or "bypass", nothing for none, and otherwise one that serves requests.
func stateOf(v any) zlimit.Switch {
	switch v {
	case nil:
		return zlimit.SwitchInherit
	case true:
		return zlimit.SwitchDisabled
	case string(zlimit.SwitchBypassed):
		return zlimit.SwitchBypassed
	default:
		return zlimit.SwitchEnabled
	}
}

// set reports whether an event set or deleted the level.
func (r *record) set(e *zlimit.AuditEvent) bool {
	of := e.Resource
	if of == zlimit.DefaultResource {
		of = ""
	}
	return of == r.at.Resource && (e.Action == zlimit.ActionLimitsSet || e.Action == zlimit.ActionLimitsDeleted)
}

// A Stretch is a time in which a limit did not change.
type Stretch struct {
	From, To time.Time
	Limit    *zlimit.Limit // nil for none
	Level    *Level        // which it came from; nil for none
}

// stretches returns what a limit was from a time until before another one, in the order of time: more than one if it changed meanwhile. It
// begins and ends with a limit, since none refuses nothing.
func (h *history) stretches(name string, from, to time.Time) (all []Stretch) {
	for _, begin := range h.changes(from, to) {
		limit, level := h.limit(name, begin)
		if n := len(all); n > 0 {
			if same(all[n-1].Limit, limit) {
				continue
			}
			all[n-1].To = begin
		}
		if limit != nil || len(all) > 0 {
			all = append(all, Stretch{begin, to, limit, level})
		}
	}
	if n := len(all); n > 0 && all[n-1].Limit == nil {
		return all[:n-1]
	}
	return all
}

// changes returns the beginning of a time, and when levels changed in it.
func (h *history) changes(from, to time.Time) []time.Time {
	times := []time.Time{from}
	for i := range h.levels {
		r := &h.levels[i]
		for j := range r.events {
			if e := &r.events[j]; r.set(e) && e.Time.After(from) && e.Time.Before(to) {
				times = append(times, e.Time)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// same reports whether two limits are the same one, or both none.
func same(a, b *zlimit.Limit) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
