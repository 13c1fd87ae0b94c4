package bucket

import "math"

// A Status is where one limit of a bucket stands in view of a demand.
type Status struct {
	Params
	Available int64 // balance after a refill up to now, millitokens; negative in debt
	Requested int64 // what the demand asks, millitokens
	Wait      int64 // milliseconds until that much is there if nothing else happens; 0 when it is, Never when never
}

// Never is the wait for more than a limit can hold.
const Never = math.MaxInt64

// Statuses appends the status of each configured limit, in the order of the config, for the shards of a bucket; none for
// a bucket that does not exist, and is full therefore.
func (c *Config) Statuses(to []Status, shards []*State, d *Demand, now int64) []Status {
	if len(shards) == 0 {
		shards = []*State{{RefilledAt: now}}
	}
	for i := range c.Params {
		p := &c.Params[i]
		amount, checked := d.of(p.Name)
		status := Status{Params: *p, Available: available(shards, p, now, now), Requested: amount}
		switch {
		case !checked || amount <= status.Available:
		case amount > p.Capacity:
			status.Wait = Never
		default:
			status.Wait = timeUntil(func(wait int64) bool { return available(shards, p, now, add(now, wait)) >= amount })
		}
		to = append(to, status)
	}
	return to
}

// available returns the balance of a limit in all shards at a time that is not before now, when the configured parameters
// take the place of others.
func available(shards []*State, p *Params, now, at int64) int64 {
	sum := int64(0)
	for _, s := range shards {
		now, at := max(now, s.RefilledAt), max(at, s.RefilledAt)
		level := s.share(p.Name, p.Capacity)
		if l := s.find(p.Name); l != nil {
			level = min(add(l.Tokens, s.refill(l, now)), level, s.share(p.Name, l.Capacity))
		}
		level = add(level, Refill(now, at, s.share(p.Name, p.RefillAmount), p.RefillPeriod))
		sum = add(sum, min(level, s.share(p.Name, p.Capacity)))
	}
	return sum
}

// timeUntil returns the smallest positive number for which enough holds, which holds for all greater ones then; Never when
// there is none.
func timeUntil(enough func(int64) bool) int64 {
	most := int64(1)
	for !enough(most) {
		if most > math.MaxInt64/2 {
			return Never
		}
		most *= 2
	}
	least := most / 2 // not enough, or 0
	for most-least > 1 {
		if middle := least + (most-least)/2; enough(middle) {
			most = middle
		} else {
			least = middle
		}
	}
	return most
}
