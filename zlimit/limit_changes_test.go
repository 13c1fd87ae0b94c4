package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestRejectionsBringInLine changes limits of a bucket that rejects. The change takes effect by the first request that
// meets it, at the cost of one write, and the reported wait holds.
func TestRejectionsBringInLine(t *testing.T) {
	own := func(r zlimit.Request, limits ...zlimit.Limit) zlimit.Request {
		r.Limits = limits
		return r
	}
	child := zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 60}}
	for name, test := range map[string]struct {
		before []zlimit.Limit
		take   int64
		owe    int64
		after  func(t *testing.T, l *zlimit.RateLimiter)
		ask    zlimit.Request
	}{
		"a raised rate": {
			before: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}, take: 60, ask: child,
			after: func(t *testing.T, l *zlimit.RateLimiter) { setSystem(t, l, zlimit.PerSecond("rpm", 60)) },
		},
		"a lowered rate": {
			before: []zlimit.Limit{zlimit.PerSecond("rpm", 60)}, take: 60, ask: child,
			after: func(t *testing.T, l *zlimit.RateLimiter) { setSystem(t, l, zlimit.PerMinute("rpm", 60)) },
		},
		"a raised burst": {
			before: []zlimit.Limit{zlimit.PerSecond("rpm", 10)}, take: 10, ask: ask(zlimit.Amounts{"rpm": 500}),
			after: func(t *testing.T, l *zlimit.RateLimiter) { setSystem(t, l, zlimit.PerSecond("rpm", 1000)) },
		},
		"a bucket in debt": {
			before: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}, take: 60, owe: 300, ask: child,
			after: func(t *testing.T, l *zlimit.RateLimiter) { setSystem(t, l, zlimit.PerSecond("rpm", 60)) },
		},
		"a parent's limit": {
			before: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}, take: 60, ask: child,
			after: func(t *testing.T, l *zlimit.RateLimiter) {
				putEntity(t, l, "key-1", "team")
				l.Limits.InvalidateAll()
				setSystem(t, l, zlimit.PerSecond("rpm", 60))
			},
		},
		"limits of the request": {
			before: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}, take: 60, ask: own(child, zlimit.PerSecond("rpm", 60)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			h := hook(newMemory(t))
			l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now), zlimit.WithFreshness(0), zlimit.WithRejectionCache(0))
			setSystem(t, l, test.before...)
			lease := acquire(t, l, ask(zlimit.Amounts{"rpm": test.take}))
			check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpm": test.owe}), lease.Commit(t.Context())))
			if test.after != nil {
				test.after(t, l)
			}
			c.sleep(100 * time.Millisecond)
			wait := reject(t, l, test.ask).RetryAfter()
			writes := h.writes.Load()
			if again := reject(t, l, test.ask).RetryAfter(); again != wait || h.writes.Load() != writes {
				t.Errorf("a second rejection tells %v after %d more writes, want %v after none", again, h.writes.Load()-writes, wait)
			}
			if told, err := l.TimeUntil(t.Context(), test.ask); err != nil || told != wait {
				t.Errorf("TimeUntil() = %v, %v, want %v", told, err, wait)
			}
			c.sleep(wait - time.Millisecond)
			reject(t, l, test.ask)
			c.sleep(time.Millisecond)
			acquire(t, l, test.ask)
		})
	}
}

