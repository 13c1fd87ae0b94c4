package bucket

import "math"

// An itemExpiry computes when an unused item may expire. A new item starts full, so the old one stays until each of its limits is full,
// debts included.
type itemExpiry struct {
	config *Config
	now    int64 // epoch milliseconds
	fill   int64 // longest time in which a limit fills up, milliseconds
	until  int64 // when the last of the quotas resets, epoch milliseconds
}

// cover includes a limit with a balance, and with the deepest debt that later callers may leave. So the next callers can spend, and need
// not prolong the life of the item each time.
func (expiry *itemExpiry) cover(p *Params, balance, deepest, since int64) {
	switch {
	case expiry.config.ExpiryFactor <= 0 || p.Name == WriteUnits:
	case p.Session > 0:
		expiry.until = max(expiry.until, sessionEnd(since, p.Session))
	case p.Times != nil && p.Carry > 0: // a bucket that is created again has nothing to carry
		expiry.until = Never
	case p.Times != nil:
		expiry.until = max(expiry.until, p.Times.Next(expiry.now))
	default:
		r := p.rule()
		if p.Mode == Soft { // its debt blocks no one, and may be forgotten
			balance = max(balance, 0)
		}
		least := min(balance, -deepest)
		if r.windows != nil { // a window may clamp the balance
			least = min(least, r.least())
		}
		expiry.fill = max(expiry.fill, r.slowest(sub(r.most(), least)))
	}
}

// keep includes slots of the item and of the config: the item stays while any holder may be at work.
func (expiry *itemExpiry) keep(slots []Slots) {
	for i := range slots {
		expiry.until = max(expiry.until, add(expiry.now, slots[i].outlives()))
	}
	for i := range expiry.config.Slots {
		expiry.until = max(expiry.until, add(expiry.now, expiry.config.Slots[i].outlives()))
	}
}

// maxExpiry is the end of the year 9999, in epoch seconds.
const maxExpiry = 253402300799

// end returns the time of expiry in epoch seconds, 0 for never.
func (expiry *itemExpiry) end(now int64) int64 {
	if expiry.config.ExpiryFactor <= 0 {
		return 0
	}
	milliseconds := int64(math.MaxInt64)
	if expiry.fill <= math.MaxInt64/expiry.config.ExpiryFactor {
		milliseconds = expiry.fill * expiry.config.ExpiryFactor
	}
	return min(seconds(max(add(now, milliseconds), add(expiry.until, expiry.config.Lead)))+1, maxExpiry)
}
