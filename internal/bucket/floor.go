package bucket

import (
	"iter"
	"strconv"
	"strings"
)

// Floors define the part of a limit that requests must leave to others, by their priority, in percent of the capacity: "batch=20 crawl=50".
// A request of such a priority is admitted if the balance has that part in addition to its amounts. Requests without a floor leave nothing.
// A second number, as in "batch=20+5", is the share of the limit that is guaranteed to the priority, see [Params.Divide].
type Floors string

// A share has the floor and the guaranteed share of a priority, in percent.
type share struct{ floor, guaranteed int64 }

// kept returns what requests of a priority leave of a capacity.
func (f Floors) kept(priority string, capacity int64) int64 {
	if f == "" || priority == "" {
		return 0
	}
	return percentOf(capacity, f.Of(priority))
}

// Of returns the percentage of the capacity that requests of a priority leave, 0 if it has no floor.
func (f Floors) Of(priority string) int64 { return f.of(priority).floor }

// of returns the share of a priority, zero if it has none.
func (f Floors) of(priority string) share {
	if f == "" || priority == "" {
		return share{}
	}
	for name, share := range f.all() {
		if name == priority {
			return share
		}
	}
	return share{}
}

// all yields the priorities with their shares.
func (f Floors) all() iter.Seq2[string, share] {
	return func(yield func(string, share) bool) {
		for rest := string(f); rest != ""; {
			var one string
			one, rest, _ = strings.Cut(rest, " ")
			name, percents, _ := strings.Cut(one, "=")
			floor, guaranteed, _ := strings.Cut(percents, "+")
			var s share
			s.floor, _ = strconv.ParseInt(floor, 10, 64)
			s.guaranteed, _ = strconv.ParseInt(guaranteed, 10, 64)
			if !yield(name, s) {
				return
			}
		}
	}
}

// percentOf returns percent of an amount, rounded down.
func percentOf(amount, percent int64) int64 { return amount/100*percent + amount%100*percent/100 }

// HasFloor reports whether a limit has a floor or a guaranteed share for a priority.
func (c *Config) HasFloor(priority string) bool {
	for i := range c.Params { // in nearly all programs, none has floors
		if c.Params[i].Floors.of(priority) != (share{}) {
			return true
		}
	}
	return false
}
