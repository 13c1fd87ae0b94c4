package protocol

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// An item counts its writes, so two images show how many writes came between them. Other processes made the ones that this process did not
// make. A plan that requires the exact state of an image fails if another write came since. So its risk is the probability of such a write.

// A traffic estimates the writes of one item from its images. It is safe for concurrent use.
type traffic struct {
	mu sync.Mutex
	tally
	writing atomic.Int32 // writes of this process that have no reply yet
	pending pendingTakes // for the whole bucket, used in shard 0
	placed  pendingTakes // amounts of writes to the item that are under way
	fell    atomic.Bool  // requests fell short recently, at least minShort: without them, isUsedUp needs no lock
}

// A tally has the figures of a traffic.
type tally struct {
	known  bool
	guess  bool  // others and span come from a single image
	count  int   // shards of the bucket for which the figures hold
	at     int64 // when the item was last seen, epoch milliseconds
	writes int64 // the item's count at that time
	own    int64 // writes that this process has sent since, less refused ones

	others float64 // writes of other processes within span; older ones count less
	mine   float64 // writes of this process within span
	short  float64 // requests of this process that fell short within span, including those decided from memory
	span   float64 // the observed time, milliseconds

	from        int64   // the beginning of the measurement of writes, epoch milliseconds
	base        int64   // the item's count at that time
	tries, lost float64 // recent writes of this process, and the ones whose condition failed
	busy        bool    // the last result of that measurement
}

// halfLifeMS is the time after which an observation counts half, milliseconds. A later image counts as much as all images
// before it.
const halfLifeMS = 1000

// sent notes a write of this process before it is sent.
func (t *traffic) sent() {
	t.writing.Add(1)
	t.mu.Lock()
	t.own++
	t.tries++
	t.mu.Unlock()
}

// refused notes that a write was not applied. If it was lost, its condition failed, and it is charged.
func (t *traffic) refused(lost bool) {
	t.mu.Lock()
	t.own--
	if lost {
		t.lost++
	} else {
		t.tries--
	}
	t.mu.Unlock()
}

// see notes an image, or that an image was seen again. The first image of an item that another process created shows how long ago it was
// last written.
func (t *traffic) see(i *image, at int64) {
	t.mu.Lock()
	t.update(i, at)
	if t.fell.Load() {
		t.fell.Store(t.short >= minShort)
	}
	t.mu.Unlock()
}

func (t *tally) update(i *image, at int64) {
	if !i.exists {
		*t = tally{}
		return
	}
	writes := i.Writes() / millis
	if t.known && t.count != i.Count() && writes >= t.writes { // it was split or merged, and gets another part of the writes
		t.others *= float64(t.count) / float64(i.Count())
		t.mine *= float64(t.count) / float64(i.Count())
		t.short *= float64(t.count) / float64(i.Count())
		t.count, t.busy, t.from, t.base = i.Count(), false, at, writes
	}
	if !t.known || writes < t.writes { // fewer writes mean another item with the same key
		first := !t.known && t.own == 0
		*t = tally{known: true, count: i.Count(), at: at, writes: writes, from: at, base: writes}
		if age := at - i.RefilledAt; first && age >= 0 {
			t.guess, t.others, t.span = true, 1, float64(age)
		}
		return
	}
	if at < t.at {
		return // by a clock that was set back
	}
	if elapsed := float64(at - t.at); elapsed > 0 {
		kept := math.Exp2(-min(elapsed/halfLifeMS, 1))
		t.others, t.mine, t.short, t.span = t.others*kept, t.mine*kept, t.short*kept, t.span*kept+elapsed
	}
	t.others += float64(writes - t.writes - t.own)
	t.mine += float64(t.own)
	t.guess, t.at, t.writes, t.own = false, at, writes, 0
	if over := time.Duration(at-t.from) * time.Millisecond; over >= rateWindow {
		t.busy = bucket.IsBusy(float64(writes-t.base)*t.charged()*i.units(), over)
		t.from, t.base = at, writes
		if t.tries > 8*minSamples {
			t.tries, t.lost = t.tries/2, t.lost/2
		}
	}
}

// minSamples is the least number of writes for a rate. Fewer writes do not show how many are lost.
const minSamples = 8

// rateWindow is the least time over which the rate of writes is measured.
const rateWindow = time.Second

// charged estimates how many writes are charged for each applied write. A write whose condition fails is charged too, but the item does not
// count it.
func (t *tally) charged() float64 {
	return (t.tries + minSamples) / max(t.tries+minSamples-t.lost, (t.tries+minSamples)/2)
}

