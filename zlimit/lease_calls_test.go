package zlimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A faraway store takes its time for each call, and may fail the next write or not answer the next read. A write whose context ends
// meanwhile is not done.
type faraway struct {
	store.Store
	takes    atomic.Int64 // nanoseconds
	fails    atomic.Pointer[store.Error]
	loseRead atomic.Bool
}

func (f *faraway) travel(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(f.takes.Load())):
		return nil
	case <-ctx.Done():
		return &store.Error{Op: "call", Err: ctx.Err()}
	}
}

func (f *faraway) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := f.travel(ctx); err != nil {
		return store.Result{}, err
	}
	if err := f.fails.Swap(nil); err != nil {
		return store.Result{}, err
	}
	return f.Store.Write(ctx, w)
}

func (f *faraway) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if f.loseRead.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, &store.Error{Op: "read", Unavailable: true, Err: ctx.Err()}
	}
	if err := f.travel(ctx); err != nil {
		return nil, err
	}
	return f.Store.Read(ctx, keys, consistent)
}

// far runs a test with a limiter on a store whose calls take 1.5 s once it has a lease of 500 of 1000 tokens.
func far(t *testing.T, test func(t *testing.T, l *zlimit.RateLimiter, f *faraway, lease *zlimit.Lease)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &faraway{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.EmbeddedStoreOn(f), zlimit.WithCallTimeout(time.Minute), zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("tpm", 1000))
		lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 500}))
		f.takes.Store(int64(1500 * time.Millisecond))
		test(t, l, f, lease)
	})
}

// holds checks what the item has after a test.
func (f *faraway) holds(t *testing.T, l *zlimit.RateLimiter, counted int64) {
	t.Helper()
	f.takes.Store(0)
	if got := limit(t, l, "tpm"); got.Tokens != (1000-counted)*1000 || got.Consumed != counted*1000 {
		t.Errorf("the item has %d and counts %d, want %d and %d", got.Tokens, got.Consumed, (1000-counted)*1000, counted*1000)
	}
}

// outcome runs a call in a goroutine of its own until it waits, and returns a function that waits for its error.
func outcome(call func() error) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- call() }()
	synctest.Wait()
	return func() error { return <-done }
}

// returns fails for a call that does not return with an error after a time.
func returns(t *testing.T, name string, want error, after time.Duration, call func() error) {
	t.Helper()
	began := time.Now()
	if err := call(); !errors.Is(err, want) || time.Since(began) != after {
		t.Errorf("%s = %v after %v, want %v after %v", name, err, time.Since(began), want, after)
	}
}

// TestLeaseDuringConsume calls the methods of a lease while a Consume is under way: none waits for that.
func TestLeaseDuringConsume(t *testing.T) {
	far(t, func(t *testing.T, l *zlimit.RateLimiter, f *faraway, lease *zlimit.Lease) {
		first := outcome(func() error { return lease.Consume(t.Context(), zlimit.Amounts{"tpm": 100}) })
		returns(t, "Adjust()", nil, 0, func() error { return lease.Adjust(zlimit.Amounts{"tpm": 30}) })
		returns(t, "Release()", nil, 0, func() error { return lease.Release(zlimit.Amounts{"tpm": 10}) })
		returns(t, "Consumed()", nil, 0, func() error {
			compare.Equal(t, "Consumed()", zlimit.Amounts{"tpm": 520}, lease.Consumed())
			return nil
		})
		returns(t, "Statuses()", nil, 0, func() error { lease.Statuses(); return nil })
		returns(t, "Consume() of a caller in a hurry", context.DeadlineExceeded, 100*time.Millisecond, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			return lease.Consume(ctx, zlimit.Amounts{"tpm": 7})
		})
		second := outcome(func() error { return lease.Consume(t.Context(), zlimit.Amounts{"tpm": 50}) })
		check.Fatal(t, "first() and second()", errors.Join(first(), second()))
		compare.Equal(t, "Consumed()", zlimit.Amounts{"tpm": 670}, lease.Consumed())
		check.Error(t, "Commit()", lease.Commit(t.Context()))
		f.holds(t, l, 670)
	})
}

// TestSettlingDuringConsume settles a lease while a Consume is under way: what that takes is given back.
func TestSettlingDuringConsume(t *testing.T) {
	for name, test := range map[string]struct {
		settle  func(*zlimit.Lease, context.Context) error
		counted int64
	}{
		"Commit": {(*zlimit.Lease).Commit, 520}, "Rollback": {(*zlimit.Lease).Rollback, 0},
	} {
		t.Run(name, func(t *testing.T) {
			far(t, func(t *testing.T, l *zlimit.RateLimiter, f *faraway, lease *zlimit.Lease) {
				check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": 20}))
				consume := outcome(func() error { return lease.Consume(t.Context(), zlimit.Amounts{"tpm": 100}) })
				check.Error(t, "settle()", test.settle(lease, t.Context()))
				if err := consume(); !errors.Is(err, zlimit.ErrLeaseClosed) {
					t.Errorf("Consume() = %v, want %v", err, zlimit.ErrLeaseClosed)
				}
				f.holds(t, l, test.counted)
			})
		})
	}
}

