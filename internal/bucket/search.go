package bucket

import (
	"github.com/zlimit/zlimit-go/internal/calendar"
)

// A search finds the time at which limits have enough if no other request takes tokens. It goes from one event of the limits to the next: a
// window begins or ends, a quota resets, a session or a grant ends. Between two events balances only rise, so the first time at which all
// limits have enough is exact. If the search finds no time, the wait is Never.
//
// Most limits repeat their events every hour, day or week, until clocks are set or a date has times or windows of its own. If no balance has
// changed after such a cycle, the search continues at the end of the repetition, or ends if it has no end. If balances grow by the same amounts
// in each cycle, the search skips the cycles in which no limit can get enough.

// maxSteps bounds the events of a search. Reading the balance of all shards counts as stepsOfALook events.
const (
	maxSteps     = 20_000
	stepsOfALook = 20
)

// A search looks for the first time at which each of several limits has enough.
type search struct {
	tracks []track
	limits int   // each has one or more tracks, and has enough if one of them has
	waited int64 // so far, milliseconds
	steps  int   // events so far

	cycle calendar.Cycle // of all tracks, by the time waited
	last  int64          // time waited after which nothing new happens, 0 if it is not known yet
	mark  int64          // time waited when the present cycle began, -1 for none
	safe  bool           // in this cycle, rounding cannot make a limit have enough
	keeps int64          // the number of further cycles of the former growth that bring nothing
}

// newSearch returns a search over begun tracks, after a wait.
func newSearch(tracks []track, limits int, waited int64) search {
	return search{tracks: tracks, limits: limits, waited: waited, mark: -1}
}

// first returns the first time to wait, in milliseconds, after which all limits have enough, or Never.
func (s *search) first() int64 {
	for events := 0; s.steps < maxSteps; events++ {
		if s.isStuck() {
			return Never
		}
		if events == 1 { // most searches end with the first event
			s.findLast()
			s.findCycle()
		}
		end := s.end()
		if at := s.within(end); at < end {
			return at
		}
		if end == Never || s.last > 0 && s.waited > s.last {
			return Never
		}
		for i := range s.tracks {
			s.steps += s.tracks[i].follow(add(s.tracks[i].began, end))
		}
		s.steps++
		if s.waited = end; events > 0 && !s.goesOn() {
			return Never
		}
	}
	return Never
}

// findLast finds the time after which nothing new happens: all days have come since sessions and grants ended and limits became full.
func (s *search) findLast() {
	kinds := calendar.Days(0)
	for i := range s.tracks {
		t := &s.tracks[i]
		kinds |= t.p.Windows.Days() | t.p.Times.Days()
		s.last = max(s.last, t.settled())
	}
	s.last = add(max(s.last, s.waited), kinds.Turn())
}

// isStuck reports whether one of the limits never has enough.
func (s *search) isStuck() bool {
	for limit := range s.limits {
		stuck := true
		for i := range s.tracks {
			t := &s.tracks[i]
			stuck = stuck && (t.limit != limit || t.isStuck())
		}
		if stuck {
			return true
		}
	}
	return false
}

// end returns when the present stretch of all tracks ends, by the time waited.
func (s *search) end() int64 {
	end := int64(Never)
	for i := range s.tracks {
		if t := &s.tracks[i]; t.end != Never {
			end = min(end, sub(t.end, t.began))
		}
	}
	if s.mark >= 0 {
		end = min(end, s.mark+s.cycle.Length)
	}
	return end
}

// within returns the first time waited before the end of the present stretch at which all limits have enough, or Never.
func (s *search) within(end int64) (at int64) {
	short, safe, keeps := false, false, int64(0)
	for limit := range s.limits {
		enough, nearly, least := false, false, int64(Never)
		for i := range s.tracks {
			if t := &s.tracks[i]; t.limit == limit {
				lacks := t.lacks(end)
				enough, nearly, least = enough || lacks <= 0, nearly || lacks <= t.slack, min(least, t.cycles(lacks))
			}
		}
		if short, safe = short || !enough, safe || !nearly; !enough {
			keeps = max(keeps, least)
		}
	}
	if short {
		s.safe, s.keeps = s.safe && safe, min(s.keeps, keeps)
		return Never
	}
	for limit := range s.limits {
		first := int64(Never)
		for i := range s.tracks {
			if t := &s.tracks[i]; t.limit == limit {
				first = min(first, t.first(end))
			}
		}
		at = max(at, first)
	}
	return at
}

// goesOn skips cycles, and reports whether the search goes on.
func (s *search) goesOn() bool {
	switch {
	case s.waited >= s.cycle.Until:
		s.findCycle()
		return true
	case s.mark >= 0 && s.waited < s.mark+s.cycle.Length:
		return true
	case s.mark >= 0:
		holds, steady := true, true
		for i := range s.tracks {
			t := &s.tracks[i]
			holds, steady = holds && t.holds(), steady && t.isSteady()
			t.endCycle()
		}
		times := int64(0)
		switch {
		case holds && s.safe && s.cycle.Until == Never:
			return false
		case holds && s.safe:
			times = Never
		case steady:
			times = s.spare()
		}
		s.leaveOut(min(times, (s.cycle.Until-1-s.waited)/s.cycle.Length))
	}
	s.beginCycle()
	return true
}

// findCycle finds the cycle that the tracks are in.
func (s *search) findCycle() {
	s.cycle = calendar.Steady
	for i := range s.tracks {
		s.cycle = s.cycle.And(s.tracks[i].cycle())
	}
	for i := range s.tracks {
		s.tracks[i].repeat(s.cycle.Length)
	}
	s.beginCycle()
}

// beginCycle notes where a cycle begins, if it is a whole one.
func (s *search) beginCycle() {
	s.safe, s.keeps, s.mark = true, Never, -1
	if s.waited < s.cycle.From || add(s.waited, s.cycle.Length) >= s.cycle.Until {
		return
	}
	s.mark = s.waited
	for i := range s.tracks {
		s.tracks[i].beginCycle()
	}
}

// spare returns the number of further cycles of the same growth that bring nothing: no further limit has enough, and none becomes full.
func (s *search) spare() int64 {
	times := s.keeps
	for i := range s.tracks {
		times = min(times, s.tracks[i].roomFor())
	}
	return times
}

// leaveOut skips a number of cycles.
func (s *search) leaveOut(times int64) {
	if times <= 0 {
		return
	}
	for i := range s.tracks {
		s.tracks[i].leaveOut(times, s.cycle.Length)
	}
	s.waited = add(s.waited, times*s.cycle.Length)
}
