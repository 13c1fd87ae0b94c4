package protocol

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/seldom"
)

// A resizer splits and merges shards, in the background.
type resizer struct {
	*core
	items *items
	fails seldom.Line // of splits and merges
}

// rebalance splits a shard that is written too often for its key, and merges a shard that was written seldom for a while. It is called
// after a write, so a rejection never waits for it, and works in the background.
func (rs *resizer) rebalance(ctx context.Context, l *level, s *shard, i *image) {
	if !rs.table.Partitioned() {
		return
	}
	now := rs.now()
	pressed := i.Pressed(now)
	switch {
	case (pressed || s.traffic.isBusy()) && rs.maySplit(l, i, now) && (pressed || rs.table.IntN(splitOneIn) == 0):
		lineage := l.limits.Lineage // the memory of the level may be reused by then
		rs.resize(ctx, s, func(ctx context.Context) error { return rs.split(ctx, lineage, s, i) })
	case i.Count() > 1 && s.isQuiet(i, now):
		low, high := bucket.Sibling(s.Shard, i.Count())
		b := l.bucket
		rs.resize(ctx, b.shard(low), func(ctx context.Context) error {
			return rs.merge(ctx, b.shard(low), b.shard(high))
		})
	}
}

// splitOneIn is how many writes of a busy shard there are per try to split it. All processes find the shard busy at the same time, and the
// transactions of all of them would add to the load of its key.
const splitOneIn = 32

// perKey is the number of writes a second that a key sustains.
const perKey = 1000

// outgrows reports whether the bucket of a level, as last seen, outgrows its key: in the next second it can admit more requests like this
// one than a key sustains writes. If it cannot, another shard would only cost more reads.
func (rs *resizer) outgrows(l *level, now int64) bool {
	states, _ := l.bucket.states(nil)
	there := bucket.Demand{Amounts: l.demand.Amounts} // without the debt that waiting callers may add
	return l.limits.Config.Room(states, &there, now, time.Second.Milliseconds()) > perKey
}

// maySplit reports whether a shard may be split, as its last write left it. A shard with a long queue may not: the queue would take as long
// on two shards, and would lose its order. Only the queue of this shard decides, since the images of the others are older. A shard that has
// a quota with rollover may not be split either: see [bucket.State.Carries].
func (rs *resizer) maySplit(l *level, i *image, now int64) bool {
	queue := i.Due(l.demand.Amounts, nil) - max(now, i.RefilledAt)
	return !i.Changed && !i.Carries() && 2*i.Count() <= rs.options.MaxShards && queue <= longQueue.Milliseconds() && rs.outgrows(l, now)
}

// longQueue is the length of a queue above which its shard is not split.
const longQueue = time.Second

// A throttleCount counts how often DynamoDB recently throttled the writes of a shard.
type throttleCount struct {
	since atomic.Int64 // epoch milliseconds
	times atomic.Int64
}

// A shard is split if it is throttled splitThrottles times within throttleTime, after all retries. If many processes write it, each one is
// throttled seldom, so crowdThrottleTime applies. A bucket with little traffic does not cause the throttles of its key, and is never split
// for them.
const (
	splitThrottles    = 8
	throttleTime      = time.Second
	crowdThrottleTime = 30 * time.Second
)

// hit counts one throttled write, and reports whether to split the shard.
func (t *throttleCount) hit(now int64, crowded bool) bool {
	window := throttleTime
	if crowded {
		window = crowdThrottleTime
	}
	since := t.since.Load()
	if now-since >= window.Milliseconds() && t.since.CompareAndSwap(since, now) {
		t.times.Store(0)
	}
	return t.times.Add(1) >= splitThrottles
}

// splitIfThrottled splits a shard whose key DynamoDB throttles repeatedly. The limit of write units does not show such a shard, since it
// counts only applied writes. If the table, an index or the account is throttled, more items would not help.
func (rs *resizer) splitIfThrottled(ctx context.Context, l *level, s *shard, i *image, err error) {
	if !rs.table.Partitioned() || !i.exists || !isKeyThrottled(err) {
		return
	}
	if now := rs.now(); s.throttled.hit(now, l.bucket.isCrowded()) && rs.maySplit(l, i, now) {
		lineage := l.limits.Lineage // the memory of the level may be reused by then
		rs.resize(ctx, s, func(ctx context.Context) error { return rs.split(ctx, lineage, s, i) })
	}
}

