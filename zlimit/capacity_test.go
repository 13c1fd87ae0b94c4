package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
)

// putBucket stores an item of a bucket.
func putBucket(tb testing.TB, l *zlimit.RateLimiter, key layout.BucketKey, refilledAt time.Time, shards int64, limits ...bucket.Limit) {
	tb.Helper()
	item := layout.Bucket{Key: key, RefilledAt: refilledAt.UnixMilli(), ShardCount: shards, Limits: limits}
	item.Key.NS = l.NS()
	put(tb, l, item.Key.Key(), item.Encode())
}

// TestCapacity adds up more buckets than fit one read: whole ones, one in debt, one in shards.
func TestCapacity(t *testing.T) {
	forEachIndex(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", 60), zlimit.PerDay("tpd", 1000))
		var want []string
		for i := range 120 {
			id := fmt.Sprintf("e-%03d", i)
			acquire(t, l, zlimit.Request{Entity: id, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 20}})
			want = append(want, id+" 1 [rpm=42 tpd=1000]")
		}
		acquire(t, l, zlimit.Request{Entity: "e", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 1000}})
		acquire(t, l, zlimit.Request{Entity: "e", Resource: "gpt", Consume: zlimit.Amounts{"tpd": 1000}})
		acquire(t, l, zlimit.Request{Entity: "e", Resource: "gpt-4o", Consume: zlimit.Amounts{"tpd": 1000}})
		lease := acquire(t, l, zlimit.Request{Entity: "late", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 900}})
		check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"tpd": 350}), lease.Commit(ctx)))
		for _, resource := range []string{"gpt", "gpt-4o"} {
			enterIndex(t, l, layout.BucketKey{NS: l.NS(), Entity: "e", Resource: resource})
		}
		for i := range 120 {
			enterIndex(t, l, shardKey(l, fmt.Sprintf("e-%03d", i), 0))
		}
		enterIndex(t, l, shardKey(l, "e", 0))
		enterIndex(t, l, shardKey(l, "late", 0))
		for shard := range 4 { // half a token in each, and a share of 4
			putBucket(t, l, layout.BucketKey{Entity: "sharded", Resource: "gpt-4", Shard: shard}, c.now(), 4,
				bucket.Limit{Name: "rpm", Tokens: 500, Capacity: 16_000, RefillAmount: 1, RefillPeriod: 1 << 40},
				bucket.Limit{Name: bucket.WriteUnits, Tokens: 1000, Capacity: 1000_000, RefillAmount: 1000_000, RefillPeriod: 1000})
		}
		want = append(append([]string{"e 1 [rpm=60 tpd=0]"}, want...), "late 1 [rpm=60 tpd=-250]", "sharded 4 [rpm=2]")
		c.sleep(2 * time.Second) // two tokens of rpm flow in, and 0.023 of tpd

		var got []string
		for _, b := range collect(t, "Buckets()", l.Usage.Buckets(ctx, "gpt-4")) {
			var limits []string
			for _, s := range b.Statuses {
				limits = append(limits, fmt.Sprintf("%s=%d", s.Limit.Name, s.Available))
			}
			got = append(got, fmt.Sprintf("%s %d %v", b.Entity, b.Shards, limits))
			if b.Resource != "gpt-4" {
				t.Errorf("Buckets(gpt-4) yields %+v", b)
			}
		}
		compare.Equal(t, "Buckets()", want, got)

		sum := check.Call(l.Usage.Capacity(ctx, "gpt-4")).Must(t, "Usage.Capacity()")
		wantSum := zlimit.Capacity{
			Resource: "gpt-4", At: c.now(), Entities: 123, Items: 126,
			Limits: []zlimit.LimitCapacity{
				{Name: "rpm", Entities: 123, Capacity: 122*60_000 + 16_000, Available: 120*42_000 + 2*60_000 + 2_000},
				{Name: "tpd", Entities: 122, Capacity: 122 * 1000_000, Available: 120*1000_000 + 23, InDebt: 1, Debt: 250_000 - 23},
			},
			Coverage: zlimit.Coverage{Complete: !l.Table().Partitioned()},
		}
		compare.Equal(t, "Capacity()", wantSum, sum)
		tpd, ok := sum.Limit("tpd")
		if got, want := tpd.Utilization(), 1-120_000.023/122_000; !ok || got < want-1e-9 || got > want+1e-9 {
			t.Errorf("Utilization() = %v, want %v", got, want)
		}
		if _, ok := sum.Limit("wcu"); ok {
			t.Error("Capacity() tells of write units")
		}

		none, err := l.Usage.Capacity(ctx, "o3")
		if diff := cmp.Diff(zlimit.Capacity{Resource: "o3", At: c.now(), Limits: []zlimit.LimitCapacity{}, Coverage: wantSum.Coverage}, none); diff != "" || err != nil {
			t.Errorf("Capacity(o3) = %v (-want +got):\n%s", err, diff)
		}
		for b := range l.Usage.Buckets(ctx, "gpt-4") {
			if b.Entity != "e" {
				t.Errorf("the loop went on to %s", b.Entity)
			}
			break
		}
	})
}

