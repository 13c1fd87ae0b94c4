package zlimit

import (
	"context"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A bucket whose item is written more often than DynamoDB serves one key is divided: shard s of n splits into shards s
// and s+n of 2n. Splits are independent of one another, so the shards are the leaves of a binary tree, each with a count
// of its own; shard s of n stands for the hashes that are s modulo n. The shares of a leaf add up by construction.

// origin returns the shard that a shard, other than 0, came from: its number without the highest bit.
func origin(shard int) int { return shard &^ (1 << (bits.Len(uint(shard)) - 1)) }

// count returns the number of shards that a shard is one of, as last seen; 0 when it was not seen or is not there.
func (s *shard) count() int {
	if i := s.image.Load(); i != nil && i.exists {
		return max(i.Shards, 1)
	}
	return 0
}

// draw returns a shard at random: each leaf of the tree as often as its share says. A leaf that is not known yet is
// returned as it is.
func (b *bucketRef) draw(ctx context.Context, now int64) *shard {
	s := b.shard(0)
	if s.count() <= 1 {
		return s
	}
	hash := int(door.Random(ctx, 1<<16))
	for n := s.count(); n > 1 && hash%n != s.Shard; n = s.count() {
		next := b.shard(branch(hash, s.Shard))
		if i := next.image.Load(); i != nil && !i.exists {
			if now-i.seenAt < paceTime.Milliseconds() {
				return s // merged, and what is left is here
			}
			next.forget() // it may have split off again
		}
		s = next
	}
	return s
}

// branch returns the shard that split off from another one towards a hash: the hash up to the lowest bit in which they
// differ.
func branch(hash, from int) int {
	differ := uint(hash ^ from)
	return hash & (1<<(bits.TrailingZeros(differ)+1) - 1)
}

// divided reports whether the bucket has more than one shard, as last seen.
func (b *bucketRef) divided() bool { return b.shard(0).count() > 1 }

// states returns the shards as last seen, with a later state of the first one if it is known; none for a bucket that does
// not exist.
func (b *bucketRef) states(first *bucket.State) (states []*bucket.State) {
	for _, s := range *b.shards.Load() {
		if s == nil {
			continue
		}
		if i := s.image.Load(); i != nil && i.exists {
			states = append(states, &i.State)
		}
	}
	if len(states) <= 1 && first != nil {
		return []*bucket.State{first}
	}
	return states
}

func statesOf(images []*image) (states []*bucket.State) {
	for _, i := range images {
		if i.exists {
			states = append(states, &i.State)
		}
	}
	return states
}

// meet reads a shard that is not known: the first one together with what else is not known of the bucket.
func (l *RateLimiter) meet(ctx context.Context, b *bucketRef, s *shard) (*image, error) {
	if s.Shard == 0 {
		if err := l.load(ctx, b, l.options.renewal()); err != nil {
			return nil, err
		}
		if i := s.image.Load(); i != nil {
			return i, nil
		}
	}
	return l.read(ctx, s)
}

// lost looks at the origin of a shard that is not there, so that the next draw knows better.
func (l *RateLimiter) lost(ctx context.Context, b *bucketRef, s *shard) error {
	if _, err := l.read(ctx, b.shard(origin(s.Shard))); err != nil {
		return err
	}
	return errNoShard
}

// survey reads all shards of a bucket: one consistent batch read, and one more for each level of the tree that was not
// known.
func (l *RateLimiter) survey(ctx context.Context, b *bucketRef) ([]*image, error) {
	known := map[int]*image{}
	wanted := []*shard{b.shard(0)}
	for _, s := range *b.shards.Load() {
		if s != nil && s.Shard > 0 && s.count() > 0 {
			wanted = append(wanted, s)
		}
	}
	for len(wanted) > 0 {
		images, err := l.readAll(ctx, wanted)
		if err != nil {
			return nil, err
		}
		for i, s := range wanted {
			known[s.Shard] = images[i]
		}
		wanted = nil
		for _, number := range slices.Sorted(maps.Keys(known)) {
			i := known[number]
			for bit := 1 << bits.Len(uint(number)); i.exists && bit < i.Shards; bit <<= 1 {
				if known[number+bit] == nil {
					wanted = append(wanted, b.shard(number+bit))
				}
			}
		}
	}
	images := make([]*image, 0, len(known))
	for _, number := range slices.Sorted(maps.Keys(known)) {
		images = append(images, known[number])
	}
	return images, nil
}

// Rates at which buckets are divided and joined.
const (
	maxShards  = 32               // the default of WithMaxShards
	paceTime   = 10 * time.Second // over which the rate of writes is measured
	calmWrites = 100              // writes per second of a shard below which it is joined with its sibling
)

// balance divides a shard that was written more often than its key can bear, and joins one that was not for a while. It
// is called after a write, so never on the way to a rejection, and works in the background.
func (l *RateLimiter) balance(ctx context.Context, k *link, s *shard, i *image) {
	if !l.store.Partitioned() {
		return
	}
	now := l.now().UnixMilli()
	switch {
	case i.Pressed(now) && 2*max(i.Shards, 1) <= l.options.maxShards:
		l.resize(ctx, s, func(ctx context.Context) error { return l.split(ctx, k.limits.owner, s, i) })
	case i.Shards > 1 && s.calm(i, now):
		low, high := s, k.bucket.shard(s.Shard|i.Shards/2)
		if s.Shard >= i.Shards/2 {
			low, high = k.bucket.shard(s.Shard-i.Shards/2), s
		}
		l.resize(ctx, low, func(ctx context.Context) error { return l.merge(ctx, low, high) })
	}
}

// A strain counts how often DynamoDB throttled the writes of a shard in a second.
type strain struct {
	since atomic.Int64 // epoch milliseconds
	times atomic.Int64
}

// sustained is how often a shard is throttled within a second, after all retries, before it is divided.
const sustained = 8

// note counts one time, and reports whether it is sustained.
func (t *strain) note(now int64) bool {
	if since := t.since.Load(); now-since >= 1000 && t.since.CompareAndSwap(since, now) {
		t.times.Store(0)
	}
	return t.times.Add(1) >= sustained
}

// strained divides a shard whose writes DynamoDB throttles again and again: its write units may not fall short then, since
// they count the writes that were done.
func (l *RateLimiter) strained(ctx context.Context, k *link, s *shard, i *image, err error) {
	if !l.store.Partitioned() || !i.exists || !isThrottled(err) {
		return
	}
	if s.strain.note(l.now().UnixMilli()) && 2*max(i.Shards, 1) <= l.options.maxShards {
		l.resize(ctx, s, func(ctx context.Context) error { return l.split(ctx, k.limits.owner, s, i) })
	}
}

func isThrottled(err error) bool {
	var failed *store.Error
	return errors.As(err, &failed) && failed.Throttled
}

// calm reports whether an item was written seldom, by anybody, for a while.
func (s *shard) calm(i *image, now int64) bool {
	since := s.pace.Load()
	if since == nil {
		s.pace.CompareAndSwap(nil, i)
		return false
	}
	elapsed := now - since.seenAt
	if elapsed < paceTime.Milliseconds() {
		return false
	}
	s.pace.Store(i)
	return isCalm((i.writes()-since.writes())/millis, elapsed)
}

// resize runs a split or a merge in the background, one at a time for a shard. One that fails is left to the next write.
func (l *RateLimiter) resize(ctx context.Context, s *shard, do func(context.Context) error) {
	if !s.resizing.CompareAndSwap(false, true) {
		return
	}
	if !l.begin() {
		return
	}
	go func() {
		defer l.background.Done()
		defer s.resizing.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		// A conflict is another writer's turn. A throttle brings the next throttled write, which tries again.
		if err := do(ctx); err != nil && !errors.Is(err, store.ErrConflict) && !isThrottled(err) {
			l.options.logger.Warn("zlimit: a bucket could not be divided or joined", "key", s.key.PK, "error", err)
		}
	}()
}

// split divides a shard in one transaction.
func (l *RateLimiter) split(ctx context.Context, o owner, s *shard, i *image) error {
	for attempt := range 4 {
		writes, err := s.splitting(&i.State, o, l.now().UnixMilli())
		if err != nil {
			return err
		}
		applied, err := l.transact(ctx, writes)
		if err != nil {
			return err
		}
		before := i.Shards
		if i, err = l.read(ctx, s); err != nil || applied || !i.exists || i.Shards != before {
			return err
		}
		if err := pause(ctx, attempt+1); err != nil {
			return err
		}
	}
	return nil
}

// splitting returns the writes that divide a shard, for one transaction.
func (s *shard) splitting(state *bucket.State, o owner, now int64) ([]store.Write, error) {
	var plan bucket.Plan
	plan.Split(state, now)
	item := s.item(&plan.Item, o)
	put, err := insert()
	if err != nil {
		return nil, err
	}
	update, err := s.write(&plan, o)
	return []store.Write{update, {Kind: store.Put, Key: item.Key.key(), Item: item.encode(), Expr: put}}, err
}

// merge joins two shards that came from one, in one transaction.
func (l *RateLimiter) merge(ctx context.Context, low, high *shard) error {
	images, err := l.readAll(ctx, []*shard{low, high})
	if err != nil {
		return err
	}
	a, b := images[0], images[1]
	now := l.now().UnixMilli()
	if !a.exists || !b.exists || a.Shards != b.Shards || !alike(&a.State, &b.State) || a.Pressed(now) || b.Pressed(now) {
		return nil
	}
	writes, err := low.merging(high, &a.State, &b.State, now)
	if err != nil {
		return err
	}
	applied, err := l.transact(ctx, writes)
	if applied {
		_, err = l.readAll(ctx, []*shard{low, high})
	}
	return err
}

// merging returns the writes by which a shard takes over another one, for one transaction.
func (s *shard) merging(high *shard, state, other *bucket.State, now int64) ([]store.Write, error) {
	var plan bucket.Plan
	plan.Merge(state, other, now)
	update, err := s.write(&plan, owner{})
	if err != nil {
		return nil, err
	}
	call := absorb(other.RefilledAt, int64(other.Shards))
	for _, l := range other.Limits {
		call.holding(l.Name, l.Tokens)
	}
	remove, err := call.Bind()
	return []store.Write{update, {Kind: store.Delete, Key: high.key, Expr: remove}}, err
}

// alike reports whether two shards have the same limits, so that their tokens may be added up.
func alike(s, other *bucket.State) bool {
	c := bucket.Config{Params: paramsOf(s)}
	return c.Matches(other)
}

// isCalm reports whether an item is written so seldom, over a time in milliseconds, that it may be joined with its sibling.
func isCalm(writes, elapsed int64) bool {
	return elapsed >= paceTime.Milliseconds() && writes*1000 < calmWrites*elapsed
}
