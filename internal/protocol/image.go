package protocol

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Bucket is what this process knows of the bucket of one entity and resource. It is safe for concurrent use.
type Bucket struct {
	NS, Entity, Resource string

	Limits atomic.Pointer[Limits]    // for the Source; nil at first
	Own    atomic.Pointer[[]*Limits] // limits of requests, compiled, for the caller; nil at first

	shards  atomic.Pointer[[]*shard] // by number, nil where nothing is known; replaced, never changed
	growth  sync.Mutex               // guards the replacement
	reading atomic.Pointer[reading]  // of all shards, the last one; nil for none
	queue   writeQueue               // of takes that share a write
	uneven  atomic.Int64             // when shards could last not be made even, epoch milliseconds
	pace    pace                     // of looks

	evicted atomic.Bool // the engine has forgotten it
}

// A shard is what this process knows of one item of a bucket. Most buckets have one. It is safe for concurrent use.
type shard struct {
	layout.BucketKey
	bucket *Bucket
	key    store.Key
	reader layout.BucketReader
	queue  writeQueue // of settlements that share a write

	image     atomic.Pointer[image] // the item as last seen; nil when never
	looking   atomic.Pointer[look]  // that is under way; nil for none
	turn      chan struct{}         // holds a token while a goroutine moves the refill stamp
	resizing  atomic.Bool           // a split or merge is under way
	listing   atomic.Bool           // it waits to be entered into an index
	throttled throttleCount
	traffic   traffic
	rateBase  atomic.Pointer[image] // an earlier image, by which the rate of writes is measured
}

// An image is a bucket item as the store returned it. It is never changed.
type image struct {
	bucket.State
	exists  bool
	missed  bool  // it was missing at the look before, too
	size    int   // bytes, where keys have a limited write rate
	listed  bool  // the item is in the index of its resource, as all are on stores without such a limit
	seenAt  int64 // epoch milliseconds
	call          // that returned it
	arrived int64 // epoch when it was returned

	limitSpace [3]bucket.Limit // enough for two limits and the count of writes
}

// A call of the store shows items as they were after it began. The zero value is a read that may be moments behind.
type call struct {
	asked   int64 // epoch before the call
	askedAt int64 // epoch milliseconds
}

// newCall returns a call that begins now.
func (it *items) newCall() call { return call{asked: it.NextEpoch(), askedAt: it.now()} }

// over returns when a call that has just returned was over, in epoch milliseconds. A store that answers at once takes no
// time.
func (it *items) over(by call) int64 {
	if by.asked > 0 && it.table.Immediate() {
		return by.askedAt
	}
	return it.now()
}

func newBucket(ns, entity, resource string) *Bucket {
	b := &Bucket{NS: ns, Entity: entity, Resource: resource, pace: pace{bounds: &ofLooks}}
	b.queue = newQueue(b, false)
	b.shards.Store(&[]*shard{b.newShard(0)})
	return b
}

func (b *Bucket) newShard(number int) *shard {
	k := layout.BucketKey{NS: b.NS, Entity: b.Entity, Resource: b.Resource, Shard: number}
	s := &shard{BucketKey: k, bucket: b, key: k.Key(), queue: newQueue(b, true), turn: make(chan struct{}, 1)}
	s.reader.Init(k, s.key)
	return s
}

// shard returns the shard of a number.
func (b *Bucket) shard(number int) *shard {
	if s := b.known(number); s != nil {
		return s
	}
	b.growth.Lock()
	defer b.growth.Unlock()
	if s := b.known(number); s != nil {
		return s
	}
	known := *b.shards.Load()
	next := make([]*shard, max(len(known), number+1))
	copy(next, known)
	next[number] = b.newShard(number)
	b.shards.Store(&next)
	return next[number]
}

// known returns the shard of a number, nil when nothing is known of it.
func (b *Bucket) known(number int) *shard {
	if known := *b.shards.Load(); number < len(known) {
		return known[number]
	}
	return nil
}

// Observe remembers the bucket's first item as an eventual read returned it, unless a later one is remembered.
func (it *items) Observe(b *Bucket, item expr.Item) error {
	first := b.shard(0)
	next, err := it.decode(first, item, call{})
	if err == nil {
		first.glimpse(next)
	}
	return err
}

// decode returns the image of an item that a call returned.
func (it *items) decode(s *shard, item expr.Item, by call) (*image, error) {
	next := &image{seenAt: it.over(by), call: by, arrived: it.NextEpoch()}
	if item == nil {
		return next, nil
	}
	state, err := s.reader.State(item, next.limitSpace[:0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.key.PK, err)
	}
	next.exists, next.State = true, state
	next.listed = true
	if it.table.Partitioned() {
		next.size, next.listed = store.Size(item), layout.IsListed(item)
	}
	return next, nil
}

