package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A listing is a store of partitions whose index of a resource throttles the first writes that enter it.
type listing struct {
	store.Store
	throttled atomic.Int64 // writes of the index that are still to be throttled
	entries   atomic.Int64 // writes that enter the index
	before    func()       // is called before such a write; may be nil
}

func (s *listing) Partitioned() bool { return true }

func (s *listing) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if !faulttest.EntersIndex(w) {
		return s.Store.Write(ctx, w)
	}
	s.entries.Add(1)
	if s.before != nil {
		s.before()
	}
	if s.throttled.Add(-1) >= 0 {
		full := []store.Throttle{{Limit: store.OfKey, Write: true, Index: true}}
		return store.Result{}, &store.Error{Throttled: true, Unavailable: true, Throttles: full}
	}
	return s.Store.Write(ctx, w)
}

// newListing returns a limiter on such a store, in a bubble.
func newListing(t *testing.T) (*zlimit.RateLimiter, *listing) {
	t.Helper()
	s := &listing{Store: store.Of(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithListing(true))
	setSystem(t, l, zlimit.PerMinute("rpm", 600))
	return l, s
}

// useOf takes one token of each of the first keys.
func useOf(t *testing.T, l *zlimit.RateLimiter, keys int) {
	t.Helper()
	for i := range keys {
		acquire(t, l, zlimit.Request{Entity: fmt.Sprint("key-", i), Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
	}
}

// bucketsListed returns the number of buckets that the index of the resource has.
func bucketsListed(t *testing.T, l *zlimit.RateLimiter) int {
	t.Helper()
	return len(collect(t, "Buckets()", l.Usage.Buckets(t.Context(), "gpt-4")))
}

// TestNewBucketsEnterTheIndexLater makes ten buckets at the same time: two of them enter the index of their resource, and the
// others when they are refilled for the first time. They are entered in the background, a pause after each other.
func TestNewBucketsEnterTheIndexLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newListing(t)
		useOf(t, l, 10)
		l.Engine().Quiesce()
		if got := bucketsListed(t, l); got != 2 {
			t.Errorf("%d of ten new buckets are listed, want 2", got)
		}
		time.Sleep(10 * time.Second)
		useOf(t, l, 10)
		began := time.Now()
		l.Engine().Quiesce()
		if took := time.Since(began); took < 1100*time.Millisecond || took > 2*time.Second {
			t.Errorf("eight buckets are entered within %v", took)
		}
		if got := bucketsListed(t, l); got != 10 {
			t.Errorf("%d buckets are listed after their first refill, want 10", got)
		}
		time.Sleep(10 * time.Second)
		useOf(t, l, 10)
		l.Engine().Quiesce()
		if got := s.entries.Load(); got != 10 {
			t.Errorf("the index is entered %d times, want 10", got)
		}
	})
}

// TestWhatMattersIsListed makes buckets that nothing refills: half of them are in debt, and half reject. The two that each process
// lists at once are used up before. All are listed, in the background, and Capacity shows them.
func TestWhatMattersIsListed(t *testing.T) {
	const each, rest = 50, int64(300)
	owe := func(t *testing.T, l *zlimit.RateLimiter, entity string) {
		lease := acquire(t, l, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 600}})
		check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"rpm": rest}))
		check.Fatal(t, "Commit()", lease.Commit(t.Context()))
	}
	ways := map[string]struct {
		make func(t *testing.T, l *zlimit.RateLimiter, entity string)
		own  bool // limits of the entity's own, whose buckets do not expire, so that a debt is a write without a refill
		debt int
	}{
		"in debt":                  {owe, false, each},
		"in debt, with own limits": {owe, true, each},
		"rejected": {func(t *testing.T, l *zlimit.RateLimiter, entity string) {
			acquire(t, l, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 600}})
			reject(t, l, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
		}, false, 0},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s := newListing(t)
				useOf(t, l, 2)
				l.Engine().Quiesce()
				for i := range each {
					entity := fmt.Sprint("entity-", i)
					if way.own {
						at, limits := zlimit.Level{Entity: entity, Resource: "gpt-4"}, []zlimit.Limit{zlimit.PerMinute("rpm", 600)}
						setLimits(t, l, at, limits...)
					}
					way.make(t, l, entity)
				}
				began := time.Now()
				l.Engine().Quiesce()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("%d buckets are entered within %v", each, took)
				}
				if got := s.entries.Load(); got != each+2 {
					t.Errorf("the index is entered %d times, want once for each of %d buckets", got, each+2)
				}
				c := check.Call(l.Usage.Capacity(t.Context(), "gpt-4")).Must(t, "Usage.Capacity()")
				rpm, _ := c.Limit("rpm")
				if c.Entities != each+2 || rpm.InDebt != way.debt {
					t.Errorf("Capacity shows %d entities, %d of them in debt, want %d and %d", c.Entities, rpm.InDebt, each+2, way.debt)
				}
			})
		})
	}
}