// TestLeaseDuringCommit calls the methods of a lease while a Commit is under way. Another Commit waits, since the first one may fail;
// here it does, and the other one writes the correction.
func TestLeaseDuringCommit(t *testing.T) {
	const call = 1500 * time.Millisecond
	for _, fails := range []bool{false, true} {
		far(t, func(t *testing.T, l *zlimit.RateLimiter, f *faraway, lease *zlimit.Lease) {
			check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": 20}))
			if fails {
				f.fails.Store(&store.Error{Op: "write", Unavailable: true, Err: errors.New("no route")})
			}
			first := outcome(func() error { return lease.Commit(t.Context()) })
			for name, call := range map[string]func() error{
				"Adjust()":   func() error { return lease.Adjust(zlimit.Amounts{"tpm": 1}) },
				"Consume()":  func() error { return lease.Consume(t.Context(), zlimit.Amounts{"tpm": 1}) },
				"Rollback()": func() error { return lease.Rollback(t.Context()) },
			} {
				returns(t, name, zlimit.ErrLeaseClosed, 0, call)
			}
			returns(t, "Consumed()", nil, 0, func() error { lease.Consumed(); return nil })
			if fails {
				returns(t, "the second Commit()", nil, 2*call, func() error { return lease.Commit(t.Context()) })
			} else {
				returns(t, "the second Commit()", zlimit.ErrLeaseClosed, call, func() error { return lease.Commit(t.Context()) })
			}
			if err := first(); errors.As(err, new(*zlimit.UnavailableError)) != fails {
				t.Errorf("the first Commit() = %v, want an outage: %t", err, fails)
			}
			returns(t, "Rollback()", zlimit.ErrLeaseClosed, 0, func() error { return lease.Rollback(t.Context()) })
			f.holds(t, l, 520)
		})
	}
}

// TestLeaseOfManyGoroutines uses leases from many goroutines, until one of them settles it. The item counts what the lease says.
func TestLeaseOfManyGoroutines(t *testing.T) {
	for name, settle := range map[string]func(*zlimit.Lease) error{
		"Commit":   func(le *zlimit.Lease) error { return le.Commit(context.Background()) },
		"Rollback": func(le *zlimit.Lease) error { return le.Rollback(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
			setSystem(t, l, zlimit.PerDay("tpm", 1_000_000))
			for range 20 {
				before := available(t, l, "tpm")
				lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 100}))
				var all sync.WaitGroup
				for i := range 16 {
					all.Go(func() {
						err := errors.Join(
							lease.Consume(context.Background(), zlimit.Amounts{"tpm": 3}),
							lease.Adjust(zlimit.Amounts{"tpm": 2}),
							lease.Release(zlimit.Amounts{"tpm": 1}),
						)
						lease.Consumed()
						lease.Statuses()
						if i%5 == 4 {
							err = errors.Join(err, settle(lease))
						}
						if err != nil && !errors.Is(err, zlimit.ErrLeaseClosed) {
							t.Errorf("Consume() and Adjust() and Release() = %v", err)
						}
					})
				}
				all.Wait()
				want := lease.Consumed()["tpm"]
				if name == "Rollback" {
					want = 0
				}
				if got := before - available(t, l, "tpm"); got != want {
					t.Fatalf("%d were taken, want %d", got, want)
				}
			}
		})
	}
}

// TestOneLostReadOfLimits sends requests of a bucket that is not in memory. The read of its limits is not answered: another one takes
// its place, and each request is decided.
func TestOneLostReadOfLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faraway{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.EmbeddedStoreOn(f), zlimit.WithCallTimeout(2*time.Second))
		setSystem(t, l, zlimit.PerDay("tpm", 1000))
		l.Limits.InvalidateAll()
		f.takes.Store(int64(5 * time.Millisecond))
		f.loseRead.Store(true)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				returnsWithin(t, 400*time.Millisecond, func() error {
					_, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"tpm": 1}))
					return err
				})
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
	})
}

func returnsWithin(t *testing.T, most time.Duration, call func() error) {
	t.Helper()
	began := time.Now()
	if err := call(); err != nil || time.Since(began) > most {
		t.Errorf("Acquire() = %v after %v, want a lease within %v", err, time.Since(began), most)
	}
}
