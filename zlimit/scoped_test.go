package zlimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A rateLimiter is what programs ask of x/time/rate and of middleware for gRPC.
type rateLimiter interface {
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int) error
	Limit(ctx context.Context) error
}

var _ rateLimiter = (*zlimit.Scoped)(nil)

// TestScoped takes of two limits by the methods of x/time/rate, those of the request or stored ones.
func TestScoped(t *testing.T) {
	for _, stored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newMemory(t))
			limits := []zlimit.Limit{zlimit.PerSecond("calls", 10), zlimit.PerHour("hourly", 30)}
			if stored {
				setSystem(t, l, limits...)
				limits = nil
			}
			s := l.For("worker", "backend", limits...)
			allow := func(n int, want bool) {
				t.Helper()
				if ok, err := s.AllowN(t.Context(), n); ok != want || err != nil {
					t.Errorf("AllowN(%d) = %v, %v", n, ok, err)
				}
			}
			allow(9, true)
			allow(2, false)
			if ok, err := s.Allow(t.Context()); !ok || err != nil {
				t.Errorf("Allow() = %v, %v", ok, err)
			}
			var e *zlimit.ExceededError
			if err := s.Limit(t.Context()); !errors.As(err, &e) || e.RetryAfter() != 100*time.Millisecond {
				t.Errorf("Limit() = %v", err)
			}
			s = s.MaxWait(time.Second)
			start := time.Now()
			if err := s.Wait(t.Context()); err != nil || time.Since(start) != 100*time.Millisecond {
				t.Errorf("Wait() = %v after %v", err, time.Since(start))
			}
			if err := s.WaitN(t.Context(), 9); err != nil || time.Since(start) != time.Second {
				t.Errorf("WaitN() = %v after %v", err, time.Since(start))
			}
			r, err := s.ReserveN(t.Context(), 10)
			if err != nil || time.Until(r.Due()) != time.Second {
				t.Fatalf("ReserveN() = %v", err)
			}
			check.Error(t, "Cancel()", r.Cancel(t.Context()))
			time.Sleep(time.Second)
			allow(10, true) // of the hourly limit the last ones, and so what was cancelled
			if r, err := s.Reserve(t.Context()); !errors.As(err, &e) || e.Violations()[0].Limit.Name != "hourly" {
				t.Errorf("Reserve() = %v, %v beyond the hourly limit", r, err)
			}
		})
	}
}

// TestScopedRefuses gives methods what breaks a rule.
func TestScopedRefuses(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	calls := zlimit.PerSecond("calls", 10)
	for _, test := range []struct {
		name  string
		call  func(s *zlimit.Scoped) error
		of    *zlimit.Scoped
		field string
	}{
		{"no tokens", func(s *zlimit.Scoped) error { _, err := s.AllowN(t.Context(), 0); return err }, l.For("worker", "backend", calls), "n"},
		{"less", func(s *zlimit.Scoped) error { return s.WaitN(t.Context(), -1) }, l.For("worker", "backend", calls).MaxWait(1), "n"},
		{"no bound", func(s *zlimit.Scoped) error { return s.Wait(t.Context()) }, l.For("worker", "backend", calls), "max wait"},
		{"no bound of a reservation", func(s *zlimit.Scoped) error { _, err := s.Reserve(t.Context()); return err }, l.For("worker", "backend"), "max wait"},
		{"an entity that is no name", func(s *zlimit.Scoped) error { return s.Limit(t.Context()) }, l.For("a b", "backend"), "entity"},
		{"a resource that is no name", func(s *zlimit.Scoped) error { return s.Limit(t.Context()) }, l.For("worker", "", calls), "resource"},
	} {
		var invalid *zlimit.ValidationError
		if err := test.call(test.of); !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: %v, want an invalid %s", test.name, err, test.field)
		}
	}
	if err := l.For("worker", "backend").Limit(t.Context()); !errors.Is(err, zlimit.ErrNoLimits) {
		t.Errorf("Limit() without limits = %v", err)
	}
	_ = l.Close()
	if err := l.For("worker", "backend").Limit(t.Context()); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Limit() of a closed limiter = %v", err)
	}
}

// TestScopedInAnOutage asks when the limits cannot be read: the failure policy decides.
func TestScopedInAnOutage(t *testing.T) {
	for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
		l, s := faulttest.New(t, []zlimit.Limit{zlimit.PerSecond("calls", 1)}, zlimit.WithFailurePolicy(policy))
		s.Break(faulttest.Down)
		ok, err := l.For("worker", "backend").Allow(t.Context())
		if allows := policy == zlimit.PolicyAllow; ok != allows || (err == nil) != allows || err != nil && !errors.As(err, new(*zlimit.UnavailableError)) {
			t.Errorf("%v: Allow() = %v, %v", policy, ok, err)
		}
	}
}

// In TestScopedOfChangedLimits, another process removes a limit between the look at the limits and the request.
func TestScopedOfChangedLimits(t *testing.T) {
	clock, s, armed := newClock(), newMemory(t), false
	l := newLimiter(t, s, zlimit.WithConfigTTL(time.Second), zlimit.WithClock(func() time.Time {
		now := clock.now()
		if armed {
			armed = false
			clock.sleep(time.Minute)
		}
		return now
	}))
	other := newLimiter(t, s, zlimit.WithClock(clock.now))
	setSystem(t, other, zlimit.PerSecond("calls", 10), zlimit.PerSecond("old", 10))
	scoped := l.For("worker", "backend")
	check.Fatal(t, "Limit()", scoped.Limit(t.Context()))
	setSystem(t, other, zlimit.PerSecond("calls", 10))
	armed = true
	if err := scoped.Limit(t.Context()); err != nil || armed {
		t.Errorf("Limit() = %v", err)
	}
}

// TestScopedHoldsNoSlots checks that slots among the limits of a Scoped are refused before any call, and stored ones
// left to leases.
func TestScopedHoldsNoSlots(t *testing.T) {
	l, s := countedLimiter(t)
	given := l.For("acme", "api", zlimit.PerMinute("calls", 5), zlimit.Slots("workers", 2)).MaxWait(time.Second)
	before := s.writes.Load()
	if err := given.Limit(t.Context()); invalid(err).Field != "limits[workers]" {
		t.Errorf("Limit() = %v, want that slots are refused", err)
	}
	if err := given.Wait(t.Context()); invalid(err).Field == "" {
		t.Errorf("Wait() = %v, want that slots are refused", err)
	}
	if _, err := given.Reserve(t.Context()); invalid(err).Field == "" {
		t.Errorf("Reserve() = %v, want that slots are refused", err)
	}
	if s.writes.Load() != before {
		t.Error("something was written")
	}
	slots(t, l, 1, zlimit.PerDay("rpd", 5))
	stored := l.For("key-1", "gpt-4")
	for range 2 {
		check.Fatal(t, "Limit()", stored.Limit(t.Context()))
	}
	statuses := statuses(t, l)
	tokens, _ := statuses.Limit("rpd")
	if free, _ := statuses.Limit("slots"); tokens.Available != 3 || free.Available != 1 {
		t.Errorf("there are %+v", statuses)
	}
}

func countedLimiter(t *testing.T) (*zlimit.RateLimiter, *hooked) {
	t.Helper()
	s := hook(newMemory(t))
	return newLimiter(t, zlimit.StoreOn(s)), s
}
