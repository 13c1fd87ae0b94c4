package protocol

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// rebalance divides a shard that was written more often than its key can bear, and joins one that was not for a while. It
// is called after a write, so never on the way to a rejection, and works in the background.
func (e *Engine) rebalance(ctx context.Context, l *level, s *shard, i *image) {
	if !e.table.Partitioned() {
		return
	}
	now := e.now()
	switch {
	case e.mayDivide(i) && e.outgrows(l, now) && (i.Pressed(now) || s.traffic.isBusy() && e.table.IntN(beginners) == 0):
		e.resize(ctx, s, func(ctx context.Context) error { return e.split(ctx, l.limits.Owner, s, i) })
	case i.Count() > 1 && s.isQuiet(i, now):
		low, high := bucket.Sibling(s.Shard, i.Count())
		e.resize(ctx, l.bucket.shard(low), func(ctx context.Context) error {
			return e.merge(ctx, l.bucket.shard(low), l.bucket.shard(high))
		})
	}
}

// beginners is among how many writes of a busy shard one divides it. All processes find it busy at once, and a transaction of
// each would only add to what its key bears.
const beginners = 32

// perKey is the number of writes a second that a key bears.
const perKey = 1000

// outgrows reports whether the bucket of a level, as last seen, can admit more requests like this one in the next second than a
// key bears writes. Another shard of a bucket that cannot would only take more reads.
func (e *Engine) outgrows(l *level, now int64) bool {
	states, _ := l.bucket.states(nil)
	return l.limits.Config.Room(states, &l.demand, now, time.Second.Milliseconds()) > perKey
}

func (e *Engine) mayDivide(i *image) bool { return 2*i.Count() <= e.options.MaxShards }

// A throttleCount counts how often DynamoDB throttled the writes of a shard of late.
type throttleCount struct {
	since atomic.Int64 // epoch milliseconds
	times atomic.Int64
}

// A shard that is throttled sustained times within throttleTime, after all retries, is divided. In a crowd of processes each one
// is throttled seldom, and the time is longer. A bucket that is used seldom is not why its key is throttled, however often that
// happens.
const (
	sustained         = 8
	throttleTime      = time.Second
	crowdThrottleTime = 30 * time.Second
)

// hit counts one throttled write, and reports whether throttling is sustained.
func (t *throttleCount) hit(now int64, crowded bool) bool {
	window := throttleTime
	if crowded {
		window = crowdThrottleTime
	}
	since := t.since.Load()
	if now-since >= window.Milliseconds() && t.since.CompareAndSwap(since, now) {
		t.times.Store(0)
	}
	return t.times.Add(1) >= sustained
}

// splitIfThrottled divides a shard whose key DynamoDB throttles again and again. The write units of such a shard may
// not fall short, since they count only the writes that were done. Where the table, an index or the account is
// throttled, more items would not help.
func (e *Engine) splitIfThrottled(ctx context.Context, l *level, s *shard, i *image, err error) {
	if !e.table.Partitioned() || !i.exists || !isKeyThrottled(err) {
		return
	}
	if s.throttled.hit(e.now(), l.bucket.isCrowded()) && e.mayDivide(i) && e.outgrows(l, e.now()) {
		e.resize(ctx, s, func(ctx context.Context) error { return e.split(ctx, l.limits.Owner, s, i) })
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
	return bucket.IsQuiet((i.Writes()-base.Writes())/millis, time.Duration(elapsed)*time.Millisecond)
}

// millis is the number of millitokens in a token.
const millis = 1000

// resize runs a split or a merge in the background, one at a time for a shard. One that fails is left to the next write.
func (e *Engine) resize(ctx context.Context, s *shard, do func(context.Context) error) {
	if !s.resizing.CompareAndSwap(false, true) {
		return
	}
	if !e.Begin() {
		s.resizing.Store(false)
		return
	}
	go func() {
		defer e.End()
		defer s.resizing.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.SettleLimit)
		defer cancel()
		// A conflict is another writer's turn. A throttle brings the next throttled write, which tries again.
		if err := do(ctx); err != nil && !errors.Is(err, store.ErrConflict) && !IsThrottled(err) {
			e.options.Logger.Warn("zlimit: a bucket could not be divided or joined", "key", s.key.PK, "error", err)
		}
	}()
}

// maxSplits bounds the tries of one split.
const maxSplits = 4

// split divides a shard in one transaction. Where an orphan has the key of the new shard, the new shard takes its place.
func (e *Engine) split(ctx context.Context, o layout.Owner, s *shard, i *image) error {
	before := i.Count()
	high := s.bucket.shard(s.Shard + before)
	var orphan *image
	for attempt := range maxSplits {
		writes, err := s.Split(&i.State, orphan.state(), o)
		if err != nil {
			return err
		}
		applied, err := e.table.Transact(ctx, writes)
		if err != nil {
			return err
		}
		if applied {
			e.options.Resized(ctx, s.Entity, s.Resource, 1)
		}
		images, err := e.readShards(ctx, []*shard{s, high})
		if err != nil || applied {
			return err
		}
		// A shard of as many as before has split off none, so that an item in the place of the new one is an orphan.
		if i, orphan = images[0], images[1]; !i.exists || i.Count() != before {
			return nil
		}
		if err := e.table.Pause(ctx, attempt+1); err != nil {
			return err
		}
	}
	return nil
}

// merge joins two shards that came from one, in one transaction.
func (e *Engine) merge(ctx context.Context, low, high *shard) error {
	images, err := e.readShards(ctx, []*shard{low, high})
	if err != nil {
		return err
	}
	a, b := images[0], images[1]
	now := e.now()
	if !a.exists || !b.exists || !a.Joins(&b.State) || a.Pressed(now) || b.Pressed(now) {
		return nil
	}
	writes, err := low.Merge(high.BucketKey, &a.State, &b.State)
	if err != nil {
		return err
	}
	applied, err := e.table.Transact(ctx, writes)
	if applied {
		e.options.Resized(ctx, low.Entity, low.Resource, -1)
		_, err = e.readShards(ctx, []*shard{low, high})
	}
	return err
}
