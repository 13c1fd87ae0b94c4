package zlimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestAcquireTakesAllLimitsOrNone(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))

		acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 900}))
		e := reject(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 200}))
		want := zlimit.Statuses{
			{
				Entity: "key-1", Resource: "gpt-4", Limit: zlimit.PerMinute("tpm", 1000), Available: 100, Requested: 200,
				Exceeded: true, RetryAfter: 6 * time.Second,
			},
			{Entity: "key-1", Resource: "gpt-4", Limit: zlimit.PerMinute("rpm", 10), Available: 9, Requested: 1},
		}
		compare.Equal(t, "statuses", want, e.Statuses)
		if e.RetryAfter() != 6*time.Second || e.RetryAfterHeader() != "6" || !e.Possible() || len(e.Violations()) != 1 {
			t.Errorf("RetryAfter() = %v, RetryAfterHeader() = %q, Possible() = %v, Violations() = %v",
				e.RetryAfter(), e.RetryAfterHeader(), e.Possible(), e.Violations())
		}
		if got := available(t, l, "rpm"); got != 9 {
			t.Errorf("rpm has %d after the rejection, want 9", got)
		}
		c.sleep(6*time.Second - time.Millisecond)
		reject(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 200}))
		c.sleep(time.Millisecond)
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 200}))
	})
}

// TestRejectionChangesNothing compares the item before and after (I3), for a process that knows the bucket and for one
// that does not.
func TestRejectionChangesNothing(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		warm := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, warm, zlimit.PerMinute("rpm", 10))
		acquire(t, warm, ask(zlimit.Amounts{"rpm": 10}))
		before := item(t, warm)
		for _, elapsed := range []time.Duration{0, time.Millisecond, 5 * time.Second} {
			c.sleep(elapsed)
			for name, l := range map[string]*zlimit.RateLimiter{"warm": warm, "cold": newLimiter(t, s, zlimit.WithClock(c.now))} {
				reject(t, l, ask(zlimit.Amounts{"rpm": 2}))
				if after := item(t, warm); !after.Equal(before) {
					t.Errorf("%s, %v later: the rejection made\n%v of\n%v", name, elapsed, after, before)
				}
			}
		}
	})
}

// TestIdleBurst asks a bucket that was idle for a minute for three times its capacity within a millisecond (I1).
func TestIdleBurst(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		for _, cold := range []bool{false, true} {
			name := "warm"
			if cold {
				name = "cold"
			}
			t.Run(name, func(t *testing.T) {
				c := newClock()
				l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace(name))
				setSystem(t, l, zlimit.PerMinute("rpm", 100))
				if got := burst(t, l, 1); got != 1 {
					t.Fatalf("burst(1) = %d", got)
				}
				c.sleep(time.Minute)
				if cold {
					l = newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace(name))
				}
				if got := burst(t, l, 300); got != 100 {
					t.Errorf("burst(300) after an idle minute = %d, want 100", got)
				}
				if got := limit(t, l, "rpm").Consumed; got != 101_000 {
					t.Errorf("the item counts %d, want 101000", got)
				}
			})
		}
	})
}

// TestConcurrent runs 64 goroutines on one bucket with a stopped clock: exactly the capacity is admitted.
func TestConcurrent(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		limiters := []*zlimit.RateLimiter{newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0))}
		setSystem(t, limiters[0], zlimit.PerMinute("rpm", 1000))
		var admitted, rejected atomic.Int64
		var group sync.WaitGroup
		for g := range 64 {
			group.Go(func() {
				for range 2000 / 64 {
					_, err := limiters[g%2].Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1}))
					switch {
					case err == nil:
						admitted.Add(1)
					case errors.As(err, new(*zlimit.ExceededError)):
						rejected.Add(1)
					default:
						t.Errorf("Acquire() = %v", err)
					}
				}
			})
		}
		group.Wait()
		if admitted.Load() != 1000 || rejected.Load() != 64*(2000/64)-1000 {
			t.Errorf("admitted %d and rejected %d, want 1000 and %d", admitted.Load(), rejected.Load(), 64*(2000/64)-1000)
		}
		if got := limit(t, limiters[0], "rpm"); got.Tokens != 0 || got.Consumed != 1000_000 {
			t.Errorf("the item has %d and counts %d, want 0 and 1000000", got.Tokens, got.Consumed)
		}
	})
}

