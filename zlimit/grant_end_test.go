package zlimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestGrantEnds, operators grant 20 tokens until a time to a budget of 25 a month, of which some are used before. What is left of the
// grant at its end is gone, even if a lease returns it later, and what the budget had of its own is left.
func TestGrantEnds(t *testing.T) {
	for _, test := range []struct {
		name                 string
		before, during, back int64 // taken before and during the grant, and returned after it
		left                 int64
	}{
		{"a used-up budget", 25, 0, 0, 0},
		{"a used-up budget, some of the grant", 25, 15, 0, 0},
		{"a fresh budget", 0, 0, 0, 25},
		{"a fresh budget, some of the grant", 0, 15, 0, 25},
		{"a fresh budget, more than the grant", 0, 30, 0, 15},
		{"a part of a budget", 15, 12, 0, 10},
		{"returned of the grant", 25, 20, 19, 0},
		{"returned of both", 15, 25, 24, 10},
		{"returned of both, of the budget alone", 15, 25, 3, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, s zlimit.Store) {
				ctx, c := context.Background(), newClock()
				l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
				setSystem(t, l, zlimit.Monthly("usd", 25, "UTC"))
				take := func(amount int64) *zlimit.Lease {
					if amount == 0 {
						return nil
					}
					return acquire(t, l, ask(zlimit.Amounts{"usd": amount}))
				}
				take(test.before)
				end := c.now().Add(time.Hour)
				if _, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"usd": 20}, Until: end}); err != nil {
					t.Fatalf("Limits.TopUp() = %v", err)
				}
				lease := take(test.during)
				if got, want := available(t, other, "usd"), 45-test.before-test.during; got != want {
					t.Errorf("%d are there with the grant, want %d", got, want)
				}
				c.sleep(end.Sub(c.now()))
				if test.back > 0 {
					check.Fatal(t, "Release()", lease.Release(zlimit.Amounts{"usd": test.back}))
				}
				if lease != nil {
					check.Fatal(t, "Commit()", lease.Commit(ctx))
				}
				for _, l := range []*zlimit.RateLimiter{l, other} {
					if got := available(t, l, "usd"); got != test.left {
						t.Errorf("%d are there after the grant, want %d", got, test.left)
					}
				}
				if e := reject(t, other, ask(zlimit.Amounts{"usd": test.left + 1})); e.Statuses[0].Granted != 0 {
					t.Errorf("a grant that is over is reported: %+v", e.Statuses[0])
				}
				if take(test.left); available(t, other, "usd") != 0 {
					t.Error("tokens are left")
				}
			})
		})
	}
}
