package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestMergedShardsDoNotCount, another process merges the shards of a bucket. Their images no longer count.
func TestMergedShardsDoNotCount(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithRejectionCache(0))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	split(t, l)
	acquire(t, l, ask(zlimit.Amounts{"rpd": 90})) // of both shards
	available(t, l, "rpd")                        // both are known
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	check.Fatal(t, "mergeAt()", mergeAt(t.Context(), other, "key-1", shardsOf(t, l)[0]))
	acquire(t, other, ask(zlimit.Amounts{"rpd": 9}))
	for range 3 {
		e := reject(t, l, ask(zlimit.Amounts{"rpd": 5}))
		if e.RetryAfter() < time.Hour || len(e.Violations()) != 1 || e.Statuses[0].Available != 0 {
			t.Errorf("rejected by %v, retry after %v; want one violation with nothing available", e.Statuses, e.RetryAfter())
		}
	}
}

// TestFullShardsKeepRefill takes half of a split bucket from one shard, and waits. The other shard is full, and its refill is not lost from a
// second after the take on, neither by a merge nor by another split.
func TestFullShardsKeepRefill(t *testing.T) {
	for name, resize := range map[string]func(context.Context, *zlimit.RateLimiter, *bucket.State) error{
		"as they are": func(context.Context, *zlimit.RateLimiter, *bucket.State) error { return nil },
		"split":       splitShard,
		"merged":      mergeShard,
	} {
		t.Run(name, func(t *testing.T) { testFullShardsKeepRefill(t, resize) })
	}
}

func testFullShardsKeepRefill(t *testing.T, resize func(context.Context, *zlimit.RateLimiter, *bucket.State) error) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerSecond("rpm", 1000, zlimit.Burst(10_000)))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	split(t, l)
	c.sleep(time.Minute)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 4900}))
	c.sleep(4 * time.Second)
	check.Fatal(t, "resize()", resize(t.Context(), l, shardsOf(t, l)[0]))
	if got := available(t, l, "rpm"); got < 8598 || got > 8600 {
		t.Errorf("%d are available, want 8600", got)
	}
	reject(t, l, ask(zlimit.Amounts{"rpm": 8601}))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 8597})) // each shard rounds down, and a stamp moves by a millisecond
	reject(t, l, ask(zlimit.Amounts{"rpm": 4}))
}

// TestSplitBucketIsDeleted deletes a split bucket, from another process, whose shards are to be made even.
func TestSplitBucketIsDeleted(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	putEntity(t, l, "key-1", "")
	setSystem(t, l, zlimit.PerSecond("rpm", 1000, zlimit.Burst(10_000)), zlimit.PerDay("rpd", 10))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	split(t, l)
	c.sleep(time.Minute)
	available(t, l, "rpm") // both shards are known to be full
	check.Fatal(t, "Entities.Delete()", other.Entities.Delete(t.Context(), "key-1"))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 4900}))
	if got := available(t, l, "rpm"); got != 5100 {
		t.Errorf("%d are available, want 5100", got)
	}
}

// TestCorrectionsOfSplitBuckets gives back of one limit what its shard has no room for, together with a debt of another.
func TestCorrectionsOfSplitBuckets(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 100))
	lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 80}))
	split(t, l) // 10 of tpd for each
	check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 150, "tpd": -80}), lease.Commit(t.Context())))
	if rpd, tpd := available(t, l, "rpd"), available(t, l, "tpd"); rpd != -51 || tpd != 100 {
		t.Errorf("%d of rpd and %d of tpd are available, want -51 and 100", rpd, tpd)
	}
}

// TestSplitBucketKeepsRefillWhenLimitsChange takes from a split bucket, one of whose shards has the former limits. What
// the bucket is reported to have is there once all shards are in line. Aligned one by one, they would lose what a full
// shard could not hold.
func TestSplitBucketKeepsRefillWhenLimitsChange(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerSecond("rps", 2))
	acquire(t, l, ask(zlimit.Amounts{"rps": 1}))
	split(t, l)
	c.sleep(time.Second)
	setSystem(t, l, zlimit.Limit{Name: "rps", Capacity: 2, RefillAmount: 1, RefillPeriod: 24 * time.Hour})
	alignOne(t, l, shardsOf(t, l)[0], bucket.Params{Name: "rps", Capacity: 2000, RefillAmount: 1000, RefillPeriod: (24 * time.Hour).Milliseconds()}, c.now())
	c.sleep(2 * time.Minute)
	if got := available(t, l, "rps"); got != 2 {
		t.Fatalf("%d are available, want what the limit of before gave", got)
	}
	for range 2 {
		if wait, err := l.TimeUntil(t.Context(), ask(zlimit.Amounts{"rps": 2})); err != nil || wait != 0 {
			t.Errorf("TimeUntil() = %v, %v, want 0", wait, err)
		}
	}
	acquire(t, l, ask(zlimit.Amounts{"rps": 2}))
	for _, s := range storedShards(t, l, "key-1") {
		if at := s.Limits[0]; at.RefillPeriod != (24 * time.Hour).Milliseconds() {
			t.Errorf("a shard has %+v, want the new limit", at)
		}
	}
}

