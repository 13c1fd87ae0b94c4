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
	"context"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
)

// New returns a limiter on its own store in memory, and its clock. The limits apply to every entity and resource that has none of its
// own. Without any, the request brings limits, or the test stores them. The limiter is closed when the test ends, and its leases are
// checked as [CheckLeases] says. An error ends the test.
func New(tb testing.TB, limits ...zlimit.Limit) (*zlimit.RateLimiter, *Clock) {
	tb.Helper()
	clock, leases := NewClock(), newLedger()
	limiter, err := zlimit.Open(tb.Context(), "memory:", zlimit.WithClock(clock.Now), zlimit.WithHooks(hooks.Limiter{Leases: leases, Sleeper: sleeper{clock}}))
	if err != nil {
		tb.Fatalf("zlimittest: %v", err)
	}
	tb.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			tb.Errorf("zlimittest: %v", err)
		}
	})
	ledgers.Store(limiter, leases)
	tb.Cleanup(func() { ledgers.Delete(limiter) })
	leases.checkAfter(tb) // before the limiter is closed
	if len(limits) > 0 {
		if err := limiter.Limits.Set(tb.Context(), zlimit.Level{}, zlimit.Config{Limits: limits}); err != nil {
			tb.Fatalf("zlimittest: %v", err)
		}
	}
	return limiter, clock
}

// A Clock is a time that moves when a test moves it. It is safe for concurrent use. Callers that wait for tokens of a limiter of
// [New] sleep by it: those whose time has come wake when a test moves it.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	moved  chan struct{} // closed when the time moves; nil while no caller sleeps
	asleep int
}

// NewClock returns a clock that stands at the beginning of 2026. It is for limiters with other options than [New] sets, by
// [zlimit.WithClock]. Callers that wait for tokens of such a limiter sleep by the clock of the machine.
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
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

// Sleeping returns the number of callers that sleep until the test moves the clock. A test waits for them before it does:
//
//	for clock.Sleeping() < 3 {
//		time.Sleep(time.Millisecond)
//	}
func (c *Clock) Sleeping() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asleep
}

// A sleeper makes callers sleep by a clock of a test. It implements [hooks.Sleeper].
type sleeper struct{ *Clock }

// Elapsed returns the time since the clock's epoch.
func (s sleeper) Elapsed() time.Duration { return s.Now().Sub(time.Unix(0, 0)) }

// Sleep waits until the test has moved the clock by that much.
func (s sleeper) Sleep(ctx context.Context, d time.Duration) error {
	s.sleeps(1)
	defer s.sleeps(-1)
	for until := s.Now().Add(d); ; {
		moved, now := s.move()
		if !now.Before(until) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s sleeper) sleeps(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep += more
}

// move returns the channel that is closed when the time moves from now.
func (s sleeper) move() (moved <-chan struct{}, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved == nil {
		s.moved = make(chan struct{})
	}
	return s.moved, s.now
}
