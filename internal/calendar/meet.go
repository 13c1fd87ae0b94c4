package calendar

import (
	"slices"
	"time"
)

// Every day that a calendar can show, by its month, its day of month and of week, is one of these years.
const (
	firstOfDays = 1972
	endOfDays   = 2000
)

// holding goes through what of several windows may hold at one minute of local time: a number for each of them, -1 outside of its windows.
// It ends when f returns false. The windows are of one zone.
func holding(of []*Windows, f func(windows []int) bool) {
	var patterns []*pattern
	for _, w := range of {
		for i := range w.patterns {
			patterns = append(patterns, &w.patterns[i])
		}
	}
	seenDays, seen := map[string]bool{}, map[string]bool{}
	days, at := make([]byte, len(patterns)), make([]byte, len(of))
	windows := make([]int, len(of))
	for date := time.Date(firstOfDays, 1, 1, 0, 0, 0, 0, time.UTC); date.Year() < endOfDays; date = date.AddDate(0, 0, 1) {
		for i, p := range patterns {
			days[i] = 0
			if p.isOf(date) {
				days[i] = 1
			}
		}
		if seenDays[string(days)] {
			continue
		}
		seenDays[string(days)] = true
		for m := range int64(minutesOfDay) {
			first := 0
			for i, w := range of {
				windows[i] = -1
				for j := range w.patterns {
					if days[first+j] == 1 && w.patterns[j].hasOfDay(m) {
						windows[i] = j
						break
					}
				}
				first += len(w.patterns)
				at[i] = byte(windows[i] + 1)
			}
			if seen[string(at)] {
				continue
			}
			if seen[string(at)] = true; !f(windows) {
				return
			}
		}
	}
}

// Meet reports whether there may be a minute at which each of several windows holds what is allowed: by its number among them, and by the
// number of the window that holds, -1 outside. Windows of several zones may.
func Meet(windows []*Windows, allowed func(of, window int) bool) bool {
	for _, w := range windows {
		if w.place != windows[0].place {
			return true
		}
	}
	meet := false
	holding(windows, func(at []int) bool {
		meet = true
		for of, window := range at {
			meet = meet && allowed(of, window)
		}
		return !meet
	})
	return meet
}

// Holds reports whether a window holds at some minute: the one with that number or, for -1, what holds outside of windows. Earlier windows
// may leave none to it.
func (w *Windows) Holds(window int) bool {
	w.once.Do(func() {
		holding([]*Windows{w}, func(at []int) bool {
			w.holding = append(w.holding, at[0])
			return true
		})
	})
	return slices.Contains(w.holding, window)
}
