// Package wait lets a goroutine pause.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for a time, or returns the context's error when that ends first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Backoff is how long callers pause between tries of what failed. The bound of a pause doubles with each try. A pause is
// a random part of its bound, so that callers who failed together do not come again together.
type Backoff struct {
	First   time.Duration // bound of the pause after the first try, longer than the least pause
	Longest time.Duration // bound of any pause
	Least   time.Duration // that any pause takes
	// Random returns a random time in [0, n); nil for the source of the system.
	Random func(n time.Duration) time.Duration
}

// Pause returns how long to pause after a try. Tries count from 0.
func (b Backoff) Pause(try int) time.Duration {
	bound := b.Longest
	if shifted := b.First << min(try, 62); shifted>>min(try, 62) == b.First {
		bound = min(shifted, b.Longest)
	}
	if b.Random == nil {
		return b.Least + rand.N(bound-b.Least)
	}
	return b.Least + b.Random(bound-b.Least)
}
