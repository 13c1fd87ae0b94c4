package explore

import (
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An ideal is the one bucket that the shards of a limit of an entity should amount to. It has one balance, which
// takes and returns amounts at the times of the writes.
type ideal struct {
	tokens int64 // millitokens
	at     int64 // epoch milliseconds
	limit  bucket.Params
	over   int64 // the shards may have more by this: they saw writes in another order, or another limit for a while
	under  int64 // the shards may have less by this: refill that a full one could not hold
	parted bool  // a change of the limit was over, and had not reached all shards
}

// paramsOf returns the parameters of a limit of an item.
func paramsOf(l *bucket.Limit) bucket.Params {
	return bucket.Params{Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod}
}

// paramsOfLimit returns the parameters that an item is to have for a stored limit.
func paramsOfLimit(l zlimit.Limit) bucket.Params {
	return bucket.Params{
		Name: l.Name, Capacity: l.Capacity * 1000, RefillAmount: l.RefillAmount * 1000, RefillPeriod: l.RefillPeriod.Milliseconds(),
	}
}

// until lets the balance flow in up to a time.
func (i *ideal) until(now int64) {
	if now > i.at {
		i.tokens = min(i.tokens+flow(i.at, now, i.limit.RefillAmount, i.limit.RefillPeriod), i.limit.Capacity)
		i.at = now
	}
}

// change gives the bucket another limit. What flowed in so far did so by the old one.
func (i *ideal) change(to bucket.Params) {
	i.limit = to
	i.tokens = min(i.tokens, to.Capacity)
}

// take takes an amount at a time; a negative one is given back.
func (i *ideal) take(now, amount int64) {
	if now < i.at {
		i.over += flow(now, i.at, i.limit.RefillAmount, i.limit.RefillPeriod)
	}
	i.until(now)
	i.tokens = min(i.tokens-amount, i.limit.Capacity)
}

// wait returns how many milliseconds after now the balance is at least some tokens, which the capacity is, too.
func (i *ideal) wait(now, tokens int64) int64 {
	has := func(after int64) bool {
		at := *i
		at.until(now + after)
		return at.tokens >= tokens
	}
	if has(0) {
		return 0
	}
	most := int64(1)
	for !has(most) && most < 1<<45 {
		most *= 2
	}
	least := most / 2
	for most-least > 1 {
		if middle := (least + most) / 2; has(middle) {
			most = middle
		} else {
			least = middle
		}
	}
	return most
}

// flow returns what flows in between two times: R(to) − R(from) with R(t) = ⌊t·amount/period⌋.
func flow(from, to, amount, period int64) int64 {
	if to <= from || period <= 0 {
		return 0
	}
	total := func(t int64) int64 { return t/period*amount + t%period*amount/period }
	return total(to) - total(from)
}

// share returns a shard's part of a total: where it cannot be split evenly, the first ones have one millitoken more.
func share(total int64, s *bucket.State) int64 {
	n := int64(max(s.Shards, 1))
	part := total / n
	if int64(s.Shard) < total%n {
		part++
	}
	return part
}

// level returns the balance of a limit of a shard at a time, under the parameters p from then on, and the amount above
// capacity. A shard without the limit is full.
func level(s *bucket.State, p *bucket.Params, now int64) (tokens, spilled int64) {
	full := share(p.Capacity, s)
	l := limitOf(s, p.Name)
	if l == nil {
		return full, 0
	}
	had := l.Tokens + flow(s.RefilledAt, now, share(l.RefillAmount, s), l.RefillPeriod)
	tokens = min(had, full, share(l.Capacity, s))
	return tokens, had - tokens
}

// limitOf returns a limit of a shard, nil when it has none of that name.
func limitOf(s *bucket.State, name string) *bucket.Limit {
	for i := range s.Limits {
		if s.Limits[i].Name == name {
			return &s.Limits[i]
		}
	}
	return nil
}
