package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A partitioned store is one whose keys are worth splitting.
type partitioned struct{ store.Store }

func (partitioned) Partitioned() bool { return true }

// forEachPartition runs a test on stores that split buckets.
func forEachPartition(t *testing.T, test func(t *testing.T, s zlimit.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))})) })
	t.Run("dynamodb", func(t *testing.T) {
		s, _ := newTable(t)
		test(t, s)
	})
}

// forEachPartitionAtNight runs a long test on the store in memory, and in its long form as [forEachPartition] does.
func forEachPartitionAtNight(t *testing.T, test func(t *testing.T, s zlimit.Store)) {
	if soak.Runs() || enginetest.IsMean() {
		forEachPartition(t, test)
		return
	}
	t.Run("memory", func(t *testing.T) { test(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))})) })
}

// shardsOf returns the shards of the usual bucket as they are stored.
func shardsOf(tb testing.TB, l *zlimit.RateLimiter) []*bucket.State {
	tb.Helper()
	return storedShards(tb, l, "key-1")
}

// storedShards returns the shards of an entity's bucket as they are stored.
func storedShards(tb testing.TB, l *zlimit.RateLimiter, entity string) []*bucket.State {
	tb.Helper()
	return check.Call(shardsIn(context.Background(), l.Calls(), l.NS(), entity)).Must(tb, "shardsIn()")
}

// shardsIn reads the shards of an entity's bucket from a store.
func shardsIn(ctx context.Context, s store.Store, ns, entity string) (states []*bucket.State, err error) {
	keys := make([]store.Key, zlimit.MaxShards)
	for n := range keys {
		keys[n] = layout.BucketKey{NS: ns, Entity: entity, Resource: "gpt-4", Shard: n}.Key()
	}
	items, err := s.Read(ctx, keys, true)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if item == nil {
			continue
		}
		state, err := layout.ReadState(item)
		if err != nil {
			return nil, err
		}
		states = append(states, &state)
	}
	return states, nil
}

// resizeEach splits or merges the shards of the usual bucket as a store has them.
func resizeEach(ctx context.Context, l *zlimit.RateLimiter, s store.Store, do func(context.Context, *zlimit.RateLimiter, *bucket.State) error) error {
	shards, err := shardsIn(ctx, s, l.NS(), "key-1")
	for _, shard := range shards {
		if err == nil {
			err = do(ctx, l, shard)
		}
	}
	return err
}

// splitShard splits a shard of the usual bucket, unless it is in another state than it was seen in.
func splitShard(ctx context.Context, l *zlimit.RateLimiter, s *bucket.State) error {
	_, err := splitAt(ctx, l, "key-1", s)
	return err
}

// mergeShard merges a shard of the usual bucket.
func mergeShard(ctx context.Context, l *zlimit.RateLimiter, s *bucket.State) error {
	return mergeAt(ctx, l, "key-1", s)
}

// total adds up a limit over shards: the tokens that they have, those that were consumed, and the shares of capacity.
func total(states []*bucket.State, limit string) (tokens, consumed, capacity int64) {
	for _, s := range states {
		for _, l := range s.Limits {
			if l.Name == limit {
				tokens += l.Tokens
				consumed += l.Consumed
				capacity += bucket.Share(l.Capacity, s.Shard, s.Shards)
			}
		}
	}
	return tokens, consumed, capacity
}

// split splits every shard of the usual bucket once, as pressure would.
// consumed returns what all shards of the bucket of an entity count of a limit, in tokens.
func consumed(tb testing.TB, l *zlimit.RateLimiter, entity, limit string) int64 {
	tb.Helper()
	_, consumed, _ := total(storedShards(tb, l, entity), limit)
	return consumed / zlimit.Millis
}

func split(tb testing.TB, l *zlimit.RateLimiter) {
	tb.Helper()
	splitBucket(tb, l, "key-1")
}

func splitBucket(tb testing.TB, l *zlimit.RateLimiter, entity string) {
	tb.Helper()
	for _, s := range storedShards(tb, l, entity) {
		for {
			if done, err := splitAt(context.Background(), l, entity, s); err != nil {
				tb.Fatalf("splitAt() = %v", err)
			} else if done {
				break
			}
			for _, latest := range storedShards(tb, l, entity) {
				if latest.Shard == s.Shard {
					s = latest
				}
			}
		}
	}
}

