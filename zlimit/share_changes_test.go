package zlimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestShareChanges gives a limit in use a share, and takes it away. Neither makes tokens, and the limit is the same afterwards.
func TestShareChanges(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithConfigTTL(0))
	limit := shared(t, l)
	plain := limit
	plain.Floors = ""
	set := func(limit zlimit.Limit) {
		t.Helper()
		setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limit)
	}
	set(plain)
	acquire(t, l, as("batch", zlimit.Amounts{"rpm": 30}))
	set(limit)
	acquire(t, l, as("batch", zlimit.Amounts{"rpm": 10})) // of the rest: the share is empty
	if got := standing(t, l); got != 60 {
		t.Errorf("%d available, want 60", got)
	}
	c.sleep(time.Minute)
	if got := standing(t, l); got != 100 {
		t.Errorf("%d available after a minute, want 100", got)
	}
	acquire(t, l, as("", zlimit.Amounts{"rpm": 90}))
	acquire(t, l, as("batch", zlimit.Amounts{"rpm": 4}))
	set(plain)
	if _, err := l.Acquire(t.Context(), as("", zlimit.Amounts{"rpm": 1})); err == nil {
		t.Error("the end of a share makes tokens")
	}
	c.sleep(time.Minute)
	acquire(t, l, as("batch", zlimit.Amounts{"rpm": 100}))
}

// TestDebtOfShares takes away a share in debt, before or after the lease that owes is corrected. The rest takes the debt over, at once for
// those who look, and for the request whose write brings the bucket in line.
func TestDebtOfShares(t *testing.T) {
	none := func(l zlimit.Limit) zlimit.Limit { l.Floors = ""; return l }
	bulk := func(zlimit.Limit) zlimit.Limit { return zlimit.PerDay("rpd", 100).Share("bulk", 10) }
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		for _, test := range []struct {
			name    string
			limit   func(zlimit.Limit) zlimit.Limit
			before  bool  // the correction is
			changes int   // of the limit
			spare   int64 // of a share, which others cannot have
		}{
			{"gone", none, true, 1, 0},
			{"gone-and-back", none, true, 2, 0},
			{"smaller", func(zlimit.Limit) zlimit.Limit { return zlimit.PerDay("rpd", 100).Share("batch", 5) }, true, 1, -30},
			{"of-another", bulk, true, 1, 0},
			{"gone-under-a-lease", none, false, 1, 0},
			{"of-another-under-a-lease", bulk, false, 1, 0},
		} {
			c := newClock()
			l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithConfigTTL(0))
			limit := zlimit.PerDay("rpd", 100).Share("batch", 10)
			setSystem(t, l, limit)
			request := func(priority string, n int64) zlimit.Request {
				r := as(priority, zlimit.Amounts{"rpd": n})
				r.Entity = test.name
				return r
			}
			lease := acquire(t, l, request("batch", 10))
			correct := func() {
				t.Helper()
				check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 30}), lease.Commit(t.Context())))
			}
			if test.before {
				correct()
			}
			for i := range test.changes {
				if setSystem(t, l, test.limit(limit)); i == 1 {
					setSystem(t, l, limit)
				}
				if test.before {
					statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: test.name, Resource: "gpt-4"})
					if err != nil || statuses[0].Available != 60 {
						t.Errorf("%s: %+v, %v; want 60 available of 100, since 40 are used", test.name, statuses, err)
					}
					if _, err := l.Acquire(t.Context(), request("", 61-test.spare)); !errors.As(err, new(*zlimit.ExceededError)) {
						t.Errorf("%s: Acquire() of too much = %v", test.name, err)
					}
				}
				check.Fatal(t, "Rollback()", acquire(t, l, request("", 1)).Rollback(t.Context()))
			}
			if !test.before {
				correct()
			}
			acquire(t, l, request("", 60-test.spare))
			if _, err := l.Acquire(t.Context(), request("", 1)); !errors.As(err, new(*zlimit.ExceededError)) {
				t.Errorf("%s: Acquire() of what is used = %v", test.name, err)
			}
		}
	})
}

// TestDebtOfShareAfterRest takes a share away whose debt is not paid yet, once the rest of the limit is full. What has flowed in beyond that
// pays nothing of the debt.
func TestDebtOfShareAfterRest(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithConfigTTL(0))
	limit := zlimit.PerSecond("rps", 100)
	setSystem(t, l, limit.Share("batch", 10))
	request := func(priority string, n int64) zlimit.Request { return as(priority, zlimit.Amounts{"rps": n}) }
	lease := acquire(t, l, request("batch", 10))
	check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rps": 40}), lease.Commit(t.Context())))
	c.sleep(2 * time.Second) // in which 20 of 40 are paid
	setSystem(t, l, limit)
	if _, err := l.Acquire(t.Context(), request("", 71)); !errors.As(err, new(*zlimit.ExceededError)) {
		t.Errorf("Acquire() of 71, with 90 in the rest and a debt of 20: %v", err)
	}
	acquire(t, l, request("", 70))
}

