package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// In TestGateBounds, many calls of a second each share three turns.
func TestGateBounds(t *testing.T) {
	const turns, calls = 3, 30
	synctest.Test(t, func(t *testing.T) {
		g := store.NewGate(turns, nil)
		var mu sync.Mutex
		var all sync.WaitGroup
		now, most := 0, 0
		start := time.Now()
		for range calls {
			all.Go(func() {
				err := g.Do(t.Context(), 2*time.Second, func(ctx context.Context) error {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					now--
					mu.Unlock()
					return ctx.Err()
				})
				if err != nil {
					t.Errorf("a call that waited for its turn, and took half its time = %v", err)
				}
			})
		}
		all.Wait()
		if most != turns || time.Since(start) != calls/turns*time.Second {
			t.Errorf("%d calls were under way at once and took %v together, want %d and %v", most, time.Since(start), turns, calls/turns*time.Second)
		}
	})
}

// TestGateTimeouts distinguishes a wait that ends with its context from late calls.
func TestGateTimeouts(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	hangWriting := func(ctx context.Context) error { return &store.Error{Op: "write", Unknown: true, Err: hang(ctx)} }
	for _, test := range []struct {
		name     string
		patience time.Duration // of the caller
		call     func(context.Context) error
		want     store.Outcome
		is       error
	}{
		{"a read that is late", time.Hour, hang, store.Unavailable, context.DeadlineExceeded},
		{"a write that is late", time.Hour, hangWriting, store.Unknown, context.DeadlineExceeded},
		{"a caller who leaves a read", time.Millisecond, hang, store.Ended, context.DeadlineExceeded},
		{"a caller who leaves a write", time.Millisecond, hangWriting, store.Unknown, context.DeadlineExceeded},
		{"a failure in time", time.Hour, func(context.Context) error { return store.ErrConflict }, store.Conflicted, store.ErrConflict},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), test.patience)
			defer cancel()
			err := store.NewGate(1, nil).Do(ctx, time.Second, test.call)
			if got := store.OutcomeOf(err); got != test.want || !errors.Is(err, test.is) {
				t.Errorf("%s: %v, outcome %d; want %v, outcome %d", test.name, err, got, test.is, test.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := store.NewGate(1, nil)
		release := make(chan struct{})
		go func() {
			_ = g.Do(context.Background(), time.Hour, func(context.Context) error { <-release; return nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := g.Do(ctx, time.Second, func(context.Context) error { t.Error("a call was made out of turn"); return nil })
		if got := store.OutcomeOf(err); got != store.Ended {
			t.Errorf("a caller who leaves before its turn: %v, outcome %d; want %d", err, got, store.Ended)
		}
		close(release)
	})
}