// TestCoverage covers entities with a bucket in the list, with usage of this hour or the one before, with both and with neither.
func TestCoverage(t *testing.T) {
	c := newClock()
	memory := newMemory(t)
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(memory)}), zlimit.WithClock(c.now))
	covered := func(l *zlimit.RateLimiter) zlimit.Coverage {
		t.Helper()
		got := check.Call(l.Usage.Coverage(t.Context(), "gpt-4")).Must(t, "Usage.Coverage()")
		sum, err := l.Usage.Capacity(t.Context(), "gpt-4")
		if err != nil || sum.Coverage != got {
			t.Errorf("Capacity() tells %+v, %v; Coverage() tells %+v", sum.Coverage, err, got)
		}
		return got
	}
	setSystem(t, l, zlimit.PerMinute("rpm", 600))
	if got := covered(l); got != (zlimit.Coverage{}) || got.Known() {
		t.Errorf("nothing was used, and the coverage is %+v", got)
	}
	put := func(key store.Key, item expr.Item) {
		t.Helper()
		if _, err := store.Of(memory).Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: item}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	list := func(entity string) {
		t.Helper()
		acquire(t, l, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
		enterIndex(t, l, shardKey(l, entity, 0))
	}
	use := func(entity, resource string, ago time.Duration) {
		t.Helper()
		start := c.now().Add(-ago).Truncate(time.Hour)
		u := layout.Usage{Key: layout.UsageKey{NS: l.NS(), Entity: entity, Resource: resource, WindowKey: zlimit.WindowHourly.Key(start)}}
		put(u.Key.Key(), u.Encode())
	}
	list("a")
	list("a-b") // whose key in the index comes after those of the shards of a
	acquire(t, l, zlimit.Request{Entity: "once", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
	use("a", "gpt-4", 0)
	use("a", "gpt-4", time.Hour)
	use("a-b", "gpt-4", time.Hour)
	use("once", "gpt-4", 0)
	use("once", "gpt-4", time.Hour)
	use("earlier", "gpt-4", time.Hour)
	use("long-ago", "gpt-4", 2*time.Hour)
	use("elsewhere", "other", 0)
	list("idle")
	want := zlimit.Coverage{Used: 4, Unlisted: 2}
	if got := covered(l); got != want || got.Missing() != 0.5 || !got.Known() {
		t.Errorf("the coverage is %+v, want %+v", got, want)
	}
	plain := newLimiter(t, memory, zlimit.WithClock(c.now))
	if got := covered(plain); got != (zlimit.Coverage{Complete: true}) || !got.Known() {
		t.Errorf("the coverage of a store in memory is %+v, want a complete one", got)
	}
	for text, of := range map[string]zlimit.Coverage{
		"all buckets are shown": {Complete: true},
		"buckets that were used once may be missing; no usage of the last two hours shows how many": {},
		"of 4 entities that used it in the last two hours, 2 are not shown: used once, or expired":  want,
	} {
		if got := of.String(); got != text {
			t.Errorf("%+v reads %q, want %q", of, got, text)
		}
	}
}

// TestWhatIsUsedOnceIsNotListed settles leases of new buckets at once: a name that is used once stays out of the index.
func TestWhatIsUsedOnceIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newListing(t)
		for i := range 10 {
			lease := acquire(t, l, zlimit.Request{Entity: fmt.Sprint("key-", i), Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 5}})
			check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		}
		l.Engine().Quiesce()
		if got := s.entries.Load(); got != 2 {
			t.Errorf("the index is entered %d times, want twice", got)
		}
	})
}

