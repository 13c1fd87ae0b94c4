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

// edit changes the usual bucket as a program might that keeps the layout and not the protocol.
func edit(tb testing.TB, l *zlimit.RateLimiter, shard int, change func(*layout.Bucket)) {
	tb.Helper()
	key := layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4", Shard: shard}.Key()
	item := check.Call(layout.DecodeBucket(stored(tb, l, key))).Must(tb, "layout.DecodeBucket()")
	change(&item)
	put(tb, l, key, item.Encode())
}

// TestFreshnessIsAsked deletes a bucket, which a process whose clock is behind creates again. The first process, which
// saw a recent stamp, may not write without the refill since the new stamp.
func TestFreshnessIsAsked(t *testing.T) {
	c := newClock()
	behind := func() time.Time { return c.now().Add(-10 * time.Second) }
	s := newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	other := newLimiter(t, s, zlimit.WithClock(behind))
	setSystem(t, l, zlimit.PerMinute("rpm", 60))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	drop(t, l)
	acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
	if got := burst(t, l, 100); got != 60 {
		t.Errorf("burst(100) = %d, want 60: the refill of ten seconds fits in once", got)
	}
	c.sleep(time.Second)
	if got := burst(t, l, 100); got != 1 {
		t.Errorf("burst(100) a second later = %d, want 1", got)
	}
}

// TestExpiredItemsAreAdvanced brings the time of expiry forward as another program would. A process with an old image
// must not charge an item that may go at any moment.
func TestExpiredItemsAreAdvanced(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	old := newLimiter(t, s, zlimit.WithClock(c.now))
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, old, zlimit.PerHour("rpm", 100))
	acquire(t, old, ask(zlimit.Amounts{"rpm": 1}))
	c.sleep(time.Millisecond)
	edit(t, other, 0, func(item *layout.Bucket) { item.ExpiresAt = zlimit.Thousands(c.now().UnixMilli()) })
	acquire(t, old, ask(zlimit.Amounts{"rpm": 1}))
	got, err := layout.DecodeBucket(item(t, old))
	if err != nil || got.ExpiresAt <= zlimit.Thousands(c.now().UnixMilli()) {
		t.Errorf("the item that was charged expires at %d, %v", got.ExpiresAt, err)
	}
}

