// Package faulttest gives tests a limiter whose store they can break. The store is that of memory. A fault stands between
// the limiter and the store, where that of a network would.
package faulttest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Fault does a call of a store, or does not, and chooses the answer to the caller.
type Fault func(ctx context.Context, call func() error) error

// The faults of a network.
var (
	// Down refuses every call: nothing happens.
	Down Fault = func(context.Context, func() error) error {
		return &store.Error{Op: "call", Unavailable: true, Err: errors.New("connection refused")}
	}
	// Lost does the call, and loses its reply.
	Lost Fault = func(_ context.Context, call func() error) error {
		if err := call(); err != nil {
			return err
		}
		return &store.Error{Op: "call", Unavailable: true, Unknown: true, Err: errors.New("connection reset")}
	}
	// Hang does the call, and answers nothing until the caller gives up.
	Hang Fault = func(ctx context.Context, call func() error) error {
		if err := call(); err != nil {
			return err
		}
		<-ctx.Done()
		return &store.Error{Op: "call", Unavailable: true, Unknown: true, Err: ctx.Err()}
	}
)

// Slow does calls that take so long. A call whose caller gives up before is not done, and says so.
func Slow(d time.Duration) Fault {
	return func(ctx context.Context, call func() error) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return call()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A Store is a store in memory that can be broken. It is safe for concurrent use.
type Store struct {
	store.Store
	fault  atomic.Pointer[Fault]
	writes atomic.Int64
}

// New returns a limiter with limits for all entities and resources, and its store, without a fault at first. The limiter is
// closed when the test ends.
func New(tb testing.TB, limits []zlimit.Limit, opts ...zlimit.Option) (*zlimit.RateLimiter, *Store) {
	tb.Helper()
	kept, err := memory.New(layout.Table)
	check.Fatal(tb, "memory.New()", err)
	s := &Store{Store: kept}
	opts = append([]zlimit.Option{zlimit.WithSetup(), zlimit.WithDefaultLimits(limits...)}, opts...)
	limiter, err := zlimit.New(tb.Context(), store.NewHandle(s, false), opts...)
	check.Fatal(tb, "zlimit.New()", err)
	tb.Cleanup(func() {
		check.Error(tb, "Close()", errors.Join(limiter.Close(), kept.Close()))
	})
	return limiter, s
}

// Never returns a limit of requests that does not refill during a test.
func Never() []zlimit.Limit { return []zlimit.Limit{zlimit.PerDay("rpm", 10)} }

// Left returns the balance of an entity, of the first limit of the resource api.
func Left(tb testing.TB, l *zlimit.RateLimiter, entity string) int64 {
	tb.Helper()
	statuses, err := l.Available(context.Background(), zlimit.AvailableQuery{Entity: entity, Resource: "api"})
	check.Fatal(tb, "Available()", err)
	return statuses[0].Available
}

// CheckSlots checks how many slots a limiter holds now, how many it has taken, and that none were lost. What it holds may still be
// given back by another goroutine.
func CheckSlots(tb testing.TB, l *zlimit.RateLimiter, held int64, taken uint64) {
	tb.Helper()
	stats := l.Stats()
	for range 2000 {
		if stats = l.Stats(); stats.SlotsHeld == held {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if stats.SlotsHeld != held || stats.SlotsTaken != taken || stats.SlotsLost != 0 {
		tb.Errorf("slots held are %d, taken %d, lost %d; want %d, %d and none", stats.SlotsHeld, stats.SlotsTaken, stats.SlotsLost, held, taken)
	}
}

// Break breaks all calls from now on; nil mends them.
func (s *Store) Break(f Fault) {
	if f == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&f)
}

// Writes returns how many writes were requested, except writes that [EntersIndex].
func (s *Store) Writes() int64 { return s.writes.Load() }

// Partitioned makes the limiter treat the store as one behind a network.
func (s *Store) Partitioned() bool { return true }

// Ping asks whether the store answers.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, func() error { return s.Store.Ping(ctx) })
}

func (s *Store) do(ctx context.Context, call func() error) error {
	if f := s.fault.Load(); f != nil {
		return (*f)(ctx, call)
	}
	return call()
}

// Read reads items. The outcome of a lost read does not count.
func (s *Store) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	err = s.do(ctx, func() (err error) {
		items, err = s.Store.Read(ctx, keys, consistent)
		return err
	})
	if failed, ok := errors.AsType[*store.Error](err); ok {
		failed.Unknown = false
	}
	return items, err
}

// EntersIndex reports whether a write enters a bucket into the index of its resource, as a limiter does in the background.
func EntersIndex(w store.Write) bool {
	left, err := w.Expr.Apply(nil)
	return w.Kind == store.Update && err == nil && layout.IsListed(left)
}

// Write does one write.
func (s *Store) Write(ctx context.Context, w store.Write) (result store.Result, err error) {
	if !EntersIndex(w) {
		s.writes.Add(1)
	}
	err = s.do(ctx, func() (err error) {
		result, err = s.Store.Write(ctx, w)
		return err
	})
	return result, err
}

// Transact does several writes.
func (s *Store) Transact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	s.writes.Add(1)
	err = s.do(ctx, func() (err error) {
		results, err = s.Store.Transact(ctx, writes)
		return err
	})
	return results, err
}