// TestSettlingLists settles leases some time after the buckets were made: the refill that comes with it lists them.
func TestSettlingLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newListing(t)
		var leases []*zlimit.Lease
		for i := range 10 {
			leases = append(leases, acquire(t, l, zlimit.Request{Entity: fmt.Sprint("key-", i), Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 5}}))
		}
		time.Sleep(10 * time.Second)
		for _, lease := range leases {
			check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		}
		l.Engine().Quiesce()
		if got := bucketsListed(t, l); got != 10 {
			t.Errorf("%d buckets are listed after their leases were settled, want 10", got)
		}
	})
}

// TestThrottledEntries throttles the first two entries of an index. The entries wait longer for each other, and
// requests do not wait longer. A bucket without an entry is entered at its refill.
func TestThrottledEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newListing(t)
		s.throttled.Store(2)
		useOf(t, l, 10)
		time.Sleep(10 * time.Second)
		began := time.Now()
		useOf(t, l, 10)
		if took := time.Since(began); took > 0 {
			t.Errorf("requests take %v", took)
		}
		l.Engine().Quiesce()
		if got := bucketsListed(t, l); got != 10 {
			t.Errorf("%d buckets are listed, want 10", got)
		}
		if took := time.Since(began); took < 1300*time.Millisecond || took > 5*time.Second {
			t.Errorf("ten buckets are entered within %v", took)
		}
		if got := s.entries.Load(); got != 10+2 {
			t.Errorf("the index is entered %d times, want 12", got)
		}
	})
}

// TestDeletedBucketsStayDeleted deletes a bucket before it enters the index: the entry makes no item of its own.
func TestDeletedBucketsStayDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newListing(t)
		s.before = func() {
			check.Error(t, "Delete()", s.Delete(context.Background(), []store.Key{shardKey(l, "key-0", 0).Key()}))
		}
		useOf(t, l, 1)
		l.Engine().Quiesce()
		items, err := s.Read(t.Context(), []store.Key{shardKey(l, "key-0", 0).Key()}, true)
		if err != nil || items[0] != nil {
			t.Errorf("the deleted bucket is %v, %v", items[0], err)
		}
		useOf(t, l, 1)
	})
}

// A sized store is one of partitions that reports a size of its table.
type sized struct {
	partitioned
	store.Scanner
	bytes int64
	err   error
}

func (s sized) Estimate(context.Context) (items, bytes int64, err error) { return 7, s.bytes, s.err }

