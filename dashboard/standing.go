package dashboard

import (
	"cmp"
	"context"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

const lowShare = 0.2 // of a limit, below which it runs low

// A standing is a bucket with what is known about it from elsewhere.
type standing struct {
	*zlimit.Bucket
	Refused  int64
	Waits    recent.Waits
	Held     int64 // slots, and how many there are
	slots    int64
	lowest   float64 // share that is left of the lowest enforced limit
	rank     rank    // worst first
	isParent bool
}

// A rank is how a bucket stands.
type rank int

// The ranks of buckets.
const (
	rankRefuses rank = iota
	rankUsedUp
	rankDisabled
	rankOwes
	rankLow
	rankParent
	rankRoom
	rankBypassed
)

// A tag is a word with a colour.
type tag struct{ Text, Class string }

var tags = [...]tag{
	rankRefuses: {"refuses", "no"}, rankUsedUp: {"used up", "no"}, rankDisabled: {"disabled", "no"}, rankOwes: {"in debt", "low"},
	rankLow: {"runs low", "low"}, rankParent: {"parent", "off"}, rankRoom: {"has room", ""}, rankBypassed: {"bypassed", "off"},
}

func standingOf(b *zlimit.Bucket, refused int64, w recent.Waits, now time.Time) standing {
	s := standing{Bucket: b, Refused: refused, Waits: w}
	for i := range b.Statuses {
		if st := &b.Statuses[i]; st.Limit.Term > 0 {
			s.Held += max(st.Held(), 0)
			s.slots += st.Limit.Capacity
		}
	}
	s.isParent = len(b.FromChildren) > 0
	for name, n := range b.Consumed {
		s.isParent = s.isParent && n <= b.FromChildren[name]
	}
	var lowest *zlimit.Status
	s.rank, lowest = rankOf(b.Statuses, b.Disabled, b.Bypassed, refused, now)
	if s.lowest = 1; lowest != nil {
		s.lowest = shareOf(lowest)
	}
	if s.rank == rankRoom && s.isParent {
		s.rank = rankParent
	}
	return s
}

// rankOf decides for all screens how limits stand, and returns the lowest enforced one that counts; nil for none.
func rankOf(statuses zlimit.Statuses, disabled, bypassed bool, refused int64, now time.Time) (r rank, lowest *zlimit.Status) {
	owes, usedUp := false, false
	for i := range statuses {
		st := &statuses[i]
		if st.Limit.Mode != zlimit.ModeEnforced {
			continue
		}
		if counts(st, now) && (lowest == nil || shareOf(st) < shareOf(lowest)) {
			lowest = st
		}
		owes = owes || st.Available < 0 && st.Limit.Term == 0
		usedUp = usedUp || st.Available <= 0 && isBudget(&st.Limit)
	}
	switch r = rankRoom; {
	case disabled:
		r = rankDisabled
	case bypassed:
		r = rankBypassed
	case refused > 0:
		r = rankRefuses
	case usedUp:
		r = rankUsedUp
	case owes:
		r = rankOwes
	case lowest != nil && shareOf(lowest) < lowShare:
		r = rankLow
	}
	return r, lowest
}

// refusals are what was refused in the last minute, as far as this process and reports know.
func (p *page) refusals(ctx context.Context, resource string, pulse *recent.Pulse) ([]recent.Refused, error) {
	reported, err := p.feed.rejected(ctx, resource)
	return recent.Refusals(pulse.Refusals, reported), err
}

// causes are the limits that refuse, as they stand in buckets, and all refusals.
func (p *page) causes(refusals []recent.Refused, buckets []zlimit.Bucket) ([]recent.Cause, int64) {
	return recent.Causes(refusals, func(entity, limit string) (found *zlimit.Status) {
		for _, st := range statuses(buckets) {
			if st.Entity == entity && st.Limit.Name == limit {
				found = st
			}
		}
		return found
	}, p.Now())
}

// counts reports whether a limit can be what runs low: not a budget that lasts its period, nor slots while one is free.
func counts(st *zlimit.Status, now time.Time) bool {
	return st.Limit.Mode == zlimit.ModeEnforced && (st.Limit.Term == 0 && (!isBudget(&st.Limit) || runsOut(st, now)) || st.Available <= 0)
}

// isBudget reports whether a limit is an amount that is used up.
func isBudget(l *zlimit.Limit) bool { return l.Resets != "" || l.Session > 0 }

// isPrepaid reports whether a limit is a budget that only top-ups add to.
func isPrepaid(l *zlimit.Limit) bool { return l.Session == zlimit.Prepaid("", 0).Session }

// runsOut reports whether a budget ends before its period does, at the rate of the period so far.
func runsOut(st *zlimit.Status, now time.Time) bool {
	_, ok := st.UsedUp(now)
	return ok
}

// shareOf is what is left of a limit, from 0 to 1.
func shareOf(st *zlimit.Status) float64 {
	if holds(st) <= 0 {
		return 0
	}
	return min(max(float64(st.Available)/float64(holds(st)), 0), 1)
}

func (s *standing) compare(other *standing) int {
	return cmp.Or(cmp.Compare(s.rank, other.rank), cmp.Compare(other.Refused, s.Refused), cmp.Compare(s.lowest, other.lowest), cmp.Compare(s.Entity, other.Entity))
}

// Status returns where a limit stands; nil for none.
func (s *standing) Status(limit string) *zlimit.Status {
	if st, ok := s.Statuses.Limit(limit); ok {
		return &st
	}
	return nil
}

// holds is the most that a limit can have now.
func holds(st *zlimit.Status) int64 { return st.Now().Capacity + st.Carried + st.Granted }

// A cell is where one limit stands.
type cell struct {
	Column, Text, Of, Class string
	State                   string
	Width, Debt             string // percent of the bar
}

// statusCell is the bar of a limit, and its text.
func statusCell(st *zlimit.Status, now time.Time) cell {
	capacity, share := holds(st), shareOf(st)
	c := cell{
		Column: limitName(&st.Limit), Of: "of " + amount(st.Limit.Name, float64(capacity)) + per(&st.Limit), State: "has room",
		Width: pct(share), Text: amount(st.Limit.Name, float64(max(st.Available, 0))),
	}
	switch {
	case st.Limit.Mode != zlimit.ModeEnforced:
		c.Class, c.State = "off", string(st.Limit.Mode)
		c.Of += ", " + c.State
	case st.Available < 0 && st.Limit.Term == 0:
		c.State = "in debt"
		c.Class, c.Text, c.Of = "no", amount(st.Limit.Name, float64(-st.Available))+" owed", ""
		c.Width, c.Debt = "0%", pct(min(max(float64(-st.Available)/float64(max(capacity, 1)), 0.04), 1))
	case st.Available <= 0:
		c.Class, c.State = "no", "empty"
	case share < lowShare && (!isBudget(&st.Limit) || runsOut(st, now)):
		c.Class, c.State = "low", "runs low"
	}
	return c
}
