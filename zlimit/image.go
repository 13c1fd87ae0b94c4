package zlimit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A bucketRef is what this process knows of the bucket of one entity and resource. It is safe for concurrent use.
type bucketRef struct {
	NS, Entity, Resource string

	limits atomic.Pointer[resolved] // the stored limits; nil when never read
	shards atomic.Pointer[[]*shard] // by number, nil where nothing is known; replaced, never changed
	growth sync.Mutex               // guards the replacement
	calls  atomic.Int64             // that asked the store for an image of one of the shards
	pool   pool                     // of charges that share a write
}

// A shard is what this process knows of one item of a bucket. Most buckets have one. It is safe for concurrent use.
type shard struct {
	layout.BucketKey
	key   store.Key
	calls *atomic.Int64 // of the bucket
	pool  pool          // of corrections that share a write

	image    atomic.Pointer[image] // the item as last seen; nil when never
	turn     chan struct{}         // holds a token while a goroutine moves the refill stamp
	resizing atomic.Bool           // a split or merge is under way
	strain   strain                // throttled writes
	pace     atomic.Pointer[image] // an earlier image, by which the rate of writes is measured
}

func newBucketRef(ns, entity, resource string) *bucketRef {
	b := &bucketRef{NS: ns, Entity: entity, Resource: resource}
	b.shards.Store(&[]*shard{b.newShard(0)})
	return b
}

func (b *bucketRef) newShard(number int) *shard {
	k := layout.BucketKey{NS: b.NS, Entity: b.Entity, Resource: b.Resource, Shard: number}
	return &shard{BucketKey: k, key: k.Key(), calls: &b.calls, turn: make(chan struct{}, 1)}
}

// shard returns the shard of a number.
func (b *bucketRef) shard(number int) *shard {
	if known := *b.shards.Load(); number < len(known) && known[number] != nil {
		return known[number]
	}
	b.growth.Lock()
	defer b.growth.Unlock()
	known := *b.shards.Load()
	if number < len(known) && known[number] != nil {
		return known[number]
	}
	next := make([]*shard, max(len(known), number+1))
	copy(next, known)
	next[number] = b.newShard(number)
	b.shards.Store(&next)
	return next[number]
}

// An image is a bucket item as the store returned it. It is never changed.
type image struct {
	bucket.State
	exists bool
	seenAt int64 // epoch milliseconds by the limiter's clock
	call   int64 // number of the call that returned it; 0 for a read that need not see the latest writes
}

// state returns the state of the item, nil when there is none.
func (i *image) state() *bucket.State {
	if !i.exists {
		return nil
	}
	return &i.State
}

// writes returns a number that every physical write of the item raises.
func (i *image) writes() int64 {
	for _, l := range i.Limits {
		if l.Name == bucket.WriteUnits {
			return l.Consumed
		}
	}
	return 0
}

// newer reports whether an image shows a later state of the item than another: refill stamps never move back, and every
// write is counted.
func (i *image) newer(than *image) bool {
	if i.exists != than.exists || i.RefilledAt != than.RefilledAt {
		return i.RefilledAt > than.RefilledAt || !than.exists
	}
	return i.writes()-than.writes() > 0
}

// observe decodes an item that the store returned, remembers it unless a later state came meanwhile, and returns it. What
// was known before the call was made is earlier, whatever it shows: an item that was deleted and created again may have
// an older refill stamp.
func (b *shard) observe(item expr.Item, now time.Time, call int64, known *image) (*image, error) {
	next := &image{seenAt: now.UnixMilli(), call: call}
	if item != nil {
		var err error
		if next.State, err = layout.ReadState(item); err != nil {
			return nil, err
		}
		next.exists = true
	}
	for {
		last := b.image.Load()
		if last != nil && last != known && last.exists && next.exists && last.newer(next) {
			return next, nil
		}
		if b.image.CompareAndSwap(last, next) {
			return next, nil
		}
	}
}

// last returns the state as last seen, nil when there is no item or it never was.
func (b *shard) last() *bucket.State {
	if i := b.image.Load(); i != nil {
		return i.state()
	}
	return nil
}

// forget makes the next use of the bucket read it.
func (b *shard) forget() { b.image.Store(nil) }

// maxTurn bounds how long a goroutine waits for its turn: the one before it may be held up by its network.
const maxTurn = 100 * time.Millisecond

// enter waits for the goroutine's turn to move the refill stamp, and returns the function that ends the turn.
func (b *shard) enter(ctx context.Context) (leave func(), err error) {
	leave = func() { <-b.turn }
	select {
	case b.turn <- struct{}{}:
		return leave, nil
	default:
	}
	timer := time.NewTimer(maxTurn)
	defer timer.Stop()
	select {
	case b.turn <- struct{}{}:
		return leave, nil
	case <-timer.C:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write returns the store's write of a plan.
func (b *shard) write(p *bucket.Plan, o layout.Owner) (store.Write, error) {
	return b.WriteAt(b.key, p, o)
}