// TestConcurrentRefill runs goroutines while the clock goes on, so that every write competes to move the stamp.
func TestConcurrentRefill(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		limiters := []*zlimit.RateLimiter{
			newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0)), newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0)),
		}
		setSystem(t, limiters[0], zlimit.PerSecond("rpm", 50))
		start := c.now()
		var admitted atomic.Int64
		var group sync.WaitGroup
		for g := range 8 {
			group.Go(func() {
				for range 40 {
					c.sleep(time.Millisecond)
					_, err := limiters[g%2].Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1}))
					switch {
					case err == nil:
						admitted.Add(1)
					case !errors.As(err, new(*zlimit.ExceededError)):
						t.Errorf("Acquire() = %v", err)
					}
				}
			})
		}
		group.Wait()
		if most := 50 + 50*c.now().Sub(start).Milliseconds()/1000; admitted.Load() > most {
			t.Errorf("admitted %d, at most %d may be", admitted.Load(), most)
		}
		if got := limit(t, limiters[0], "rpm").Consumed; got != admitted.Load()*1000 {
			t.Errorf("the item counts %d, want %d (I9)", got, admitted.Load()*1000)
		}
	})
}

func TestImpossibleRequests(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
	for _, then := range []int64{500, 0} { // without an item, and with one
		e := reject(t, l, ask(zlimit.Amounts{"tpm": 1001}))
		if e.Possible() || e.RetryAfter() != zlimit.Never || e.Violations()[0].RetryAfter != zlimit.Never || e.RetryAfterHeader() != "" {
			t.Errorf("Possible() = %v, RetryAfter() = %v, RetryAfterHeader() = %q, want never", e.Possible(), e.RetryAfter(), e.RetryAfterHeader())
		}
		if wait, err := l.TimeUntil(context.Background(), ask(zlimit.Amounts{"tpm": 1001})); wait != zlimit.Never || !errors.As(err, &e) || e.Possible() {
			t.Errorf("TimeUntil() = %v, %v, want Never and an ExceededError that is not possible", wait, err)
		}
		acquire(t, l, ask(zlimit.Amounts{"tpm": then}))
	}
}

func TestValidation(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerMinute("rpm", 10))
	for _, test := range []struct {
		name  string
		r     zlimit.Request
		field string
	}{
		{"an empty entity", zlimit.Request{Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}, "entity"},
		{"an entity with the key separator", zlimit.Request{Entity: "a#b", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}, "entity"},
		{"a resource that is no name", zlimit.Request{Entity: "a", Resource: "4 ", Consume: zlimit.Amounts{"rpm": 1}}, "resource"},
		{"the resource of entity defaults", zlimit.Request{Entity: "a", Resource: "_default_", Consume: zlimit.Amounts{"rpm": 1}}, "resource"},
		{"a resource named like an attribute", zlimit.Request{Entity: "a", Resource: "GSI4PK", Consume: zlimit.Amounts{"rpm": 1}}, "resource"},
		{"nothing to consume", zlimit.Request{Entity: "a", Resource: "gpt-4"}, "consume"},
		{"a negative amount", ask(zlimit.Amounts{"rpm": -1}), "consume[rpm]"},
		{"an amount that overflows millitokens", ask(zlimit.Amounts{"rpm": zlimit.MaxTokens + 1}), "consume[rpm]"},
		{"a limit that is not configured", ask(zlimit.Amounts{"rmp": 1}), "consume"},
		{"the reserved limit", ask(zlimit.Amounts{"wcu": 1}), "consume"},
		{"a failure policy that does not exist", zlimit.Request{Entity: "a", Resource: "r", Consume: zlimit.Amounts{"rpm": 1}, OnUnavailable: 9}, "on unavailable"},
		{"an own limit without a period", zlimit.Request{Entity: "a", Resource: "r", Consume: zlimit.Amounts{"x": 1}, Limits: []zlimit.Limit{{Name: "x", Capacity: 1, RefillAmount: 1}}}, "limits[x] refill period"},
		{"an own limit that is reserved", zlimit.Request{Entity: "a", Resource: "r", Consume: zlimit.Amounts{"x": 1}, Limits: []zlimit.Limit{zlimit.PerDay("wcu", 1)}}, "limits name"},
		{"an own limit twice", zlimit.Request{Entity: "a", Resource: "r", Consume: zlimit.Amounts{"x": 1}, Limits: []zlimit.Limit{zlimit.PerDay("x", 1), zlimit.PerDay("x", 2)}}, "limits"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := l.Acquire(context.Background(), test.r)
			if invalid(err).Field != test.field || invalid(err).Reason == "" {
				t.Errorf("Acquire() = %v, want a ValidationError about %s", err, test.field)
			}
		})
	}
	if item(t, l) != nil {
		t.Error("an invalid request wrote an item")
	}
}

