package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// waitLimit admits one request each 50 ms.
var waitLimit = []zlimit.Limit{{Name: "rpm", Capacity: 1, RefillAmount: 20, RefillPeriod: time.Second}}

// waitFor asks for tokens of an entity, by limits of the request.
func waitFor(tokens int64, limits []zlimit.Limit) zlimit.Request {
	return zlimit.Request{Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": tokens}, Limits: limits}
}

// In TestWaitersComeInOrder, callers wait one after another. Each sleeps until its token has flowed in, and not a millisecond longer.
func TestWaitersComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		start := time.Now()
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				if _, err := l.Wait(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(10*time.Second)); err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
				if slept := time.Since(start); slept != time.Duration(i)*50*time.Millisecond {
					t.Errorf("caller %d slept %v", i, slept)
				}
			})
			synctest.Wait()
		}
		if s := l.Stats(); s.Waiting != 99 {
			t.Errorf("%d wait, want 99", s.Waiting)
		}
		group.Wait()
		if s := l.Stats(); s.Waiting != 0 || s.Waited != 99 || s.Admitted != 100 {
			t.Errorf("%d waited of %d, %d still do", s.Waited, s.Admitted, s.Waiting)
		}
	})
}

// A frozen sleeper uses the time that a test sets.
type frozen struct{ *clock }

func (f frozen) Elapsed() time.Duration { return time.Duration(f.ms.Load()) * time.Millisecond }

func (f frozen) Sleep(context.Context, time.Duration) error { return nil }

// TestGivingUp ends the contexts of callers that wait: what they took is given back, and the next caller has their place.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 1001 {
			group.Go(func() {
				_, err := l.Wait(ctx, waitFor(1, waitLimit), zlimit.MaxWait(time.Hour))
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("Wait() = %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		group.Wait()
		synctest.Wait()
		if s := l.Stats(); s.Abandoned != 1000 || s.Unreturned != 0 {
			t.Errorf("%d gave up, and %d did not give back", s.Abandoned, s.Unreturned)
		}
		start := time.Now()
		if _, err := l.Wait(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(time.Second)); err != nil || time.Since(start) != 50*time.Millisecond {
			t.Errorf("the next caller waits %v: %v", time.Since(start), err)
		}
	})
}

// In TestWaitFailsAtOnce, callers ask for waits that are too long. They take nothing, and their error reports when their tokens would be
// there.
func TestWaitFailsAtOnce(t *testing.T) {
	for _, test := range []struct {
		name   string
		soon   bool // the context has a deadline
		opts   []zlimit.WaitOption
		tokens int64
		field  string
		after  time.Duration
	}{
		{"longer than it waits", false, []zlimit.WaitOption{zlimit.MaxWait(9 * time.Hour)}, 1, "", 10 * time.Hour},
		{"as long as it waits", false, []zlimit.WaitOption{zlimit.MaxWait(10 * time.Hour)}, 1, "none", 0},
		{"past the deadline", true, []zlimit.WaitOption{zlimit.MaxWait(20 * time.Hour)}, 1, "", 10 * time.Hour},
		{"past the deadline alone", true, nil, 1, "", 10 * time.Hour},
		{"not at all", false, []zlimit.WaitOption{zlimit.MaxWait(0)}, 1, "", 10 * time.Hour},
		{"more than the capacity", false, []zlimit.WaitOption{zlimit.MaxWait(1000 * time.Hour)}, 11, "", zlimit.Never},
		{"no bound", false, nil, 1, "max wait", 0},
		{"no bound, with an option that is nil", false, []zlimit.WaitOption{nil}, 1, "max wait", 0},
		{"a negative bound", true, []zlimit.WaitOption{zlimit.MaxWait(-1)}, 1, "max wait", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			clock := newClock()
			l := newLimiter(t, newMemory(t), zlimit.WithClock(clock.now))
			hourly := []zlimit.Limit{{Name: "rpm", Capacity: 10, RefillAmount: 1, RefillPeriod: time.Hour}}
			for range 2 { // the second time in debt
				if _, err := l.Reserve(t.Context(), waitFor(10, hourly), zlimit.MaxWait(10*time.Hour)); err != nil {
					t.Fatalf("Reserve() = %v", err)
				}
				clock.sleep(time.Hour)
			}
			clock.sleep(-time.Hour)
			ctx := t.Context()
			if test.soon {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Hour)
				defer cancel()
			}
			_, err := l.Reserve(ctx, waitFor(test.tokens, hourly), test.opts...)
			var exceeded *zlimit.ExceededError
			var invalid *zlimit.ValidationError
			switch {
			case test.field == "none":
				check.Error(t, "Reserve()", err)
			case test.field != "":
				if !errors.As(err, &invalid) || invalid.Field != test.field {
					t.Errorf("Reserve() = %v, want an invalid %s", err, test.field)
				}
			case !errors.As(err, &exceeded) || exceeded.RetryAfter() != test.after:
				t.Errorf("Reserve() = %v, want a rejection for %v", err, test.after)
			}
			statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "acme", Resource: "gpt-4", Limits: hourly})
			if want := int64(-9); err != nil || test.field != "none" && (statuses[0].Available != want || statuses[0].Queue != 9*time.Hour) {
				t.Errorf("%d are left, and a queue of %v, want %d: %v", statuses[0].Available, statuses[0].Queue, want, err)
			}
		})
	}
}

