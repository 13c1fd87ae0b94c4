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

// Holds reports whether a window holds at some minute: the one with that number or, for -1, what holds outside of windows. Earlier windows
// may leave none to it.
func (w *Windows) Holds(window int) bool {
	w.once.Do(w.findHolding)
	return slices.Contains(w.holding, window)
}

// findHolding notes which windows hold at some minute of local time.
func (w *Windows) findHolding() {
	seen, days := map[string]bool{}, make([]byte, len(w.patterns))
	for date := time.Date(firstOfDays, 1, 1, 0, 0, 0, 0, time.UTC); date.Year() < endOfDays; date = date.AddDate(0, 0, 1) {
		for i := range w.patterns {
			days[i] = 0
			if w.patterns[i].isOf(date) {
				days[i] = 1
			}
		}
		if seen[string(days)] {
			continue
		}
		seen[string(days)] = true
		for m := range int64(minutesOfDay) {
			window := slices.IndexFunc(w.patterns, func(p pattern) bool { return p.hasOfDay(m) && p.isOf(date) })
			if !slices.Contains(w.holding, window) {
				w.holding = append(w.holding, window)
			}
		}
	}
}

// hasOfDay reports whether a minute of the day is of the pattern, on days that are.
func (p *pattern) hasOfDay(m int64) bool {
	return p.sets[hour]>>uint(m/60)&1 != 0 && p.sets[minute]>>uint(m%60)&1 != 0
}
