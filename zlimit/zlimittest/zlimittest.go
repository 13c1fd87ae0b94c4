// Package zlimittest gives tests limiters of their own, in memory, and a time that they set.
//
//	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 60))
//	// take 60 requests
//	clock.Advance(time.Second)
//	// one more is there
//
// Such a limiter is the real one: it decides as it does on every store.
package zlimittest

import (
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// New returns a limiter on a store of its own in memory, and the clock that it goes by. The limits hold for every
// entity and resource that has none of its own. Without any, the request brings limits, or the test stores them. The
// limiter is closed when the test ends, and its leases are checked as [CheckLeases] says. An error ends the test.
func New(tb testing.TB, limits ...zlimit.Limit) (*zlimit.RateLimiter, *Clock) {
	tb.Helper()
	clock := NewClock()
	limiter, err := zlimit.Open(tb.Context(), "memory:", zlimit.WithClock(clock.Now))
	if err != nil {
		tb.Fatalf("zlimittest: %v", err)
	}
	tb.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			tb.Errorf("zlimittest: %v", err)
		}
	})
	CheckLeases(tb, limiter)
	if len(limits) > 0 {
		if err := limiter.Limits.SetSystem(tb.Context(), zlimit.SystemConfig{Limits: limits}); err != nil {
			tb.Fatalf("zlimittest: %v", err)
		}
	}
	return limiter, clock
}

// A Clock is a time that moves when a test moves it. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at the beginning of 2026. It is for limiters with other options than those of
// [New], by [zlimit.WithClock].
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)}
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the time; back, as the clocks of machines may, when d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