// In TestNobodyOvertakes, a request that does not wait comes while others do. It is refused until the queue has gone.
func TestNobodyOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		for range 3 {
			if _, err := l.Reserve(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(time.Second)); err != nil {
				t.Fatalf("Reserve() = %v", err)
			}
		}
		for waited := 0; waited < 150; waited += 10 {
			if _, err := l.Acquire(t.Context(), waitFor(1, waitLimit)); !errors.As(err, new(*zlimit.ExceededError)) {
				t.Fatalf("Acquire() after %d ms = %v", waited, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := l.Acquire(t.Context(), waitFor(1, waitLimit)); err != nil {
			t.Errorf("Acquire() after the queue = %v", err)
		}
	})
}

// In TestLargeRequestsHaveTheirTurn, four processes work off a limit of 20 a second for ten seconds. Each of them has
// seven callers of one token and one of 15. A call of the store admits a request, and all wait alike. The large
// requests are served in their turn, since their MaxWait leaves room for it.
func TestLargeRequestsHaveTheirTurn(t *testing.T) {
	for _, large := range []int64{1, 15} {
		t.Run(fmt.Sprint(large), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const end = 10 * time.Second
				g := &gate{Store: store.Of(newMemory(t))}
				limits := []zlimit.Limit{{Name: "rpm", Capacity: 20, RefillAmount: 20, RefillPeriod: time.Second}}
				var admitted, tokens, served, longest atomic.Int64
				var group sync.WaitGroup
				start := time.Now()
				for range 4 {
					l := newLimiter(t, zlimit.StoreOn(g))
					for i := range 8 {
						asks := int64(1)
						if i == 0 {
							asks = large
						}
						group.Go(func() {
							for time.Since(start) < end {
								began := time.Now()
								if _, err := l.Wait(t.Context(), waitFor(asks, limits), zlimit.MaxWait(time.Minute)); err != nil {
									t.Errorf("Wait() = %v", err)
								}
								if time.Since(start) > end {
									continue
								}
								admitted.Add(1)
								tokens.Add(asks)
								if asks > 1 {
									served.Add(1)
								}
								for waited := int64(time.Since(began)); waited > longest.Load(); {
									longest.Store(waited)
								}
							}
						})
					}
				}
				group.Wait()
				waiting := 4 * (7 + large) // tokens that are waited for at the same time
				calls := g.writes.Load() + g.reads.Load()
				t.Logf("%d admitted with %d tokens, %d large ones; %d calls; longest wait %v of %v", admitted.Load(), tokens.Load(), served.Load(), calls, time.Duration(longest.Load()), time.Duration(waiting)*time.Second/20)
				if tokens.Load() < 200 || tokens.Load() > 220 {
					t.Errorf("%d tokens in ten seconds of a limit of 20, and 20 a second", tokens.Load())
				}
				looks := 4 * int64(end/time.Second)
				if most := admitted.Load() + 32 + 16 + looks; calls > most { // those who still wait in the end, and what the first ones cost
					t.Errorf("%d calls of the store for %d admissions", calls, admitted.Load())
				}
				if most := time.Duration(waiting) * time.Second / 20 * 12 / 10; time.Duration(longest.Load()) > most {
					t.Errorf("a caller waited %v, want at most %v", time.Duration(longest.Load()), most)
				}
				if large > 1 && served.Load() < 4 {
					t.Errorf("%d large requests were served", served.Load())
				}
			})
		})
	}
}

