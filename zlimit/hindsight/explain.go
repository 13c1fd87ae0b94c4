package hindsight

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Question is about an entity and a resource at a time, and what happened around it.
type Question struct {
	Entity, Resource string
	// At is the time, and End that of its end. Where End is zero it is that of the minute if At is a whole one, and At otherwise.
	At, End time.Time
	// From and To are the range of moments; ten minutes before and after At where they are zero.
	From, To time.Time
	// Now is the present, up to which there are refusals.
	Now time.Time
	// Children asks for refusals of other entities by limits of this one, too.
	Children bool
}

// check returns a [*zlimit.ValidationError] for a question about nothing, or about no time.
func (q *Question) check() error {
	switch {
	case q.Entity == "":
		return invalid("entity", "", "must not be empty")
	case q.Resource == "":
		return invalid("resource", "", "must not be empty")
	case q.At.IsZero():
		return invalid("at", written(q.At), "must be the time in question")
	case q.Now.IsZero():
		return invalid("now", written(q.Now), "must be the present")
	case q.To.Before(q.From):
		return invalid("to", written(q.To), "must not be before from")
	default:
		return nil
	}
}

func invalid(field, value, reason string) error {
	return &zlimit.ValidationError{Field: "question " + field, Value: value, Reason: reason}
}

func written(t time.Time) string { return t.Format(time.RFC3339) }

// complete fills in what is zero.
func (q *Question) complete() {
	if q.End.IsZero() {
		if q.End = q.At; q.At.Equal(q.At.Truncate(time.Minute)) {
			q.End = endOfMinute(q.At)
		}
	}
	if q.From.IsZero() {
		q.From = q.At.Add(-10 * time.Minute)
	}
	if q.To.IsZero() {
		q.To = q.At.Add(10 * time.Minute)
	}
}

// An Explanation is what is known of a time, and what happened around it.
type Explanation struct {
	Answer

	Moments  []Moment // in order; refusals of a minute are behind the changes in it, which may be their cause
	Asked    int      // how many of the moments are before the time in question
	Reported bool     // processes reported refusals of the resource
	Changed  bool     // changes are kept
	Counted  bool     // usage is counted
	Cut      []string // subjects of audit events with more than the last [Most], which were read
}

// A Moment is a change of limits, refusals in a minute, or what was used in an hour.
type Moment struct {
	Time    time.Time
	Level   zlimit.Level // whose limits they are, and whose usage it is
	Change  *zlimit.AuditEvent
	Refused *Refused
	Used    *zlimit.Snapshot
}

// endOfMinute is the place of a whole minute in the order of moments.
func endOfMinute(minute time.Time) time.Time { return minute.Add(time.Minute - time.Nanosecond) }

// order is the time that moments are in the order of.
func (m *Moment) order() time.Time {
	if m.Refused != nil {
		return endOfMinute(m.Time)
	}
	return m.Time
}

// Explain says why requests of an entity for a resource were refused at a time. A request is charged to the parents of its entity and to the
// resources that its resource lies within, as they were at the time. It makes two reads and a query of audit events for each entity, four such queries
// for each resource, a query of reports for each hour of the range, and one of usage for each bucket. What is asked of is kept for some time: audit
// events for 90 days, reports for seven, hours of usage for 90, unless a program sets other times. It returns a
// [*zlimit.ValidationError] before any read, and errors of the store.
func Explain(ctx context.Context, l *zlimit.RateLimiter, q Question) (*Explanation, error) {
	q.complete()
	if err := q.check(); err != nil {
		return nil, err
	}
	p := newPast(l, q.Resource)
	var reported []Refused
	if to := earlier(q.To, q.Now.Add(time.Minute)); q.From.Before(to) {
		var err error
		if reported, err = p.refusals(ctx, q.From, to); err != nil {
			return nil, err
		}
	}
	found := &Explanation{Reported: len(reported) > 0}
	refused, shown := of(reported, q.Entity), of(reported, q.Entity)
	if q.Children {
		children := by(reported, q.Entity)
		if shown = append(shown, children...); len(refused) == 0 {
			refused = children
		}
	}
	for i := range shown {
		found.Moments = append(found.Moments, Moment{Time: shown[i].Minute, Level: zlimit.Level{Entity: shown[i].LimitEntity}, Refused: &shown[i]})
	}
	var err error
	if found.Answer, err = p.answer(ctx, &q, refused); err != nil {
		return nil, err
	}
	if err := p.changes(ctx, &q, found); err != nil {
		return nil, err
	}
	if err := p.usage(ctx, &q, found); err != nil {
		return nil, err
	}
	slices.SortStableFunc(found.Moments, func(a, b Moment) int { return a.order().Compare(b.order()) })
	asked := q.At
	if q.End.After(asked) {
		asked = endOfMinute(asked)
	}
	found.Asked, _ = slices.BinarySearchFunc(found.Moments, asked, func(m Moment, t time.Time) int { return cmp.Or(m.order().Compare(t), -1) })
	found.Cut = p.cut
	return found, nil
}

// changes adds the changes of the range, and the last one of each kind and level before it.
func (p *past) changes(ctx context.Context, q *Question, found *Explanation) error {
	subjects := slices.Clone(found.Entities)
	for _, resource := range found.Resources {
		subjects = append(subjects, zlimit.AuditResource(resource))
	}
	for _, subject := range append(subjects, zlimit.AuditSystem) {
		events, err := p.events(ctx, subject)
		if err != nil {
			return err
		}
		found.Changed = found.Changed || len(events) > 0
		var shown []Moment
		before := map[string]bool{}
		for i := range events {
			e := &events[i]
			kind := e.Resource + " " + string(e.Action)
			if !e.Time.Before(q.To) || e.Time.Before(q.From) && (before[kind] || e.Action == zlimit.ActionEntityCreated) {
				continue
			}
			before[kind] = before[kind] || e.Time.Before(q.From)
			shown = append(shown, Moment{Time: e.Time, Level: LevelOf(e), Change: e})
		}
		slices.Reverse(shown)
		found.Moments = append(found.Moments, shown...)
	}
	return nil
}

// usage adds what each bucket used in the hours of the range.
func (p *past) usage(ctx context.Context, q *Question, found *Explanation) error {
	c := charged{entities: found.Entities, resources: found.Resources}
	for _, at := range c.levels() {
		hours := zlimit.UsageQuery{Entity: at.Entity, Resource: at.Resource, Window: zlimit.WindowHourly, From: zlimit.WindowHourly.Start(q.From), To: q.To}
		for s, err := range p.limiter.Usage.Snapshots(ctx, hours) {
			if err != nil {
				return err
			}
			found.Counted = true
			found.Moments = append(found.Moments, Moment{Time: s.Start, Level: at, Used: &s})
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
