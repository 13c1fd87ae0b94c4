package zlimit_test

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// kindForms are limits of 100 tokens of each kind. Those of one family are of one kind to a bucket.
var kindForms = []struct {
	family string
	limit  zlimit.Limit
}{
	{"refill", zlimit.Limit{Name: "a", Capacity: 100, RefillAmount: 1, RefillPeriod: time.Hour}},
	{"quota", zlimit.Daily("a", 100, "UTC")},
	{"quota", zlimit.Cron("a", 100, "*/50 3 * * *", "UTC")},
	{"session", zlimit.Session("a", 100, 5*time.Hour)},
	{"session", zlimit.Prepaid("a", 100)},
}

// TestKindsChange changes limits of each kind to each kind, of which 70 of 100 tokens are taken. The balance is kept, but a limit that becomes
// a session quota is full. The first request after the change applies it, by this limit or another one. A lease that settles before returns its
// tokens, and one that settles later does so if the kind is the same. Nothing depends on whether the bucket is split.
func TestKindsChange(t *testing.T) {
	forEachPartition(t, func(t *testing.T, s zlimit.Store) {
		for i, from := range kindForms {
			for j, to := range kindForms {
				for _, divided := range []bool{false, true} {
					for _, first := range []string{"", "a", "rpm"} {
						testKindChange(t, s, kindChange{from.limit, to.limit, from.family == to.family, j == 3 && i < 3, divided, first})
					}
				}
			}
		}
	})
}

// A kindChange is one of TestKindsChange.
type kindChange struct {
	from, to zlimit.Limit
	same     bool // the kind is
	renews   bool
	divided  bool   // the bucket is split
	first    string // the limit of a request that comes before the lease settles; "" for none
}

func testKindChange(t *testing.T, s zlimit.Store, ch kindChange) {
	t.Helper()
	ctx, c := t.Context(), newClock()
	c.ms.Store(time.Date(2026, time.January, 10, 10, 0, 0, 0, time.UTC).UnixMilli())
	l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0), zlimit.WithConfigTTL(0))
	drop(t, l) // of the change before
	setSystem(t, l, ch.from, zlimit.PerMinute("rpm", 60))
	lease := acquire(t, l, ask(zlimit.Amounts{"a": 60}))
	acquire(t, l, ask(zlimit.Amounts{"a": 10}))
	if ch.divided {
		split(t, l)
		if got := len(shardsOf(t, l)); got != 2 {
			t.Fatalf("the bucket has %d shards after a split, want 2", got)
		}
	}
	c.sleep(time.Millisecond)
	setSystem(t, l, ch.to, zlimit.PerMinute("rpm", 60))
	want := int64(30)
	if ch.renews {
		want = 100
	}
	expect := func(when string) {
		t.Helper()
		if got := available(t, l, "a"); got != want {
			t.Errorf("%s to %s, split: %v, first %q: %d are left %s, want %d", &ch.from, &ch.to, ch.divided, ch.first, got, when, want)
		}
	}
	expect("after the change")
	if ch.first != "" {
		acquire(t, l, ask(zlimit.Amounts{ch.first: 1}))
		if ch.first == "a" {
			want--
		}
		expect("after a request")
	}
	check.Fatal(t, "Release()", lease.Release(zlimit.Amounts{"a": 20}))
	check.Fatal(t, "Commit()", lease.Commit(ctx))
	if !ch.renews && (ch.same || ch.first == "") {
		want += 20
	}
	expect("after the lease")
	acquire(t, l, ask(zlimit.Amounts{"a": 7}))
	want -= 7
	expect("in the end")
	if ch.divided {
		check.Fatal(t, "mergeShard()", mergeShard(ctx, l, shardsOf(t, l)[0]))
		if got := len(shardsOf(t, l)); got != 1 {
			t.Errorf("%s to %s: the bucket has %d shards after a merge, want 1", &ch.from, &ch.to, got)
		}
		expect("after a merge")
	}
}

// TestShardsBecomePrepaid changes a quota of a split bucket to a prepaid limit. A request that takes of it begins the session on all shards at
// once. Shards that become prepaid one by one keep what they have, and merge.
func TestShardsBecomePrepaid(t *testing.T) {
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(c.now), zlimit.WithFreshness(0), zlimit.WithConfigTTL(0))
	setSystem(t, l, zlimit.Monthly("a", 100, "UTC"))
	acquire(t, l, ask(zlimit.Amounts{"a": 70}))
	split(t, l)
	p := bucket.Params{Name: "a", Capacity: 100 * zlimit.Millis, RefillPeriod: 1000, Session: bucket.Endless}
	config, takes := bucket.Config{Params: []bucket.Params{p}}, &bucket.Demand{Amounts: []bucket.Amount{{Limit: "a", Tokens: 1}}}
	for _, s := range shardsOf(t, l) {
		if !config.Opens([]*bucket.State{s}, takes, c.now().UnixMilli()) {
			t.Errorf("a request begins no session on shard %d", s.Shard)
		}
		c.sleep(time.Second)
		alignOne(t, l, s, p, c.now())
	}
	setSystem(t, l, zlimit.Prepaid("a", 100))
	shards := shardsOf(t, l)
	if config.Opens(shards, takes, c.now().UnixMilli()) {
		t.Error("a request begins a second session")
	}
	check.Fatal(t, "mergeShard()", mergeShard(t.Context(), l, shards[0]))
	if got, left := len(shardsOf(t, l)), available(t, l, "a"); got != 1 || left != 28 {
		t.Errorf("%d are left in %d shards, want 28 in 1", left, got)
	}
}