// A tamper is a clock for sleepers at which something happens while a caller sleeps.
type tamper struct {
	start time.Time
	do    func()
	slept []time.Duration
}

func (s *tamper) Elapsed() time.Duration { return time.Since(s.start) }

func (s *tamper) Sleep(_ context.Context, d time.Duration) error {
	time.Sleep(d)
	if s.slept = append(s.slept, d); s.do != nil {
		s.do()
		s.do = nil
	}
	return nil
}

// TestLimitsChangeWhileAsleep changes the limits while a caller sleeps: it uses the new ones from then on.
func TestLimitsChangeWhileAsleep(t *testing.T) {
	perSecond := func(n int64) zlimit.Limit {
		return zlimit.Limit{Name: "rpm", Capacity: 10, RefillAmount: n, RefillPeriod: time.Second}
	}
	for _, test := range []struct {
		name    string
		next    zlimit.Limit
		maxWait time.Duration
		slept   []time.Duration
		failed  bool
	}{
		{"as they were", perSecond(10), time.Minute, []time.Duration{time.Second}, false},
		{"raised", perSecond(20), time.Minute, []time.Duration{time.Second}, false},
		{"lowered", perSecond(1), time.Minute, []time.Duration{time.Second, 8100 * time.Millisecond}, false},
		{"lowered so that it takes too long", perSecond(1), 5 * time.Second, []time.Duration{time.Second}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory(t)
				sleeper := &tamper{start: time.Now()}
				l := newLimiter(t, s, zlimit.WithConfigTTL(time.Millisecond), zlimit.WithHooks(hooks.Limiter{Sleeper: sleeper}))
				other := newLimiter(t, s, zlimit.WithConfigTTL(time.Millisecond))
				setSystem(t, l, perSecond(10))
				r := waitFor(10, nil)
				acquire(t, l, r)
				reservation := check.Call(l.Reserve(t.Context(), r, zlimit.MaxWait(test.maxWait))).Must(t, "Reserve()")
				time.AfterFunc(100*time.Millisecond, func() {
					setSystem(t, other, test.next)
					_, _ = other.Acquire(context.Background(), r) // refused, and brings the bucket in line
				})
				_, err := reservation.Wait(t.Context())
				if failed := errors.As(err, new(*zlimit.ExceededError)); failed != test.failed || err != nil && !failed {
					t.Errorf("Wait() = %v", err)
				}
				if !slices.Equal(sleeper.slept, test.slept) {
					t.Errorf("slept %v, want %v", sleeper.slept, test.slept)
				}
			})
		})
	}
}

// TestLimitsAndParentsWait checks that a request waits for the latest of its limits, and of its parents' limits.
func TestLimitsAndParentsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		putChain(t, l, "team", "key")
		limits := func(entity string, rpm, tpm int64) {
			c := zlimit.Config{Limits: []zlimit.Limit{{Name: "rpm", Capacity: 1, RefillAmount: rpm, RefillPeriod: time.Second}, {Name: "tpm", Capacity: 100, RefillAmount: tpm, RefillPeriod: time.Second}}}
			check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{Entity: entity}, c))
		}
		r := zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 100}}
		for _, test := range []struct {
			name                 string
			keyRPM, keyTPM, team int64
			want                 time.Duration
		}{
			{"the first limit", 1, 1000, 100, time.Second},
			{"the other limit", 100, 50, 100, 2 * time.Second},
			{"the parent", 100, 1000, 25, 4 * time.Second},
		} {
			limits("key", test.keyRPM, test.keyTPM)
			limits("team", 100, test.team)
			time.Sleep(time.Hour)
			_, _ = l.Acquire(t.Context(), r)
			start := time.Now()
			if _, err := l.Wait(t.Context(), r, zlimit.MaxWait(time.Minute)); err != nil || time.Since(start) != test.want {
				t.Errorf("%s: waited %v, want %v: %v", test.name, time.Since(start), test.want, err)
			}
			if _, err := l.Wait(t.Context(), r, zlimit.MaxWait(test.want-time.Millisecond)); !errors.As(err, new(*zlimit.ExceededError)) {
				t.Errorf("%s: a millisecond too little: %v", test.name, err)
			}
			if s, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key", Resource: "gpt-4", Parents: true}); err != nil || slices.ContainsFunc(s, func(s zlimit.Status) bool { return s.Available < 0 }) {
				t.Errorf("%s: what was refused was not given back: %v, %v", test.name, s, err)
			}
		}
	})
}

