package zlimit

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A bucketRef is what this process knows of one bucket. It is safe for concurrent use.
type bucketRef struct {
	bucketKey
	key store.Key

	image  atomic.Pointer[image]    // the item as last seen; nil when never
	limits atomic.Pointer[resolved] // the stored limits; nil when never
	turn   chan struct{}            // holds a token while a goroutine moves the refill stamp
}

func newBucketRef(k bucketKey) *bucketRef {
	return &bucketRef{bucketKey: k, key: k.key(), turn: make(chan struct{}, 1)}
}

// An image is a bucket item as the store returned it. It is never changed.
type image struct {
	bucket.State
	exists bool
	seenAt int64 // epoch milliseconds by the limiter's clock
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

// observe decodes an item that the store returned, remembers it unless a later state is known, and returns it.
func (b *bucketRef) observe(item expr.Item, now time.Time) (*image, error) {
	next := &image{seenAt: now.UnixMilli()}
	if item != nil {
		decoded, err := decodeBucket(item)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.key.PK, err)
		}
		next.exists = true
		next.State = bucket.State{
			Limits:     decoded.Limits,
			RefilledAt: decoded.RefilledAt,
			ExpiresAt:  decoded.ExpiresAt,
			Shard:      b.Shard,
			Shards:     int(decoded.ShardCount),
		}
	}
	for {
		last := b.image.Load()
		if last != nil && last.exists && next.exists && last.newer(next) {
			return next, nil
		}
		if b.image.CompareAndSwap(last, next) {
			return next, nil
		}
	}
}

// last returns the state as last seen, nil when there is no item or it never was.
func (b *bucketRef) last() *bucket.State {
	if i := b.image.Load(); i != nil {
		return i.state()
	}
	return nil
}

// forget makes the next use of the bucket read it.
func (b *bucketRef) forget() { b.image.Store(nil) }

// maxTurn bounds how long a goroutine waits for its turn: the one before it may be held up by its network.
const maxTurn = 100 * time.Millisecond

// enter waits for the goroutine's turn to move the refill stamp, and returns the function that ends the turn.
func (b *bucketRef) enter(ctx context.Context) (leave func(), err error) {
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
func (b *bucketRef) write(p *bucket.Plan) (store.Write, error) {
	w := store.Write{Kind: store.Update, Key: b.key}
	var err error
	switch p.Kind {
	case bucket.Create:
		w.Kind, w.Item = store.Put, b.item(p).encode()
		w.Expr, err = insert()
	case bucket.Spend:
		w.Expr, err = bindSpend(p)
	default:
		w.Expr, err = bindAdvance(p)
	}
	return w, err
}

// item returns the item that a plan creates.
func (b *bucketRef) item(p *bucket.Plan) *bucketItem {
	item := &bucketItem{
		Key:        b.bucketKey,
		Limits:     slices.Clone(p.Item.Limits), // so that plans stay on the stack
		RefilledAt: p.Item.RefilledAt,
		ShardCount: int64(p.Item.Shards),
		ExpiresAt:  p.Item.ExpiresAt,
	}
	if known := b.limits.Load(); known != nil {
		item.Cascade, item.Parent = known.owner.cascade, known.owner.parent
	}
	return item
}

// bindSpend binds a plan that leaves the refill stamp alone.
func bindSpend(p *bucket.Plan) (expr.Bound, error) {
	call := spend(p.RefilledAt, floorDiv(p.Now, millis))
	for i := range p.Steps {
		switch s := &p.Steps[i]; s.Kind {
		case bucket.Take:
			call.take(s.Limit, s.Values[0])
		case bucket.Charge:
			call.charge(s.Limit, s.Values[0])
		default: // bucket.Refund
			call.refund(s.Limit, s.Values[0], s.Values[1], s.Values[2])
		}
	}
	return call.Bind()
}

// bindAdvance binds a plan that moves the refill stamp.
func bindAdvance(p *bucket.Plan) (expr.Bound, error) {
	call := advance(p.RefilledAt, p.Now)
	for i := range p.Steps {
		s := &p.Steps[i]
		v := s.Values
		switch s.Kind {
		case bucket.Credit:
			call.credit(s.Limit, v[0], v[1])
		case bucket.Cover:
			call.cover(s.Limit, v[0])
		case bucket.Fill:
			call.fill(s.Limit, v[0], v[1])
		case bucket.Count:
			call.count(s.Limit, v[0])
		case bucket.Configure:
			call.configure(s.Limit, v[0], v[1], v[2])
		case bucket.Seed:
			call.seed(s.Limit, v[0], v[1])
		case bucket.Drop:
			call.drop(s.Limit)
		case bucket.Expire:
			call.expire(v[0])
		default: // bucket.Persist
			call.persist()
		}
	}
	return call.Bind()
}
