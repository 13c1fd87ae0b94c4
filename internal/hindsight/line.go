package hindsight

import (
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Question is about an entity at a time, and what happened around it.
type Question struct {
	Entity   string
	At, End  time.Time // the end of the minute, or At for a moment
	From, To time.Time
	Now      time.Time
	Children bool // with refusals of other entities by limits of this one
}

// A Line is what is known of a time, and what happened around it.
type Line struct {
	Answer

	Moments  []Moment // in order
	Reported bool     // processes reported refusals of the resource
	Changed  bool     // changes are kept
	Counted  bool     // usage is counted
}

// A Moment is a change of limits, refusals in a minute, or what was used in an hour.
type Moment struct {
	Time    time.Time
	Level   zlimit.Level // whose limits they are, and whose usage it is
	Change  *zlimit.AuditEvent
	Refused *Refused
	Used    *zlimit.Snapshot
}

// EndOfMinute is the place of a whole minute in the order of moments: behind the changes in it, which may be the cause of its refusals.
func EndOfMinute(minute time.Time) time.Time { return minute.Add(time.Minute - time.Nanosecond) }

// Order is the time that moments are in the order of.
func (m *Moment) Order() time.Time {
	if m.Refused != nil {
		return EndOfMinute(m.Time)
	}
	return m.Time
}

// Line answers a question. It makes the calls of [Past.Refusals], [Past.Answer] and [Past.Events], and a query of usage for each bucket.
func (p *Past) Line(ctx context.Context, q Question) (*Line, error) {
	var reported []Refused
	if to := earlier(q.To, q.Now.Add(time.Minute)); q.From.Before(to) {
		var err error
		if reported, err = p.Refusals(ctx, q.From, to); err != nil {
			return nil, err
		}
	}
	line := &Line{Reported: len(reported) > 0}
	refused, shown := Of(reported, q.Entity), Of(reported, q.Entity)
	if q.Children {
		children := By(reported, q.Entity)
		if shown = append(shown, children...); len(refused) == 0 {
			refused = children
		}
	}
	for i := range shown {
		line.Moments = append(line.Moments, Moment{Time: shown[i].Minute, Level: zlimit.Level{Entity: shown[i].LimitEntity}, Refused: &shown[i]})
	}
	var err error
	if line.Answer, err = p.Answer(ctx, q.Entity, refused, q.At, q.End); err != nil {
		return nil, err
	}
	if err := p.changes(ctx, q, line); err != nil {
		return nil, err
	}
	if err := p.usage(ctx, q, line); err != nil {
		return nil, err
	}
	slices.SortStableFunc(line.Moments, func(a, b Moment) int { return a.Order().Compare(b.Order()) })
	return line, nil
}

// changes adds the changes of the range, and the last one of each kind and level before it.
func (p *Past) changes(ctx context.Context, q Question, line *Line) error {
	subjects := slices.Clone(line.Entities)
	for _, resource := range line.Resources {
		subjects = append(subjects, zlimit.AuditResource(resource))
	}
	for _, subject := range append(subjects, zlimit.AuditSystem) {
		events, err := p.Events(ctx, subject)
		if err != nil {
			return err
		}
		line.Changed = line.Changed || len(events) > 0
		var found []Moment
		before := map[string]bool{}
		for i := range events {
			e := &events[i]
			kind := e.Resource + " " + string(e.Action)
			if !e.Time.Before(q.To) || e.Time.Before(q.From) && (before[kind] || e.Action == zlimit.ActionEntityCreated) {
				continue
			}
			before[kind] = before[kind] || e.Time.Before(q.From)
			found = append(found, Moment{Time: e.Time, Level: LevelOf(e), Change: e})
		}
		slices.Reverse(found)
		line.Moments = append(line.Moments, found...)
	}
	return nil
}

// usage adds what each bucket used in the hours of the range.
func (p *Past) usage(ctx context.Context, q Question, line *Line) error {
	for _, at := range line.Levels() {
		hours := zlimit.UsageQuery{Entity: at.Entity, Resource: at.Resource, Window: zlimit.WindowHourly, From: zlimit.WindowHourly.Start(q.From), To: q.To}
		for s, err := range p.limiter.Usage.Snapshots(ctx, hours) {
			if err != nil {
				return err
			}
			line.Counted = true
			line.Moments = append(line.Moments, Moment{Time: s.Start, Level: at, Used: &s})
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
