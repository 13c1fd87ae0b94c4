package bucket

import "math"

// An itemExpiry works out when an unused item may go. A new item starts full, so the old one stays until each of its
// limits is full, debts included.
type itemExpiry struct {
	config *Config
	now    int64 // epoch milliseconds
	fill   int64 // longest time in which a limit fills up, milliseconds
	until  int64 // when the last of the quotas resets, epoch milliseconds
}

// cover considers a limit at a balance that may be left with a debt, as deep as its last caller could leave. The next
// callers then spend, and need not prolong the life of the item each.
func (expiry *itemExpiry) cover(p *Params, balance, deepest, since int64) {
	switch {
	case expiry.config.ExpiryFactor <= 0 || p.Name == WriteUnits:
	case p.Session > 0:
		expiry.until = max(expiry.until, sessionEnd(since, p.Session))
	case p.Times != nil && p.Carry > 0: // a bucket that is created again would have nothing left
		expiry.until = Never
	case p.Times != nil:
		expiry.until = max(expiry.until, p.Times.Next(expiry.now))
	default:
		r := p.rule()
		if p.Mode == Soft { // its debt blocks no one, and may be forgotten
			balance = max(balance, 0)
		}
		least := min(balance, -deepest)
		if r.windows != nil { // one may cut off the balance
			least = min(least, r.least())
		}
		expiry.fill = max(expiry.fill, r.slowest(sub(r.most(), least)))
	}
}

// keep takes slots into account, of the item and of the config: the item stays while any holder may be at work.
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
