package bucket

import (
	"math"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// A quota does not refill. At calendar times, its edges, it resets from any balance or debt. The item stores the next edge of all its
// quotas, [State.ValidUntil]. A write that leaves the refill stamp alone requires that this edge has not passed. So the tokens of one
// period are never taken in another. The first write after the edge is an advance, which moves the stamp past the edge and makes the quotas
// full.
//
// Every edge is crossed once. All edges up to the refill stamp count as crossed. An advance may set back a stamp that no correct clock has
// written. It then leaves a mark, [Notes.Crossed], since the edges up to the former stamp are crossed as well.

// mark returns the time up to which edges are crossed.
func (s *State) mark() int64 { return max(s.RefilledAt, s.Crossed()) }

// renews reports whether a limit of the item resets between its last write and a time. The parameters are those that the write sets, nil
// for its own. A quota resets after an edge of its former or of its new times, since callers were given both.
func (s *State) renews(l *Limit, p *Params, at int64) bool {
	if l.Session() > 0 && (l.isClosed(at) || s.isRolled(l)) || l.Times() != nil && l.Times().Between(s.mark(), at) {
		return true
	}
	return p != nil && (p.Session > 0 && l.isOver(p, at) || p.Times != nil && p.Times != l.Times() && p.Times.Between(s.mark(), at))
}

// isPast reports whether a quota of the item resets by a time, so that the item's figures no longer hold.
func (s *State) isPast(at int64) bool { return s.ValidUntil > 0 && s.ValidUntil <= at }

// validAt returns the time at which an item must be valid for a write that leaves the stamp alone. If the image is valid indefinitely, the
// write requires that it still is: the item may have become one that this program must not write.
func (s *State) validAt(now int64) int64 {
	if s.ValidUntil == 0 {
		return math.MaxInt64
	}
	return now
}

// period returns the end of a quota's period, and 0 for a limit that refills or has no open session.
func (s *State) period(l *Limit) int64 {
	if l.Session() > 0 {
		return l.ends()
	}
	if l.Times() == nil {
		return 0
	}
	return l.Times().Next(s.mark())
}

// Leases that are open during a change of times must find their period again, whatever times the quota had meanwhile. So the item stores
// when its present period began, until the quota resets by its present times.

// turned returns when the present period of a quota began, if its times were changed in that period.
func (s *State) turned(l *Limit) (began int64, ok bool) {
	turned := l.Turned()
	return l.Began(), turned != 0 && !l.Times().Between(turned, s.mark())
}

// turn sets the beginning of a quota's period for a write at a time, given the former limit.
func (l *Limit) turn(s *State, was *Limit, p *Params, at int64) {
	if p.Times == nil {
		return
	}
	began, turned := was.Began(), was.Turned()
	switch renewed, changes := s.renews(was, p, at), !p.Times.Equal(was.Times()); {
	case changes && renewed:
		began, turned = at, at
	case changes:
		if _, ok := s.turned(was); !ok {
			began, _ = was.Times().Last(s.mark())
		}
		turned = at
	case renewed:
		began, turned = 0, 0
	}
	if began != l.Began() || turned != l.Turned() {
		l.Change(func(r *Rare) { r.Began, r.Turned = began, turned })
	}
}

// Seen returns the [State.ValidUntil] that a write requires: the value of the item, or -1 if it has none.
func (s *State) Seen() int64 {
	if s.ValidUntil == 0 && !s.Changed {
		return -1
	}
	return s.ValidUntil
}

// UntilEdge returns the time until one of the quotas of shards resets, in milliseconds; the largest int64 if there is none. A session that
// is not open counts as starting now.
func (c *Config) UntilEdge(shards []*State, now int64) int64 {
	least := int64(math.MaxInt64)
	for i := range c.Params {
		if p := &c.Params[i]; p.isQuota() && p.Mode == Enforced {
			next := p.renewsAfter(shards, now)
			if p.Session > 0 {
				next = min(next, sessionEnd(now, p.Session))
			}
			least = min(least, sub(next, now))
		}
	}
	return least
}

// An edge finds the first edge, or change of a window, of all limits that an item will have.
type edge struct {
	after  int64  // edges up to it are crossed
	stamp  int64  // of the item: windows count from it
	next   int64  // 0 while there is none
	zone   string // of quotas and windows, "" without any
	quotas bool
}

// longestValid is how long an item with windows that never change is valid. So an item without an edge is one whose limits another program
// has changed. zae-limiter uses the same value.
const longestValid = 366 * 24 * 60 * 60 * 1000

// cover includes a limit, given the beginning of its session.
func (e *edge) cover(t *calendar.Times, w *calendar.Windows, session, since int64) {
	if session > 0 {
		e.until(max(closed, sessionEnd(since, session)))
	}
	if t != nil {
		e.zone, e.quotas = t.Zone(), true
		e.until(t.Next(e.after))
	}
	if w != nil {
		e.zone = w.Zone()
		e.until(min(w.Next(e.stamp), add(e.stamp, longestValid)))
	}
}

func (e *edge) until(next int64) {
	if e.next == 0 || next < e.next {
		e.next = next
	}
}

// edgeAfter returns the edge of an item after its stamp is moved to a time.
func (s *State) edgeAfter(at int64) edge { return edge{after: max(at, s.mark()), stamp: at} }

// note plans the notes of an item about its quotas.
func (p *Plan) note(s *State, e edge) {
	had := s.ValidUntil
	if s.Changed { // another program has left a zero
		had = -1
	}
	p.put(ValidUntil, "", had, e.next)
	if e.zone != "" {
		p.text(Zone, "", s.Zone(), e.zone)
	}
	if e.quotas && s.mark() > p.Now {
		p.put(Crossed, "", s.Crossed(), s.mark())
	}
}

// isPeriodOf reports whether a quota is in the same period in two shards. It is always true for a limit that refills.
func (s *State) isPeriodOf(other *State, limit string) bool {
	l, theirs := s.find(limit), other.find(limit)
	return l == nil || theirs == nil || s.period(l) == other.period(theirs)
}
