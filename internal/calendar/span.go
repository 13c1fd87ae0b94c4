package calendar

import (
	"math"
	"strings"
	"time"
)

// Longest returns a time in milliseconds that no stretch of a window is longer than: of the one with that number or, for -1, of what
// holds outside of windows. It returns Never where no such time is known.
func (w *Windows) Longest(window int) int64 {
	shortest, turns := int64(math.MaxInt64), turnsOf(w.zone)
	for i := range w.patterns {
		if window < 0 || i == window {
			shortest = min(shortest, w.patterns[i].longest(window >= 0, &turns))
		}
	}
	if shortest == math.MaxInt64 {
		return Never
	}
	return shortest * 60_000
}

// MayHold reports whether a window may hold at one of some times: that with a number or, for -1, none of them. It returns false where the
// time of day shows that it never does.
func (w *Windows) MayHold(window int, t *Times) bool {
	turns := turnsOf(t.zone)
	for i := range t.patterns {
		for m := range int64(minutesOfDay) {
			if t.patterns[i].hasOfDay(m) && (w.mayHoldAt(window, m) || turns.after[m] > 0 && w.mayHoldAt(window, turns.after[m]-1)) {
				return true
			}
		}
	}
	return false
}

// mayHoldAt is MayHold for a minute of the day.
func (w *Windows) mayHoldAt(window int, ofDay int64) bool {
	if window >= 0 {
		return w.patterns[window].hasOfDay(ofDay)
	}
	for i := range w.patterns {
		if w.patterns[i].isDaily() && w.patterns[i].hasOfDay(ofDay) {
			return false
		}
	}
	return true
}

// turns are the minutes of the day at which clocks of a zone are set.
type turns struct {
	twice [minutesOfDay]bool  // clocks show the minute twice on some day
	all   int64               // number of those
	after [minutesOfDay]int64 // one more than the minute at which clocks go on that skip the minute on some day; 0 for none
}

// turnsOf returns when clocks are set from 1970 to 2070.
func turnsOf(zone *time.Location) (t turns) {
	const last = 100 * 366 * secondsOfDay
	for at := time.Unix(0, 0).In(zone); ; {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.Unix() > last {
			break
		}
		if !end.After(at) { // package time takes the last day of some years for the bound
			at = at.Add(24 * time.Hour)
			continue
		}
		_, before := at.Zone()
		_, after := end.Zone()
		minute := func(offset int) int64 { return floorDiv(end.Unix()+int64(offset), 60) }
		for m := minute(after); m < minute(before); m++ {
			t.twice[floorMod(m, minutesOfDay)] = true
		}
		for m := minute(before); m < minute(after); m++ {
			t.after[floorMod(m, minutesOfDay)] = floorMod(minute(after), minutesOfDay) + 1
		}
		at = end
	}
	for _, twice := range t.twice {
		if twice {
			t.all++
		}
	}
	return t
}

// hasOfDay reports whether a minute of the day is of the pattern, on days that are.
func (p *pattern) hasOfDay(m int64) bool {
	return p.sets[hour]>>uint(m/60)&1 != 0 && p.sets[minute]>>uint(m%60)&1 != 0
}

// isDaily reports whether every day is of the pattern.
func (p *pattern) isDaily() bool { return p.isOfAnyWeek() && p.sets[dayOfWeek] == 1<<7-1 }

// isOfAnyWeek reports whether the day of the week alone decides which days are of the pattern.
func (p *pattern) isOfAnyWeek() bool {
	return p.sets[month]>>1&(1<<12-1) == 1<<12-1 && p.sets[dayOfMonth]>>1&(1<<31-1) == 1<<31-1 && strings.HasPrefix(p.texts[dayOfMonth], "*")
}

// longest returns how many minutes in a row are of the pattern at most, or are not. It returns the largest int64 where that depends on months.
func (p *pattern) longest(within bool, t *turns) int64 {
	run, all := int64(0), true
	for m, current := int64(0), int64(0); m < 2*minutesOfDay; m++ { // a run may go on past midnight
		ofDay := m % minutesOfDay
		if p.hasOfDay(ofDay) != within {
			current, all = 0, false
			continue
		}
		if current++; t.twice[ofDay] {
			current++
		}
		run = max(run, current)
	}
	day := minutesOfDay + t.all
	switch {
	case within && !all:
		return run
	case !p.isOfAnyWeek():
		return math.MaxInt64
	case within:
		return longestRun(p.sets[dayOfWeek]) * day
	}
	return longestRun(^p.sets[dayOfWeek]&(1<<7-1))*day + min(run, day)
}

// longestRun returns how many days of the week in a row are of a set.
func longestRun(set uint64) (days int64) {
	for twice := set | set<<7; twice != 0; twice &= twice >> 1 {
		days++
	}
	return min(days, 7)
}
