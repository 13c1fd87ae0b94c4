package page

import (
	"cmp"
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
	lowest   float64 // share of the lowest enforced limit
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
	s.rank, s.lowest = rankOf(b.Statuses, b.Disabled, b.Bypassed, refused, now)
	if s.rank == rankRoom && s.isParent {
		s.rank = rankParent
	}
	return s
}

// rankOf decides for all screens how limits stand, and returns the share that is left of the lowest enforced one.
func rankOf(statuses zlimit.Statuses, disabled, bypassed bool, refused int64, now time.Time) (_ rank, lowest float64) {
	lowest = 1
	owes, usedUp := false, false
	for i := range statuses {
		st := &statuses[i]
		if st.Limit.Mode != zlimit.ModeEnforced {
			continue
		}
		if counts(st, now) {
			lowest = min(lowest, shareOf(st))
		}
		owes = owes || st.Available < 0 && st.Limit.Term == 0
		usedUp = usedUp || st.Available <= 0 && isBudget(&st.Limit)
	}
	switch {
	case disabled:
		return rankDisabled, lowest
	case bypassed:
		return rankBypassed, lowest
	case refused > 0:
		return rankRefuses, lowest
	case usedUp:
		return rankUsedUp, lowest
	case owes:
		return rankOwes, lowest
	case lowest < lowShare:
		return rankLow, lowest
	default:
		return rankRoom, lowest
	}
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
	capacity := st.Now().Capacity + st.Carried + st.Granted
	if capacity <= 0 {
		return 0
	}
	return min(max(float64(st.Available)/float64(capacity), 0), 1)
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

// A cell is where one limit stands.
type cell struct {
	Column, Text, Of, Class string
	State                   string
	Width, Debt             string // percent of the bar
}

// statusCell is the bar of a limit, and its text.
func statusCell(st *zlimit.Status, now time.Time) cell {
	capacity := st.Now().Capacity + st.Carried + st.Granted
	share := shareOf(st)
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
