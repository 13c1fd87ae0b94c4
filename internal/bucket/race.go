package bucket

import "math"

// A Race has what a plan takes into account besides the image: the other writes that may come before its own, and the arrival of its
// requests. It affects only which plan is likely to succeed, never what a plan may take. The zero value is for a write that races with no
// other.
type Race struct {
	Apart  int64     // milliseconds by which clock readings of concurrent writes may differ, about a round trip; 0 without any
	Writes float64   // expected between the image and the plan's own write, each for one request as large as the plan's
	Asks   []*Demand // the demands of a shared write, in the order of arrival; fewer than two for a single request
}

// takes returns how much of a limit the expected writes take, given the amount that the plan takes. It uses the median of the number of
// independent writes.
func (r *Race) takes(amount int64) int64 {
	writes := math.Floor(r.Writes + 1.0/3)
	if writes <= 0 {
		return 0
	}
	return int64(min(writes*float64(amount)/float64(max(len(r.Asks), 1)), math.MaxInt64/2))
}

// freshTrips is the number of round trips for which a moved stamp must stay fresh to be worth the races for it.
const freshTrips = 3

// outlasts reports whether round trips are so long that a moved stamp would be stale by the time other writers know it. Moving it would
// only make their writes fail.
func (r *Race) outlasts(c *Config) bool { return freshTrips*r.Apart > c.Freshness }

// slackPart bounds the slack of a write that places a limit, as a part of the capacity.
const slackPart = 100

// slack returns how far below its ceiling a limit may be for a write that places it. The write then leaves the balance lower by the slack.
// Without slack, the write would fail after a write by a later clock reading, which lowers the limit below the ceiling of the earlier
// reading. The slack is refilled between the two readings. It does not accumulate, since each placing write subtracts it from the ceiling,
// and not from the balance.
func (r *Race) slack(s *State, l *Limit, c *Config, amount, now int64) int64 {
	if amount <= 0 || r.Apart == 0 || c.Freshness == 0 {
		return 0
	}
	return min(signed(l.rule().over(s, l.Name, sub(now, r.Apart), now)), s.capacity(l.Name, l.rule(), now)/slackPart)
}

// brink returns the lowest balance at the stamp with which the limit would be full at some time until now, if each request of the plan
// takes its amount at its arrival. Otherwise, requests that share a write would lose the refill for which the earlier ones have made room.
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