// TestParentGainsALimit adds a limit to a parent while a lease is open: the lease gives back what it took, and no more.
func TestParentGainsALimit(t *testing.T) {
	for name, settle := range map[string]func(*zlimit.Lease) error{
		"roll back": func(lease *zlimit.Lease) error { return lease.Rollback(context.Background()) },
		"release": func(lease *zlimit.Lease) error {
			return errors.Join(lease.Release(zlimit.Amounts{"rpd": 20, "tpd": 20}), lease.Commit(context.Background()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			s := newMemory(t)
			l := newLimiter(t, s, zlimit.WithClock(c.now))
			putEntity(t, l, "key-1", "team")
			setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 100))
			limitsOfTeam := func(limits ...zlimit.Limit) {
				setLimits(t, l, zlimit.Level{Entity: "team", Resource: "gpt-4"}, limits...)
			}
			limitsOfTeam(zlimit.PerDay("rpd", 100))
			lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 20, "tpd": 20}))
			limitsOfTeam(zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 100))
			acquire(t, l, zlimit.Request{Entity: "team", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 50}})
			check.Fatal(t, "settle()", settle(lease))
			if got := storedLimit(t, l, "team", "tpd"); got.Tokens != 50_000 || got.Consumed != 50_000 {
				t.Errorf("the parent has %d and counts %d, want 50000 each", got.Tokens, got.Consumed)
			}
			if tokens := storedLimit(t, l, "team", "rpd").Tokens; tokens != 100_000 {
				t.Errorf("the parent has %d of rpd, want 100000", tokens)
			}
		})
	}
}

// TestParentLosesALimit takes a limit away from a parent while the process remembers it, and while a request is on its way.
func TestParentLosesALimit(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	h := hook(s)
	l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now))
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	putEntity(t, l, "key-1", "team")
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 1}))
	for _, limits := range [][]zlimit.Limit{{zlimit.PerDay("rpd", 50)}, {zlimit.PerDay("tpd", 50)}, {zlimit.PerDay("x", 50)}} {
		c.sleep(2 * time.Second)
		setLimits(t, other, zlimit.Level{Entity: "team", Resource: "gpt-4"}, limits...)
		acquire(t, other, zlimit.Request{Entity: "team", Resource: "gpt-4", Consume: zlimit.Amounts{limits[0].Name: 1}})
		acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 1}))
	}
	check.Fatal(t, "Limits.Delete()", other.Limits.Delete(t.Context(), zlimit.Level{Entity: "team", Resource: "gpt-4"}))
	c.sleep(2 * time.Second)
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 1}))
	if got := available(t, l, "rpd"); got != 95 {
		t.Errorf("%d are left, want 95", got)
	}
}

// TestForgottenNamesLeaveTheItem names another limit with each request: those that are full leave the item.
func TestForgottenNamesLeaveTheItem(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithConfigTTL(time.Hour))
		for i := range 120 {
			r := ask(zlimit.Amounts{fmt.Sprintf("limit-of-a-long-and-telling-name-%d", i): 1})
			r.Limits = []zlimit.Limit{zlimit.PerSecond(r.Consume.AppendAmounts(nil)[0].Limit, 10)}
			acquire(t, l, r)
			c.sleep(2 * time.Second)
		}
		if got := len(shardsOf(t, l)[0].Limits); got > 12 {
			t.Errorf("the item has %d limits, want a few", got)
		}
	})
}

// TestGatherKeepsLaterLimits takes from several shards by limits that another process has changed: the change stays.
func TestGatherKeepsLaterLimits(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	split(t, l)
	available(t, l, "rpd")
	c.sleep(time.Second / 2)
	setSystem(t, other, zlimit.PerDay("rpd", 200))
	acquire(t, other, ask(zlimit.Amounts{"rpd": 80})) // of both shards
	acquire(t, other, ask(zlimit.Amounts{"rpd": 1}))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
	if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 15})); err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
		t.Fatalf("Acquire() = %v", err)
	}
	if _, _, capacity := total(shardsOf(t, l), "rpd"); capacity != 200_000 {
		t.Errorf("the shards have a capacity of %d, want the 200000 of the later limits", capacity)
	}
}

