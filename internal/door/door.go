// Package door opens what package zlimit keeps closed to its users, for tests below its public API. They put a store of
// their own under a limiter, choose its random numbers, the order of its goroutines, and when its requests share writes, and see
// its leases. Package zlimit sets them when it is initialized.
package door

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Store returns the zlimit.Store that keeps its items in s.
var Store func(s store.Store) any

// Random returns the zlimit.Option by which a limiter draws shards and the lengths of pauses with a function. The
// function returns a number in [0, n).
var Random func(intN func(n int) int) any

// Yield returns the zlimit.Option by which a goroutine of a limiter that another one woke calls a function before it goes on.
var Yield func(yield func(ctx context.Context) error) any

// WritesAtOnce returns the zlimit.Option by which requests share writes when so many writes of their bucket are under way.
var WritesAtOnce func(n int) any

// A LeaseWatcher is told of the leases of counted requests. A lease is a *zlimit.Lease.
type LeaseWatcher struct {
	Opened  func(lease any, entity, resource string) // by the goroutine that acquires
	Settled func(lease any)                          // it was committed or rolled back for the first time
}

// WatchLeases has a watcher told of the leases of a *zlimit.RateLimiter from now on, and of the limiters that it makes for
// other namespaces; nil for none. Its functions must be safe for concurrent use, and not call the lease.
var WatchLeases func(limiter any, w *LeaseWatcher)
