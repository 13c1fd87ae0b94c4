package zlimit

import (
	"context"
	"math"
	"math/bits"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// chargeShards charges a demand that a shard falls short of to the shards together: whatever the undivided bucket would
// admit is admitted. It reads them all, and takes the demand from one that has all of it, or what each has of it in one
// transaction.
func (l *RateLimiter) chargeShards(ctx context.Context, k *link) error {
	for attempt := range maxAttempts {
		images, err := l.survey(ctx, k.bucket)
		if err != nil {
			return err
		}
		now := l.now().UnixMilli()
		statuses := k.statuses(statesOf(images), now)
		for _, s := range statuses {
			if s.Exceeded {
				return exceeded(statuses)
			}
		}
		done, err := l.gather(ctx, k, images, now)
		if done || err != nil {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// gather takes a demand from the shard that keeps most of it, or when none has all of it from several in a transaction;
// false when another writer came first. It levels the shards: one that is full while others are not wastes its refill.
func (l *RateLimiter) gather(ctx context.Context, k *link, images []*image, now int64) (bool, error) {
	images = slices.DeleteFunc(images, func(i *image) bool { return !i.exists })
	levels := make([][]bucket.Status, len(images))
	for at, i := range images {
		levels[at] = k.limits.config.Statuses(nil, []*bucket.State{&i.State}, &k.demand, now)
	}
	if at, ok := roomiest(levels); ok || len(images) == 0 {
		i := &image{}
		if ok {
			i = images[at]
		}
		s := k.bucket.shard(i.Shard)
		var plan bucket.Plan
		if plan.Decide(i.state(), &k.limits.config, &k.demand, now); plan.Kind == bucket.Reject {
			return false, nil
		}
		_, applied, err := l.attempt(ctx, s, k.limits.owner, i, &plan)
		k.shard = s
		return applied, err
	}
	var parts []part
	var writes []store.Write
	for at, amounts := range apportion(images, levels, k.demand.Amounts) {
		d := bucket.Demand{Amounts: amounts}
		if d.Empty() {
			continue
		}
		s := k.bucket.shard(images[at].Shard)
		var plan bucket.Plan
		if plan.Decide(&images[at].State, &k.limits.config, &d, now); plan.Kind == bucket.Reject {
			return false, nil
		}
		w, err := s.write(&plan, k.limits.owner)
		if err != nil {
			return false, err
		}
		writes, parts = append(writes, w), append(parts, part{s, amounts})
	}
	applied, err := l.transact(ctx, writes)
	if !applied || err != nil {
		return false, err
	}
	for _, p := range parts {
		p.shard.forget()
	}
	k.parts = parts
	return true, nil
}

// roomiest returns the shard, given where its limits stand in view of a demand, that is left with most in thousandths of
// capacity; false when none has all of the demand.
func roomiest(shards [][]bucket.Status) (at int, ok bool) {
	most := int64(-1)
	for i, statuses := range shards {
		least := int64(math.MaxInt64)
		for _, s := range statuses {
			switch rest := s.Available - s.Requested; {
			case s.Requested == 0:
			case rest < 0:
				least = -1
			default:
				least = min(least, rest/(s.Capacity/1000+1))
			}
		}
		if least > most {
			at, most = i, least
		}
	}
	return at, most >= 0
}

// apportion divides amounts among shards, given where their limits stand, so that each is left with the same part of its
// share. Where they have less together, each is left with the same part of it in debt.
func apportion(images []*image, shards [][]bucket.Status, amounts []bucket.Amount) [][]bucket.Amount {
	takes := make([][]bucket.Amount, len(shards))
	for _, a := range amounts {
		has, share := make([]int64, len(shards)), make([]int64, len(shards))
		for i, statuses := range shards {
			for _, s := range statuses {
				if s.Name == a.Limit {
					has[i], share[i] = s.Available, bucket.Share(s.Capacity, images[i].Shard, images[i].Shards)
				}
			}
		}
		above := func(level int64) (sum int64) {
			for i, n := range has {
				sum = saturated(sum, max(n-partOf(share[i], level), 0))
			}
			return sum
		}
		low, high := int64(0), int64(2*wholeShare) // above(low) covers the amount, above(high) does not
		for above(low) < a.Tokens && low > -1<<60 {
			low, high = min(2*low, -wholeShare), low
		}
		for high-low > 1 {
			if middle := low + (high-low)/2; above(middle) >= a.Tokens {
				low = middle
			} else {
				high = middle
			}
		}
		rest := a.Tokens
		for i, n := range has {
			take := min(max(n-partOf(share[i], low), 0), rest)
			if i == len(has)-1 && above(low) < a.Tokens {
				take = rest // more than can be divided by levels
			}
			if take > 0 {
				takes[i] = append(takes[i], bucket.Amount{Limit: a.Limit, Tokens: take})
				rest -= take
			}
		}
	}
	return takes
}

// wholeShare is the level of a shard that has all of its share.
const wholeShare = 1 << 40

// partOf returns what a shard has at a level, saturated.
func partOf(share, level int64) int64 {
	hi, lo := bits.Mul64(uint64(share), uint64(max(level, -level)))
	part := int64(math.MaxInt64)
	if hi < wholeShare/2 {
		part = int64(hi<<(64-40) | lo>>40)
	}
	if level < 0 {
		return -part
	}
	return part
}

// saturated returns the sum of numbers that are not negative.
func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// spread writes corrections of which a shard does not have enough to all shards of a bucket, in one transaction: each gives
// what it has, and only what is missing from all of them together is a debt, of each according to its share. A debt of one
// alone would keep the others from nothing. What is given back goes to the shard itself.
func (l *RateLimiter) spread(ctx context.Context, k *link, s *shard, amounts []bucket.Amount) error {
	for attempt := range maxAttempts {
		images, err := l.survey(ctx, k.bucket)
		if err != nil {
			return err
		}
		images = slices.DeleteFunc(images, func(i *image) bool { return !i.exists })
		if len(images) == 0 || images[0].Shards <= 1 {
			return l.correctAlone(ctx, k, k.bucket.shard(0), amounts)
		}
		writes, err := l.spreadOver(k, s, images, amounts, l.now().UnixMilli())
		if err != nil {
			return err
		}
		done, err := l.transact(ctx, writes)
		if done {
			for _, i := range images {
				k.bucket.shard(i.Shard).forget()
			}
		}
		if done || err != nil {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// spreadOver returns the writes of spread.
func (l *RateLimiter) spreadOver(k *link, s *shard, images []*image, amounts []bucket.Amount, now int64) ([]store.Write, error) {
	levels := make([][]bucket.Status, len(images))
	home := 0
	for at, i := range images {
		levels[at] = l.options.keep(&i.State).Statuses(nil, []*bucket.State{&i.State}, &bucket.Demand{}, now)
		if i.Shard == s.Shard {
			home = at
		}
	}
	var charges []bucket.Amount
	for _, a := range amounts {
		if a.Tokens > 0 {
			charges = append(charges, a)
		}
	}
	takes := apportion(images, levels, charges)
	for _, a := range amounts {
		if a.Tokens < 0 {
			takes[home] = append(takes[home], a)
		}
	}
	var writes []store.Write
	for at, i := range images {
		d := bucket.Demand{Amounts: takes[at]}
		if d.Empty() {
			continue
		}
		var plan bucket.Plan
		if plan.Decide(&i.State, l.options.keep(&i.State), &d, now); plan.Kind == bucket.Reject { // it will be in debt
			d.Unchecked = true
			plan.Decide(&i.State, l.options.keep(&i.State), &d, now)
		}
		w, err := k.bucket.shard(i.Shard).write(&plan, k.limits.owner)
		if err != nil {
			return nil, err
		}
		writes = append(writes, w)
	}
	return writes, nil
}
