package bucket

import (
	"math"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// A quota does not refill. At times of the calendar, its edges, it resets at any balance or debt. The item notes
// the next edge of all its quotas, [State.ValidUntil]. A write that leaves the refill stamp alone asks for this edge
// not to be past. So the tokens of one period are never taken in another. The first write after it is an advance,
// which moves the stamp past the edge and makes the quotas full.
//
// Every edge is crossed once. Those up to the refill stamp are. An advance may set back a stamp that no correct clock
// has written. It leaves a mark, [Notes.Crossed], since the edges up to that stamp are crossed as well.

// mark returns the time up to which edges are crossed.
func (s *State) mark() int64 { return max(s.RefilledAt, s.Crossed()) }

// renews reports whether a limit of the item is full at a time by a reset that was not done before. A write may give it other parameters,
// nil for its own. A quota resets after an edge of what it was, and of what it is to be: callers were given both.
func (s *State) renews(l *Limit, p *Params, at int64) bool {
	if l.Session() > 0 && (l.isClosed(at) || s.isRolled(l)) || l.Times() != nil && l.Times().Between(s.mark(), at) {
		return true
	}
	return p != nil && (p.Session > 0 && l.isOver(p, at) || p.Times != nil && p.Times != l.Times() && p.Times.Between(s.mark(), at))
}

// isPast reports whether a quota of the item resets by a time, so that the item's figures no longer hold.
func (s *State) isPast(at int64) bool { return s.ValidUntil > 0 && s.ValidUntil <= at }

// validAt returns the time at which an item must be valid for a write that leaves the stamp alone. Where the item is
// valid forever, the write requires just that. The item may have become one that this program must not write.
func (s *State) validAt(now int64) int64 {
	if s.ValidUntil == 0 {
		return math.MaxInt64
	}
	return now
}

// period returns the end of a quota's period. It returns 0 for a limit that refills, and for a closed
// session.
func (s *State) period(l *Limit) int64 {
	if l.Session() > 0 {
		return l.ends()
	}
	if l.Times() == nil {
		return 0
	}
	return l.Times().Next(s.mark())
}

// Leases open at a change of times must find their period again, whatever times the quota had meanwhile. The item notes when the period
// began that it is in, until the quota resets by its present times.

// turned returns when the present period of a quota began, where its times were changed in that period.
func (s *State) turned(l *Limit) (began int64, ok bool) {
	turned := l.Turned()
	return l.Began(), turned != 0 && !l.Times().Between(turned, s.mark())
}

// turn notes the beginning of a quota's period as a write at a time leaves it, given the limit as it was.
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

// Seen returns [State.ValidUntil] as a write asks for it: that of the item, or -1, a value of no item.
func (s *State) Seen() int64 {
	if s.ValidUntil == 0 && !s.Changed {
		return -1
	}
	return s.ValidUntil
}

// UntilEdge returns how long it takes until one of the quotas of shards resets, in milliseconds; the largest int64 without any. A
// session that is not open counts from now on.
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

// An edge finds the first edge, or change of a window, of all limits that an item is to have.
type edge struct {
	after  int64  // edges up to it are crossed
	stamp  int64  // of the item: windows count from it
	next   int64  // 0 while there is none
	zone   string // of quotas and windows, "" without any
	quotas bool
}

// longestValid is how long an item is valid whose windows never change. By it, an item that notes no edge is one whose limits another
// program has changed. zae-limiter has the same.
const longestValid = 366 * 24 * 60 * 60 * 1000

// cover takes a limit into account, with the beginning of its session.
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

// edgeAfter returns the edge that an item has whose stamp is moved to a time.
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

// isPeriodOf reports whether a quota is in the same period here and in another shard, as any limit that refills is.
func (s *State) isPeriodOf(other *State, limit string) bool {
	l, theirs := s.find(limit), other.find(limit)
	return l == nil || theirs == nil || s.period(l) == other.period(theirs)
}