// In TestQueueThatBecameShorter, a request of two levels comes when a queue is shorter than its process last saw. The request waits,
// though its tokens are not available yet.
func TestQueueThatBecameShorter(t *testing.T) {
	clock := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(clock.now), zlimit.WithRejectionCache(0)), newLimiter(t, s, zlimit.WithClock(clock.now))
	putChain(t, l, "team", "key")
	setSystem(t, l, zlimit.Limit{Name: "rpm", Capacity: 10, RefillAmount: 10, RefillPeriod: time.Second})
	r := zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 10}}
	var long *zlimit.Reservation
	for range 5 {
		var err error
		if long, err = other.Reserve(t.Context(), r, zlimit.MaxWait(time.Minute)); err != nil {
			t.Fatalf("Reserve() = %v", err)
		}
	}
	if _, err := l.Reserve(t.Context(), r, zlimit.MaxWait(4*time.Second)); !errors.As(err, new(*zlimit.ExceededError)) {
		t.Fatalf("Reserve() = %v behind a long queue", err)
	}
	check.Fatal(t, "Cancel()", long.Cancel(t.Context()))
	if _, err := l.Reserve(t.Context(), r, zlimit.MaxWait(4*time.Second)); err != nil {
		t.Errorf("Reserve() = %v behind a shorter one", err)
	}
}

// In TestBookingsOnOldImages, another process changes a bucket between two bookings of one that does not look. The conditions of the
// second booking detect the change.
func TestBookingsOnOldImages(t *testing.T) {
	limit := func(n int64) zlimit.Limit {
		return zlimit.Limit{Name: "rpm", Capacity: 10, RefillAmount: n, RefillPeriod: time.Second}
	}
	type fixture struct {
		l, other *zlimit.RateLimiter
		clock    *clock
	}
	ask := func(tokens int64) zlimit.Request { return waitFor(tokens, nil) }
	reserve := func(t *testing.T, l *zlimit.RateLimiter, tokens int64) *zlimit.Reservation {
		t.Helper()
		return check.Call(l.Reserve(t.Context(), ask(tokens), zlimit.MaxWait(time.Minute))).Must(t, "Reserve()")
	}
	for _, test := range []struct {
		name      string
		between   func(t *testing.T, f *fixture)
		maxWait   time.Duration
		refused   bool
		available int64
	}{
		{"others fill the queue", func(t *testing.T, f *fixture) {
			reserve(t, f.other, 10)
			reserve(t, f.other, 10)
		}, 2 * time.Second, true, -26},
		{"others wait, too", func(t *testing.T, f *fixture) {
			reserve(t, f.other, 2)
			f.clock.sleep(500 * time.Millisecond)
		}, 2 * time.Second, false, -8},
		{"others give back, and the bucket was full", func(t *testing.T, f *fixture) {
			r := reserve(t, f.other, 10)
			reserve(t, f.l, 1) // which sees the debt
			check.Fatal(t, "Cancel()", r.Cancel(t.Context()))
			f.clock.sleep(2 * time.Second)
		}, 10 * time.Second, false, 5},
		{"limits are lowered just now", func(t *testing.T, f *fixture) {
			setSystem(t, f.other, limit(1))
			_, _ = f.other.Acquire(t.Context(), ask(10))
		}, 2 * time.Second, true, -6},
		{"limits are lowered, and time passes", func(t *testing.T, f *fixture) {
			setSystem(t, f.other, limit(1))
			_, _ = f.other.Acquire(t.Context(), ask(10))
			f.clock.sleep(time.Second)
		}, 2 * time.Second, true, -5},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, clock := newMemory(t), newClock()
			open := func() *zlimit.RateLimiter {
				return newLimiter(t, s, zlimit.WithClock(clock.now), zlimit.WithRejectionCache(0), zlimit.WithHooks(hooks.Limiter{Sleeper: frozen{clock}}))
			}
			f := &fixture{open(), open(), clock}
			setSystem(t, f.l, limit(10))
			reserve(t, f.l, 10)
			reserve(t, f.other, 1) // by the same limits
			reserve(t, f.l, 5)
			test.between(t, f)
			_, err := f.l.Reserve(t.Context(), ask(5), zlimit.MaxWait(test.maxWait))
			if refused := errors.As(err, new(*zlimit.ExceededError)); refused != test.refused || err != nil && !refused {
				t.Errorf("Reserve() = %v", err)
			}
			statuses, err := f.other.Available(t.Context(), zlimit.AvailableQuery{Entity: "acme", Resource: "gpt-4"})
			if err != nil || statuses[0].Available != test.available {
				t.Errorf("%d are there, want %d: %v", statuses[0].Available, test.available, err)
			}
		})
	}
}

