package protocol

import (
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
)

// A key that the store throttles is served in part: of the calls that come at the pace of a process, some are answered. A stall is a time in
// which none of a bucket is. Then more than its key is throttled, and no request gets the proof that would reject it.
//
// It is safe for concurrent use. Times are since the engine was made.
type stall struct {
	over atomic.Int64 // when the bucket counts as away, if no call is answered until then, nanoseconds; 0 while calls are answered
	next atomic.Int64 // when a request is tried again
}

// The length of a stall after which the failure policy decides. It is longer if the store says that the keys are used too often: thousands of
// processes may share them.
const (
	stallOfKeys = 10 * time.Second
	stallOfAny  = time.Second

	stallTrial = 500 * time.Millisecond // between requests that are tried all the same
)

// throttled notes that a call of a bucket was throttled.
func (d *stall) throttled(c *core, err error) {
	if d.over.Load() != 0 {
		return
	}
	length := stallOfAny
	if isHotKey(err) {
		length = stallOfKeys
	}
	if d.over.CompareAndSwap(0, int64(max(c.sinceStart(), 1)+length)) {
		c.stalls.Add(1)
	}
}

// answered notes that a call of the bucket was answered.
func (d *stall) answered(c *core) {
	if d.over.Load() != 0 && d.over.Swap(0) != 0 {
		c.stalls.Add(-1)
	}
}

// isLong reports whether the bucket counts as away.
func (d *stall) isLong(now time.Duration) bool {
	over := d.over.Load()
	return over != 0 && int64(now) >= over
}

// mayTry reports whether a request is tried all the same, which holds for one in each [stallTrial].
func (d *stall) mayTry(now time.Duration) bool {
	next := d.next.Load()
	return int64(now) >= next && d.next.CompareAndSwap(next, int64(now+stallTrial))
}

// Stalled returns a bucket of a request if the store has throttled each call of it for so long that the failure policy decides, nil for none. It
// makes no call. It takes one atomic load while no bucket has a stall.
func (e *Engine) Stalled(r *Request) (stalled *Bucket) {
	if e.core.stalls.Load() == 0 {
		return nil
	}
	if r.together != nil {
		for _, part := range r.together.requests {
			if b := e.Stalled(part); b != nil {
				return b
			}
		}
		return nil
	}
	now := e.core.sinceStart()
	e.buckets(r, func(b *Bucket, _ *Limits) bool {
		if b.stall.isLong(now) {
			stalled = b
		}
		return stalled == nil
	})
	return stalled
}

// TriesStalled reports whether a request is tried all the same, given a bucket that is stalled. It is for one request at a time.
func (e *Engine) TriesStalled(b *Bucket) bool { return b.stall.mayTry(e.core.sinceStart()) }

// buckets passes on the buckets that a request is charged to as far as is known, each with its limits, until a function returns false.
func (e *Engine) buckets(r *Request, yield func(*Bucket, *Limits) bool) {
	entity := r.Entity
	for range MaxDepth {
		var lineage layout.Lineage
		resource := r.Resource
		for width := 0; width < MaxWidth && resource != ""; width++ {
			b := e.Memory.Bucket(entity, resource)
			limits := b.Limits.Load()
			if width == 0 && limits != nil {
				lineage = limits.Lineage
			}
			resource = ""
			if limits != nil {
				resource = limits.Within
			}
			if r.Own != nil && entity == r.Entity && width == 0 {
				limits = r.Own
			}
			if !yield(b, limits) {
				return
			}
		}
		if !lineage.Cascade || lineage.Parent == "" {
			return
		}
		entity = lineage.Parent
	}
}