// cost estimates how many writes are charged for each applied write.
func (t *traffic) cost() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.charged()
}

// isBusy reports whether all processes together write an item so often that it should be split. If the clock does not advance, no item is
// busy.
func (t *traffic) isBusy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// perMillisecond returns the writes of other processes per millisecond.
func (t *tally) perMillisecond() float64 {
	if t.others <= 0 {
		return 0
	}
	return t.others / max(t.span, 1)
}

// shortWeight is how many writes of this process one request that fell short counts as. Without it, the parts of all processes would add up
// to exactly the whole, however uneven they are, and a process that is rejected more often than others would stay so. A greater weight
// makes more processes try at the same time.
const shortWeight = 0.125

// fellShort notes requests of this process that fell short.
func (t *traffic) fellShort(requests int) {
	t.mu.Lock()
	t.short += float64(requests)
	t.fell.Store(t.short >= minShort)
	t.mu.Unlock()
}

// isUsedUp reports whether at least a quarter of the recent requests of this process for an item fell short.
func (t *traffic) isUsedUp() bool { return t.fell.Load() && t.fellOften() }

func (t *traffic) fellOften() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.short >= minShort && t.short*3 >= t.mine+float64(t.own)
}

// isFrequent reports whether this process has made several requests recently, so that more can be expected.
func (t *traffic) isFrequent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.short+t.mine+float64(t.own) >= minSamples
}

// minShort is the least number of requests that fell short for an item to be used up.
const minShort = 1

// isHopeless reports whether a look at a used-up item is cheaper than a write: at least three quarters of the recent requests of this
// process fell short. A ration makes the write likely to succeed, unless the rations of all processes add up to much more than the whole,
// see [manyProcesses].
func (t *traffic) isHopeless(rationed bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.mine + float64(t.own)
	return t.short >= minShort && t.short >= 3*mine && (!rationed || t.others > max(mine*manyProcesses, fewWrites))
}

// manyProcesses is the number of processes from which they look before a write even if their ration covers it.
const manyProcesses = 100

// fewWrites is the number of writes below which others do not compete with this process for the refill: about one within the usual age of a
// rejection from memory.
const fewWrites = 5

// share returns the part of an item's refill that this process may count on: its share of all recent writes, with its rejections weighted
// in. It is 1 while others write the item seldom, for example an aggregator that refills it, so that rejections are then exact. The second
// result is the share of the writes alone.
func (t *traffic) share() (share, took float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.guess || t.others < fewWrites {
		return 1, 1
	}
	mine := t.mine + shortWeight*t.short
	return mine / (mine + t.others), t.mine / (t.mine + t.others)
}

// crowdWritesPerSecond is the number of writes a second by other processes from which a bucket may itself cause the throttles of its key. A
// partition sustains a thousand, and other keys share it.
const crowdWritesPerSecond = 100

// isCrowded reports whether other processes may cause the throttles of a bucket's key by frequent writes.
func (b *Bucket) isCrowded() bool { return b.writesOfOthers().rate() >= crowdWritesPerSecond }

// isUsedUp reports whether a shard of the bucket is used up, see [traffic.isUsedUp].
func (b *Bucket) isUsedUp() (usedUp bool) {
	if first := b.shard(0); !b.isSplit() {
		return first.traffic.isUsedUp() // no closure for the most frequent case
	}
	b.walk((*shard).last, func(s *shard, _ *image) { usedUp = usedUp || s.traffic.isUsedUp() })
	return usedUp
}

// fell reports whether any request of this process recently fell short of a bucket.
func (b *Bucket) fell() (fell bool) {
	b.walk((*shard).last, func(s *shard, _ *image) { fell = fell || s.traffic.fell.Load() })
	return fell
}

// isRaced reports whether this process and others compete for the refill of a bucket: it is used up, and others write it.
func (b *Bucket) isRaced() bool { return b.isUsedUp() && b.writesOfOthers().writes >= minSamples }

// writesOfOthers estimates the writes of a bucket by other processes from images. It assumes that unseen shards are as busy as the others,
// in proportion to their shares.
func (b *Bucket) writesOfOthers() (sum otherWrites) {
	if first := b.shard(0); !b.isSplit() {
		sum.add(&first.traffic, 1) // no closure for the most frequent case
		return sum
	}
	b.walk((*shard).last, func(s *shard, i *image) {
		if i != nil && i.exists {
			sum.add(&s.traffic, i.Count())
		}
	})
	return sum
}

