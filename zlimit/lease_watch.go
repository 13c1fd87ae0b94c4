package zlimit

import (
	"sync/atomic"

	"github.com/zlimit/zlimit-go/internal/door"
)

// A leaseWatch tells tests of the leases of counted requests, where one asks for it.
type leaseWatch struct {
	watcher atomic.Pointer[door.LeaseWatcher]
}

func (w *leaseWatch) opened(le *Lease, r *Request) {
	if watcher := w.watcher.Load(); watcher != nil {
		watcher.Opened(le, r.Entity, r.Resource)
	}
}

func (w *leaseWatch) settled(le *Lease) {
	if watcher := w.watcher.Load(); watcher != nil {
		watcher.Settled(le)
	}
}
