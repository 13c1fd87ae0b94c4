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
	"github.com/zlimit/zlimit-go/internal/table"
)

// items are an engine's operations on single items of buckets: it reads and writes them, and remembers their images.
type items struct{ *core }

// A Bucket is the memory of this process about the bucket of one entity and resource. It is safe for concurrent use.
type Bucket struct {
	NS, Entity, Resource string

	Limits atomic.Pointer[Limits]    // for the LimitSource; nil at first
	Own    atomic.Pointer[[]*Limits] // limits of requests, compiled, for the caller; nil at first

	first          *shard                    // shard 0, the only one of most buckets
	shards         atomic.Pointer[[]*shard]  // by number, nil where nothing is known; replaced, never changed
	growth         sync.Mutex                // guards the replacement
	reading        atomic.Pointer[reading]   // of all shards, the last one; nil for none
	queue          queue[*claim]             // of takes that share a write
	uneven         atomic.Int64              // when shards could last not be made even, epoch milliseconds
	aligned        atomic.Pointer[alignment] // of all shards, the last one by limits of a request; nil for none
	parted         atomic.Bool               // some shards may have former limits, though others are in line
	aligning       atomic.Bool               // a goroutine of its own brings them in line
	pace           pace                      // of looks
	stall          stall                     // while the store throttles every call
	tended         tended                    // slots that this process holds
	line           slotLine                  // of callers that wait for more of them
	asleep         sleepers                  // callers that sleep until their tokens are there
	pendingRefunds pendingRefunds            // tokens still to be given back, of requests that were not admitted

	following  atomic.Pointer[following]  // of stamps that were ahead of the clock of this process; nil for none
	generation atomic.Pointer[generation] // of the last change by an operator; nil for none

	evicted atomic.Bool // the engine has forgotten it
}

// A shard is the memory of this process about one item of a bucket. Most buckets have one. It is safe for concurrent
// use.
type shard struct {
	layout.BucketKey
	bucket *Bucket
	key    store.Key
	reader layout.BucketReader
	lives  atomic.Pointer[lives] // of the limits of a recent image; nil at first
	queue  queue[*payment]       // of settlements that share a write
	takes  *queue[*claim]        // of takes that share a write to this shard; nil for the first one, which has that of the bucket

	image     atomic.Pointer[image]        // the item as last seen; nil when never
	looking   atomic.Pointer[table.Shared] // the look that is under way; nil for none
	turn      chan struct{}                // holds a token while a goroutine moves the refill stamp
	turnAt    atomic.Int64                 // when it was taken, nanoseconds since the engine was made; 0 where that is not known yet
	resizing  atomic.Bool                  // a split or merge is under way
	listing   atomic.Bool                  // it waits to be entered into an index
	throttled throttleCount
	traffic   traffic
	rateBase  atomic.Pointer[image] // an earlier image, by which the rate of writes is measured
	wrote     atomic.Int64          // the refill stamp that this process last wrote, epoch milliseconds
	stamped   atomic.Pointer[image] // left by this process's last write that moved the refill stamp; nil for none
}

// An image is a bucket item as the store returned it. It is never changed.
type image struct {
	bucket.State
	exists bool
	listed bool  // the item is in the index of its resource, as all are on stores without such a limit
	size   int32 // bytes, where keys have a limited write rate
	// sameSince is the epoch of an earlier look: since then the item is known to have this count of shards, or to be
	// missing; 0 for neither.
	sameSince int64
	seenAt    int64 // epoch milliseconds
	call            // that returned it
	arrived   int64 // epoch when it was returned

	limitSpace [3]bucket.Limit // enough for two limits and the count of writes
}

// A call of the store shows items as they were after it began. The zero value is a read that may be moments behind.
type call struct {
	asked   int64 // epoch before the call
	askedAt int64 // epoch milliseconds
}

func (c *core) newCall() call { return call{asked: c.NextEpoch(), askedAt: c.now()} }

// over returns when a call that has just returned was over, in epoch milliseconds. A store that answers immediately takes no
// time.
func (c *core) over(by call) int64 {
	if by.asked > 0 && c.table.Immediate() {
		return by.askedAt
	}
	return c.now()
}

func newBucket(ns, entity, resource string) *Bucket {
	b := &Bucket{NS: ns, Entity: entity, Resource: resource, pace: pace{bounds: &ofLooks}}
	b.pendingRefunds.turn, b.tended.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	b.queue = newQueue[*claim](b, false)
	b.first = b.newShard(0)
	b.shards.Store(&[]*shard{b.first})
	return b
}