// observe remembers an item that a call returned, and returns its image, or a later one that came meanwhile. The image
// before the call, known, counts as the earlier one whatever it shows. An item that was deleted and created again
// counts its writes anew.
func (it *items) observe(s *shard, item expr.Item, by call, known *image) (*image, error) {
	next, err := it.decode(s, item, by)
	if err != nil {
		return nil, err
	}
	next.follow(known)
	return s.remember(next, known), nil
}

// follow notes what an image has to do with the one that was known before the call for it.
func (i *image) follow(known *image) { i.missed = !i.exists && known != nil && !known.exists }

// remember keeps the later of an image and the one that is remembered, and returns it. A later state was the item's
// after the call for the earlier one began, whenever its own call began. It is then remembered with the time of the
// later call.
func (s *shard) remember(next, known *image) *image {
	for {
		last, latest := s.image.Load(), next
		if last != nil && last != known && last.exists && next.exists && last.newer(next) {
			if last.asked >= next.asked {
				return last
			}
			later := *last
			later.call, later.seenAt = next.call, next.seenAt
			latest = &later
		}
		if s.image.CompareAndSwap(last, latest) {
			s.traffic.see(latest, next.seenAt)
			return latest
		}
	}
}

// state returns the state of the item, nil when there is none.
func (i *image) state() *bucket.State {
	if i == nil || !i.exists {
		return nil
	}
	return &i.State
}

// units returns the write units of a write of the item.
func (i *image) units() float64 { return math.Ceil(float64(max(i.size, 1)) / 1024) }

// newer reports whether an image shows a later state of the same item than another. It goes by the count of writes,
// which every write of this program raises, then by the refill stamp, which writes of other programs move.
func (i *image) newer(than *image) bool {
	if more := i.Writes() - than.Writes(); more != 0 {
		return more > 0
	}
	return i.RefilledAt > than.RefilledAt
}

// follows reports whether an image shows a later state than another, of the same item or of the one that took its place. An
// item that is created again counts its writes anew and has a later stamp than the one before, so that the stamp decides.
// A stamp that was set back, since the clock that wrote it was far ahead, does not follow: a write of it is lost once.
func (i *image) follows(than *image) bool {
	if i.RefilledAt != than.RefilledAt {
		return i.RefilledAt > than.RefilledAt
	}
	return i.Writes() > than.Writes()
}

// since reports whether a call shows items after an epoch.
func (c call) since(epoch int64) bool { return c.asked > epoch }

// count returns the number of shards that the bucket is divided into at a shard, as last seen. It is 0 when the shard
// was not seen or does not exist.
func (s *shard) count() int {
	if i := s.image.Load(); i != nil && i.exists {
		return i.Count()
	}
	return 0
}

// divided reports whether the bucket has more than one shard, as last seen.
func (b *Bucket) divided() bool { return b.shard(0).count() > 1 }

// walk calls fn for each shard of the bucket with its image, which is nil when the shard was not seen. The shards are
// the first one, and those that their images tell of in turn. Images of other shards, which were merged, do not count.
func (b *Bucket) walk(imageOf func(*shard) *image, fn func(*shard, *image)) {
	var space [32]int
	numbers := append(space[:0], 0)
	for i := 0; i < len(numbers); i++ {
		s := b.shard(numbers[i])
		image := imageOf(s)
		fn(s, image)
		if image != nil && image.exists {
			numbers = bucket.Branches(numbers, s.Shard, image.Count())
		}
	}
}

// states appends the shards of the bucket as last seen, and reports whether all of them were seen. It leaves out shards
// that do not exist.
func (b *Bucket) states(to []*bucket.State) (states []*bucket.State, complete bool) {
	complete = true
	if first := b.shard(0).image.Load(); first == nil || first.Count() == 1 { // no closure for the most frequent case
		if s := first.state(); s != nil {
			to = append(to, s)
		}
		return to, first != nil
	}
	b.walk((*shard).last, func(_ *shard, i *image) {
		if s := i.state(); s != nil {
			to = append(to, s)
		}
		complete = complete && i != nil
	})
	return to, complete
}

// maxTurn bounds how long a goroutine waits for its turn: the one before it may be held up by its network.
const maxTurn = 100 * time.Millisecond

// enter waits for the goroutine's turn to move the refill stamp, and returns the function that ends the turn.
func (s *shard) enter(ctx context.Context) (leave func(), err error) {
	leave = func() { <-s.turn }
	select {
	case s.turn <- struct{}{}:
		return leave, nil
	default:
	}
	timer := time.NewTimer(maxTurn)
	defer timer.Stop()
	select {
	case s.turn <- struct{}{}:
		return leave, nil
	case <-timer.C:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