// TestCorrectionOfASplitShare charges more for a lease whose tokens are from the shares of three shards. The fourth one, of which it has tokens
// of another limit, comes first among its parts, and has nothing left of the share. The share is charged all the same.
func TestCorrectionOfASplitShare(t *testing.T) {
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("rpd", 100).Share("batch", 20), zlimit.PerDay("rps", 100))
	acquire(t, l, ask(zlimit.Amounts{"rps": 1}))
	split(t, l)
	split(t, l)
	left := func() int64 {
		first, _, _ := total(storedShards(t, l, "key-1")[:1], "rpd/batch")
		return first
	}
	for left() > 0 { // the first shard is drawn sooner or later
		if lease := acquire(t, l, as("batch", zlimit.Amounts{"rpd": 5})); left() > 0 {
			check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		}
	}
	acquire(t, l, ask(zlimit.Amounts{"rpd": 80})) // all of the rest
	lease := acquire(t, l, as("batch", zlimit.Amounts{"rpd": 12, "rps": 1}))
	check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 6}), lease.Commit(t.Context())))
	shards := storedShards(t, l, "key-1")
	rest, _, _ := total(shards, "rpd")
	if share, _, _ := total(shards, "rpd/batch"); rest != 0 || share != -3_000 {
		t.Errorf("the rest has %d and the share %d, want 0 and -3000", rest, share)
	}
}

// TestResetOfChangedShares resets a bucket whose shares were changed since its last request. Each share is full then, and one that is gone adds
// nothing. A new share begins empty at a top-up, as at a request.
func TestResetOfChangedShares(t *testing.T) {
	for _, change := range [][2][2]int{{{0, 0}, {30, 0}}, {{30, 0}, {0, 0}}, {{60, 0}, {30, 0}}, {{60, 0}, {0, 30}}} {
		for _, items := range []int{1, 2} {
			l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(newClock().now), zlimit.WithConfigTTL(0))
			set := func(of [2]int) {
				limit := zlimit.PerDay("rpd", 100)
				for i, percent := range of {
					if percent > 0 {
						limit = limit.Share([]string{"a", "b"}[i], percent)
					}
				}
				setSystem(t, l, limit)
			}
			set(change[0])
			acquire(t, l, ask(zlimit.Amounts{"rpd": 20}))
			if items > 1 {
				split(t, l)
			}
			set(change[1])
			whole := zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"}
			done, err := l.Limits.Reset(t.Context(), whole)
			if err != nil || done.Limits[0].After.Tokens() != 100 {
				t.Errorf("%v of %d items: Reset() = %+v, %v, want 100 afterwards", change, items, done, err)
			}
			acquire(t, l, ask(zlimit.Amounts{"rpd": int64(100 - change[1][0] - change[1][1])}))
			for i, percent := range change[1] {
				if percent > 0 {
					acquire(t, l, as([]string{"a", "b"}[i], zlimit.Amounts{"rpd": int64(percent)}))
				}
			}
			reject(t, l, ask(zlimit.Amounts{"rpd": 1}))
			set([2]int{0, 50})
			added, err := l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"rpd": 5}})
			if err != nil || added.Limits[0].After.Tokens() != 5 {
				t.Errorf("%v of %d items: TopUp() = %+v, %v, want 5 afterwards", change, items, added, err)
			}
		}
	}
}

// TestTopUpTellsShares tops up a limit of which a part is a share: before a bucket is made, and with a part of each used. Both reported
// balances are those of the whole limit, as Available reports it.
func TestTopUpTellsShares(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("rpd", 100).Share("batch", 30), zlimit.PerDay("tpd", 10))
		topUp := func(id string, before, after int64) {
			t.Helper()
			got, err := l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{
				Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"rpd": 5}, OperationID: id,
			})
			if err != nil || len(got.Limits) != 1 || got.Limits[0].Before.Tokens() != before || got.Limits[0].After.Tokens() != after {
				t.Errorf("TopUp(%s) = %+v, %v, want %d before and %d after", id, got, err, before, after)
			}
		}
		topUp("a", 100, 100)
		acquire(t, l, ask(zlimit.Amounts{"rpd": 12}))
		acquire(t, l, as("batch", zlimit.Amounts{"rpd": 9}))
		topUp("b", 79, 84)
		topUp("b", 79, 84)
		if got := available(t, l, "rpd"); got != 84 {
			t.Errorf("%d are available, want 84", got)
		}
	})
}

// TestSplitWhileLimitsChange splits a bucket just before the write that brings it in line with new limits. The request
// that found the former limits brings both shards in line. Otherwise a shard that no request draws would keep the
// former rate forever.
func TestSplitWhileLimitsChange(t *testing.T) {
	w := &shareLedger{Store: store.Of(newMemory(t)), clock: newClock()}
	l := newLimiter(t, zlimit.StoreOn(w), zlimit.WithClock(w.clock.now))
	w.ns = l.NS()
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 90}))
	setSystem(t, l, zlimit.PerDay("rpd", 80))
	w.interrupt(0, func() { split(t, l) })
	reject(t, l, ask(zlimit.Amounts{"rpd": 50}))
	shards := w.shards()
	for _, s := range shards {
		if got := partOf(s, "rpd").Capacity; got != 80_000 || len(shards) != 2 {
			t.Errorf("shard %d of %d has a capacity of %d, want the 80000 of both", s.Shard, len(shards), got)
		}
	}
}
