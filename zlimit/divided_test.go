package zlimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestMergedShardsDoNotCount has another process merge the shards of a bucket: their images count no more.
func TestMergedShardsDoNotCount(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{newMemory(t).Internal()})
	l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithRejectionCache(0))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	divide(t, l)
	acquire(t, l, ask(zlimit.Amounts{"rpd": 90})) // of both shards
	available(t, l, "rpd")                        // both are known
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	if err := joinAt(t.Context(), other, "key-1", shardsOf(t, l)[0]); err != nil {
		t.Fatal(err)
	}
	acquire(t, other, ask(zlimit.Amounts{"rpd": 9}))
	for range 3 {
		e := reject(t, l, ask(zlimit.Amounts{"rpd": 5}))
		if e.RetryAfter() < time.Hour || len(e.Violations()) != 1 || e.Statuses[0].Available != 0 {
			t.Errorf("rejected by %v, retry after %v; want one violation with nothing available", e.Statuses, e.RetryAfter())
		}
	}
}

// TestFullShardsKeepRefill takes half of a divided bucket from one shard, and waits: the refill that the other one cannot
// hold is not lost.
func TestFullShardsKeepRefill(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{newMemory(t).Internal()}), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerSecond("rpm", 1000, zlimit.Burst(10_000)))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	divide(t, l)
	c.sleep(time.Minute)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 4900}))
	c.sleep(4 * time.Second)
	if got := available(t, l, "rpm"); got < 9099 || got > 9100 {
		t.Errorf("%d are available, want 9100", got)
	}
	reject(t, l, ask(zlimit.Amounts{"rpm": 9101}))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 9098})) // each shard rounds down
	reject(t, l, ask(zlimit.Amounts{"rpm": 3}))
}

// TestDividedBucketIsDeleted deletes a divided bucket, from another process, whose shards are to be made even.
func TestDividedBucketIsDeleted(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{newMemory(t).Internal()})
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	putEntity(t, l, "key-1", "")
	setSystem(t, l, zlimit.PerSecond("rpm", 1000, zlimit.Burst(10_000)), zlimit.PerDay("rpd", 10))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	divide(t, l)
	c.sleep(time.Minute)
	available(t, l, "rpm") // both shards are known to be full
	if err := other.Entities.Delete(t.Context(), "key-1"); err != nil {
		t.Fatal(err)
	}
	acquire(t, l, ask(zlimit.Amounts{"rpm": 4900}))
	if got := available(t, l, "rpm"); got != 5100 {
		t.Errorf("%d are available, want 5100", got)
	}
}

// TestCorrectionsOfDividedBuckets gives back of one limit what its shard has no room for, together with a debt of another.
func TestCorrectionsOfDividedBuckets(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{newMemory(t).Internal()}), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 100))
	lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 80}))
	divide(t, l) // 10 of tpd for each
	if err := errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 150, "tpd": -80}), lease.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	if rpd, tpd := available(t, l, "rpd"), available(t, l, "tpd"); rpd != -51 || tpd != 100 {
		t.Errorf("%d of rpd and %d of tpd are available, want -51 and 100", rpd, tpd)
	}
}

// TestDividedBucketKeepsRefillWhenLimitsChange takes from a divided bucket, one of whose shards has limits of before.
// What the bucket is told to have is there once all shards are in line. Aligned one by one, they would lose what a full
// shard could not hold.
func TestDividedBucketKeepsRefillWhenLimitsChange(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{newMemory(t).Internal()}), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerSecond("rps", 2))
	acquire(t, l, ask(zlimit.Amounts{"rps": 1}))
	divide(t, l)
	c.sleep(time.Second)
	setSystem(t, l, zlimit.Limit{Name: "rps", Capacity: 2, RefillAmount: 1, RefillPeriod: 24 * time.Hour})
	acquire(t, l, ask(zlimit.Amounts{"rps": 1})) // brings one of two in line
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