// In TestLaggingReadsKeepLaterLimits, eventual reads of limits lag behind. A process whose item was already changed by another
// does not undo the change.
func TestLaggingReadsKeepLaterLimits(t *testing.T) {
	c := newClock()
	lag := &lagged{Store: store.Of(newMemory(t)), items: map[store.Key]expr.Item{}}
	l := newLimiter(t, zlimit.StoreOn(lag), zlimit.WithClock(c.now))
	other := newLimiter(t, zlimit.StoreOn(lag.Store), zlimit.WithClock(c.now))
	setSystem(t, other, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	lag.freeze()
	setSystem(t, other, zlimit.PerDay("rpd", 200))
	acquire(t, other, ask(zlimit.Amounts{"rpd": 1}))
	c.sleep(59 * time.Second)
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	if got := limit(t, other, "rpd").Capacity; got != 200_000 {
		t.Errorf("the bucket has a capacity of %d, want 200000", got)
	}
}

// TestEveryRequestReadsLimits turns the memory of limits off. Each request follows what was stored when it came,
// however long eventual reads lag, and though another request began to read before.
func TestEveryRequestReadsLimits(t *testing.T) {
	c := newClock()
	lag := &lagged{Store: store.Of(newMemory(t)), items: map[store.Key]expr.Item{}}
	held := &heldReads{Store: lag}
	l := newLimiter(t, zlimit.StoreOn(held), zlimit.WithClock(c.now), zlimit.WithConfigTTL(0))
	other := newLimiter(t, zlimit.StoreOn(lag.Store), zlimit.WithClock(c.now))
	setSystem(t, other, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	lag.freeze()
	setSystem(t, other, zlimit.PerDay("rpd", 200))
	if got := acquire(t, l, ask(zlimit.Amounts{"rpd": 1})).Statuses()[0].Limit.Capacity; got != 200 {
		t.Errorf("a request goes by a capacity of %d, want the 200 that are stored", got)
	}

	read, goOn := held.hold()
	var group sync.WaitGroup
	group.Go(func() { acquire(t, l, ask(zlimit.Amounts{"rpd": 1})) })
	<-read // what the first request uses
	setSystem(t, other, zlimit.PerDay("rpd", 300))
	group.Go(func() {
		if got := acquire(t, l, ask(zlimit.Amounts{"rpd": 1})).Statuses()[0].Limit.Capacity; got != 300 {
			t.Errorf("a request that joins another goes by a capacity of %d, want the 300 that are stored", got)
		}
	})
	time.Sleep(10 * time.Millisecond) // for the second request to come, as far as it can
	close(goOn)
	group.Wait()
}

// TestLimitsThatWereJustStored asks for tokens before eventual reads show any limits: a lack of limits is only
// reported if it is so.
func TestLimitsThatWereJustStored(t *testing.T) {
	s := newMemory(t)
	h := hook(zlimit.StoreOn(behind{store.Of(s)}))
	l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(newClock().now))
	for _, reads := range []int64{2, 0} {
		before := h.reads.Load()
		if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpm": 1})); !errors.Is(err, zlimit.ErrNoLimits) {
			t.Errorf("Acquire() = %v, want ErrNoLimits", err)
		}
		if got := h.reads.Load() - before; got != reads {
			t.Errorf("%d reads tell it, want %d", got, reads)
		}
	}
	setSystem(t, newLimiter(t, s, zlimit.WithClock(newClock().now)), zlimit.PerDay("rpm", 10))
	acquire(t, newLimiter(t, zlimit.StoreOn(behind{store.Of(s)}), zlimit.WithClock(newClock().now)), ask(zlimit.Amounts{"rpm": 1}))
}

// TestTimeUntilBringsInLine changes limits, and asks for the wait alone, which is right.
func TestTimeUntilBringsInLine(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerMinute("rpm", 60))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 60}))
	setSystem(t, l, zlimit.PerSecond("rpm", 60))
	c.sleep(100 * time.Millisecond)
	told, err := l.TimeUntil(t.Context(), ask(zlimit.Amounts{"rpm": 60}))
	if err != nil || told <= 0 {
		t.Fatalf("TimeUntil() = %v, %v, want a wait", told, err)
	}
	c.sleep(told)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 60}))
}

