package ledger

import (
	"math"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Replay is what a limit would have done with hours of usage. Within an hour nothing is known, so the least is refused.
type Replay struct {
	Hours, Over   int       // with use, and how many of them have refusals
	Used, Refused float64   // in all, tokens
	Worst         float64   // use of an hour, as a multiple of what fits
	WorstAt       time.Time // its beginning
	Fits, Beyond  []float64 // by hour, tokens
}

// RefusedPart returns which part of what was used does not fit. It is meaningless if nothing was used.
func (r *Replay) RefusedPart() float64 { return r.Refused / r.Used }

// ReplayHours fills a limit hour by hour with amounts that were used from a time on, and counts what does not fit. The limit is one that refills, a
// quota, or prepaid. It begins full. An hour under way now refills for its part. It makes no call.
//
// Windows and resets within an hour take effect at their minute. The use of the hour is taken to come when the most of it fits: after the refill,
// and before a reset or a lower amount of a window takes away what is left. So the limit itself refuses at least as much, and more if the use came
// in bursts. Modes and floors do not matter: what is counted is what the limit refuses to the highest priority if it is enforced.
//
// Hours do not say when a session begins, nor how many slots are held at a time. So a session quota and a limit of slots are a
// [*zlimit.ValidationError], as are resets and windows that cannot be read.
func ReplayHours(l zlimit.Limit, hours []float64, from, now time.Time) (*Replay, error) {
	f, err := newFilling(&l, from)
	if err != nil {
		return nil, err
	}
	r := &Replay{Fits: make([]float64, len(hours)), Beyond: make([]float64, len(hours))}
	for i, used := range hours {
		at := from.Add(time.Duration(i) * time.Hour)
		end := at.Add(time.Hour)
		if now.Before(end) {
			end = now
		}
		fits, room := f.hour(at.UnixMilli(), end.UnixMilli(), used)
		r.add(i, at, used, fits, room)
	}
	return r, nil
}

// add adds an hour, of whose use a part fits, and which has room for some.
func (r *Replay) add(i int, at time.Time, used, fits, room float64) {
	r.Fits[i], r.Beyond[i] = fits, used-fits
	if used <= 0 {
		return
	}
	r.Hours++
	r.Used += used
	r.Refused += used - fits
	if used > room*(1+1e-9) {
		r.Over++
	}
	if part := used / max(room, 1); part > r.Worst {
		r.Worst, r.WorstAt = part, at
	}
}

// A filling is a limit that hours fill.
type filling struct {
	limit   *zlimit.Limit
	times   *calendar.Times
	windows *calendar.Windows
	start   int64   // of the hours, epoch milliseconds
	at      int64   // up to which it was filled, epoch milliseconds
	left    float64 // tokens
	carried float64 // of them into the period

	rest float64 // of the use of the hour
	lost float64 // what it did not take, and could have
}

func newFilling(l *zlimit.Limit, from time.Time) (f *filling, err error) {
	f = &filling{limit: l, start: from.UnixMilli(), at: from.UnixMilli()}
	switch {
	case l.Term != 0:
		return nil, invalid("term", l.Term.String(), "must be 0: hours of use do not say how many slots were held at a time")
	case l.Session != 0 && l.Session != grammar.MaxSession:
		return nil, invalid("session", l.Session.String(), "must be 0, or that of a prepaid limit: hours of use do not say when a session began")
	}
	if l.Resets != "" {
		if f.times, err = calendar.Parse(l.Resets, l.Zone); err != nil {
			return nil, invalid("resets", l.Resets, err.Error())
		}
	}
	if l.Windows != "" {
		if f.windows, err = calendar.ParseWindows(l.Windows, l.Zone); err != nil {
			return nil, invalid("windows", l.Windows, err.Error())
		}
	}
	f.left, _ = f.holds()
	return f, nil
}

// params returns the parameters that hold now, in millitokens and milliseconds, and until when they do.
func (f *filling) params() (capacity, refill, period, until int64) {
	capacity, refill, period = f.limit.Capacity*millis, f.limit.RefillAmount*millis, f.limit.RefillPeriod.Milliseconds()
	if f.windows == nil {
		return capacity, refill, period, math.MaxInt64
	}
	change, _, until := f.windows.At(f.at)
	if change != nil {
		capacity, refill, period = change.Of(capacity, refill, period)
	}
	return capacity, refill, period, until
}

const millis = 1000

// holds returns what the limit holds at most now, and until when.
func (f *filling) holds() (most float64, until int64) {
	capacity, _, _, until := f.params()
	return float64(capacity)/millis + f.carried, until
}

// flow returns what flows into the limit in some milliseconds from now on.
func (f *filling) flow(ms int64) float64 {
	_, refill, period, _ := f.params()
	if f.limit.RefillPeriod == 0 {
		return 0
	}
	return float64(refill) * float64(ms) / float64(period) / millis
}

// hour fills the limit with what was used from a time to another one. It returns how much of it fits, and how much would have.
func (f *filling) hour(from, to int64, used float64) (fits, room float64) {
	f.rest, f.lost = used, 0
	for f.at = from; ; {
		if f.at > f.start {
			f.turn(f.at > from)
		}
		if f.at >= to {
			break
		}
		most, until := f.holds()
		next := min(to, until, f.next())
		f.left += f.flow(next - f.at)
		f.at = next
		f.keep(most, true)
		if f.at == to { // what happens then is of the next hour
			break
		}
	}
	last := min(f.rest, f.left) // below 0 where more was returned than used
	fits = used - f.rest + last
	room = fits + f.left - last + f.lost
	f.left -= last
	if most, _ := f.holds(); last < 0 {
		f.left = min(f.left, most)
	}
	return fits, room
}

// next returns when the limit resets next.
func (f *filling) next() int64 {
	if f.times == nil {
		return math.MaxInt64
	}
	return f.times.Next(f.at)
}

// turn makes the change that the present time brings: a reset, the beginning or end of a window. It is within an hour, or at its beginning.
func (f *filling) turn(within bool) {
	if f.times == nil || !f.times.Between(f.at-1, f.at) {
		most, _ := f.holds()
		f.keep(most, within)
		return
	}
	f.keep(float64(f.limit.Carry), within)
	f.carried = f.left
	f.left, _ = f.holds()
}

// keep takes away what is more than is kept. Within an hour, as much of its use is taken to have come before.
func (f *filling) keep(most float64, within bool) {
	lost := f.left - most
	if lost <= 0 {
		return
	}
	f.left = most
	if within {
		spent := min(max(f.rest, 0), lost)
		f.rest -= spent
		f.lost += lost - spent
	}
}