// TestCapacityOfFamilies counts a request once: where a parent that made no request itself stands is apart, and one that did counts.
func TestCapacityOfFamilies(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("tpd", 1000))
	for _, e := range []zlimit.Entity{{ID: "org"}, {ID: "team", ParentID: "org", Cascade: true}, {ID: "key", ParentID: "team", Cascade: true}} {
		create(t, l, e)
	}
	stand := func(entities int, available zlimit.Quantity) []zlimit.LimitCapacity {
		return []zlimit.LimitCapacity{{Name: "tpd", Entities: entities, Capacity: zlimit.Quantity(entities) * 1000_000, Available: available}}
	}
	for _, step := range []struct {
		entity            string
		own, parents      int
		limits, ofParents []zlimit.LimitCapacity
	}{
		{"key", 1, 2, stand(1, 900_000), stand(2, 1800_000)},
		{"team", 2, 1, stand(2, 1700_000), stand(1, 800_000)},
		{"org", 3, 0, stand(3, 2400_000), nil},
	} {
		acquire(t, l, zlimit.Request{Entity: step.entity, Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 100}})
		got, err := l.Usage.Capacity(t.Context(), "gpt-4")
		if err != nil || got.Entities != step.own || got.Parents != step.parents {
			t.Fatalf("after a request of %s: Capacity() = %+v, %v; want %d entities and %d parents", step.entity, got, err, step.own, step.parents)
		}
		if diff := cmp.Diff([][]zlimit.LimitCapacity{step.limits, step.ofParents}, [][]zlimit.LimitCapacity{got.Limits, got.OfParents}); diff != "" {
			t.Errorf("after a request of %s (-want +got):\n%s", step.entity, diff)
		}
	}
	for _, b := range collect(t, "Buckets()", l.Usage.Buckets(t.Context(), "gpt-4")) {
		want := map[string][2]zlimit.Quantity{"key": {100_000, 0}, "team": {100_000, 100_000}, "org": {100_000, 200_000}}[b.Entity]
		if got := [2]zlimit.Quantity{b.Own()["tpd"], b.FromChildren["tpd"]}; got != want {
			t.Errorf("%s consumed %v itself and of children, want %v", b.Entity, got, want)
		}
	}
}

// In TestBucketWhoseLimitsChange, one of two shards has been brought in line with other limits: a lower capacity, one limit gone,
// one new.
func TestBucketWhoseLimitsChange(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	old := c.now()
	c.sleep(time.Second)
	for _, later := range []int{0, 1} {
		entity := fmt.Sprint("later-", later)
		putBucket(t, l, layout.BucketKey{Entity: entity, Resource: "gpt-4", Shard: 1 - later}, old, 2,
			bucket.Limit{Name: "gone", Tokens: 1000, Capacity: 10_000, RefillAmount: 1, RefillPeriod: 1 << 40},
			bucket.Limit{Name: "rpm", Tokens: 5000, Capacity: 10_000, RefillAmount: 1, RefillPeriod: 1 << 40})
		putBucket(t, l, layout.BucketKey{Entity: entity, Resource: "gpt-4", Shard: later}, c.now(), 2,
			bucket.Limit{Name: "new", Tokens: 1000, Capacity: 10_000, RefillAmount: 1, RefillPeriod: 1 << 40},
			bucket.Limit{Name: "rpm", Tokens: 2000, Capacity: 6_000, RefillAmount: 1, RefillPeriod: 1 << 40})
		for _, b := range collect(t, "Buckets()", l.Entities.Buckets(context.Background(), entity)) {
			var got []string
			for _, s := range b.Statuses {
				got = append(got, fmt.Sprintf("%s %d/%d", s.Limit.Name, s.Available, s.Limit.Capacity))
			}
			// The share of a capacity of 6 is 3; a new limit starts full.
			compare.Equal(t, fmt.Sprintf("bucket of %s", entity), []string{"new 6/10", "rpm 5/6"}, got)
		}
	}
}