// TestPurgeCost asks what the scan of a purge costs.
func TestPurgeCost(t *testing.T) {
	memory := store.Of(newMemory(t))
	costOf := func(s zlimit.Store) (zlimit.PurgeCost, error) {
		return newLimiter(t, s).Namespaces.PurgeCost(t.Context())
	}
	for bytes, want := range map[int64]zlimit.PurgeCost{
		0:         {Items: 7},
		1:         {Items: 7, Bytes: 1, ReadUnits: 0.5, Time: 100 * time.Millisecond},
		4096:      {Items: 7, Bytes: 4096, ReadUnits: 0.5, Time: 100 * time.Millisecond},
		3<<20 + 1: {Items: 7, Bytes: 3<<20 + 1, ReadUnits: 384.5, Time: 400 * time.Millisecond},
		1 << 40:   {Items: 7, Bytes: 1 << 40, ReadUnits: 134217728, Time: 1 << 20 * 100 * time.Millisecond},
	} {
		if got, err := costOf(zlimit.StoreOn(sized{partitioned{memory}, memory.(store.Scanner), bytes, nil})); err != nil || got != want {
			t.Errorf("PurgeCost() of %d bytes = %+v, %v, want %+v", bytes, got, err, want)
		}
	}
	if got, err := costOf(zlimit.StoreOn(memory)); err != nil || got != (zlimit.PurgeCost{}) {
		t.Errorf("PurgeCost() in memory = %+v, %v, want nothing", got, err)
	}
	denied := errors.New("denied")
	if _, err := costOf(zlimit.StoreOn(sized{partitioned{memory}, memory.(store.Scanner), 0, denied})); !errors.Is(err, denied) {
		t.Errorf("PurgeCost() = %v, want what DescribeTable failed with", err)
	}
}

// A scans is a store of partitions that counts its scans.
type scans struct {
	partitioned
	store.Scanner
	calls int
}

func (s *scans) Scan(ctx context.Context, q store.Scan) (store.Page, error) {
	s.calls++
	return s.Scanner.Scan(ctx, q)
}

// TestPurgeLeavesWhatExpires purges a namespace without a scan. It deletes the items of all entities and resources that
// other items name. A bucket whose name no other item has is left to its expiry.
func TestPurgeLeavesWhatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		memory := store.Of(newMemory(t))
		s := &scans{partitioned: partitioned{memory}, Scanner: memory.(store.Scanner)}
		items := func(ns string) (keys []string) {
			t.Helper()
			page, err := memory.(store.Scanner).Scan(ctx, store.Scan{Prefix: ns + "/"})
			if err != nil || page.Next != nil {
				t.Fatalf("Scan() = %v, and more: %t", err, page.Next != nil)
			}
			for _, item := range page.Items {
				if k := store.KeyOf(item); strings.HasPrefix(k.PK, ns+"/") {
					keys = append(keys, k.PK)
				}
			}
			return keys
		}
		admin := newLimiter(t, zlimit.StoreOn(s))
		neighbour := newLimiter(t, zlimit.StoreOn(s), zlimit.WithNamespace("neighbour"))
		setSystem(t, neighbour, zlimit.PerMinute("rpm", 600))
		useOf(t, neighbour, 3)
		stays := len(items(neighbour.NS()))
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithNamespace("doomed"))
		setSystem(t, l, zlimit.PerMinute("rpm", 600))
		take := func(entity, resource string) {
			acquire(t, l, zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"rpm": 1}})
		}
		used := func(entity, resource string) {
			u := layout.Usage{Key: layout.UsageKey{NS: l.NS(), Entity: entity, Resource: resource, WindowKey: "2026-01-01T00:00:00Z"}, ExpiresAt: 1 << 40}
			item := slices.DeleteFunc(u.Encode(), func(a expr.Attribute) bool { return strings.HasPrefix(a.Name, "GSI4") })
			if _, err := memory.Write(ctx, store.Write{Kind: store.Put, Key: u.Key.Key(), Item: item}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
		}
		create(t, l, zlimit.Entity{ID: "recorded"})
		take("recorded", "unnamed") // found by the entity, and its resource by it
		used("recorded", "unnamed")
		used("other", "unnamed") // found by that resource, and its entity by it
		take("other", "hidden")
		at := zlimit.Level{Resource: "configured"}
		setLimits(t, l, at, zlimit.PerMinute("rpm", 60))
		take("listed", "configured")
		enterIndex(t, l, layout.BucketKey{NS: l.NS(), Entity: "listed", Resource: "configured"})
		at = zlimit.Level{Entity: "limited", Resource: "anything"}
		setLimits(t, l, at, zlimit.PerMinute("rpm", 60))
		take("limited", "elsewhere")
		take("stranger", "nowhere") // nothing names either
		id := l.NS()
		check.Fatal(t, "Close()", l.Close())
		if _, err := admin.Namespaces.Delete(ctx, "doomed"); err != nil {
			t.Fatalf("Namespaces.Delete() = %v", err)
		}
		check.Fatal(t, "Namespaces.Purge()", admin.Namespaces.Purge(ctx, id, nil, zlimit.LeaveExpiring()))
		stranger := layout.BucketKey{NS: id, Entity: "stranger", Resource: "nowhere"}.Key()
		if left := items(id); !slices.Equal(left, []string{stranger.PK}) || s.calls != 0 {
			t.Errorf("after %d scans the purge leaves %v, want the bucket of the stranger", s.calls, left)
		}
		if got := len(items(neighbour.NS())); got != stays || stays < 4 {
			t.Errorf("the neighbour has %d items, want %d", got, stays)
		}
		check.Fatal(t, "Namespaces.Purge()", admin.Namespaces.Purge(ctx, id, nil))
		if left := items(id); len(left) > 0 || s.calls == 0 {
			t.Errorf("after %d scans a purge leaves %v", s.calls, left)
		}
	})
}