// In TestSeedingAsksForAbsence, another program adds a limit to the item, and leaves the stamp as it was. What it counts is
// not overwritten.
func TestSeedingAsksForAbsence(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerHour("rpm", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	setSystem(t, l, zlimit.PerHour("rpm", 100), zlimit.PerHour("tpm", 500))
	if _, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil {
		t.Fatalf("Limits.Resolve() = %v", err)
	}
	edit(t, l, 0, func(item *layout.Bucket) {
		item.Limits = append(item.Limits, bucket.Limit{
			Name: "tpm", Tokens: 20_000, Capacity: 500_000, RefillAmount: 500_000, RefillPeriod: 3600_000, Consumed: 480_000,
		})
	})
	acquire(t, l, ask(zlimit.Amounts{"tpm": 10}))
	if got := limit(t, l, "tpm"); got.Tokens/1000 != 10 || got.Consumed != 490_000 {
		t.Errorf("tpm has %d and counts %d, want 10 tokens and 490000", got.Tokens, got.Consumed)
	}
}

// In TestResizingAsksForTheCount, another program changes the number of shards, and nothing else.
func TestResizingAsksForTheCount(t *testing.T) {
	ctx := context.Background()
	for name, resize := range map[string]func(l *zlimit.RateLimiter, first *bucket.State) error{
		"split": func(l *zlimit.RateLimiter, first *bucket.State) error {
			edit(t, l, 0, func(item *layout.Bucket) { item.ShardCount = 4 })
			_, err := splitAt(ctx, l, "key-1", first)
			return err
		},
		"merge, low": func(l *zlimit.RateLimiter, first *bucket.State) error {
			return mergeAfter(ctx, l, first, func() { edit(t, l, 0, func(item *layout.Bucket) { item.ShardCount = 4 }) })
		},
		"merge, high": func(l *zlimit.RateLimiter, first *bucket.State) error {
			return mergeAfter(ctx, l, first, func() { edit(t, l, 1, func(item *layout.Bucket) { item.ShardCount = 4 }) })
		},
		"merge, high, refilled": func(l *zlimit.RateLimiter, first *bucket.State) error {
			return mergeAfter(ctx, l, first, func() { edit(t, l, 1, func(item *layout.Bucket) { item.RefilledAt += 3600_000 }) })
		},
		"merge, high, used": func(l *zlimit.RateLimiter, first *bucket.State) error {
			return mergeAfter(ctx, l, first, func() { edit(t, l, 1, func(item *layout.Bucket) { item.Limits[0].Tokens-- }) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, zlimit.StoreOn(hookBuckets(partitioned{store.Of(newMemory(t))})), zlimit.WithClock(newClock().now))
			setSystem(t, l, zlimit.PerHour("rpm", 100))
			acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
			split(t, l)
			check.Fatal(t, "resize()", resize(l, shardsOf(t, l)[0]))
			if states := shardsOf(t, l); len(states) != 2 {
				t.Errorf("%d shards, want the 2 that there were", len(states))
			}
		})
	}
}

// In TestReplacingAnOrphanAsksForItsState, another program changes an orphan before a new shard would take its place, though
// no program that knows the bucket does.
func TestReplacingAnOrphanAsksForItsState(t *testing.T) {
	for name, change := range map[string]func(orphan *layout.Bucket){
		"as it was": func(*layout.Bucket) {},
		"refilled":  func(orphan *layout.Bucket) { orphan.RefilledAt += 3600_000 },
		"split":     func(orphan *layout.Bucket) { orphan.ShardCount = 4 },
		"used":      func(orphan *layout.Bucket) { orphan.Limits[0].Tokens-- },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(newMemory(t))}), zlimit.WithClock(newClock().now))
			setSystem(t, l, zlimit.PerHour("rpm", 100))
			acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
			split(t, l)
			edit(t, l, 0, func(item *layout.Bucket) { item.ShardCount = 1 })
			states := shardsOf(t, l)
			writes := check.Call(shardKey(l, "key-1", 0).Split(states[0], states[1], layout.Lineage{})).Must(t, "Split()")
			edit(t, l, 1, change)
			if done, err := l.Table().Transact(t.Context(), writes); err != nil || done != (name == "as it was") {
				t.Errorf("Transact() = %t, %v, want %t", done, err, name == "as it was")
			}
		})
	}
}

// mergeAfter merges a shard, and runs a function between the read and the write of it.
func mergeAfter(ctx context.Context, l *zlimit.RateLimiter, s *bucket.State, meanwhile func()) error {
	l.Calls().(*hooked).once(meanwhile)
	return mergeAt(ctx, l, "key-1", s)
}

// TestItemsWithoutParameters finds a limit that another program left without a rate, or with an impossible one. It
// counts as one that does not refill, until a request sets it right.
func TestItemsWithoutParameters(t *testing.T) {
	for _, rate := range [][2]int64{{0, 0}, {60_000, 0}, {-1, 60_000}, {60_000, -1}} {
		c := newClock()
		l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", 60))
		lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 50}))
		edit(t, l, 0, func(item *layout.Bucket) {
			for i := range item.Limits {
				item.Limits[i].RefillAmount, item.Limits[i].RefillPeriod = rate[0], rate[1]
			}
		})
		c.sleep(10 * time.Second)
		other := newLimiter(t, zlimit.StoreOn(l.Calls()), zlimit.WithClock(c.now))
		if got := available(t, other, "rpm"); got != 10 {
			t.Errorf("%v: Available() = %d, want 10", rate, got)
		}
		if err := lease.Rollback(context.Background()); err != nil {
			t.Errorf("%v: Rollback() = %v", rate, err)
		}
		if got := burst(t, other, 100); got != 60 {
			t.Errorf("%v: burst(100) = %d, want 60", rate, got)
		}
		c.sleep(10*time.Second + time.Millisecond) // by which setting it right moved the stamp
		if got := burst(t, other, 100); got != 10 {
			t.Errorf("%v: burst(100) ten seconds later = %d, want 10", rate, got)
		}
	}
}

