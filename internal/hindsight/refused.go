package hindsight

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Refused is how often a limit refused an entity in a minute.
type Refused struct {
	zlimit.Rejection

	Minute, Until time.Time // until is later than the end of the minute for a process that could not report
}

// End returns until when the limit may have refused, as seen now: the end of the minute, or of the one in question, where its refusals may be
// in a report that begins in the minute before.
func (r *Refused) End(at, now time.Time) time.Time {
	end := r.Until
	if minute := at.Truncate(time.Minute); minute.Equal(r.Minute.Add(time.Minute)) {
		end = minute.Add(time.Minute)
	}
	if end.After(now) {
		return now
	}
	return end
}

// Refusals returns what processes reported of an entity in a range, and what this one has not reported yet. It reports whether there are
// reports of any entity. It makes a query for each hour.
func (p *Past) Refusals(ctx context.Context, entity string, from, to time.Time) (all []Refused, reported bool, err error) {
	minutes, err := p.limiter.Usage.RejectedByMinute(ctx, zlimit.RejectedQuery{From: from, To: to, Resource: p.resource})
	if err != nil {
		return nil, false, err
	}
	if own := p.limiter.Rejected(); !own.From.Before(from) && own.From.Before(to) && own.Total > 0 {
		own.From = own.From.Truncate(time.Minute)
		minutes = append(minutes, own)
	}
	for _, minute := range minutes {
		for _, r := range minute.Heaviest {
			if r.Entity == entity && r.Resource == p.resource {
				all = append(all, Refused{r, minute.From, minute.To})
			}
		}
	}
	return all, len(minutes) > 0, nil
}

// During returns the refusals in the minute of a time, the most frequent first, and otherwise the nearest one. A report that begins in the
// minute before may have them, too.
func During(refused []Refused, at time.Time) (during []Refused, nearest *Refused) {
	for _, back := range []time.Duration{0, time.Minute} {
		minute := at.Truncate(time.Minute).Add(-back)
		for i := range refused {
			if !refused[i].Minute.After(minute) && minute.Before(refused[i].Until) {
				during = append(during, refused[i])
			}
		}
		if len(during) > 0 {
			slices.SortStableFunc(during, func(a, b Refused) int { return cmp.Compare(b.Count, a.Count) })
			return during, nil
		}
	}
	for i := range refused {
		if r := &refused[i]; nearest == nil || r.Minute.Sub(at).Abs() < nearest.Minute.Sub(at).Abs() {
			nearest = r
		}
	}
	return nil, nearest
}