// TestOwnersThatChanged gives an entity a parent, which a process learns as it finds the item with other limits: the
// parent is charged immediately.
func TestOwnersThatChanged(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	putEntity(t, other, "key-1", "")
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	check.Fatal(t, "Entities.Delete()", other.Entities.Delete(t.Context(), "key-1"))
	putEntity(t, other, "key-1", "team")
	c.sleep(2 * time.Second)
	r := ask(zlimit.Amounts{"rpd": 2})
	r.Limits = []zlimit.Limit{zlimit.PerDay("rpd", 200)}
	acquire(t, newLimiter(t, s, zlimit.WithClock(c.now)), r)
	acquire(t, l, ask(zlimit.Amounts{"rpd": 5}))
	if consumed := storedLimit(t, l, "team", "rpd").Consumed; consumed != 7_000 {
		t.Errorf("the parent counts %d, want 7000", consumed)
	}
}

// TestLimitChangeOfSplitBucketBindsAtOnce changes the limits of a bucket with 32 shards. One request that knows of the change
// brings all shards in line. Another limiter of the same limits then finds as much as the unsplit bucket would have.
func TestLimitChangeOfSplitBucketBindsAtOnce(t *testing.T) {
	fast := zlimit.Limit{Name: "rpm", Capacity: 100_000, RefillAmount: 10_000, RefillPeriod: time.Second}
	slow := zlimit.Limit{Name: "rpm", Capacity: 100_000, RefillAmount: 1, RefillPeriod: 1_000_000 * time.Hour}
	small := zlimit.Limit{Name: "rpm", Capacity: 1000, RefillAmount: 1, RefillPeriod: 1_000_000 * time.Hour}
	for _, change := range []struct {
		name          string
		before, after zlimit.Limit
		left          int64 // when the limits change
		then          zlimit.Limit
		want          int64 // 9 s after the request that knows of the change
	}{
		{"lowered rate", fast, slow, 3200, slow, 3209},
		{"raised rate", slow, fast, 3200, fast, 93_199},
		{"lowered capacity, then raised", slow, small, 3200, slow, 999},
	} {
		t.Run(change.name, func(t *testing.T) {
			forEachPartition(t, func(t *testing.T, s zlimit.Store) {
				c := newClock()
				opts := []zlimit.Option{zlimit.WithClock(c.now), zlimit.WithConfigTTL(0), zlimit.WithFreshness(0), zlimit.WithRejectionCache(0)}
				l := newLimiter(t, s, opts...)
				setSystem(t, l, change.before)
				acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
				for range 5 {
					split(t, l)
				}
				c.sleep(time.Second) // no stamp is ahead
				acquire(t, l, ask(zlimit.Amounts{"rpm": available(t, l, "rpm") - change.left}))
				setSystem(t, l, change.after)
				c.sleep(time.Millisecond)
				acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
				setSystem(t, l, change.then)
				c.sleep(9 * time.Second)
				const roundedDown = 32 // each shard rounds down
				got := available(t, l, "rpm")
				if got > change.want || got < change.want-roundedDown {
					t.Errorf("%d are available, want %d", got, change.want)
				}
				other := newLimiter(t, s, opts...)
				reject(t, other, ask(zlimit.Amounts{"rpm": change.want + 1}))
				acquire(t, other, ask(zlimit.Amounts{"rpm": got}))
			})
		})
	}
}

// haveLimit reports whether all shards of the usual bucket have a limit, by its period.
func haveLimit(tb testing.TB, l *zlimit.RateLimiter, want zlimit.Limit) bool {
	tb.Helper()
	for _, s := range shardsOf(tb, l) {
		for _, has := range s.Limits {
			if has.Name == want.Name && has.RefillPeriod != want.RefillPeriod.Milliseconds() {
				return false
			}
		}
	}
	return true
}