// TestDeletionAsksForTheVersion sets limits between the look of a deletion and its write: the event of the deletion
// shows the limits that were deleted.
func TestDeletionAsksForTheVersion(t *testing.T) {
	ctx := context.Background()
	for about, at := range map[string]zlimit.Level{zlimit.AuditSystem: {}, zlimit.AuditResource("gpt-4"): {Resource: "gpt-4"}} {
		m := hook(newMemory(t))
		l := newLimiter(t, zlimit.StoreOn(m))
		set := func(n int64) {
			check.Error(t, "Limits.Set()", l.Limits.Set(ctx, at, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", n)}}))
		}
		set(1)
		m.once(func() { set(2) })
		check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, at))
		list := events(t, l, about, zlimit.AuditQuery{})
		if last := list[len(list)-1]; len(list) != 3 || last.Action != zlimit.ActionLimitsDeleted || last.Details["config_version"] != int64(2) {
			t.Errorf("events of %s = %v, want the deletion of version 2 at last", about, list)
		}
	}
}

// In TestPurgeAsksForTheState, another program makes a namespace active that is being purged. Its record stays.
func TestPurgeAsksForTheState(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	victim := check.Call(l.Namespaces.Register(ctx, "victim")).Must(t, "Namespaces.Register()")
	create(t, newLimiter(t, zlimit.StoreOn(l.Calls()), zlimit.WithNamespace("victim")), zlimit.Entity{ID: "key-1"})
	if _, err := l.Namespaces.Delete(ctx, "victim"); err != nil {
		t.Fatalf("Namespaces.Delete() = %v", err)
	}
	key := layout.NamespaceIDKey{ID: victim.ID}.Key()
	err := l.Namespaces.Purge(ctx, victim.ID, func(zlimit.PurgeProgress) {
		record := layout.NamespaceID{Key: layout.NamespaceIDKey{ID: victim.ID}, ID: victim.ID, Name: "victim", Status: string(zlimit.NamespaceActive)}
		if _, err := l.Calls().Write(ctx, store.Write{Kind: store.Put, Key: key, Item: record.Encode()}); err != nil {
			t.Errorf("Write() = %v", err)
		}
	})
	items, readErr := l.Table().Read(ctx, key)
	if err != nil || readErr != nil || items[0] == nil {
		t.Errorf("Purge() = %v, and the record is %v, want it to stay", err, items)
	}
}

// In TestCountOfWritesIsSeeded, another program replaces the item by one that does not count its writes, which this layout
// allows. A process that saw the count before must not charge it: the write would fail on every store.
func TestCountOfWritesIsSeeded(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("rpd", 100))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
		edit(t, l, 0, func(it *layout.Bucket) {
			it.Limits = slices.DeleteFunc(it.Limits, func(limit bucket.Limit) bool { return limit.Name == bucket.WriteUnits })
		})
		acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
		if got := limit(t, l, "rpd").Consumed; got != 2000 {
			t.Errorf("the item counts %d of rpd, want 2000", got)
		}
		if writes := limit(t, l, bucket.WriteUnits); writes.Capacity != bucket.WriteCapacity || writes.Consumed != 1000 {
			t.Errorf("the item counts %d writes of %d, want 1000 of %d", writes.Consumed, writes.Capacity, bucket.WriteCapacity)
		}
	})
}

// In TestAdvanceAsksForTheBalance, one process treats a stamp as fresh for a minute. It empties the bucket by a spend, which
// leaves the stamp alone. Another process uses the present time, and may not advance from the former balance.
func TestAdvanceAsksForTheBalance(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		exact, lax := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0)), newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(time.Minute))
		setSystem(t, exact, zlimit.PerDay("rpd", 10))
		acquire(t, exact, ask(zlimit.Amounts{"rpd": 1}))
		c.sleep(2 * time.Second) // too long for a write on credit
		acquire(t, lax, ask(zlimit.Amounts{"rpd": 9}))
		if _, err := exact.Acquire(context.Background(), ask(zlimit.Amounts{"rpd": 5})); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("Acquire() of an empty bucket = %v, want an ExceededError", err)
		}
	})
}

