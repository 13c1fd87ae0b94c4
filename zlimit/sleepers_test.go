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
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A callCount is a store that counts calls.
type callCount struct {
	store.Store
	reads, writes atomic.Int64
}

func (s *callCount) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	s.reads.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Read(ctx, keys, consistent)
}

func (s *callCount) Write(ctx context.Context, w store.Write) (store.Result, error) {
	s.writes.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Write(ctx, w)
}

// In TestSleepersHear, a thousand callers of one process sleep while an operator acts in another one. The callers notice it within the look
// of a second, at one read a second for all of them. Nothing is lost or given twice.
func TestSleepersHear(t *testing.T) {
	const sleepers = 1000
	level := zlimit.Level{Resource: "gpt-4"}
	perSecond := func(n int64) zlimit.Config {
		return zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rpm", n, zlimit.Burst(10))}}
	}
	type ends struct {
		admitted, disabled, none, invalid int
		last                              time.Duration // after the act
	}
	for _, test := range []struct {
		name   string
		limits zlimit.Config
		act    func(ctx context.Context, l *zlimit.RateLimiter) error
		check  func(t *testing.T, e ends)
		left   int64 // of the limit a moment after the last one has ended; -1 for none
	}{
		{"nothing", perSecond(10), func(context.Context, *zlimit.RateLimiter) error { return nil }, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last < 94*time.Second || e.last > 100*time.Second {
				t.Errorf("%+v, want all admitted after 99 s", e)
			}
		}, 0},
		{"disabled", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Disable(ctx, level, nil)
			return err
		}, func(t *testing.T, e ends) {
			if e.disabled < sleepers-80 || e.admitted+e.disabled != sleepers || e.last > 1500*time.Millisecond {
				t.Errorf("%+v, want all others to be refused within a second", e)
			}
		}, -1},
		{"bypassed", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Bypass(ctx, level, nil)
			return err
		}, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last > 63*time.Second {
				t.Errorf("%+v, want all admitted within the TTL and a second", e)
			}
		}, -1},
		{"raised", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			return l.Limits.Set(ctx, level, perSecond(1000))
		}, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last > 63*time.Second {
				t.Errorf("%+v, want all admitted within the TTL and a second", e)
			}
		}, 10},
		{"raised, and a new request", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			err := l.Limits.Set(ctx, level, perSecond(1000))
			_, _ = l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1})) // which is refused
			return err
		}, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last > 2500*time.Millisecond {
				t.Errorf("%+v, want all admitted within a second and the time of the new limit", e)
			}
		}, 10},
		{"reset", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"})
			return err
		}, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last > 1500*time.Millisecond {
				t.Errorf("%+v, want all admitted within a second", e)
			}
		}, 10},
		{"topped up", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"rpm": 500}})
			return err
		}, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last > 50*time.Second || e.last < 44*time.Second {
				t.Errorf("%+v, want the last one admitted half of the time earlier", e)
			}
		}, 0},
		{"limit removed", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			return l.Limits.Set(ctx, level, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 10)}})
		}, func(t *testing.T, e ends) {
			if refused := e.invalid + e.none; refused == 0 || e.admitted+refused != sleepers || e.last > 63*time.Second {
				t.Errorf("%+v, want what a new request meets, within the TTL", e)
			}
		}, -1},
		{"level deleted", perSecond(10), func(ctx context.Context, l *zlimit.RateLimiter) error {
			return l.Limits.Delete(ctx, level)
		}, func(t *testing.T, e ends) {
			if e.none == 0 || e.admitted+e.none != sleepers || e.last > 63*time.Second {
				t.Errorf("%+v, want what a new request meets, within the TTL", e)
			}
		}, -1},
		{"quota reset", zlimit.Config{Limits: []zlimit.Limit{zlimit.Daily("rpm", 1000, "UTC")}}, func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"})
			return err
		}, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last > 1500*time.Millisecond {
				t.Errorf("%+v, want all admitted within a second", e)
			}
		}, 0},
		{"quota disabled", zlimit.Config{Limits: []zlimit.Limit{zlimit.Daily("rpm", 1000, "UTC")}}, func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Disable(ctx, level, nil)
			return err
		}, func(t *testing.T, e ends) {
			if e.disabled != sleepers || e.last > 1500*time.Millisecond {
				t.Errorf("%+v, want all refused within a second", e)
			}
		}, -1},
		{"slots disabled", zlimit.Config{Limits: []zlimit.Limit{zlimit.Slots("rpm", 10)}}, func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.Disable(ctx, level, nil)
			return err
		}, func(t *testing.T, e ends) {
			if e.disabled != sleepers || e.last > 1500*time.Millisecond {
				t.Errorf("%+v, want all refused within a second", e)
			}
		}, -1},
		{"slots raised", zlimit.Config{Limits: []zlimit.Limit{zlimit.Slots("rpm", 10)}}, func(ctx context.Context, l *zlimit.RateLimiter) error {
			return l.Limits.Set(ctx, level, zlimit.Config{Limits: []zlimit.Limit{zlimit.Slots("rpm", 1010)}})
		}, func(t *testing.T, e ends) {
			if e.admitted != sleepers || e.last > 63*time.Second {
				t.Errorf("%+v, want all admitted within the TTL and a second", e)
			}
		}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				s := &callCount{Store: store.Of(newMemory(t))}
				operator, l := newLimiter(t, zlimit.StoreOn(s)), newLimiter(t, zlimit.StoreOn(s))
				check.Fatal(t, "Limits.Set()", operator.Limits.Set(ctx, level, test.limits))
				request := ask(zlimit.Amounts{"rpm": test.limits.Limits[0].Capacity})
				acquire(t, l, request)
				request.Consume = zlimit.Amounts{"rpm": 1}
				var e ends
				var mu sync.Mutex
				var wg sync.WaitGroup
				var acted time.Time
				for range sleepers {
					wg.Go(func() {
						_, err := l.Wait(ctx, request, zlimit.MaxWait(24*time.Hour))
						mu.Lock()
						defer mu.Unlock()
						e.last = time.Since(acted)
						switch {
						case err == nil:
							e.admitted++
						case errors.Is(err, zlimit.ErrDisabled):
							e.disabled++
						case errors.Is(err, zlimit.ErrNoLimits):
							e.none++
						case errors.As(err, new(*zlimit.ValidationError)):
							e.invalid++
						default:
							t.Errorf("Wait() = %v", err)
						}
					})
				}
				time.Sleep(5500 * time.Millisecond)
				s.reads.Store(0)
				s.writes.Store(0)
				check.Fatal(t, "act()", test.act(ctx, operator))
				operators := s.reads.Load() + s.writes.Load()
				mu.Lock()
				acted = time.Now()
				mu.Unlock()
				wg.Wait()
				time.Sleep(50 * time.Millisecond) // what was taken in vain is given back
				calls := s.reads.Load() + s.writes.Load() - operators
				seconds := int64(e.last/time.Second) + 1
				t.Logf("%+v; %d calls in %d s, %d of them writes", e, calls, seconds, s.writes.Load())
				test.check(t, e)
				if most := 11*seconds/10 + 220; calls > most { // the others share writes
					t.Errorf("%d calls in %d seconds for %d sleepers", calls, seconds, sleepers)
				}
				if test.left >= 0 {
					statuses, err := operator.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
					if err != nil || statuses[0].Available < test.left || statuses[0].Available > test.left+1 {
						t.Errorf("%v are left, want %d: %v", statuses, test.left, err)
					}
				}
				closeLimiters(t, operator, l)
			})
		})
	}
}

