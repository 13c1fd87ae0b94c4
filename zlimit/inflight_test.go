package zlimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A queue is a store that does one write after another, each in a time of its own, like a server under load. A write
// whose context ends meanwhile has an unknown outcome.
type queue struct {
	store.Store
	line  chan struct{}
	takes atomic.Int64 // nanoseconds
	sent  atomic.Int64
}

func (q *queue) Write(ctx context.Context, w store.Write) (store.Result, error) {
	takes := time.Duration(q.takes.Load())
	if takes == 0 {
		return q.Store.Write(ctx, w)
	}
	q.sent.Add(1)
	unknown := func() (store.Result, error) {
		return store.Result{}, &store.Error{Op: "write", Unknown: true, Err: ctx.Err()}
	}
	select {
	case q.line <- struct{}{}:
		defer func() { <-q.line }()
	case <-ctx.Done():
		return unknown()
	}
	select {
	case <-time.After(takes):
		return q.Store.Write(ctx, w)
	case <-ctx.Done():
		return unknown()
	}
}

// queued runs a test with a limiter on a store that takes its time for a write, and a bucket that is in memory.
func queued(t *testing.T, takes time.Duration, test func(l *zlimit.RateLimiter, q *queue), opts ...zlimit.Option) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{Store: store.Of(newMemory(t)), line: make(chan struct{}, 1)}
		l := newLimiter(t, zlimit.EmbeddedStoreOn(q), opts...)
		setSystem(t, l, zlimit.PerDay("rpm", 100_000))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		q.takes.Store(int64(takes))
		test(l, q)
	})
}

// TestACrowdIsNoOutage makes more requests at the same time than the store serves within the call timeout. Each has a write
// of its own: a few shared writes would form no line.
func TestACrowdIsNoOutage(t *testing.T) {
	const callers = 300
	queued(t, 10*time.Millisecond, func(l *zlimit.RateLimiter, _ *queue) {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if _, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1})); err != nil {
					t.Errorf("Acquire() = %v", err)
				}
			})
		}
		all.Wait()
		if got := l.Stats(); got.Admitted != callers+1 || got.UnknownOutcomes != 0 {
			t.Errorf("Stats() = %+v, want %d admitted and no unknown outcome", got, callers+1)
		}
	}, zlimit.WithTuning(zlimit.Tuning{MaxInFlight: 50}), zlimit.WithCallTimeout(time.Second), zlimit.WithoutCoalescing())
}

// TestLeavingTheLine sends callers with little patience to a store that does not answer. Callers whose turn does not
// come are charged nothing, and nothing is sent for them. Each has a write of its own: callers that wait to share one
// do not stand in line.
func TestLeavingTheLine(t *testing.T) {
	const callers, turns = 500, 20
	queued(t, time.Hour, func(l *zlimit.RateLimiter, q *queue) {
		var all sync.WaitGroup
		var outages, left atomic.Int64
		start := time.Now()
		for range callers {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer cancel()
				_, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1}))
				switch {
				case errors.As(err, new(*zlimit.UnavailableError)):
					outages.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					left.Add(1)
				default:
					t.Errorf("Acquire() = %v, want %v", err, context.DeadlineExceeded)
				}
			})
		}
		all.Wait()
		if waited := time.Since(start); waited != 100*time.Millisecond {
			t.Errorf("the callers left after %v, want 100ms", waited)
		}
		if got := l.Stats().UnknownOutcomes; q.sent.Load() != turns || got != turns || outages.Load() != 0 || left.Load() != callers {
			t.Errorf("%d writes were sent, %d outcomes unknown, %d outages, %d left; want %d, %[5]d, 0, %d", q.sent.Load(), got, outages.Load(), left.Load(), turns, callers)
		}
		q.takes.Store(0)
		if got := available(t, l, "rpm"); got != 100_000-1 {
			t.Errorf("rpm has %d, want %d: nobody was served", got, 100_000-1)
		}
	}, zlimit.WithTuning(zlimit.Tuning{MaxInFlight: turns}), zlimit.WithCallTimeout(time.Second), zlimit.WithoutCoalescing())
}