// In TestLimitsThatAreChangedBack, one process knows a bucket with some limits. Another process brings the bucket in
// line with others, and then the first limits are stored again. The first request of the former process finds the item
// as it expects, except for the limits. That request brings all shards in line before it is answered.
func TestLimitsThatAreChangedBack(t *testing.T) {
	slow, fast := zlimit.PerHour("rpm", 10_000), zlimit.PerSecond("rpm", 10_000)
	for _, splits := range []int{0, 2} {
		c := newClock()
		s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
		opts := []zlimit.Option{zlimit.WithClock(c.now), zlimit.WithConfigTTL(0), zlimit.WithFreshness(0)}
		knows, other := newLimiter(t, s, opts...), newLimiter(t, s, opts...)
		setSystem(t, other, slow)
		acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
		for range splits {
			split(t, other)
		}
		c.sleep(time.Second)
		for range 40 {
			acquire(t, knows, ask(zlimit.Amounts{"rpm": 1}))
		}
		setSystem(t, other, fast)
		acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
		if !haveLimit(t, other, fast) {
			t.Fatal("the other process leaves the bucket as it was")
		}
		setSystem(t, other, slow)
		acquire(t, knows, ask(zlimit.Amounts{"rpm": 1}))
		if !haveLimit(t, other, slow) {
			t.Errorf("after %d splits a request that knows of the change leaves %v", splits, shardsOf(t, other))
		}
	}
}

// In TestAlignmentThatFails, a store fails in the middle of a change of limits, which goes shard by shard since transactions meet
// others. The next request finishes the change, whichever shard it takes from.
func TestAlignmentThatFails(t *testing.T) {
	slow, fast := zlimit.PerHour("rpm", 10_000), zlimit.PerSecond("rpm", 10_000)
	c := newClock()
	h := hookOn(partitioned{store.Of(newMemory(t))})
	l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now), zlimit.WithConfigTTL(0), zlimit.WithFreshness(0))
	setSystem(t, l, slow)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	split(t, l)
	reject(t, l, ask(zlimit.Amounts{"rpm": 10_000})) // it looks at all shards
	for round := range 9 {                           // after ten seconds the quiet shards would be merged
		next := slow
		if round%2 == 0 {
			next = fast
		}
		setSystem(t, l, next)
		c.sleep(time.Second)
		writes := 0
		h.set(func(all ...store.Write) error {
			if len(all) > 1 {
				return store.ErrConflict
			}
			if writes++; writes == 2 {
				return &store.Error{Op: "write", Unavailable: true, Err: errors.New("down")}
			}
			return nil
		})
		if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpm": 1})); err == nil || haveLimit(t, l, next) {
			t.Fatalf("round %d: Acquire() = %v, and the change did not fail in the middle: %v", round, err, shardsOf(t, l))
		}
		h.hook.Store(nil)
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		if !haveLimit(t, l, next) {
			t.Fatalf("round %d: after the next request the shards are %v", round, shardsOf(t, l))
		}
	}
}

// In TestDisagreeingLimitsOfSplitBucket, two processes take from one split bucket with limits of their own. They align its shards
// at most once a second each, so that neither keeps the other from taking.
func TestDisagreeingLimitsOfSplitBucket(t *testing.T) {
	c := newClock()
	counted := hookOn(partitioned{store.Of(newMemory(t))})
	s := zlimit.StoreOn(counted)
	a, b := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	by := func(perDay int64) zlimit.Request {
		r := ask(zlimit.Amounts{"rpd": 1})
		r.Limits = []zlimit.Limit{zlimit.PerDay("rpd", perDay)}
		return r
	}
	acquire(t, a, by(10_000))
	for range 3 {
		split(t, a)
	}
	transactions := 0
	counted.set(func(writes ...store.Write) error {
		if len(writes) > 1 {
			transactions++
		}
		return nil
	})
	for range 50 {
		acquire(t, a, by(10_000))
		acquire(t, b, by(20_000))
		c.sleep(time.Millisecond)
	}
	if transactions > 2 {
		t.Errorf("%d transactions, want one of each process", transactions)
	}
}
