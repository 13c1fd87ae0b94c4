package zlimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestSleepersHearOnEveryStore, callers sleep for hours on each store while an operator acts in another process. All of them notice it,
// at one read a second, and what is left is exact.
func TestSleepersHearOnEveryStore(t *testing.T) {
	t.Parallel() // it waits more than it computes
	if enginetest.IsMean() {
		t.Skip("it counts every call, and what becomes of it")
	}
	sleepers := soak.Pick(200, 1000)
	level := zlimit.Level{Resource: "gpt-4"}
	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerHour("rpm", 10)}}
	for name, test := range map[string]struct {
		act   func(ctx context.Context, l *zlimit.RateLimiter) error
		fails error
		left  int64 // of the limit
	}{
		"disabled": {func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Disable(ctx, level, nil)
			return err
		}, zlimit.ErrDisabled, 0},
		"reset": {func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"})
			return err
		}, nil, 10},
		"topped up": {func(ctx context.Context, l *zlimit.RateLimiter) error {
			amounts := zlimit.Amounts{"rpm": int64(sleepers) + 3}
			_, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: amounts})
			return err
		}, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, of zlimit.Store) {
				ctx := t.Context()
				s := &callCount{Store: store.Of(of)}
				operator, l := newLimiter(t, of), newLimiter(t, zlimit.StoreOn(s))
				check.Fatal(t, "Limits.Set()", operator.Limits.Set(ctx, level, limits))
				acquire(t, l, ask(zlimit.Amounts{"rpm": 10}))
				var wg sync.WaitGroup
				for range sleepers {
					wg.Go(func() {
						if _, err := l.Wait(ctx, ask(zlimit.Amounts{"rpm": 1}), zlimit.MaxWait(200*time.Hour)); !errors.Is(err, test.fails) {
							t.Errorf("Wait() = %v, want %v", err, test.fails)
						}
					})
				}
				for l.Stats().Waiting < int64(sleepers) {
					time.Sleep(time.Millisecond)
				}
				s.reads.Store(0)
				s.writes.Store(0)
				began := time.Now()
				check.Fatal(t, "act()", test.act(ctx, operator))
				wg.Wait()
				l.Engine().Quiesce() // tokens are given back in the background
				calls, seconds := s.reads.Load()+s.writes.Load(), int64(time.Since(began)/time.Second)+1
				t.Logf("%d reads and %d writes in %v", s.reads.Load(), s.writes.Load(), time.Since(began))
				if most := 3*seconds + int64(sleepers)/4; calls > most { // those who give back share writes
					t.Errorf("%d calls in %d seconds for %d sleepers, want at most %d", calls, seconds, sleepers, most)
				}
				if test.fails != nil {
					if _, err := operator.Limits.Enable(ctx, level, nil); err != nil {
						t.Fatalf("Limits.Enable() = %v", err)
					}
				}
				statuses, err := operator.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
				if err != nil || statuses[0].Available != test.left {
					t.Errorf("%v are left, want %d: %v", statuses, test.left, err)
				}
			})
		})
	}
}
