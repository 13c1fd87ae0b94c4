package quota

import (
	"context"
	"time"
)

// recordGrace is the time that a store has to record an event after the caller's context has ended.
const recordGrace = 5 * time.Second

// outlive returns a context that ends recordGrace after ctx does, with the cause of ctx. A finished
// or abandoned call is recorded with that context. The context of a request that was broken off has
// ended by then. A call that is not recorded would count as estimated, for a day. The caller must
// call end.
func outlive(ctx context.Context) (out context.Context, end func()) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(recordGrace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-out.Done():
		}
	})
	return out, func() {
		stop()
		cancel(nil)
	}
}
