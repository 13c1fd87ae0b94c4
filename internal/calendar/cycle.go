package calendar

import (
	"math"
	"strings"
	"time"
)

// A Cycle is a range of time in which times or windows repeat: whatever happens at an instant of it happens again one length later.
type Cycle struct {
	Length      int64 // an hour, a day or a week, in milliseconds
	From, Until int64 // first instant, and the one before which it ends, in epoch milliseconds
}

// Steady is the cycle of what never changes.
var Steady = Cycle{Length: secondsOfHour * 1000, From: math.MinInt64, Until: Never}

const (
	secondsOfHour = 60 * 60
	secondsOfWeek = 7 * secondsOfDay
)

// And returns the cycle of two things together.
func (c Cycle) And(other Cycle) Cycle {
	return Cycle{max(c.Length, other.Length), max(c.From, other.From), min(c.Until, other.Until)}
}

// Cycle returns the cycle of the windows at an instant. It may begin later, and may be too short for two lengths.
func (w *Windows) Cycle(at int64) Cycle {
	if w == nil {
		return Steady
	}
	return cycleOf(w.patterns, w.zone, at, false)
}

// Cycle returns the cycle of the times at an instant. It may begin later, and may be too short for two lengths.
func (t *Times) Cycle(at int64) Cycle {
	if t == nil {
		return Steady
	}
	return cycleOf(t.patterns, t.zone, at, true)
}

// cycleOf returns the cycle of patterns. It ends when clocks are set, and on each day that is of a pattern by its month or its day of
// month while the day before is not, or the reverse. If clocks show a minute twice, times contain it once, and windows twice.
func cycleOf(patterns []pattern, zone *time.Location, at int64, once bool) Cycle {
	second := floorDiv(min(max(at, firstInstant), lastInstant), 1000)
	c, in := Steady, time.Unix(second, 0).In(zone)
	_, offset := in.Zone()
	if start, _ := in.ZoneBounds(); !start.IsZero() {
		c.From = start.Unix() * 1000
		if _, before := start.Add(-time.Second).Zone(); once {
			c.From += int64(max(before-offset, 0)) * 1000
		}
	}
	if end := offsetEnds(in); !end.IsZero() {
		c.Until = end.Unix() * 1000
	}
	day := floorDiv(second+int64(offset), secondsOfDay)
	for i := range patterns {
		p := &patterns[i]
		c.Length = max(c.Length, p.length()*1000)
		if changes, ok := p.changes(day); ok {
			c.Until = min(c.Until, (changes*secondsOfDay-int64(offset))*1000)
		}
	}
	return c
}

// length returns after which time the pattern repeats itself on days that are all of it, or all not, in seconds.
func (p *pattern) length() int64 {
	switch {
	case p.isOfAnyWeek() && p.sets[dayOfWeek] != 1<<7-1 && p.isOfBoth():
		return secondsOfWeek
	case p.sets[hour] != everyHour:
		return secondsOfDay
	default:
		return secondsOfHour
	}
}

// changes returns the first day after another one that is of the pattern while the one before is not, or the reverse. Days of the week alone
// do not count.
func (p *pattern) changes(day int64) (at int64, ok bool) {
	if p.isOfAnyWeek() {
		return 0, false
	}
	dateOf := func(day int64) time.Time { return time.Unix(day*secondsOfDay, 0).UTC() }
	is := p.isOf(dateOf(day))
	for at = day + 1; at < day+searchDays; at++ {
		date := dateOf(at)
		if !is && p.sets[month]>>uint(date.Month())&1 == 0 {
			at += int64(time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(date)/(24*time.Hour)) - 1
			continue
		}
		if p.isOf(date) != is {
			return at, true
		}
	}
	return 0, false
}

// isOfAnyWeek reports whether days of all months are of the pattern, and all days of a month.
func (p *pattern) isOfAnyWeek() bool {
	return p.sets[month]>>1&(1<<12-1) == 1<<12-1 && p.sets[dayOfMonth]>>1&(1<<31-1) == 1<<31-1
}

// isOfBoth reports whether a day of the pattern is of its days of the month and of its days of the week, and not of either.
func (p *pattern) isOfBoth() bool {
	return strings.HasPrefix(p.texts[dayOfMonth], "*") || strings.HasPrefix(p.texts[dayOfWeek], "*")
}

// Days are the kinds of days that times or windows distinguish.
type Days uint8

const (
	ofWeek  Days = 1 << iota // days of the week
	ofMonth                  // days of the month, or months
	ofLeap                   // 29 February, from the day before
	ofClock                  // days on which clocks are set
)

// Days returns the kinds of days that the windows distinguish.
func (w *Windows) Days() Days {
	if w == nil {
		return 0
	}
	return daysOf(w.patterns, w.zone)
}

// Days returns the kinds of days that the times distinguish.
func (t *Times) Days() Days {
	if t == nil {
		return 0
	}
	return daysOf(t.patterns, t.zone)
}

func daysOf(patterns []pattern, zone *time.Location) (kinds Days) {
	if start, end := time.Unix(0, 0).In(zone).ZoneBounds(); !start.IsZero() || !end.IsZero() {
		kinds = ofClock
	}
	for i := range patterns {
		p := &patterns[i]
		if p.sets[dayOfWeek] != 1<<7-1 {
			kinds |= ofWeek
		}
		if p.isOfAnyWeek() {
			continue
		}
		kinds |= ofMonth
		if p.sets[month]>>time.February&1 != 0 && (p.sets[dayOfMonth]>>28^p.sets[dayOfMonth]>>29)&1 != 0 {
			kinds |= ofLeap
		}
	}
	return kinds
}

// Turn returns a time in milliseconds within which all different days occur, except for leap days on one day of the week. Leap days are up
// to eight years apart, and any other date is on each day of the week within twelve.
func (d Days) Turn() int64 {
	const year = 366 * secondsOfDay * 1000
	switch {
	case d&(ofWeek|ofMonth) == ofWeek|ofMonth:
		return 13 * year
	case d&ofLeap != 0:
		return 9 * year
	case d&ofClock != 0:
		return 2 * year
	default:
		return year + 31*secondsOfDay*1000
	}
}
