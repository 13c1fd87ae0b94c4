package hindsight

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Refused is how often a limit refused an entity in a minute, as processes report it.
type Refused struct {
	zlimit.Rejection

	Minute, Until time.Time // until is later than the end of the minute for a process that could not report
	// TooLarge is how many of the requests asked for more than the limit can hold. Impossible says that all did.
	TooLarge int64
	// Was is what the limit was meanwhile, in the order of time; nothing for a limit that the program brought. Is is the present one; nil for none.
	// Both are nil but in an [Answer].
	Was []Stretch
	Is  *zlimit.Limit
}

// end returns until when the limit may have refused, as seen now: the end of the minute, or of the one in question, where its refusals may be
// in a report that begins in the minute before.
func (r *Refused) end(at, now time.Time) time.Time {
	end := r.Until
	if minute := at.Truncate(time.Minute); minute.Equal(r.Minute.Add(time.Minute)) {
		end = minute.Add(time.Minute)
	}
	if end.After(now) {
		return now
	}
	return end
}

// refusals returns what processes reported of the resource in a range, and what this one has not reported yet, in the order of minutes. It
// makes a query for each hour.
func (p *past) refusals(ctx context.Context, from, to time.Time) (all []Refused, err error) {
	minutes, err := p.limiter.Usage.RejectedByMinute(ctx, zlimit.RejectedQuery{From: from, To: to, Resource: p.resource})
	if err != nil {
		return nil, err
	}
	if own := p.limiter.Rejected(); !own.From.Before(from) && own.From.Before(to) {
		own.From = own.From.Truncate(time.Minute)
		minutes = append(minutes, own)
	}
	for _, minute := range minutes {
		for _, r := range minute.Heaviest {
			if r.Resource == p.resource {
				all = add(all, Refused{Rejection: r, Minute: minute.From, Until: minute.To})
			}
		}
	}
	return all, nil
}

// add adds refusals to others. One limit has one entry for a minute, whether or not the requests were too large.
func add(all []Refused, r Refused) []Refused {
	if r.Impossible {
		r.TooLarge = r.Count
	}
	for i := range all {
		o := &all[i]
		same := o.Entity == r.Entity && o.Limit == r.Limit && o.LimitEntity == r.LimitEntity && o.LimitResource == r.LimitResource
		if same && o.Minute.Equal(r.Minute) && o.Until.Equal(r.Until) {
			o.Count, o.AtLeast, o.AtMost, o.TooLarge = o.Count+r.Count, o.AtLeast+r.AtLeast, o.AtMost+r.AtMost, o.TooLarge+r.TooLarge
			o.Impossible = o.Impossible && r.Impossible
			return all
		}
	}
	return append(all, r)
}

// of returns the refusals of an entity's requests.
func of(refused []Refused, entity string) (all []Refused) {
	for i := range refused {
		if refused[i].Entity == entity {
			all = append(all, refused[i])
		}
	}
	return all
}

// by returns the refusals of other entities' requests by limits of an entity.
func by(refused []Refused, entity string) (all []Refused) {
	for i := range refused {
		if r := &refused[i]; r.LimitEntity == entity && r.Entity != entity {
			all = append(all, *r)
		}
	}
	return all
}

// during returns the refusals in the minute of a time, the most frequent first, and otherwise the nearest one. A report that begins in the
// minute before may have them, too.
func during(refused []Refused, at time.Time) (during []Refused, nearest *Refused) {
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