// splitAt splits a shard of an entity's bucket that was seen in a state, as a process does under pressure. It returns
// false when the shard is in another state now.
func splitAt(ctx context.Context, l *zlimit.RateLimiter, entity string, s *bucket.State) (done bool, err error) {
	writes, err := shardKey(l, entity, s.Shard).Split(s, nil, layout.Lineage{})
	if err != nil || len(writes) == 0 {
		return false, err
	}
	return l.Table().Transact(ctx, writes)
}

// mergeAt merges a shard of an entity's bucket with the one that split off from it, both as they are stored.
func mergeAt(ctx context.Context, l *zlimit.RateLimiter, entity string, s *bucket.State) error {
	_, _, err := mergeNow(ctx, l, entity, s)
	return err
}

// mergeNow does what mergeAt does, and returns the shard that is gone by it.
func mergeNow(ctx context.Context, l *zlimit.RateLimiter, entity string, s *bucket.State) (gone bucket.State, done bool, err error) {
	if s.Shards < 2 || s.Shard >= s.Shards/2 {
		return gone, false, nil
	}
	low, high := shardKey(l, entity, s.Shard), shardKey(l, entity, s.Shard+s.Shards/2)
	items, err := l.Table().Read(ctx, low.Key(), high.Key())
	if err != nil || items[0] == nil || items[1] == nil {
		return gone, false, err
	}
	a, err := layout.ReadState(items[0])
	if err != nil {
		return gone, false, err
	}
	b, err := layout.ReadState(items[1])
	if err != nil || !a.MergesWith(&b) {
		return gone, false, err
	}
	writes, err := low.Merge(high, &a, &b, l.Now().UnixMilli())
	if err == nil {
		done, err = l.Table().Transact(ctx, writes)
	}
	return b, done, err
}

func shardKey(l *zlimit.RateLimiter, entity string, shard int) layout.BucketKey {
	return layout.BucketKey{NS: l.NS(), Entity: entity, Resource: "gpt-4", Shard: shard}
}

// TestPressureSplits writes one bucket more often than a key can bear, from many goroutines. It splits, nothing is
// admitted twice, and the shares add up to the limit (I1, I7). Shared writes would be too few for a key to be pressed.
func TestPressureSplits(t *testing.T) {
	forEachPartitionAtNight(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithoutCoalescing())
		setSystem(t, l, zlimit.PerDay("rpm", 4001))
		var admitted atomic.Int64
		var group sync.WaitGroup
		for range 32 {
			group.Go(func() {
				for range 140 {
					_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1}))
					switch {
					case err == nil:
						admitted.Add(1)
					case !errors.As(err, new(*zlimit.ExceededError)):
						t.Errorf("Acquire() = %v", err)
					}
				}
			})
		}
		group.Wait()
		l.Engine().Quiesce()
		states := shardsOf(t, l)
		tokens, consumed, capacity := total(states, "rpm")
		if len(states) < 2 || admitted.Load() != 4001 || consumed != 4001_000 || tokens >= 1000 || capacity != 4001_000 {
			t.Errorf("%d shards have %d of %d and count %d after %d admissions, want some shards, nothing, 4001000, 4001000 and 4001",
				len(states), tokens, capacity, consumed, admitted.Load())
		}
	})
}

// TestRejectionsDoNotDivide asks an empty bucket again and again.
func TestRejectionsDoNotDivide(t *testing.T) {
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("rpm", 900))
	if got := burst(t, l, 5000); got != 900 {
		t.Errorf("burst(5000) = %d, want 900", got)
	}
	l.Engine().Quiesce()
	if states := shardsOf(t, l); len(states) != 1 {
		t.Errorf("%d shards, want 1", len(states))
	}
}

