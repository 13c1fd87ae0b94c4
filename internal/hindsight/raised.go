package hindsight

import (
	"context"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A raise of a budget adds nothing to its running period. The bucket does not show what that began with, once a request has brought it in
// line: the audit log does.

// Raised returns what the running period of a budget began with, in tokens, if the budget was raised since and the raise does not hold yet. It
// returns false for other limits, for prepaid ones, and where nothing is known of a raise. Usage distinguishes a period that began after the
// raise from one that began before: what is used and what is left are together its amount. Without usage it began before.
//
// It costs the queries of [Past.History] for the events since the period began, and for a raised budget the hours of its usage since then.
func Raised(ctx context.Context, l *zlimit.RateLimiter, s *zlimit.Status, now time.Time) (was int64, raised bool, err error) {
	since, ok := began(s, now)
	if !ok {
		return 0, false, nil
	}
	p := New(l, s.Resource)
	p.since = since
	h, err := p.History(ctx, s.Entity, s.Resource)
	if err != nil {
		return 0, false, err
	}
	all := h.Stretches(s.Limit.Name, since, now)
	if len(all) == 0 || all[0].Limit == nil {
		return 0, false, nil
	}
	more := s.Carried + s.Granted
	was = all[0].Limit.Capacity
	if was >= s.Limit.Capacity || all[0].Limit.Windows != "" || s.Available > was+more {
		return 0, false, nil
	}
	used, err := p.used(ctx, s, since, now)
	if err != nil {
		return 0, false, err
	}
	if used > 0 {
		was = nearest(append(all, Stretch{Limit: &s.Limit}), float64(s.Available-more)+used)
	}
	if was >= s.Limit.Capacity {
		return 0, false, nil
	}
	return was, true, nil
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

// used returns what was consumed of a limit since a time, in tokens, as far as aggregators have counted.
func (p *Past) used(ctx context.Context, s *zlimit.Status, since, now time.Time) (sum float64, err error) {
	q := zlimit.UsageQuery{Entity: s.Entity, Resource: s.Resource, Window: zlimit.WindowHourly, From: zlimit.WindowHourly.Start(since), To: now}
	for snapshot, err := range p.limiter.Usage.Snapshots(ctx, q) {
		if err != nil {
			return 0, err
		}
		sum += snapshot.Consumed[s.Limit.Name].Float64()
	}
	return sum, nil
}

// began returns when the running period of a budget began; false for another limit, and for a prepaid one, which has none.
func began(s *zlimit.Status, now time.Time) (time.Time, bool) {
	switch {
	case s.Limit.Windows != "" || s.Limit.Session == grammar.MaxSession:
		return time.Time{}, false
	case s.Limit.Session > 0:
		return s.ResetsAt.Add(-s.Limit.Session), !s.ResetsAt.IsZero()
	case s.Limit.Resets == "":
		return time.Time{}, false
	}
	times, err := calendar.Parse(s.Limit.Resets, s.Limit.Zone)
	if err != nil {
		return time.Time{}, false
	}
	last, ok := times.Last(now.UnixMilli())
	return time.UnixMilli(last).UTC(), ok
}