// TestCloseWakesWaiters closes a limiter whose callers sleep: they notice it immediately, and their tokens are given
// back.
func TestCloseWakesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t)
		l := check.Call(zlimit.New(t.Context(), s, zlimit.WithSetup())).Must(t, "zlimit.New()")
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				if _, err := l.Wait(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(time.Hour)); i > 0 && !errors.Is(err, zlimit.ErrClosed) {
					t.Errorf("Wait() = %v", err)
				}
			})
			synctest.Wait()
		}
		start := time.Now()
		if err := l.Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("Close() = %v after %v", err, time.Since(start))
		}
		group.Wait()
		statuses, err := newLimiter(t, s).Available(t.Context(), zlimit.AvailableQuery{Entity: "acme", Resource: "gpt-4", Limits: waitLimit})
		if err != nil || statuses[0].Available != 0 {
			t.Errorf("%d are left: %v", statuses[0].Available, err)
		}
	})
}

// TestCloseDuringWait closes a limiter while the writes of callers of Wait are under way, shared or not. Those whose tokens are not there
// yet hear that it is closed, and Close waits until their tokens are given back.
func TestCloseDuringWait(t *testing.T) {
	for name, opts := range map[string][]zlimit.Option{"shared": {zlimit.WithCoalescing()}, "alone": {zlimit.WithoutCoalescing()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := newMemory(t)
				g := &gate{Store: store.Of(memory)}
				l := check.Call(zlimit.New(t.Context(), zlimit.StoreOn(g), append(opts, zlimit.WithSetup())...)).Must(t, "zlimit.New()")
				acquire(t, l, waitFor(1, waitLimit)) // all that there is
				open := g.close()
				var group sync.WaitGroup
				for range 10 {
					group.Go(func() {
						if _, err := l.Wait(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(time.Hour)); !errors.Is(err, zlimit.ErrClosed) {
							t.Errorf("Wait() = %v", err)
						}
					})
				}
				synctest.Wait()
				closed := false
				group.Go(func() {
					check.Error(t, "Close()", l.Close())
					closed = true
				})
				synctest.Wait()
				if closed {
					t.Error("Close() returns while writes are under way")
				}
				open()
				group.Wait()
				statuses, err := newLimiter(t, memory).Available(t.Context(), zlimit.AvailableQuery{Entity: "acme", Resource: "gpt-4", Limits: waitLimit})
				if err != nil || statuses[0].Available != 0 {
					t.Errorf("%d are left: %v", statuses[0].Available, err)
				}
			})
		})
	}
}

// TestCancelWhileAsleep cancels a reservation whose caller sleeps: it wakes without a lease.
func TestCancelWhileAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		for range 2 {
			r := check.Call(l.Reserve(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(time.Second))).Must(t, "Reserve()")
			time.AfterFunc(10*time.Millisecond, func() { _ = r.Cancel(t.Context()) })
			want := error(nil)
			if time.Until(r.Due()) > 0 {
				want = zlimit.ErrLeaseClosed
			}
			if _, err := r.Wait(t.Context()); !errors.Is(err, want) {
				t.Errorf("Wait() = %v, want %v", err, want)
			}
		}
	})
}

// In TestWaitWithoutBound, callers wait with the longest MaxWait that there is. They sleep until their tokens are there, or until the
// quota resets.
func TestWaitWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		quota := zlimit.Request{Entity: "acme", Resource: "quota", Consume: zlimit.Amounts{"rpm": 1}}
		stored := zlimit.Config{Limits: []zlimit.Limit{zlimit.Cron("rpm", 1, "*/5 * * * *", "UTC")}}
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{Resource: "quota"}, stored))
		time.Sleep(time.Second) // so that the clock by which callers sleep does not read 0
		for i, r := range []zlimit.Request{waitFor(1, waitLimit), quota} {
			start := time.Now()
			for range 2 {
				if _, err := l.Wait(t.Context(), r, zlimit.MaxWait(math.MaxInt64)); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			if slept := time.Since(start); slept < 50*time.Millisecond {
				t.Errorf("request %d: the second caller slept %v", i, slept)
			}
		}
	})
}
