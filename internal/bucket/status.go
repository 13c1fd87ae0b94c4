package bucket

import "math"

// A Status is where one limit of an item stands in view of a demand.
type Status struct {
	Params
	Available int64 // balance after a refill up to now, millitokens; negative in debt
	Requested int64 // what the demand asks, millitokens
	Wait      int64 // milliseconds until that much is there if nothing else happens; 0 when it is, Never when never
}

// Never is the wait for more than a limit can hold.
const Never = math.MaxInt64

// Statuses appends the status of each configured limit, in the order of the config, for an item, nil for one that does
// not exist.
func (c *Config) Statuses(to []Status, s *State, d *Demand, now int64) []Status {
	if s == nil {
		s = &State{RefilledAt: now}
	}
	at := max(now, s.RefilledAt)
	for i := range c.Params {
		p := &c.Params[i]
		capacity := s.share(p.Name, p.Capacity)
		amount, checked := d.of(p.Name)
		status := Status{Params: *p, Available: capacity, Requested: amount}
		if l := s.find(p.Name); l != nil {
			status.Available = min(add(l.Tokens, s.refill(l, at)), capacity, s.share(p.Name, l.Capacity))
		}
		switch {
		case !checked || amount <= status.Available:
		case amount > capacity:
			status.Wait = Never
		default:
			missing := uint64(amount) - uint64(status.Available) // exact, since less is available than requested
			ready := add(at, timeToRefill(at, missing, s.share(p.Name, p.RefillAmount), p.RefillPeriod))
			status.Wait = max(sub(ready, now), 1)
		}
		to = append(to, status)
	}
	return to
}