// otherWrites are the writes of other processes that images of some shards of a bucket show.
type otherWrites struct {
	writes    float64
	perSecond float64
	share     float64 // the share of these shards
}

// add adds what the images of one shard show, of a bucket with count shards. A single image shows nothing.
func (t *otherWrites) add(of *traffic, count int) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.known && !of.guess {
		t.writes += of.others
		t.perSecond += of.perMillisecond() * 1000
		t.share += 1 / float64(count)
	}
}

// rate returns the writes per second of all shards by other processes, 0 if too few were seen for an estimate.
func (t otherWrites) rate() float64 {
	if t.writes < minSamples {
		return 0
	}
	return t.perSecond / t.share
}

// isSought reports whether a bucket may cause the throttles of its own key: others write it often, or look at it so often that looks are
// throttled as well.
func (c *core) isSought(b *Bucket) bool { return b.isCrowded() || b.pace.isStrained(c) }

// Bounds of the number of writes of others that is expected within a time.
const (
	likelyWrites = 0.1 // since an image: a tenth of the plans would fail, and an eventually consistent read costs a tenth of a write
	freshWrites  = 10  // within the freshness: one of these writes has probably moved the stamp
	maxUnseen    = 4   // times the span of the rate; after a longer time unseen, an item may have become quiet
)

// isOutdated reports whether another process has probably written an item since it was last seen.
func (t *traffic) isOutdated(now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.perMillisecond()*float64(now-t.at) > likelyWrites
}

// isOutdated is [traffic.isOutdated] for an unsplit bucket, and false for a split one.
func (b *Bucket) isOutdated(now int64) bool {
	return !b.isSplit() && b.shard(0).traffic.isOutdated(now)
}

// raceWrites is the number of concurrent writes from which a writer expects others.
const raceWrites = 0.5

// race estimates the writes that may come before a write that is planned now, given the usual duration of a call, milliseconds. An image is
// about half a call old when it arrives, and the write takes half a call to arrive.
func (t *traffic) race(now, trip int64) (r bucket.Race) {
	own := float64(t.writing.Load())
	t.mu.Lock()
	defer t.mu.Unlock()
	rate := t.perMillisecond()
	if trip > 0 && rate*float64(trip)+own >= raceWrites {
		r.Apart = trip
	}
	r.Writes = rate*float64(max(now-t.at, 0)+trip) + own
	return r
}

// isRefreshed reports whether others write an item so often that its stamp is probably fresh, and later than the last seen stamp. One of
// the writes within the freshness moves the stamp. The rate does not count if the item was not seen for maxUnseen.
func (t *traffic) isRefreshed(c *bucket.Config, now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	rate, unseen := t.perMillisecond(), float64(now-t.at)
	return !t.guess && rate*float64(c.Freshness) > freshWrites && rate*unseen > likelyWrites && unseen < maxUnseen*t.span
}

// lookFirst reads a shard that another process has probably written since an image, and returns the last image. The read costs half a read
// unit. The failed write that it may save costs ten times as much. A throttled read shows nothing.
func (it *items) lookFirst(ctx context.Context, s *shard, from *image) (*image, error) {
	if !from.exists || !s.traffic.isOutdated(it.now()) {
		return from, nil
	}
	items, err := it.table.ReadEventually(ctx, s.key)
	if IsThrottled(err) {
		it.slowDown(ctx, err, s)
		return from, nil
	}
	if err != nil {
		return nil, err
	}
	next, err := it.decode(s, items[0], nil, call{})
	if err != nil {
		return nil, err
	}
	return s.glimpse(next), nil
}

// glimpse remembers an image from an eventually consistent read, unless a later one is remembered, and returns the later one. The read may
// show an earlier item that was deleted since and created again.
func (s *shard) glimpse(next *image) *image {
	for {
		last := s.image.Load()
		if last != nil && (!next.exists || last.exists && !next.follows(last)) {
			s.traffic.see(last, next.seenAt)
			return last
		}
		if s.image.CompareAndSwap(last, next) {
			s.traffic.see(next, next.seenAt)
			return next
		}
	}
}

// unseen is [Memory.Unseen].
func (it *items) unseen(b *Bucket) (key store.Key, unseen bool) {
	first := b.shard(0)
	i := first.image.Load()
	return first.key, i == nil || i.exists && first.traffic.isOutdated(it.now())
}
