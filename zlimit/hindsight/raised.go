package hindsight

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// A raise of a budget adds nothing to its running period. The bucket does not show what that began with, once a request has brought it in
// line: the audit log does.

// A Raise is that of a budget in its running period, which holds from the next period on.
type Raise struct {
	Least int64 // what the running period began with at least, tokens
	Most  int64 // and at most; the same where it is known
}

// Known reports whether it is known what the running period began with.
func (r Raise) Known() bool { return r.Least == r.Most }

// Raised returns what the running period of a budget began with, if the budget was raised since and the raise may not hold yet. It returns false
// for other limits, for prepaid ones, and where nothing is known of a raise.
//
// Usage distinguishes a period that began after the raise from one that began before: what is used and what is left are together its amount,
// unless it was lowered meanwhile: then a part of the amount is lost, see [CutOf].
// Without usage, the amounts remain that the budget had in the period, with as much left as the bucket has, and no more used than the bucket has
// counted since it was created.
//
// An entity that is the new ID of another one has had the budget of that one before. It costs the queries of an explanation for the events since
// the period began, a read of the record, and for a raised budget the hours of its usage since then, or the buckets of the entity.
func Raised(ctx context.Context, l *zlimit.RateLimiter, s *zlimit.Status, now time.Time) (r Raise, raised bool, err error) {
	p, ids, all, err := inPeriod(ctx, l, s, now)
	if p == nil || err != nil {
		return r, false, err
	}
	if len(all) == 0 || all[0].Limit == nil || all[0].Limit.Capacity >= s.Limit.Capacity || all[0].Limit.Windows != "" {
		return r, false, nil
	}
	all = append(all, Stretch{Limit: &s.Limit})
	left := s.Available - s.Carried - s.Granted
	used, unsure, err := p.used(ctx, ids, s, now)
	if err != nil {
		return r, false, err
	}
	if used > 0 {
		least, most := begunWith(all, s, float64(left)+used-unsure, now), begunWith(all, s, float64(left)+used, now)
		r = Raise{min(least, most), max(least, most)}
	} else if r, err = p.possible(ctx, ids, s, all, left); err != nil {
		return r, false, err
	}
	return r, r.Least < s.Limit.Capacity, nil
}

// maxIDs bounds how many IDs of one entity are looked at.
const maxIDs = 8

// inPeriod returns the past of a budget since its running period began, nil for a limit without one. It also returns the IDs that the entity
// had since then, the last one first, and what the budget was.
func inPeriod(ctx context.Context, l *zlimit.RateLimiter, s *zlimit.Status, now time.Time) (p *past, ids []string, all []Stretch, err error) {
	since, ok := began(s, now)
	if !ok {
		return nil, nil, nil, nil
	}
	p = newPast(l, s.Resource)
	p.since = since
	for id, until := s.Entity, now; ; {
		h, err := p.history(ctx, id, s.Resource)
		if err != nil {
			return nil, nil, nil, err
		}
		e, err := p.limiter.Entities.Get(ctx, id)
		if err != nil && !errors.Is(err, zlimit.ErrEntityNotFound) {
			return nil, nil, nil, err
		}
		former, from := e.Metadata[rotation.FromKey], since
		if former != "" && e.CreatedAt.After(since) && len(ids) < maxIDs {
			from = e.CreatedAt
		} else {
			former = ""
		}
		ids, all = append(ids, id), append(h.stretches(s.Limit.Name, from, until), all...)
		if former == "" {
			return p, ids, all, nil
		}
		id, until = former, from.Add(time.Second) // the record has whole seconds
	}
}

// possible returns the least and the most of the capacities that leave so much of a budget.
func (p *past) possible(ctx context.Context, ids []string, s *zlimit.Status, all []Stretch, left int64) (r Raise, err error) {
	most := int64(0) // that was used
	for _, id := range ids {
		counted, err := p.counted(ctx, id, s)
		if err != nil {
			return r, err
		}
		if most += counted; most < 0 {
			most = math.MaxInt64
		}
	}
	r = Raise{s.Limit.Capacity, 0}
	for i := range all {
		limit := all[i].Limit
		if limit == nil {
			continue
		}
		if used := limit.Capacity - left; used >= 0 && used <= most {
			r.Least, r.Most = min(r.Least, limit.Capacity), max(r.Most, limit.Capacity)
		}
	}
	r.Most = max(r.Most, r.Least)
	return r, nil
}

// counted returns what the bucket of an entity has counted of a limit since it was created, the largest number if it is not listed.
func (p *past) counted(ctx context.Context, entity string, s *zlimit.Status) (int64, error) {
	for b, err := range p.limiter.Entities.Buckets(ctx, entity) {
		if err != nil {
			return 0, err
		}
		if b.Resource == s.Resource {
			return b.Consumed[s.Limit.Name].Tokens(), nil
		}
	}
	return math.MaxInt64, nil
}

// begunWith returns the capacity that leaves an amount together with what is used of it: a part may be neither, if the budget was lowered.
func begunWith(all []Stretch, s *zlimit.Status, amount float64, now time.Time) int64 {
	if c, is := cutIn(all, s, now); is && amount < float64(c.Budget) {
		return c.Budget
	}
	return nearest(all, amount)
}

// nearest returns the capacity among stretches that is nearest to an amount.
func nearest(all []Stretch, amount float64) (capacity int64) {
	least := math.Inf(1)
	for i := range all {
		if l := all[i].Limit; l != nil && math.Abs(float64(l.Capacity)-amount) < least {
			capacity, least = l.Capacity, math.Abs(float64(l.Capacity)-amount)
		}
	}
	return capacity
}

// used returns what the IDs of an entity consumed of a limit since its period began, in tokens, as far as aggregators have counted. They count by hours: unsure is
// the part of the hour in which a time within one is, so that some of it may be from before. There was none before a session of an hour or more if
// nothing was used in the hours in which one that ended meanwhile would have begun.
func (p *past) used(ctx context.Context, ids []string, s *zlimit.Status, now time.Time) (sum, unsure float64, err error) {
	first := zlimit.WindowHourly.Start(p.since)
	from, before := first, s.Limit.Session < time.Hour
	if !before {
		from = zlimit.WindowHourly.Start(first.Add(-s.Limit.Session))
	}
	for _, id := range ids {
		q := zlimit.UsageQuery{Entity: id, Resource: s.Resource, Window: zlimit.WindowHourly, From: from, To: now}
		for snapshot, err := range p.limiter.Usage.Snapshots(ctx, q) {
			if err != nil {
				return 0, 0, err
			}
			n := snapshot.Consumed[s.Limit.Name].Float64()
			if snapshot.Start.Before(first) {
				before = before || n != 0
				continue
			}
			if sum += n; snapshot.Start.Before(p.since) {
				unsure += max(n, 0)
			}
		}
	}
	if !before {
		unsure = 0
	}
	return sum, unsure, nil
}

// began returns when the running period of a budget began; false for another limit, and for a prepaid one, which has none.
func began(s *zlimit.Status, now time.Time) (time.Time, bool) {
	switch {
	case s.Limit.Windows != "" || s.Limit.Session == grammar.MaxSession:
		return time.Time{}, false
	case s.Limit.Session > 0:
		return s.ResetsAt.Add(-s.Limit.Session), !s.ResetsAt.IsZero()
	}
	times, err := calendar.Parse(s.Limit.Resets, s.Limit.Zone)
	if err != nil || s.Limit.Resets == "" {
		return time.Time{}, false
	}
	last, ok := times.Last(now.UnixMilli())
	return time.UnixMilli(last).UTC(), ok
}