func (b *Bucket) newShard(number int) *shard {
	k := layout.BucketKey{NS: b.NS, Entity: b.Entity, Resource: b.Resource, Shard: number}
	s := &shard{BucketKey: k, bucket: b, key: k.Key(), queue: newQueue[*payment](b, true), turn: make(chan struct{}, 1)}
	if number > 0 {
		takes := newQueue[*claim](b, false)
		takes.pace = b.queue.pace
		s.takes = &takes
	}
	s.reader.Init(k, s.key)
	return s
}

// shard returns the shard of a number, which may not exist.
func (b *Bucket) shard(number int) *shard {
	if number == 0 {
		return b.first
	}
	return b.later(number)
}

// later is [Bucket.shard] for another one than the first.
func (b *Bucket) later(number int) *shard {
	if s := b.known(number); s != nil {
		return s
	}
	return b.grow(number)
}

// grow adds the shard of a number, unless another goroutine has added it.
func (b *Bucket) grow(number int) *shard {
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

// glimpse is [Memory.Observe].
func (it *items) glimpse(b *Bucket, item expr.Item) error {
	first := b.shard(0)
	next, err := it.decode(first, item, nil, call{})
	if err == nil {
		first.glimpse(next)
	}
	return err
}

// decode returns the image of an item that a call returned. The forms of the item are nil if they are not known.
func (it *items) decode(s *shard, item expr.Item, forms *expr.Forms, by call) (*image, error) {
	next := &image{seenAt: it.over(by), call: by, arrived: it.NextEpoch()}
	if item == nil {
		return next, nil
	}
	state, err := s.reader.State(item, forms, next.limitSpace[:0])
	if err != nil {
		s.image.Store(nil) // no later request is decided from the former item
		return nil, fmt.Errorf("%s: %w", s.key.PK, err)
	}
	next.exists, next.State, next.sameSince = true, state, next.arrived
	for i := range next.Slots() {
		if of := &next.Slots()[i]; of.Claimant == it.claimant() {
			of.Claimed = 0 // for others than this process
		}
	}
	next.Stands = it.hasFixed(s)
	if s.mayLead(next) {
		if ahead := it.follow(s, next); ahead != 0 {
			next.Change(func(n *bucket.Notes) { n.Ahead = ahead })
		}
	}
	if next.Notes != nil {
		s.bucket.meet(next)
	}
	next.listed = true
	if it.table.Partitioned() {
		next.size, next.listed = int32(min(store.Size(item), math.MaxInt32)), layout.IsListed(item)
	}
	if own := s.stamped.Load(); own != nil && own.RefilledAt > next.RefilledAt {
		it.compare(s, next, own)
	}
	return next, nil
}

// observe remembers the item that a write returned, and returns its image. After a failed condition it returns a later
// image that came meanwhile. The image before the call, known, counts as the earlier one in any case. An item that was
// deleted and created again counts its writes from 0.
//
// An applied write is done, with any returned item; a write with a failed condition is not. Where the returned item
// cannot be read, nothing is known of the shard any more, and the image is nil. A caller that needs the item reads it,
// and fails if it still cannot be read.
func (it *items) observe(s *shard, r *store.Result, by call, known *image) *image {
	next, err := it.decode(s, r.Item, r.Forms, by)
	if err != nil || r.Applied && r.Item == nil {
		s.image.Store(nil)
		it.options.Logger.Warn("zlimit: the item that a write returned cannot be read", "key", s.key.PK, "applied", r.Applied, "error", err)
		return nil
	}
	next.follow(known)
	if latest := it.remember(s, next, known); !r.Applied {
		return latest
	}
	return next
}

// follow notes how an image relates to the one known before the call for it.
func (i *image) follow(known *image) {
	switch {
	case known == nil || known.exists != i.exists:
	case !i.exists:
		i.sameSince = known.arrived
	case known.Count() == i.Count():
		i.sameSince = known.sameSince
	}
}

// livesOf returns the lives of the limits of an image of the shard: one list for all images with the same.
func (s *shard) livesOf(i *image) *lives {
	known := s.lives.Load()
	if known != nil && known.shape != nil && known.shape == i.EvenShape() {
		return known
	}
	next := &lives{all: i.Lives(known.list()), shape: i.EvenShape()}
	if known != nil && next.shape == known.shape && len(next.all) == len(known.all) && (len(next.all) == 0 || &next.all[0] == &known.all[0]) {
		return known
	}
	s.lives.Store(next)
	return next
}

// isLost reports whether a missing shard was missing twice since its origin has the count by which it is there. The look
// before may be older than the split that made the shard.
func (i *image) isLost(origin *image) bool {
	return !i.exists && i.sameSince > 0 && origin != nil && (!origin.exists || i.sameSince > origin.sameSince)
}

// remember keeps the later of an image and the one that is remembered, and returns it. A later state was the item's
// after the call for the earlier one began, whenever its own call began. It is then remembered with the time of the
// later call. An item that arrived after the call for it to be missing began may have been created in between, and stays. Writes of a
// bucket that was split go to more keys, and at a faster pace.
func (it *items) remember(s *shard, next, known *image) *image {
	s.bucket.stall.answered(it.core)
	for {
		last, latest := s.image.Load(), next
		if last != nil && last.exists && !next.exists && last.arrived > next.asked {
			return last
		}
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
			if s.Shard == 0 && last != nil && last.exists && latest.Count() > last.Count() {
				s.bucket.queue.pace.ease(it.sinceStart(), latest.Count()/last.Count())
			}
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

// timeAt returns the time for decisions about an item at a time of this process: the time of a clock that is ahead, or of a later
// stamp.
func (i *image) timeAt(now int64) int64 { return max(now+i.Ahead(), i.RefilledAt) }

// units returns the write units of a write of the item.
func (i *image) units() float64 { return math.Ceil(float64(max(i.size, 1)) / 1024) }

// newer reports whether an image shows a later state of the same item than another. It compares the count of writes,
// which every write of this program raises. Then it compares the refill stamp, which other programs move.
func (i *image) newer(than *image) bool {
	if more := i.Writes() - than.Writes(); more != 0 {
		return more > 0
	}
	return i.RefilledAt > than.RefilledAt
}

// follows reports whether an image shows a later state than another, of the same item or of the one that took its
// place. An item that is created again counts its writes from 0 and has a later stamp than its predecessor, so the stamp
// decides. A stamp set back does not follow: a write of it is lost once. The clock that wrote the stamp before was far
// ahead.
func (i *image) follows(than *image) bool {
	if i.RefilledAt != than.RefilledAt {
		return i.RefilledAt > than.RefilledAt
	}
	return i.Writes() > than.Writes()
}

// since reports whether a call shows items after an epoch.
func (c call) since(epoch int64) bool { return c.asked > epoch }

// count returns the number of shards that the bucket is split into at a shard, as last seen. It is 0 when the shard
// was not seen or does not exist.
func (s *shard) count() int {
	if i := s.image.Load(); i != nil && i.exists {
		return i.Count()
	}
	return 0
}

// isSplit reports whether the bucket has more than one shard, as last seen.
func (b *Bucket) isSplit() bool { return b.shardCount() > 1 }

// shardCount returns the number of shards that the first one was last seen to be one of.
func (b *Bucket) shardCount() int {
	if i := b.first.image.Load(); i != nil && i.exists {
		return i.Count()
	}
	return 1
}

// walk calls fn for each shard of the bucket with its image, which is nil when the shard was not seen. The shards are
// the first one, and in turn the shards that images mention. Images of other shards, which were merged, do not count.
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

// arrivedSince reports whether an image of one of the shards arrived after an epoch.
func (b *Bucket) arrivedSince(epoch int64) (arrived bool) {
	b.walk((*shard).last, func(_ *shard, i *image) { arrived = arrived || i != nil && i.arrived > epoch })
	return arrived
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

// noTurn ends nothing: the write takes no turn.
func noTurn() {}

// maxTurn bounds how long a goroutine has its turn alone, since its network may delay it. After that, waiting and later
// goroutines continue without a turn. If calls usually take longer, that duration is the bound.
const maxTurn = 100 * time.Millisecond

// enter waits for the goroutine's turn to move the refill stamp, and returns the function that ends the turn.
func (it *items) enter(ctx context.Context, s *shard) (leave func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return it.inTurn(s), nil
	default:
	}
	var timer *time.Timer
	for {
		rest := max(maxTurn, it.writes.Usual()) // of the present turn
		if at := s.turnAt.Load(); at > 0 {
			rest -= it.sinceStart() - time.Duration(at)
		}
		switch {
		case rest <= 0:
			return noTurn, nil
		case timer == nil:
			timer = time.NewTimer(rest)
			defer timer.Stop()
		default:
			timer.Reset(rest)
		}
		select {
		case s.turn <- struct{}{}:
			return it.inTurn(s), nil
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// inTurn notes that a goroutine has its turn, and returns the function to end it.
func (it *items) inTurn(s *shard) (leave func()) {
	s.turnAt.Store(max(int64(it.sinceStart()), 1))
	return func() {
		s.turnAt.Store(0)
		<-s.turn
	}
}

// keep returns the config that keeps an item as it is: settling leaves its limits alone. An item that expires is kept
// until it would be full: before, it must not be taken for a new, full one.
func (it *items) keep(s *bucket.State) *bucket.Config {
	c := s.Own()
	c.Lead, c.Freshness = it.options.MaxLead.Milliseconds(), it.options.Freshness(c.Params)
	c.Mixed = it.options.Mixed
	return c
}