// isQuiet reports whether an item was written seldom, by all processes together, for a while.
func (s *shard) isQuiet(i *image, now int64) bool {
	base := s.rateBase.Load()
	if base == nil {
		s.rateBase.CompareAndSwap(nil, i)
		return false
	}
	elapsed := now - base.seenAt
	if elapsed < rateTime.Milliseconds() {
		return false
	}
	s.rateBase.Store(i)
	return bucket.IsQuiet(int64(float64(i.Writes()-base.Writes())/millis*s.traffic.cost()), time.Duration(elapsed)*time.Millisecond)
}

// millis is the number of millitokens in a token.
const millis = 1000

// resize runs a split or a merge in the background, one at a time for a shard. If it fails, the next write tries again.
func (rs *resizer) resize(ctx context.Context, s *shard, do func(context.Context) error) {
	if !s.resizing.CompareAndSwap(false, true) {
		return
	}
	runs := rs.background.Go(ctx, func(ctx context.Context) {
		defer s.resizing.Store(false)
		ctx, cancel := context.WithTimeout(ctx, rs.options.SettleLimit)
		defer cancel()
		// After a conflict or a throttle, a later write tries again.
		if err := do(ctx); err != nil && !errors.Is(err, store.ErrConflict) && !IsThrottled(err) {
			rs.fails.Log(ctx, rs.options.Logger, slog.LevelWarn, "zlimit: a bucket could not be split or merged", "key", s.key.PK, "error", err)
		}
	})
	if !runs {
		s.resizing.Store(false)
	}
}

// maxSplits bounds the tries of one split.
const maxSplits = 4

// split splits a shard in one transaction. If the key of the new shard has an orphan, the new shard replaces it.
func (rs *resizer) split(ctx context.Context, o layout.Lineage, s *shard, i *image) error {
	before := i.Count()
	shards := []*shard{s, s.bucket.shard(s.Shard + before)}
	var orphan *image
	for attempt := range maxSplits {
		if attempt > 0 || s.traffic.isOutdated(rs.now()) { // otherwise the transaction would fail, and conflict with other writes of the shard
			images, err := rs.items.readShards(ctx, shards)
			if err != nil {
				return err
			}
			// If the count of the shard is unchanged, it has not split, so an item at the key of the new shard is an orphan.
			if i, orphan = images[0], images[1]; !i.exists || i.Count() != before {
				return nil
			}
		}
		writes, err := s.Split(&i.State, orphan.state(), o)
		if err != nil || len(writes) == 0 {
			return err
		}
		applied, err := rs.table.Transact(ctx, writes)
		if err != nil {
			return err
		}
		if applied {
			rs.options.Resized(ctx, s.Entity, s.Resource, 1)
			_, err = rs.items.readShards(ctx, shards)
			return err
		}
		if err := rs.table.Pause(ctx, attempt+1); err != nil {
			return err
		}
	}
	return nil
}

// merge merges two shards that were split from one, in one transaction.
func (rs *resizer) merge(ctx context.Context, low, high *shard) error {
	images, err := rs.items.readShards(ctx, []*shard{low, high})
	if err != nil {
		return err
	}
	a, b := images[0], images[1]
	now := rs.now()
	if !a.exists || !b.exists || !a.MergesWith(&b.State) || a.Pressed(now) || b.Pressed(now) {
		return nil
	}
	writes, err := low.Merge(high.BucketKey, &a.State, &b.State, now)
	if err != nil {
		return err
	}
	applied, err := rs.table.Transact(ctx, writes)
	if applied {
		rs.options.Resized(ctx, low.Entity, low.Resource, -1)
		_, err = rs.items.readShards(ctx, []*shard{low, high})
	}
	return err
}
