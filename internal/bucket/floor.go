package bucket

import (
	"strconv"
	"strings"
)

// Floors say which part of a limit requests leave to others, by their priority: "batch=20 crawl=50" are percents of the capacity. A
// request of such a priority is admitted where the balance holds so much beside its amounts. Other requests leave nothing.
type Floors string

// kept returns what requests of a priority leave of a capacity.
func (f Floors) kept(priority string, capacity int64) int64 {
	if f == "" || priority == "" {
		return 0
	}
	percent := f.Of(priority)
	return capacity/100*percent + capacity%100*percent/100
}

// Of returns the percents of the capacity that requests of a priority leave, 0 where it has no floor.
func (f Floors) Of(priority string) int64 {
	if f == "" || priority == "" {
		return 0
	}
	for rest := string(f); rest != ""; {
		var one string
		one, rest, _ = strings.Cut(rest, " ")
		if name, percent, _ := strings.Cut(one, "="); name == priority {
			n, _ := strconv.ParseInt(percent, 10, 64)
			return n
		}
	}
	return 0
}

// HasFloor reports whether a limit has a floor for a priority.
func (c *Config) HasFloor(priority string) bool {
	for i := range c.Params { // of which hardly any program has floors
		if c.Params[i].Floors.Of(priority) > 0 {
			return true
		}
	}
	return false
}
