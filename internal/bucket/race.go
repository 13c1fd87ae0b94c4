package bucket

import "math"

// A Race is what a plan knows besides the image: the other writes that may come before its own, and when its requests came. It decides which
// plan probably succeeds, and never what a plan may take. The zero value is for a write that races with no other.
type Race struct {
	Apart  int64     // milliseconds by which clock readings of concurrent writes may differ, about a round trip; 0 without any
	Writes float64   // that are expected between the image and the plan's own write, each for one request as large as the plan's
	Asks   []*Demand // that the plan takes together, in the order in which they came; fewer than two for a plan of one request
}

// takes returns how much of a limit the expected writes take, given the amount that the plan takes. It is the median of a number of writes
// that come independently.
func (r *Race) takes(amount int64) int64 {
	writes := math.Floor(r.Writes + 1.0/3)
	if writes <= 0 {
		return 0
	}
	return int64(min(writes*float64(amount)/float64(max(len(r.Asks), 1)), math.MaxInt64/2))
}

// freshTrips is the number of round trips for which a moved stamp has to be fresh to be worth the races for it.
const freshTrips = 3

// outlasts reports whether other writes come from so far away that a moved stamp would be stale when they know it. It would only make them
// fail.
func (r *Race) outlasts(c *Config) bool { return freshTrips*r.Apart > c.Freshness }

// slackPart is the part of a limit's capacity that a placing write may leave out.
const slackPart = 100

// slack returns how far below its ceiling a limit may be for a write that places it, which then leaves that much out. Without it, such a
// write would fail where another one by a later clock reading comes first: that one lowers the limit below the ceiling of the earlier
// reading. What is left out flows in again between the two readings. It does not add up: the next placing write leaves out as much of the
// ceiling, and not of the balance.
func (r *Race) slack(s *State, l *Limit, c *Config, amount, now int64) int64 {
	if amount <= 0 || r.Apart == 0 || c.Freshness == 0 {
		return 0
	}
	return min(signed(l.rule().over(s, l.Name, sub(now, r.Apart), now)), s.capacity(l.Name, l.rule(), now)/slackPart)
}

// brink returns the balance at the stamp from which on a limit would be full at some time until now, as each of the plan's requests takes its
// amount when it came. Requests that share a write otherwise lose the refill for which the earlier ones have made room.
func (p *Plan) brink(s *State, l *Limit, ch chain, now int64) int64 {
	brink := sub(ch.ceiling, signed(ch.inflow))
	if len(p.race.Asks) < 2 || l.Rare != nil || l.Tokens <= brink {
		return brink
	}
	latest, least, taken := s.RefilledAt, int64(math.MaxInt64), int64(0)
	for _, d := range p.race.Asks {
		latest = max(latest, min(d.At, now))
		least = min(least, add(sub(ch.ceiling, signed(l.rule().over(s, l.Name, s.RefilledAt, latest))), taken))
		amount, _ := d.asks(l.Name, l.Mode())
		taken = add(taken, amount)
	}
	return max(brink, min(least, add(brink, taken)))
}
