package calendar

import (
	"math/bits"
	"time"
)

// everyMinute and everyHour are the sets of all minutes of an hour, and of all hours of a day.
const (
	everyMinute = 1<<60 - 1
	everyHour   = 1<<24 - 1
)

// has reports whether a minute of local time is of the pattern.
func (p *pattern) has(m int64) bool {
	date := time.Unix(floorDiv(m, minutesOfDay)*secondsOfDay, 0).UTC()
	ofDay := floorMod(m, minutesOfDay)
	return p.isOf(date) && p.sets[hour]>>uint(ofDay/60)&1 != 0 && p.sets[minute]>>uint(ofDay%60)&1 != 0
}

// isOf reports whether minutes of a day are of the pattern.
func (p *pattern) isOf(date time.Time) bool {
	return p.sets[month]>>uint(date.Month())&1 != 0 && p.isOn(date)
}

func (p *pattern) isAlways() bool {
	return p.sets[minute] == everyMinute && p.sets[hour] == everyHour && p.sets[month]>>1&(1<<12-1) == 1<<12-1 &&
		p.sets[dayOfMonth]>>1&(1<<31-1) == 1<<31-1 && p.sets[dayOfWeek] == 1<<7-1
}

// find returns the first minute from one on that matches the pattern, or does not. When it looks back, it returns the
// last such minute up to one. Minutes are in local time, see begins.
func (p *pattern) find(from int64, within, back bool) (at int64, ok bool) {
	if !within && p.isAlways() {
		return 0, false
	}
	step := int64(1)
	if back {
		step = -1
	}
	day, first := floorDiv(from, minutesOfDay), floorMod(from, minutesOfDay)
	for range searchDays {
		if m, ok := p.findOn(time.Unix(day*secondsOfDay, 0).UTC(), first, within, back); ok {
			return day*minutesOfDay + m, true
		}
		day += step
		if first = 0; back {
			first = minutesOfDay - 1
		}
	}
	return 0, false
}

// findOn is find for the minutes of one day, counted from its beginning.
func (p *pattern) findOn(date time.Time, from int64, within, back bool) (at int64, ok bool) {
	hours := uint64(0)
	if p.isOf(date) {
		hours = p.sets[hour]
	}
	switch {
	case within && hours == 0 || !within && hours == everyHour && p.sets[minute] == everyMinute:
		return 0, false
	case !within && hours == 0:
		return from, true
	}
	for h := from / 60; h >= 0 && h < 24; {
		minutes := uint64(0)
		if hours>>uint(h)&1 != 0 {
			minutes = p.sets[minute]
		}
		if !within {
			minutes = ^minutes & everyMinute
		}
		if h == from/60 && !back {
			minutes = minutes >> uint(from%60) << uint(from%60)
		} else if h == from/60 {
			minutes &= 1<<uint(from%60+1) - 1
		}
		switch {
		case minutes == 0 && back:
			h--
		case minutes == 0:
			h++
		case back:
			return 60*h + int64(bits.Len64(minutes)) - 1, true
		default:
			return 60*h + int64(bits.TrailingZeros64(minutes)), true
		}
	}
	return 0, false
}
