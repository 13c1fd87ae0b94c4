package zlimit_test

import (
	"context"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A readyStore answers every write of a bucket immediately with the same image, once it has one.
type readyStore struct {
	store.Store
	item expr.Item
}

// Immediate implements [store.Immediate].
func (s *readyStore) Immediate() {}

func (s *readyStore) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if s.item == nil {
		return s.Store.Write(ctx, w)
	}
	return store.Result{Applied: true, Item: s.item}, nil
}

// newReady returns a limiter on a store that answers immediately, and knows the bucket of key-1.
func newReady(tb testing.TB) *zlimit.RateLimiter {
	tb.Helper()
	ready := &readyStore{Store: store.Of(newMemory(tb))}
	return readyOn(tb, ready, ready)
}

// readyOn returns a limiter on a store that knows the bucket of key-1.
func readyOn(tb testing.TB, s store.Store, ready *readyStore) *zlimit.RateLimiter {
	tb.Helper()
	l := newLimiter(tb, zlimit.StoreOn(s), zlimit.WithClock(benchClock))
	setSystem(tb, l, zlimit.PerMinute("rpm", 1e12), zlimit.PerMinute("tpm", 1e12))
	acquire(tb, l, benchRequest)
	ready.item = item(tb, l)
	return l
}

// TestAllocations pins what a request allocates beside its store: a lease, and the image that the store returned. A lease that has nothing
// to correct allocates nothing more.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ctx := context.Background()
	l := newReady(t)
	expect := func(name string, want float64, call func() error) {
		t.Helper()
		got := testing.AllocsPerRun(1000, func() {
			check.Fatal(t, "call()", call())
		})
		if got > want {
			t.Errorf("%s: %v allocations, want %v at most", name, got, want)
		}
	}
	expect("acquire", 2, func() error { _, err := l.Acquire(ctx, benchRequest); return err })
	typed := zlimit.Request{Entity: "key-1", Consume: gpt4{1, 50}}
	expect("acquire of a type", 2, func() error { _, err := l.Acquire(ctx, typed); return err })
	tokens := int64(50)
	expect("acquire of a type that is made for the request", 3, func() error {
		tokens++
		_, err := l.Acquire(ctx, zlimit.Request{Entity: "key-1", Consume: gpt4{1, tokens}})
		return err
	})
	expect("acquire, and commit with nothing to correct", 2, func() error {
		lease, err := l.Acquire(ctx, benchRequest)
		if err != nil {
			return err
		}
		return lease.Commit(ctx)
	})
	ready := &readyStore{Store: store.Of(newMemory(t))}
	remote := readyOn(t, struct{ store.Store }{ready}, ready) // a store that is not immediate, whose calls the breaker watches
	expect("acquire of a store with a breaker", 2+4, func() error { _, err := remote.Acquire(ctx, benchRequest); return err })
	expect("do", 2, func() error {
		return l.Do(ctx, benchRequest, func(context.Context, *zlimit.Lease) error { return nil })
	})
}