// alignOne takes a token from one shard and brings it alone in line, as a process does that ends before it comes to the others.
func alignOne(t *testing.T, l *zlimit.RateLimiter, s *bucket.State, p bucket.Params, now time.Time) {
	t.Helper()
	var plan bucket.Plan
	take := bucket.Demand{Amounts: []bucket.Amount{{Limit: p.Name, Tokens: zlimit.Millis}}}
	plan.Decide(s, &bucket.Config{Params: []bucket.Params{p}}, &take, now.UnixMilli())
	w, err := shardKey(l, "key-1", s.Shard).Write(&plan, layout.Lineage{})
	if err == nil {
		_, err = l.Calls().Write(t.Context(), w)
	}
	check.Fatal(t, "Write()", err)
}

// A scattered store reads the items of a batch one after another, in any order, as DynamoDB may. Something happens in between.
type scattered struct {
	store.Store
	order     []int // of the items of a batch that has as many
	at        int   // before which of them it happens
	meanwhile func()
}

func (s *scattered) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	meanwhile := s.meanwhile
	if len(keys) != len(s.order) || meanwhile == nil {
		return s.Store.Read(ctx, keys, consistent)
	}
	s.meanwhile = nil // once
	items := make([]expr.Item, len(keys))
	for i, place := range s.order {
		if i == s.at {
			meanwhile()
		}
		one, err := s.Store.Read(ctx, keys[place:place+1], consistent)
		if err != nil {
			return nil, err
		}
		items[place] = one[0]
	}
	return items, nil
}

// TestShardsMoveWhileTheyAreRead splits a shard or merges two while the shards of a bucket are read in some order.
// The constant content of the bucket is admitted.
func TestShardsMoveWhileTheyAreRead(t *testing.T) {
	resizes := map[string]func(context.Context, *zlimit.RateLimiter, *bucket.State) error{"split": splitShard, "merged": mergeShard}
	for name, resize := range resizes {
		for moved := range 4 {
			if name == "merged" && moved > 1 {
				continue // shards 2 and 3 are the second ones of their pairs
			}
			for _, order := range permutations(4) {
				for at := 1; at < 4; at++ {
					s := &scattered{Store: partitioned{store.Of(newMemory(t))}, order: order, at: at}
					l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithClock(newClock().now), zlimit.WithRejectionCache(0))
					setSystem(t, l, zlimit.PerDay("rpd", 1000))
					acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
					split(t, l)
					split(t, l)
					acquire(t, l, ask(zlimit.Amounts{"rpd": 200})) // of one
					available(t, l, "rpd")                         // all are known
					done := false
					s.meanwhile = func() {
						done = true
						check.Fatal(t, "resize()", resize(t.Context(), l, shardsOf(t, l)[moved]))
					}
					if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 798})); err != nil || !done {
						t.Fatalf("shard %d is %s (%v) before item %d of %v: Acquire() = %v, want that it is admitted", moved, name, done, at, order, err)
					}
				}
			}
		}
	}
}

// permutations returns the orders of the numbers below n.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, rest := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(rest), at, n-1))
		}
	}
	return all
}

// TestLostShardIsLookedForTwice rejects requests of a bucket with a deleted shard. It takes two reads of all shards at
// most, since a missing shard may be about to appear.
func TestLostShardIsLookedForTwice(t *testing.T) {
	for _, age := range []time.Duration{0, 250 * time.Millisecond} {
		c := newClock()
		h := hook(zlimit.StoreOn(partitioned{store.Of(newMemory(t))}))
		l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now), zlimit.WithConfigTTL(time.Hour), zlimit.WithRejectionCache(age))
		setSystem(t, l, zlimit.PerDay("rpd", 100))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
		split(t, l)
		available(t, l, "rpd")
		lost := store.Write{Key: shardKey(l, "key-1", 1).Key(), Kind: store.Delete}
		if _, err := l.Table().Transact(t.Context(), []store.Write{lost}); err != nil {
			t.Fatalf("Transact() = %v", err)
		}
		for range 3 {
			c.sleep(time.Second)
			h.reads.Store(0)
			e := reject(t, l, ask(zlimit.Amounts{"rpd": 60}))
			if got := e.Statuses[0].Available; got != 49 || h.reads.Load() > 4 {
				t.Errorf("rejected as %d are left, by %d reads; want 49, and 4 reads at most", got, h.reads.Load())
			}
		}
	}
}
