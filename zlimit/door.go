package zlimit

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/internal/store"
)

func init() {
	door.Store = func(s store.Store) any { return Store{impl: s} }
	door.Random = func(intN func(int) int) any { return Option(func(o *options) { o.intN = intN }) }
	door.WatchLeases = func(limiter any, w *door.LeaseWatcher) { limiter.(*RateLimiter).leases.watcher.Store(w) }
	door.Yield = func(yield func(context.Context) error) any { return Option(func(o *options) { o.yield = yield }) }
	door.WritesAtOnce = func(n int) any { return Option(func(o *options) { o.writesAtOnce = n }) }
}