// TestSplitBucketAdmitsAsMuch holds a bucket of eight shards against the whole one: bursts, requests larger than a
// share, waits, statuses, and settling.
func TestSplitBucketAdmitsAsMuch(t *testing.T) {
	forEachPartition(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerHour("rpm", 201), zlimit.PerHour("tpm", 3600))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		for range 3 {
			split(t, l)
		}
		other := newLimiter(t, s, zlimit.WithClock(c.now)) // knows nothing of shards
		if n := len(shardsOf(t, l)); n != 8 {
			t.Fatalf("%d shards, want 8", n)
		}
		if got := available(t, other, "rpm"); got != 200 {
			t.Errorf("Available() = %d, want 200", got)
		}

		lease := acquire(t, other, ask(zlimit.Amounts{"rpm": 180, "tpm": 3000})) // more than a share
		if e := reject(t, l, ask(zlimit.Amounts{"rpm": 21})); e.Statuses[0].Available != 20 {
			t.Errorf("Statuses = %v, want 20 available", e.Statuses)
		}
		if wait, err := l.TimeUntil(ctx, ask(zlimit.Amounts{"tpm": 1200})); err != nil || wait != 600*time.Second {
			t.Errorf("TimeUntil() = %v, %v, want 10m", wait, err)
		}
		check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpm": -170, "tpm": 100}), lease.Commit(ctx)))
		if r, p := available(t, l, "rpm"), available(t, l, "tpm"); r != 190 || p != 500 {
			t.Errorf("after the correction %d and %d are available, want 190 and 500", r, p)
		}
		lease = acquire(t, l, ask(zlimit.Amounts{"rpm": 100}))
		check.Fatal(t, "Consume() and Rollback()", errors.Join(lease.Consume(ctx, zlimit.Amounts{"rpm": 80}), lease.Rollback(ctx)))
		if got := burst(t, l, 220); got != 190 {
			t.Errorf("burst(220) = %d, want 190", got)
		}
		if _, consumed, _ := total(shardsOf(t, l), "rpm"); consumed != 201_000 {
			t.Errorf("the shards count %d, want 201000", consumed)
		}
		c.sleep(time.Hour)
		if got := burst(t, other, 240); got != 201 {
			t.Errorf("burst(240) an hour later = %d, want 201", got)
		}
		for _, s := range shardsOf(t, l) {
			if s.ExpiresAt != 0 {
				t.Errorf("shard %d of %d expires", s.Shard, s.Shards)
			}
		}
	})
}

// TestSplitBucketOwes settles more than a shard has, and more than all of them have. A debt keeps every shard from
// admitting what the whole bucket would not (I1).
func TestSplitBucketOwes(t *testing.T) {
	forEachPartition(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		stale := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(time.Hour), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1}))
		setSystem(t, l, zlimit.PerHour("tph", 3600), zlimit.PerHour("rph", 100))
		commit := func(lease *zlimit.Lease, correction zlimit.Amounts) {
			t.Helper()
			check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(correction), lease.Commit(ctx)))
		}
		old := acquire(t, stale, ask(zlimit.Amounts{"tph": 10, "rph": 1})) // knows of one shard
		lease := acquire(t, l, ask(zlimit.Amounts{"tph": 10, "rph": 1}))
		split(t, l)
		split(t, l)

		commit(lease, zlimit.Amounts{"tph": 1580, "rph": -1}) // a shard has 900
		if got := available(t, l, "tph"); got != 2000 {
			t.Errorf("%d are left, want 2000", got)
		}
		for _, s := range shardsOf(t, l) {
			for _, l := range s.Limits {
				if l.Tokens < 0 {
					t.Errorf("shard %d owes %d of %s although the others have enough", s.Shard, -l.Tokens, l.Name)
				}
			}
		}
		reject(t, l, ask(zlimit.Amounts{"tph": 2001}))
		acquire(t, l, ask(zlimit.Amounts{"tph": 1000}))
		commit(old, zlimit.Amounts{"tph": 1600})                                                  // 600 more than there are
		if tokens, _, _ := total(shardsOf(t, l), "tph"); tokens < -600_000 || tokens > -599_990 { // each split moves the stamp by a millisecond
			t.Errorf("the shards have %d, want -600000", tokens)
		}
		split(t, l) // of debts, too
		if got := tokensLeft(t, l); got != 0 {
			t.Errorf("a bucket in debt admitted %d", got)
		}
		c.sleep(10*time.Minute - time.Second)
		if got := tokensLeft(t, l); got != 0 {
			t.Errorf("a bucket in debt admitted %d", got)
		}
		c.sleep(11 * time.Second)
		if got := tokensLeft(t, l); got < 9 || got > 10 { // eight shards may each wait for a whole token
			t.Errorf("%d were admitted of 10 that came back", got)
		}
		if got := available(t, l, "rph"); got != 100 { // one given back, and the other refilled
			t.Errorf("%d of rph are left, want 100", got)
		}
	})
}

// tokensLeft acquires single tokens of tph until a request is rejected, and returns how many it got.
func tokensLeft(tb testing.TB, l *zlimit.RateLimiter) (admitted int) {
	tb.Helper()
	for {
		_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"tph": 1}))
		if errors.As(err, new(*zlimit.ExceededError)) {
			return admitted
		}
		check.Fatal(tb, "Acquire()", err)
		admitted++
	}
}

