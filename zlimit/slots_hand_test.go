package zlimit_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestSlotsAreHandedOn, callers of one process take slots in turns. A slot passes from one to the next by one write, and each caller has
// a fencing number of its own. A lower number of slots and a disabled bucket apply in the middle of that.
func TestSlotsAreHandedOn(t *testing.T) {
	level := zlimit.Level{Resource: "gpt-4"}
	for _, test := range []struct {
		name  string
		act   func(t *testing.T, operator *zlimit.RateLimiter)
		most  int64 // at work a moment later
		fails error
	}{
		{"nothing", func(*testing.T, *zlimit.RateLimiter) {}, 3, nil},
		{"lowered", func(t *testing.T, operator *zlimit.RateLimiter) {
			t.Helper()
			setLimits(t, operator, level, zlimit.Slots("slots", 1))
		}, 1, nil},
		{"disabled", func(t *testing.T, operator *zlimit.RateLimiter) {
			t.Helper()
			if _, err := operator.Limits.Disable(t.Context(), level, nil); err != nil {
				t.Fatalf("Limits.Disable() = %v", err)
			}
		}, 0, zlimit.ErrDisabled},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hook(newMemory(t))
				s.late = 2 * time.Millisecond
				l, operator := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Second)), newLimiter(t, zlimit.StoreOn(s))
				setLimits(t, operator, level, zlimit.Slots("slots", 3))
				s.writes.Store(0)
				const lasts, acts = 20 * time.Second, 5 * time.Second
				began := time.Now()
				var admitted, atWork, mostThen, failed atomic.Int64
				var fences sync.Map
				var wg sync.WaitGroup
				for range 12 {
					wg.Go(func() {
						for time.Since(began) < lasts {
							lease, err := l.Wait(t.Context(), ask(zlimit.Amounts{"slots": 1}), zlimit.MaxWait(30*time.Second))
							if err != nil {
								if test.fails == nil || !errors.Is(err, test.fails) || time.Since(began) < acts {
									t.Errorf("Wait() = %v after %v", err, time.Since(began))
								}
								failed.Add(1)
								return
							}
							if _, twice := fences.LoadOrStore(lease.Fence(), true); twice {
								t.Errorf("two callers have the fencing number %d", lease.Fence())
							}
							admitted.Add(1)
							if n := atWork.Add(1); time.Since(began) > acts+1500*time.Millisecond {
								mostThen.Store(max(mostThen.Load(), n))
							}
							time.Sleep(50 * time.Millisecond)
							atWork.Add(-1)
							check.Error(t, "Commit()", lease.Commit(t.Context()))
						}
					})
				}
				time.Sleep(acts)
				test.act(t, operator)
				wg.Wait()
				if got := mostThen.Load(); got != test.most {
					t.Errorf("%d are at work after the change, want %d", got, test.most)
				}
				if each := float64(s.writes.Load()) / float64(admitted.Load()); each > 1.2 {
					t.Errorf("%.2f writes an admission, want one", each)
				}
				t.Logf("%d admitted, %d failed, %d writes", admitted.Load(), failed.Load(), s.writes.Load())
				closeLimiters(t, l, operator)
			})
		})
	}
}
