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

// items has the engine's operations on single items of buckets. It reads and writes items, and remembers their images.
type items struct{ *core }

// A Bucket is what this process remembers about the bucket of one entity and resource. It is safe for concurrent use.
type Bucket struct {
	NS, Entity, Resource string

	Limits atomic.Pointer[Limits]    // for the LimitSource; nil at first
	Own    atomic.Pointer[[]*Limits] // limits of requests, compiled, for the caller; nil at first

	first          *shard                    // shard 0, the only one of most buckets
	shards         atomic.Pointer[[]*shard]  // by number, nil if nothing is known; replaced, never changed
	growth         sync.Mutex                // guards the replacement
	reading        atomic.Pointer[reading]   // the last one of all shards; nil for none
	queue          queue[*claim]             // of takes that share a write
	uneven         atomic.Int64              // when levelling the shards last failed, epoch milliseconds
	aligned        atomic.Pointer[alignment] // the last one of all shards to limits of a request; nil for none
	parted         atomic.Bool               // some shards may have former limits, although others are in line
	aligning       atomic.Bool               // a background goroutine brings them in line
	pace           pace                      // of looks
	stall          stall                     // while the store throttles every call
	tended         tended                    // slots that this process holds
	line           slotLine                  // of callers that wait for slots
	asleep         sleepers                  // callers that sleep until their tokens are available
	pendingRefunds pendingRefunds            // tokens of requests that were not admitted, still to be returned

	following  atomic.Pointer[following]  // of stamps that were ahead of the clock of this process; nil for none
	generation atomic.Pointer[generation] // of the last change by an operator; nil for none

	evicted atomic.Bool // the engine has forgotten it
}

// A shard is what this process remembers about one item of a bucket. Most buckets have one. It is safe for concurrent use.
type shard struct {
	layout.BucketKey
	bucket *Bucket
	key    store.Key
	reader layout.BucketReader
	lives  atomic.Pointer[lives] // of the limits of a recent image; nil at first
	queue  queue[*payment]       // of settlements that share a write
	takes  *queue[*claim]        // of takes that share a write to this shard; nil for shard 0, which uses the queue of the bucket

	image     atomic.Pointer[image]        // the item as last seen; nil if never seen
	looking   atomic.Pointer[table.Shared] // the look that is under way; nil for none
	turn      chan struct{}                // holds a token while a goroutine moves the refill stamp
	turnAt    atomic.Int64                 // when the turn began, nanoseconds since the engine was made; 0 if not known yet
	resizing  atomic.Bool                  // a split or merge is under way
	listing   atomic.Bool                  // it waits to be entered into an index
	throttled throttleCount
	traffic   traffic
	rateBase  atomic.Pointer[image] // an earlier image, from which the rate of writes is measured
	wrote     atomic.Int64          // the refill stamp that this process last wrote, epoch milliseconds
	stamped   atomic.Pointer[image] // left by this process's last write that moved the refill stamp; nil for none
}

// An image is a bucket item as the store returned it. It is never changed.
type image struct {
	bucket.State
	exists bool
	listed bool  // the item is in the index of its resource, as all are on stores without such a limit
	size   int32 // bytes, where keys have a limited write rate
	// sameSince is the epoch of the earliest look that showed the same count of shards, or the item as missing; 0 for none.
	sameSince int64
	seenAt    int64 // epoch milliseconds
	call            // that returned it
	arrived   int64 // epoch when it was returned

	limitSpace [3]bucket.Limit // enough for two limits and the count of writes
}

// A call of the store shows items as they were after it began. The zero value is an eventually consistent read.
type call struct {
	asked   int64 // epoch before the call
	askedAt int64 // epoch milliseconds
}

func (c *core) newCall() call { return call{asked: c.NextEpoch(), askedAt: c.now()} }

// over returns when a call that has just returned ended, in epoch milliseconds. A call of a store that answers immediately takes no time.
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

// shard returns the shard with a number. The item may not exist.
func (b *Bucket) shard(number int) *shard {
	if number == 0 {
		return b.first
	}
	return b.later(number)
}

// later is [Bucket.shard] for any shard except shard 0.
func (b *Bucket) later(number int) *shard {
	if s := b.known(number); s != nil {
		return s
	}
	return b.grow(number)
}

// grow adds the shard with a number, unless another goroutine has added it.
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

// known returns the shard with a number, nil if nothing is known of it.
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
			of.Claimed = 0 // a claim of another process
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