// TestSplitBucketWaitsExactly takes a request of a split bucket to the millisecond.
func TestSplitBucketWaitsExactly(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerMinute("tpm", 997))
	acquire(t, l, ask(zlimit.Amounts{"tpm": 1}))
	split(t, l)
	split(t, l)
	c.sleep(time.Second)
	acquire(t, l, ask(zlimit.Amounts{"tpm": 997}))
	for range 20 {
		e := reject(t, l, ask(zlimit.Amounts{"tpm": 397}))
		c.sleep(e.RetryAfter() - time.Millisecond)
		reject(t, l, ask(zlimit.Amounts{"tpm": 397}))
		c.sleep(time.Millisecond)
		acquire(t, l, ask(zlimit.Amounts{"tpm": 397}))
	}
}

// TestCalmMerges lets the traffic of a split bucket die down. Its shards merge again, nothing is lost, and a lease of a
// shard that is gone is settled on the one that has its tokens.
func TestCalmMerges(t *testing.T) {
	forEachPartition(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithTuning(zlimit.Tuning{BucketTTL: 7}))
		setSystem(t, l, zlimit.PerDay("rpm", 1000))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 100}))
		split(t, l)
		split(t, l)
		var leases []*zlimit.Lease
		for range 16 {
			leases = append(leases, acquire(t, l, ask(zlimit.Amounts{"rpm": 10})))
		}
		for i := 0; i < 400 && len(shardsOf(t, l)) > 1; i++ {
			c.sleep(time.Second)
			acquire(t, l, ask(zlimit.Amounts{"rpm": 1})) // refilled at one in 86 seconds
			l.Engine().Quiesce()
			if _, _, capacity := total(shardsOf(t, l), "rpm"); capacity != 1000_000 {
				t.Fatalf("the shares add up to %d, want 1000000", capacity)
			}
		}
		if states := shardsOf(t, l); len(states) != 1 || states[0].Shards != 1 {
			t.Fatalf("%d shards are left, want 1", len(states))
		}
		before := available(t, l, "rpm")
		for _, lease := range leases {
			check.Error(t, "Rollback()", lease.Rollback(context.Background()))
		}
		if got := available(t, l, "rpm"); got != before+160 {
			t.Errorf("after giving back 160 there are %d, want %d", got, before+160)
		}
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		if states := shardsOf(t, l); states[0].ExpiresAt == 0 {
			t.Error("the merged bucket does not expire")
		}
	})
}

// TestLimitChangesReachShards changes limits of a split bucket (I8).
func TestLimitChangesReachShards(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpm", 1000))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	split(t, l)
	split(t, l)
	setSystem(t, l, zlimit.PerDay("rpm", 101), zlimit.PerDay("tpm", 7))
	if got := burst(t, l, 500); got != 101 {
		t.Errorf("burst(500) after lowering the limit = %d, want 101", got)
	}
	acquire(t, l, ask(zlimit.Amounts{"tpm": 7}))
	reject(t, l, ask(zlimit.Amounts{"tpm": 1}))
}

// TestThrottlesDivide throttles the writes of one key, and of one key alone. Its write units do not fall short, since a
// throttled write is not done. Requests share no writes here, so that each has one throttled write.
func TestThrottlesDivide(t *testing.T) {
	t.Parallel() // it waits for what is tried again
	s, faults := newTable(t)
	l := newLimiter(t, s, zlimit.WithClock(newClock().now), zlimit.WithoutCoalescing())
	setSystem(t, l, zlimit.PerDay("rpm", 2000))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	throttle := func(kind enginetest.Kind, times int) {
		faults.Inject(enginetest.Fault{Kind: kind, Operation: "UpdateItem"})
		var group sync.WaitGroup
		for range times {
			group.Go(func() {
				var outage *zlimit.UnavailableError
				if _, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1})); !errors.As(err, &outage) || outage.Unknown {
					t.Errorf("Acquire() = %v, want an UnavailableError without a write", err)
				}
			})
		}
		group.Wait()
		l.Engine().Quiesce()
		faults.Clear()
	}
	throttle(enginetest.ThroughputExceeded, 7)
	if states := shardsOf(t, l); len(states) != 1 {
		t.Errorf("%d shards after a few throttled writes, want 1", len(states))
	}
	throttle(enginetest.ThroughputExceeded, 1)
	states := shardsOf(t, l)
	if tokens, consumed, _ := total(states, "rpm"); len(states) != 2 || tokens != 1_999_000 || consumed != 1000 {
		t.Errorf("%d shards with %d that count %d, want 2 with 1999000 and 1000", len(states), tokens, consumed)
	}
	if tens, ones := burstOf(t, l, 10, 205), burst(t, l, 15); tens != 199 || ones != 9 {
		t.Errorf("%d requests for 10 and %d for 1 are admitted, want 199 and 9", tens, ones)
	}
}