// TestIndexOfTheNamespace checks that the index of a namespace lists the buckets that do not expire, and no others. They are
// listed from their creation, or from when they stop expiring. A purge finds all.
func TestIndexOfTheNamespace(t *testing.T) {
	test := func(t *testing.T, s zlimit.Store) {
		ctx := t.Context()
		c := newClock()
		admin := newLimiter(t, s, zlimit.WithClock(c.now))
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace("doomed"), zlimit.WithConfigTTL(0))
		setSystem(t, l, zlimit.PerMinute("rpm", 600))
		limits := []zlimit.Limit{zlimit.PerMinute("rpm", 60)}
		setLimits(t, l, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, limits...)
		inIndex := func() (entities []string) {
			t.Helper()
			l.Engine().Quiesce()
			enginetest.CatchUp()
			page := check.Call(l.Calls().Query(ctx, layout.QueryNamespaceItems(l.NS()))).Must(t, "Query()")
			for _, item := range page.Items {
				if k, ok := layout.ParseBucketKey(store.KeyOf(item)); ok {
					entities = append(entities, k.Entity)
				}
			}
			slices.Sort(entities)
			return entities
		}
		useOf(t, l, 3)
		if got := inIndex(); !slices.Equal(got, []string{"key-1"}) {
			t.Errorf("the index lists %v, want key-1, which does not expire", got)
		}
		setLimits(t, l, zlimit.Level{Entity: "key-2", Resource: "gpt-4"}, limits...)
		c.sleep(10 * time.Second)
		useOf(t, l, 3)
		if got := inIndex(); !slices.Equal(got, []string{"key-1", "key-2"}) {
			t.Errorf("the index lists %v, want key-1 and key-2, which expires no more", got)
		}
		id := l.NS()
		check.Fatal(t, "Close()", l.Close())
		if _, err := admin.Namespaces.Delete(ctx, "doomed"); err != nil {
			t.Fatalf("Namespaces.Delete() = %v", err)
		}
		check.Fatal(t, "Namespaces.Purge()", admin.Namespaces.Purge(ctx, id, nil))
		for i := range 3 {
			k := layout.BucketKey{NS: id, Entity: fmt.Sprint("key-", i), Resource: "gpt-4"}
			items, err := admin.Calls().Read(ctx, []store.Key{k.Key()}, true)
			if err != nil || items[0] != nil {
				t.Errorf("after a purge key-%d has %v, %v", i, items[0], err)
			}
		}
	}
	t.Run("memory", func(t *testing.T) {
		memory := store.Of(newMemory(t))
		test(t, zlimit.StoreOn(struct {
			partitioned
			store.Scanner
		}{partitioned{memory}, memory.(store.Scanner)}))
	})
	t.Run("dynamodb", func(t *testing.T) {
		s, _ := newTable(t)
		test(t, s)
	})
}
