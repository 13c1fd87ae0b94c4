package ledger

import (
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
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

// ReplayHours fills a limit hour by hour with amounts that were used from a time on, and counts what does not fit. The limit is one that refills, or a
// quota. It begins full. An hour under way now refills for its part. It makes no call.
func ReplayHours(l zlimit.Limit, hours []float64, from, now time.Time) *Replay {
	r := &Replay{Fits: make([]float64, len(hours)), Beyond: make([]float64, len(hours))}
	left, per := float64(l.Capacity), 0.0
	if l.RefillPeriod > 0 {
		per = float64(l.RefillAmount) * float64(time.Hour) / float64(l.RefillPeriod)
	}
	times, err := calendar.Parse(l.Resets, l.Zone)
	quota := err == nil && l.Resets != ""
	for i, used := range hours {
		at := from.Add(time.Duration(i) * time.Hour)
		if quota && i > 0 {
			if began, ok := times.Last(at.UnixMilli()); ok && began > at.Add(-time.Hour).UnixMilli() {
				left = float64(l.Capacity) + min(left, float64(l.Carry))
			}
		}
		room := left + per*min(max(now.Sub(at).Hours(), 0), 1)
		fits := min(used, room)
		left = min(room-fits, float64(l.Capacity+l.Carry))
		r.Fits[i], r.Beyond[i] = fits, used-fits
		if used > 0 {
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
	}
	return r
}
