package protocol

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A key that the store throttles is served in part: of the calls that come at the pace of a process, some are answered. A stall is a time in
// which none of a bucket is. Then more than its key is throttled, and no request gets the proof that would reject it.
//
// It is safe for concurrent use. Times are since the engine was made.
type stall struct {
	over atomic.Int64                  // when the bucket counts as away, if no call is answered until then, nanoseconds; 0 while calls are answered
	last atomic.Int64                  // when a call was last throttled
	next atomic.Int64                  // when a request is tried again
	left atomic.Pointer[chan struct{}] // closed when the bucket counts as away; nil while no request waits for the pace of its calls
}

// The length of a stall after which the failure policy decides. It is longer if the store says that the keys are used too often: thousands of
// processes may share them.
const (
	stallOfKeys = 10 * time.Second
	stallOfAny  = time.Second

	stallTrial = 500 * time.Millisecond // between requests that are tried all the same
	stallQuiet = 5 * time.Second        // without a throttled call, after which a stall is over: longer than the pace of calls ever holds one back
)

// throttled notes that a call of a bucket was throttled.
func (d *stall) throttled(c *core, err error) {
	now := max(c.sinceStart(), 1)
	last, before := d.last.Swap(int64(now)), d.over.Load()
	if before != 0 && int64(now)-last < int64(stallQuiet) {
		return
	}
	length := stallOfAny
	if isHotKey(err) {
		length = stallOfKeys
	}
	over := int64(now + length)
	if d.over.CompareAndSwap(before, over) {
		if before == 0 {
			c.stalls.Add(1)
		}
		time.AfterFunc(time.Duration(over)-c.sinceStart(), func() {
			if d.over.Load() == over {
				d.release()
			}
		})
	}
}

// release ends the waits of requests for the pace of calls.
func (d *stall) release() {
	if left := d.left.Swap(nil); left != nil {
		close(*left)
	}
}

// away returns a channel that is closed when the bucket counts as away. A request that waits for the pace of calls does not wait any longer
// then. It is nil for a request that is tried all the same, see [Persist], and for what has no policy.
func (d *stall) away(ctx context.Context, c *core) <-chan struct{} {
	if ctx.Value(persistKey{}) != nil || table.Insists(ctx) {
		return nil
	}
	left := d.left.Load()
	for left == nil {
		made := make(chan struct{})
		if d.left.CompareAndSwap(nil, &made) {
			left = &made
		} else {
			left = d.left.Load()
		}
	}
	if d.isLong(c.sinceStart()) { // its end may have come before the channel
		d.release()
	}
	return *left
}

// persistKey is the key of contexts of requests that are tried all the same.
type persistKey struct{}

// Persist returns a context for a request that is tried all the same: it waits for the pace of calls of a bucket that counts as away.
func Persist(ctx context.Context) context.Context { return context.WithValue(ctx, persistKey{}, true) }

// isThrottled reports whether the store has answered no call of the bucket since it throttled one.
func (d *stall) isThrottled() bool { return d.over.Load() != 0 }

// answered notes that a call of the bucket was answered.
func (d *stall) answered(c *core) {
	if d.over.Load() != 0 && d.over.Swap(0) != 0 {
		c.stalls.Add(-1)
	}
}

// isLong reports whether the bucket counts as away. After a time without calls nothing is known, so the next requests are tried.
func (d *stall) isLong(now time.Duration) bool {
	over := d.over.Load()
	return over != 0 && int64(now) >= over && int64(now)-d.last.Load() < int64(stallQuiet)
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

// LookAt reads the known shards of a bucket that is stalled, in the background and at the pace of looks. Its requests are rejected by what is
// remembered, without a call that would show that the store is back.
func (e *Engine) LookAt(ctx context.Context, b *Bucket) {
	var shards []*shard
	b.walk((*shard).last, func(s *shard, _ *image) { shards = append(shards, s) })
	e.core.background.Go(Persist(ctx), func(ctx context.Context) {
		w := e.looks.sharing.Sharer()
		_, _ = e.looks.lookAt(ctx, shards, &w) // what it finds is in the images
	})
}

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
