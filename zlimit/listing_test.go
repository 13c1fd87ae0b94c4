package zlimit_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/enginetest"
	"github.com/zlimit/zlimit-go/internal/faulttest"
	"github.com/zlimit/zlimit-go/internal/layout"
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
	memory, err := zlimit.Memory()
	if err != nil {
		t.Fatal(err)
	}
	s := &listing{Store: memory.Internal()}
	l, err := zlimit.New(t.Context(), zlimit.StoreOn(s), zlimit.WithSetup())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	})
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
	return len(collect(t, "Buckets", l.Usage.Buckets(t.Context(), "gpt-4")))
}

// TestNewBucketsEnterTheIndexLater makes ten buckets at once: two of them enter the index of their resource, and the others when
// they are refilled for the first time. They are entered in the background, a pause after each other.
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

// TestThrottledEntries throttles the first two entries of an index: the entries wait longer for each other, requests do not, and a
// bucket that was not entered is when it is refilled.
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
			if err := s.Delete(context.Background(), []store.Key{shardKey(l, "key-0", 0).Key()}); err != nil {
				t.Error(err)
			}
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

// TestIndexOfTheNamespace has the index of a namespace list the buckets that do not expire, from their creation on or from when
// they expire no more, and no others. A purge finds all.
func TestIndexOfTheNamespace(t *testing.T) {
	test := func(t *testing.T, s zlimit.Store) {
		ctx := t.Context()
		c := newClock()
		admin := newLimiter(t, s, zlimit.WithClock(c.now))
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace("doomed"), zlimit.WithConfigTTL(0))
		setSystem(t, l, zlimit.PerMinute("rpm", 600))
		limits := []zlimit.Limit{zlimit.PerMinute("rpm", 60)}
		if err := l.Limits.SetEntity(ctx, "key-1", "gpt-4", limits); err != nil {
			t.Fatal(err)
		}
		inIndex := func() (entities []string) {
			t.Helper()
			l.Engine().Quiesce()
			enginetest.CatchUp()
			page, err := l.Calls().Query(ctx, layout.QueryNamespaceItems(l.NS()))
			if err != nil {
				t.Fatal(err)
			}
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
		if err := l.Limits.SetEntity(ctx, "key-2", "gpt-4", limits); err != nil {
			t.Fatal(err)
		}
		c.sleep(10 * time.Second)
		useOf(t, l, 3)
		if got := inIndex(); !slices.Equal(got, []string{"key-1", "key-2"}) {
			t.Errorf("the index lists %v, want key-1 and key-2, which expires no more", got)
		}
		id := l.NS()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Namespaces.Delete(ctx, "doomed"); err != nil {
			t.Fatal(err)
		}
		if err := admin.Namespaces.Purge(ctx, id, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			k := layout.BucketKey{NS: id, Entity: fmt.Sprint("key-", i), Resource: "gpt-4"}
			items, err := admin.Calls().Read(ctx, []store.Key{k.Key()}, true)
			if err != nil || items[0] != nil {
				t.Errorf("after a purge key-%d has %v, %v", i, items[0], err)
			}
		}
	}
	t.Run("memory", func(t *testing.T) {
		memory := newMemory(t).Internal()
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