// TestOverrides shows that the limits of a request hold on a bucket that exists, and leave its other limits.
func TestOverrides(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 10}))
		r := ask(zlimit.Amounts{"rpm": 4})
		r.Limits = []zlimit.Limit{zlimit.PerDay("rpm", 5)}
		acquire(t, l, r)
		reject(t, l, r)
		if got := limit(t, l, "tpm").Tokens; got != 990_000 {
			t.Errorf("tpm has %d, want 990000", got)
		}
		r = ask(zlimit.Amounts{"tpm": 1})
		r.Limits = []zlimit.Limit{zlimit.PerDay("rpm", 5)}
		if _, err := l.Acquire(context.Background(), r); err == nil {
			t.Error("Acquire() admitted a limit that the request does not have")
		}
	})
}

func TestTimeUntilAndAvailable(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", 60), zlimit.PerDay("rpd", 100))
		if got := available(t, l, "rpm"); got != 60 {
			t.Errorf("a bucket that does not exist has %d, want 60", got)
		}
		acquire(t, l, ask(zlimit.Amounts{"rpm": 60, "rpd": 60}))
		wait, err := l.TimeUntil(context.Background(), ask(zlimit.Amounts{"rpm": 10, "rpd": 40}))
		if err != nil || wait != 10*time.Second {
			t.Errorf("TimeUntil() = %v, %v, want 10s", wait, err)
		}
		before := item(t, l)
		c.sleep(wait - time.Millisecond)
		if wait, err = l.TimeUntil(context.Background(), ask(zlimit.Amounts{"rpm": 10})); err != nil || wait != time.Millisecond {
			t.Errorf("TimeUntil() = %v, %v, want 1ms", wait, err)
		}
		if got := available(t, l, "rpm"); got != 9 {
			t.Errorf("Available() = %d, want 9", got)
		}
		if !item(t, l).Equal(before) {
			t.Error("looking changed the item")
		}
		c.sleep(time.Millisecond)
		acquire(t, l, ask(zlimit.Amounts{"rpm": 10}))
	})
}

// TestAmountOfZero admits without a write, even in debt, and leaves the limit to be settled.
func TestAmountOfZero(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerMinute("tpm", 100))
	lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 0}))
	if item(t, l) != nil {
		t.Error("an amount of 0 wrote an item")
	}
	check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"tpm": 150}), lease.Commit(context.Background())))
	if got := available(t, l, "tpm"); got != -50 {
		t.Errorf("tpm has %d, want -50", got)
	}
	acquire(t, l, ask(zlimit.Amounts{"tpm": 0}))
}

// TestRacesEnd makes another process write before each write of this one. The clock runs on with every look at it, so that no stamp is ever
// fresh. Where the bucket is full again each time, the other one moves the stamp, and a call loses one race, and not one to every writer.
// Elsewhere the stamp stays, and no race is lost.
func TestRacesEnd(t *testing.T) {
	for _, test := range []struct {
		perMinute int64
		lost      uint64
	}{
		{60_000_000, 1},
		{1000, 0},
	} {
		s := newMemory(t)
		c := newClock()
		running := func() time.Time { return time.UnixMilli(c.ms.Add(1)) }
		other := newLimiter(t, s, zlimit.WithClock(running), zlimit.WithFreshness(0))
		setSystem(t, other, zlimit.PerMinute("rpm", test.perMinute))
		acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
		way := hook(s)
		l := newLimiter(t, zlimit.StoreOn(way), zlimit.WithClock(running), zlimit.WithFreshness(0))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		var first func()
		first = func() {
			acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
			way.once(first)
		}
		way.once(first)
		for range 10 {
			lost := l.Stats().LostRaces
			lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
			if got := l.Stats().LostRaces - lost; got != test.lost {
				t.Errorf("of %d a minute: Acquire() lost %d races, want %d", test.perMinute, got, test.lost)
			}
			check.Error(t, "Rollback()", lease.Rollback(context.Background()))
		}
	}
}

// TestEndedContext asks with a context that has ended: the answer is its error, though memory would reject immediately.
func TestEndedContext(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s)
		setSystem(t, l, zlimit.PerDay("rpd", 1))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
		reject(t, l, ask(zlimit.Amounts{"rpd": 1}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if lease, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpd": 1})); !errors.Is(err, context.Canceled) || errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("Acquire() = %v, %v, want the error of the context", lease, err)
		}
	})
}