// TestDeletionOfANamespaceAsksForItsName deletes a namespace, and registers its name again, between the look of a
// deletion and its write. The deletion looks again, and deletes the namespace that has the name now.
func TestDeletionOfANamespaceAsksForItsName(t *testing.T) {
	ctx := context.Background()
	m := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(m))
	if _, err := l.Namespaces.Register(ctx, "victim"); err != nil {
		t.Fatalf("Namespaces.Register() = %v", err)
	}
	var next zlimit.Namespace
	m.once(func() {
		_, err := l.Namespaces.Delete(ctx, "victim")
		if err == nil {
			next, err = l.Namespaces.Register(ctx, "victim")
		}
		check.Error(t, "Namespaces.Delete()", err)
	})
	if deleted, err := l.Namespaces.Delete(ctx, "victim"); err != nil || deleted.ID != next.ID {
		t.Errorf("Delete() = %+v, %v, want the namespace of the id %s", deleted, err, next.ID)
	}
}

// In TestRecoveryAsksForTheState, a namespace is purged between the look of a recovery and its write. It does not come back.
func TestRecoveryAsksForTheState(t *testing.T) {
	ctx := context.Background()
	m := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(m))
	if _, err := l.Namespaces.Register(ctx, "victim"); err != nil {
		t.Fatalf("Namespaces.Register() = %v", err)
	}
	victim := check.Call(l.Namespaces.Delete(ctx, "victim")).Must(t, "Namespaces.Delete()")
	m.once(func() {
		check.Error(t, "Namespaces.Purge()", l.Namespaces.Purge(ctx, victim.ID, nil))
	})
	if back, err := l.Namespaces.Recover(ctx, victim.ID); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
		t.Errorf("Recover() = %+v, %v, want ErrNamespaceNotFound", back, err)
	}
}

// TestAttributeSetManually gives the item of a known bucket an attribute that makes it unreadable. A write is done all
// the same, and once: the reply cannot be read, and is no proof of a failure. A call that has to read the item first
// writes nothing. Its error names the item and the attribute.
func TestAttributeSetManually(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s, zlimit.WithClock(newClock().now), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
		setSystem(t, l, zlimit.PerDay("rpm", 1000))
		lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		late := acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		key := layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
		byHand := func(value expr.Value) {
			t.Helper()
			item := item(t, l)
			item.Remove("b_zz_tk")
			if value.Kind() != expr.KindNone {
				item.Set("b_zz_tk", value)
			}
			put(t, l, key, item)
		}
		consumed := func(want int64) {
			t.Helper()
			if got, _ := item(t, l).Get("b_rpm_tc").Int(); got != want*1000 {
				t.Errorf("the item counts %d, want %d", got, want*1000)
			}
		}
		expectItemError := func(call string, err error) {
			t.Helper()
			var broken *zlimit.ItemError
			want := zlimit.ItemError{PK: key.PK, SK: key.SK, Attribute: "b_zz_cp"}
			if !errors.As(err, &broken) || broken.PK != want.PK || broken.SK != want.SK || broken.Attribute != want.Attribute {
				t.Errorf("%s = %v, want an ItemError of %v", call, err, want)
			}
		}

		byHand(expr.N(7))
		check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"rpm": 100}))
		check.Error(t, "Commit()", lease.Commit(ctx))
		for range 2 {
			if err := lease.Commit(ctx); !errors.Is(err, zlimit.ErrLeaseClosed) {
				t.Errorf("Commit() again = %v, want %v", err, zlimit.ErrLeaseClosed)
			}
		}
		consumed(102)

		for range 3 { // nothing is known of the item any more
			_, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 10}))
			expectItemError("Acquire()", err)
			expectItemError("Rollback()", late.Rollback(ctx))
			_, err = l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
			expectItemError("Available()", err)
		}
		consumed(102)
		if got := l.Stats(); got.UnknownOutcomes != 0 || got.Degraded != 0 || got.Unavailable != 0 {
			t.Errorf("Stats() = %+v, want no outage", got)
		}

		byHand(expr.Value{})
		acquire(t, l, ask(zlimit.Amounts{"rpm": 10}))
		byHand(expr.N(7))
		if lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 10})); lease.Degraded() {
			t.Error("a request whose write was applied is admitted uncounted")
		}
		byHand(expr.Value{})
		check.Error(t, "Rollback() of a lease that stayed open", late.Rollback(ctx))
		consumed(121)
	})
}
