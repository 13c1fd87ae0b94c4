package bucket

import "github.com/zlimit/zlimit-go/internal/calendar"

// Several limits, of one bucket or of several, may have enough tokens at different times: if windows or grants end, one limit is
// short again when another has enough. So the limits are evaluated again at the end of each wait.

// An Asked is a bucket of a request: its shards, and the demand on it.
type Asked struct {
	Config *Config
	Shards []*State
	Demand *Demand
}

// maxLooks bounds how many ends of waits are looked at.
const maxLooks = 48

// TogetherAfter returns the time, in milliseconds, until all limits of buckets have enough at the same time, if nothing else
// happens, given the longest of their waits. Beyond a bound it returns the time of the last evaluation. It returns Never if the
// windows show that there is no such time.
func TogetherAfter(asked []Asked, now, longest int64) int64 {
	if longest <= 0 || longest == Never || !wanes(asked, now) {
		return longest
	}
	if !meet(asked, now) {
		return Never
	}
	var space []Status
	wait := longest
	for range maxLooks {
		at, more := add(now, wait), int64(0)
		if at >= Never-1 {
			break
		}
		for _, a := range asked {
			space = a.Config.Statuses(space[:0], a.Shards, a.Demand, at)
			for i := range space {
				if space[i].Mode == Enforced {
					more = max(more, space[i].Wait)
				}
			}
		}
		switch more {
		case 0:
			return wait
		case Never:
			return Never
		}
		wait = add(wait, more)
	}
	return wait
}

// wanes reports whether one of the limits may have fewer tokens later, although no one takes from it.
func wanes(asked []Asked, now int64) bool {
	limits, wane := 0, false
	for _, a := range asked {
		v := viewOf(a.Config, a.Shards, now)
		for i := range a.Config.Params {
			p := &a.Config.Params[i]
			if _, checked := a.Demand.asks(p.Name, p.Mode); checked {
				limits++
				wane = wane || p.Windows != nil || v.granted(p) != p
			}
		}
	}
	return wane && limits > 1
}

// meet reports whether there may be a minute in which all limits can hold their demands. It returns true while one of them has a
// grant.
func meet(asked []Asked, now int64) bool {
	var windows []*calendar.Windows
	var enough []func(window int) bool
	for _, a := range asked {
		v := viewOf(a.Config, a.Shards, now)
		for i := range a.Config.Params {
			p := &a.Config.Params[i]
			if _, checked := a.Demand.asks(p.Name, p.Mode); !checked || p.Windows == nil {
				continue
			}
			if v.granted(p) != p || a.Config.part(p.Name, a.Demand.Priority) != nil {
				return true
			}
			windows = append(windows, p.Windows)
			enough = append(enough, func(window int) bool {
				capacity := p.rule().in(window).capacity
				return a.Demand.needs(p, capacity) <= capacity
			})
		}
	}
	return len(windows) < 2 || calendar.Meet(windows, func(of, window int) bool { return enough[of](window) })
}