// TestSleepersHearOfMoves moves an entity out of a parent whose quota is used up, and a resource out of a wider one. A caller that sleeps until
// the quota resets is admitted then, like a new request.
func TestSleepersHearOfMoves(t *testing.T) {
	for name, move := range map[string]func(ctx context.Context, l *zlimit.RateLimiter) error{
		"parent": func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Entities.SetParent(ctx, "key-1", "")
			return err
		},
		"wider resource": func(ctx context.Context, l *zlimit.RateLimiter) error {
			return l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(t)
				operator, l := newLimiter(t, s), newLimiter(t, s, zlimit.WithConfigTTL(time.Minute))
				putEntity(t, operator, "team", "")
				putEntity(t, operator, "key-1", "team")
				setSystem(t, operator, zlimit.PerMinute("rpm", 100))
				if name == "parent" {
					setLimits(t, operator, zlimit.Level{Entity: "team", Resource: "gpt-4"}, zlimit.Monthly("rpm", 1, "UTC"))
				} else {
					setLimits(t, operator, zlimit.Level{Resource: "models"}, zlimit.Monthly("rpm", 1, "UTC"))
					check.Fatal(t, "Resources.Put()", operator.Resources.Put(t.Context(), zlimit.Resource{ID: "gpt-4", Within: "models"}))
				}
				acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
				done := make(chan error)
				go func() {
					_, err := l.Wait(t.Context(), ask(zlimit.Amounts{"rpm": 1}), zlimit.MaxWait(60*24*time.Hour))
					done <- err
				}()
				time.Sleep(3 * time.Second)
				began := time.Now()
				check.Fatal(t, "move()", move(t.Context(), operator))
				if err := <-done; err != nil || time.Since(began) > 63*time.Second {
					t.Errorf("Wait() = %v, %v after the move, want an admission within the TTL and a second", err, time.Since(began))
				}
				closeLimiters(t, l, operator)
			})
		})
	}
}