// TestThrottlesOfExhaustedBuckets throttles the writes of a key whose bucket can admit no more than one key bears.
// The bucket is not split, since more shards would only take more reads.
func TestThrottlesOfExhaustedBuckets(t *testing.T) {
	s, faults := newTable(t)
	l := newLimiter(t, s, zlimit.WithClock(newClock().now), zlimit.WithoutCoalescing())
	setSystem(t, l, zlimit.PerDay("rpm", 900))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	faults.Inject(enginetest.Fault{Kind: enginetest.ThroughputExceeded, Operation: "UpdateItem"})
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if _, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1})); !errors.As(err, new(*zlimit.UnavailableError)) {
				t.Errorf("Acquire() = %v, want an UnavailableError", err)
			}
		})
	}
	group.Wait()
	l.Engine().Quiesce()
	faults.Clear()
	if states := shardsOf(t, l); len(states) != 1 {
		t.Errorf("%d shards, want 1", len(states))
	}
}

// TestDebtWithoutAShard deletes one of two shards, as another program would: a debt is that of the one that is left.
func TestDebtWithoutAShard(t *testing.T) {
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("rpm", 100))
	lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	split(t, l)
	key := layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4", Shard: 1}.Key()
	write(t, l, store.Write{Kind: store.Delete, Key: key})
	check.Error(t, "Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpm": 500}), lease.Commit(t.Context())))
	if tokens, consumed, _ := total(shardsOf(t, l), "rpm"); consumed != 501_000 || tokens > -450_000 {
		t.Errorf("the bucket has %d and counts %d, want a debt of at least 450000 and 501000", tokens, consumed)
	}
}

// TestOrphansAreReplaced restores a split bucket from a backup that was made during the split. The first item is older
// than the split, and the item that was split off exists. The bucket has its whole limit. Under pressure it splits again,
// and the new shard counts on from the orphan, so that what was consumed is not counted twice.
func TestOrphansAreReplaced(t *testing.T) {
	forEachPartition(t, func(t *testing.T, s zlimit.Store) {
		h := hook(s)
		l := newLimiter(t, zlimit.StoreOn(partitioned{h}), zlimit.WithClock(newClock().now), zlimit.WithoutCoalescing())
		setSystem(t, l, zlimit.PerDay("rpm", 2000))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		key := shardKey(l, "key-1", 0).Key()
		older := check.Call(l.Calls().Read(t.Context(), []store.Key{key}, true)).Must(t, "Read()")
		older[0] = older[0].Clone()
		split(t, l)
		for range 20 {
			acquire(t, l, ask(zlimit.Amounts{"rpm": 5}))
		}
		put(t, l, key, older[0])
		orphan := shardsOf(t, l)[1]
		next := newLimiter(t, zlimit.StoreOn(partitioned{h}), zlimit.WithClock(newClock().now), zlimit.WithoutCoalescing())
		acquire(t, next, ask(zlimit.Amounts{"rpm": 1}))
		h.set(times(8, &store.Error{
			Op: "UpdateItem", Throttled: true, Unavailable: true, Err: errors.New("slower"),
			Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}},
		}))
		for range 8 {
			if _, err := next.Acquire(t.Context(), ask(zlimit.Amounts{"rpm": 1})); !errors.As(err, new(*zlimit.UnavailableError)) {
				t.Fatalf("Acquire() = %v, want an UnavailableError", err)
			}
		}
		next.Engine().Quiesce()
		states := shardsOf(t, l)
		if tokens, _, capacity := total(states, "rpm"); len(states) != 2 || tokens != 1_998_000 || capacity != 2_000_000 {
			t.Fatalf("%d shards with %d of %d, want 2 with 1998000 of 2000000", len(states), tokens, capacity)
		}
		for _, old := range orphan.Limits {
			i := slices.IndexFunc(states[1].Limits, func(l bucket.Limit) bool { return l.Name == old.Name })
			if i < 0 || old.Name == "rpm" && states[1].Limits[i].Consumed != old.Consumed || states[1].Limits[i].Consumed < old.Consumed {
				t.Errorf("the new shard has counted %+v, want it to go on from %+v", states[1].Limits, orphan.Limits)
			}
		}
		if tens, ones := burstOf(t, next, 10, 205), burst(t, next, 15); tens != 199 || ones != 8 {
			t.Errorf("%d requests for 10 and %d for 1 are admitted, want 199 and 8", tens, ones)
		}
	})
}
