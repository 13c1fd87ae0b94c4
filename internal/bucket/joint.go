package bucket

import "math"

// Several limits, of one bucket or of several, may have enough tokens at different times: if windows or grants end, one limit is
// short again when another has enough. So a search follows all of them.

// An Asked is a bucket of a request: its shards, and the demand on it.
type Asked struct {
	Config *Config
	Shards []*State
	Demand *Demand
}

// TogetherAfter returns the time, in milliseconds, until all limits of buckets have enough at the same time, if nothing else
// happens, given the longest of their waits. It returns Never if there is no such time, and whether a top-up of prepaid limits would make one.
func TogetherAfter(asked []Asked, now, longest int64) (wait int64, needsTopUp bool) {
	if longest <= 0 || longest >= Never-1 || !wanes(asked, now) {
		return longest, false
	}
	var space [8]track
	s := jointly(space[:0], asked, now, longest)
	if wait = s.first(); wait != Never {
		return wait, false
	}
	s = jointly(space[:0], asked, now, longest)
	return Never, s.leavePrepaid() && s.first() != Never
}

// leavePrepaid leaves prepaid limits out of the search, and reports whether there are any.
func (s *search) leavePrepaid() (found bool) {
	for i := range s.tracks {
		if t := &s.tracks[i]; t.p.Session >= Endless {
			t.needs, found = func(int64) int64 { return math.MinInt64 }, true
		}
	}
	return found
}

// jointly returns the search for the time at which all limits of buckets have enough, beginning after a wait.
func jointly(space []track, asked []Asked, now, waited int64) search {
	limits := 0
	for _, a := range asked {
		v := viewOf(a.Config, a.Shards, now)
		v.now = add(v.now, waited)
		space, limits = v.tracks(space, limits, a.Demand.asked(), waited)
	}
	return newSearch(space, limits, waited)
}

// tracks appends the tracks of the limits of a demand, given the number of limits before them and the time waited.
func (v view) tracks(to []track, limits int, d *Demand, waited int64) ([]track, int) {
	for i := range v.Params {
		amount, checked := d.asks(v.Params[i].Name, v.Params[i].Mode)
		if !checked || v.Params[i].Mode != Enforced || IsPart(v.Params[i].Name) {
			continue
		}
		p := v.granted(&v.Params[i])
		t := v.trackOf(p, v.available(p, d), waited, func(capacity int64) int64 { return d.needs(p, capacity) })
		t.limit = limits
		to = append(to, t)
		if part := v.part(p.Name, d.Priority); part != nil && d.Priority != "" {
			t := v.trackOf(part, v.available(part, d), waited, func(int64) int64 { return amount })
			t.limit = limits
			to = append(to, t)
		}
		limits++
	}
	return to, limits
}

// wanes reports whether one of the limits may have fewer tokens later, although no one takes from it.
func wanes(asked []Asked, now int64) bool {
	limits, wane := 0, false
	for _, a := range asked {
		v := viewOf(a.Config, a.Shards, now)
		for i := range a.Config.Params {
			p := &a.Config.Params[i]
			if _, checked := a.Demand.asks(p.Name, p.Mode); checked && p.Mode == Enforced {
				limits++
				wane = wane || p.Windows != nil || v.granted(p) != p
			}
		}
	}
	return wane && limits > 1
}