// observe remembers the item that a write returned, and returns its image. After a failed condition, it returns a later image if one has
// arrived meanwhile. It treats known, the image from before the call, as the earlier one in any case: an item that was deleted and created
// again counts its writes from 0.
//
// Whether the write was applied does not depend on the returned item. If that item is unreadable, the image is nil, and nothing is known of
// the shard any more. A caller that needs the item reads it, and fails if it is still unreadable.
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

// follow notes how an image relates to the image that was known before its call.
func (i *image) follow(known *image) {
	switch {
	case known == nil || known.exists != i.exists:
	case !i.exists:
		i.sameSince = known.arrived
	case known.Count() == i.Count():
		i.sameSince = known.sameSince
	}
}

// livesOf returns the lives of the limits of an image of the shard. Images with the same lives share one list.
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

// isLost reports whether two looks found the shard missing since its origin has the count of shards by which it must exist. One look does
// not suffice: it may be older than the split that creates the shard.
func (i *image) isLost(origin *image) bool {
	return !i.exists && i.sameSince > 0 && origin != nil && (!origin.exists || i.sameSince > origin.sameSince)
}

// remember keeps an image or the remembered one, whichever shows the later state, and returns it. If the call of the earlier state began
// later, the later state was current after that call began as well, and gets its time. If a call found the item missing, and an image of
// the item arrived after that call began, the item may have been created in between, and the image stays. After a split, writes go to more
// keys, so the pace of the bucket's writes rises.
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

// state returns the state of the item, nil if there is none.
func (i *image) state() *bucket.State {
	if i == nil || !i.exists {
		return nil
	}
	return &i.State
}

// timeAt returns the time for decisions about an item, given the present time of this process: the time of a clock that it follows, or a
// later stamp.
func (i *image) timeAt(now int64) int64 { return max(now+i.Ahead(), i.RefilledAt) }

// units returns the write units that a write of the item takes.
func (i *image) units() float64 { return math.Ceil(float64(max(i.size, 1)) / 1024) }

// newer reports whether an image shows a later state of the same item than another. It compares the counts of writes, which every write of
// this program raises, and then the refill stamps, which other programs move.
func (i *image) newer(than *image) bool {
	if more := i.Writes() - than.Writes(); more != 0 {
		return more > 0
	}
	return i.RefilledAt > than.RefilledAt
}

// follows reports whether an image shows a later state than another, of the same item or of the item that replaced it. An item that is
// created again counts its writes from 0, and has a later stamp than its predecessor, so the stamp decides. A stamp that was set back,
// since the clock that wrote it was far ahead, does not follow. The next write then loses a race, once.
func (i *image) follows(than *image) bool {
	if i.RefilledAt != than.RefilledAt {
		return i.RefilledAt > than.RefilledAt
	}
	return i.Writes() > than.Writes()
}

// since reports whether a call shows items after an epoch.
func (c call) since(epoch int64) bool { return c.asked > epoch }

// count returns the count of shards that a shard was last seen with. It is 0 if the shard was not seen or does not exist.
func (s *shard) count() int {
	if i := s.image.Load(); i != nil && i.exists {
		return i.Count()
	}
	return 0
}

// isSplit reports whether the bucket has more than one shard, as last seen.
func (b *Bucket) isSplit() bool { return b.shardCount() > 1 }

// shardCount returns the count of shards that shard 0 was last seen with.
func (b *Bucket) shardCount() int {
	if i := b.first.image.Load(); i != nil && i.exists {
		return i.Count()
	}
	return 1
}

// walk calls fn for each shard of the bucket with its image, which is nil if the shard was not seen. It starts with shard 0, and continues
// with the shards that images imply. Other remembered shards were merged, and do not count.
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

// states appends the shards of the bucket as last seen, and reports whether all of them were seen. It omits shards that do not exist.
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

// noTurn is the end of a turn for a write that takes none.
func noTurn() {}

// maxTurn bounds how long one goroutine excludes the others, since its network may delay it. After that, waiting and later goroutines
// continue without a turn. If calls usually take longer, their usual duration is the bound.
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
		rest := max(maxTurn, it.writes.Usual()) // until the present turn ends
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

// inTurn notes that a goroutine has the turn, and returns the function that ends the turn.
func (it *items) inTurn(s *shard) (leave func()) {
	s.turnAt.Store(max(int64(it.sinceStart()), 1))
	return func() {
		s.turnAt.Store(0)
		<-s.turn
	}
}

// keep returns a config that leaves the limits of an item unchanged, as settling does. An item that expires is kept until it would be full,
// since the new item would start full.
func (it *items) keep(s *bucket.State) *bucket.Config {
	c := s.Own()
	c.Lead, c.Freshness = it.options.MaxLead.Milliseconds(), it.options.Freshness(c.Params)
	c.Mixed = it.options.Mixed
	return c
}
