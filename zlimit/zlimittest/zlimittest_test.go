package zlimittest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(entity string) zlimit.Request {
	return zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}
}

func TestTimeIsTheTests(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
	zlimittest.IgnoreLeases(limiter)
	for _, step := range []struct {
		advance  time.Duration
		admitted bool
	}{
		{0, true},
		{0, true},
		{0, false},
		{30*time.Second - time.Millisecond, false},
		{time.Millisecond, true},
		{0, false},
		{-time.Hour, false},
	} {
		clock.Advance(step.advance)
		_, err := limiter.Acquire(t.Context(), ask("alice"))
		if got := err == nil; got != step.admitted || !got && !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("at %v Acquire() = %v, want admitted = %v", clock.Now(), err, step.admitted)
		}
	}
}

func TestLimitersShareNothing(t *testing.T) {
	a, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	zlimittest.IgnoreLeases(a)
	b, clock := zlimittest.New(t)
	if _, err := a.Acquire(t.Context(), ask("alice")); err != nil {
		t.Fatalf("Acquire() = %v", err)
	}
	if _, err := b.Acquire(t.Context(), ask("alice")); !errors.Is(err, zlimit.ErrNoLimits) {
		t.Errorf("Acquire() = %v, want ErrNoLimits", err)
	}
	if got, want := clock.Now(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("Now() = %v, want %v", got, want)
	}
	clock.Advance(-time.Hour)
	if got, want := clock.Now(), time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("Now() = %v, an hour back, want %v", got, want)
	}
}

func TestTheLimiterEndsWithTheTest(t *testing.T) {
	var limiter *zlimit.RateLimiter
	t.Run("a test", func(t *testing.T) {
		limiter, _ = zlimittest.New(t, zlimit.PerMinute("rpm", 1))
		t.Cleanup(func() { // runs before the limiter is closed, when the test's context has ended
			lease := check.Call(limiter.Acquire(context.Background(), ask("alice"))).Must(t, "Acquire() in a cleanup")
			check.Error(t, "Commit() in a cleanup", lease.Commit(context.Background()))
		})
	})
	if _, err := limiter.Acquire(t.Context(), ask("alice")); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Acquire() = %v, want ErrClosed", err)
	}
}

// A failing test notes why it ended.
type failing struct {
	testing.TB
	reason string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.reason = fmt.Sprintf(format, args...)
	panic(f)
}

func TestBadLimitsEndTheTest(t *testing.T) {
	f := &failing{TB: t}
	defer func() {
		if recover() != f || !strings.Contains(f.reason, "capacity") {
			t.Errorf("New() ended with %q, want what is wrong with the limit", f.reason)
		}
	}()
	zlimittest.New(f, zlimit.PerMinute("rpm", -1))
	t.Error("New() with a limit that cannot be returned")
}

func TestClockIsSafeForConcurrentUse(t *testing.T) {
	clock := zlimittest.NewClock()
	start := clock.Now()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range 100 {
				clock.Advance(time.Millisecond)
				clock.Now()
			}
		})
	}
	group.Wait()
	if got := clock.Now().Sub(start); got != time.Second {
		t.Errorf("the clock has moved %v, want 1s", got)
	}
}

func ExampleClock() {
	ctx := context.Background()
	clock := zlimittest.NewClock()
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(clock.Now), zlimit.WithNamespace("staging"), zlimit.WithSetup())
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	request := ask("alice")
	request.Limits = []zlimit.Limit{zlimit.PerMinute("rpm", 1)}
	for _, later := range []time.Duration{0, time.Second, 59 * time.Second} {
		clock.Advance(later)
		_, err := limiter.Acquire(ctx, request)
		if exceeded, ok := errors.AsType[*zlimit.ExceededError](err); ok {
			fmt.Println("rejected for", exceeded.RetryAfter())
			continue
		}
		fmt.Println("admitted")
	}

	// Output:
	// admitted
	// rejected for 59s
	// admitted
}
