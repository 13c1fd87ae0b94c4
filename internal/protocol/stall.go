package protocol

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// For a throttled key, the store still answers some of the calls that a process makes at its pace. A stall is a time without any answered
// call of a bucket. Then more than its key is throttled, and no request gets the proof that would reject it.
//
// It is safe for concurrent use. Times are since the engine was made.
type stall struct {
	over atomic.Int64                  // when the bucket counts as away unless a call is answered before, nanoseconds; 0 while calls are answered
	last atomic.Int64                  // when a call was last throttled
	next atomic.Int64                  // when the next request is tried
	left atomic.Pointer[chan struct{}] // closed when the bucket counts as away; nil while no request waits for the pace of its calls
}

// The length of a stall after which the failure policy decides. It is longer if the store names the keys as the reason, since thousands of
// processes may share them.
const (
	stallOfKeys = 10 * time.Second
	stallOfAny  = time.Second

	stallTrial = 500 * time.Millisecond // between requests that are tried nevertheless
	stallQuiet = 5 * time.Second        // a stall ends after this time without a throttled call; longer than any pause of a pace
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

// release makes requests stop waiting for the pace of calls.
func (d *stall) release() {
	if left := d.left.Swap(nil); left != nil {
		close(*left)
	}
}

// away returns a channel that is closed when the bucket counts as away. A request that is waiting for the pace of calls then stops waiting.
// The channel is nil for a request that is tried nevertheless, see [Persist], and for calls without a failure policy.
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
	if d.isLong(c.sinceStart()) { // the timer may have fired before the channel existed
		d.release()
	}
	return *left
}

// persistKey is the key of contexts of requests that are tried nevertheless.
type persistKey struct{}

// Persist returns a context for a request that is tried nevertheless: it waits for the pace of calls even if the bucket counts as away.
func Persist(ctx context.Context) context.Context { return context.WithValue(ctx, persistKey{}, true) }

// isThrottled reports whether the store has answered no call of the bucket since it throttled one.
func (d *stall) isThrottled() bool { return d.over.Load() != 0 }

// answered notes that a call of the bucket was answered.
func (d *stall) answered(c *core) {
	if d.over.Load() != 0 && d.over.Swap(0) != 0 {
		c.stalls.Add(-1)
	}
}

// isLong reports whether the bucket counts as away. After stallQuiet without a throttled call it does not, so the next requests are tried.
func (d *stall) isLong(now time.Duration) bool {
	over := d.over.Load()
	return over != 0 && int64(now) >= over && int64(now)-d.last.Load() < int64(stallQuiet)
}

// mayTry reports whether a request is tried nevertheless: one request in each [stallTrial] is.
func (d *stall) mayTry(now time.Duration) bool {
	next := d.next.Load()
	return int64(now) >= next && d.next.CompareAndSwap(next, int64(now+stallTrial))
}

// Stalled returns a bucket of a request whose calls were all throttled for so long that the failure policy decides, nil for none. It makes
// no call. While no bucket has a stall, it takes one atomic load.
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

// TriesStalled reports whether a request is tried nevertheless, given its stalled bucket. It returns true for one request at a time.
func (e *Engine) TriesStalled(b *Bucket) bool { return b.stall.mayTry(e.core.sinceStart()) }

// LookAt reads the known shards of a stalled bucket, in the background and at the pace of looks. Its requests are rejected from memory, and
// make no call that would show that the store is back.
func (e *Engine) LookAt(ctx context.Context, b *Bucket) {
	var shards []*shard
	b.walk((*shard).last, func(s *shard, _ *image) { shards = append(shards, s) })
	e.core.background.Go(Persist(ctx), func(ctx context.Context) {
		w := e.looks.sharing.Sharer()
		_, _ = e.looks.lookAt(ctx, shards, &w) // the images have the result
	})
}

// buckets calls yield with each known bucket that a request is charged to, and its limits, until yield returns false.
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
