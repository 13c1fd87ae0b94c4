// Package hooks has what programs and tests of this module change about a limiter, and its users may not. The option
// zlimit.WithHooks takes it, so only the packages of this module can call that option.
package hooks

import (
	"context"
	"time"
)

// Limiter are the hooks of one limiter, and of those that it makes for other namespaces. The zero value changes nothing. The
// functions must be safe for concurrent use.
type Limiter struct {
	// Random returns a number in [0, n). The limiter draws shards and the lengths of pauses with it.
	Random func(n int) int
	// Yield is called by a goroutine of the limiter that another one woke, before it goes on.
	Yield func(ctx context.Context) error
	// WritesAtOnce is the number of writes of one bucket under way from which on requests share them; 0 for the option's.
	WritesAtOnce int
	// Sleeper is the clock by which waiting callers sleep; nil for the clock of the machine.
	Sleeper Sleeper
	// SettleLimit bounds the writes of a commit or a rollback; 0 for five seconds.
	SettleLimit time.Duration
	// Leases is notified of the leases of counted requests; nil for none.
	Leases LeaseWatcher
	// Deployment makes setup raise the version record of the table, as after a deployment; nil for none.
	Deployment *Deployment
}

// A Sleeper is a clock that is never set, for callers to sleep by.
type Sleeper interface {
	// Elapsed returns the time since a moment that is the same for all calls.
	Elapsed() time.Duration
	// Sleep waits for a time, or for the end of the context, whose error it then returns.
	Sleep(ctx context.Context, d time.Duration) error
}

// A LeaseWatcher is notified of leases. A lease is a *zlimit.Lease, whose methods the watcher must not call.
type LeaseWatcher interface {
	// Opened is called by the goroutine that acquires.
	Opened(lease any, entity, resource string)
	// Settled is called when the lease was committed or rolled back for the first time.
	Settled(lease any)
}

// A Deployment has the parts deployed on a table, for the record of setup. Setup raises the version of the layout and of the oldest
// client to this module's, and lowers none.
type Deployment struct {
	Aggregator string // version of the aggregator that was deployed, "" for none
}
