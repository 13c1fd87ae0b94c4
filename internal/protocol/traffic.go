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

// An item counts its writes, so that two images show how many came between them. Other processes made the writes that
// this one did not. A plan for the very state of an image is lost when one of those writes came since. So its risk is
// the probability of such a write.

// A traffic is what images show of the writes of one item. It is safe for concurrent use.
type traffic struct {
	mu sync.Mutex
	tally
	writing atomic.Int32 // writes of this process, without a reply yet
	pending pendingTakes // of the bucket, where the item is its first
	placed  pendingTakes // by writes to the item that are under way
	fell    atomic.Bool  // requests fell short recently, at least minShort: without them, isUsedUp needs no lock
}

// A tally has the figures of a traffic.
type tally struct {
	known  bool
	guess  bool  // others and span are of a single image
	count  int   // shards of the bucket, by which the item was as busy
	at     int64 // when the item was last seen, epoch milliseconds
	writes int64 // that it had counted then
	own    int64 // writes sent by this process since, and not refused

	others float64 // writes of other processes in the time; older ones count less
	mine   float64 // writes of this process in it
	short  float64 // requests of this process that fell short in it, including requests that it decided without the store
	span   float64 // the time, milliseconds

	from        int64   // since when writes are measured, epoch milliseconds
	base        int64   // writes that the item had counted then
	tries, lost float64 // recent writes of this process, and recent ones whose condition failed
	busy        bool    // as it was measured last
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

// refused notes that a write was not done. It was lost when its condition failed, and is charged then.
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

// see notes an image, or one that was seen again. Of an item that another process made, the first image shows how long ago
// it was written last.
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
	if t.known && t.count != i.Count() && writes >= t.writes { // it was split or merged, and its part of the writes is another one
		t.others *= float64(t.count) / float64(i.Count())
		t.mine *= float64(t.count) / float64(i.Count())
		t.short *= float64(t.count) / float64(i.Count())
		t.count, t.busy, t.from, t.base = i.Count(), false, at, writes
	}
	if !t.known || writes < t.writes { // fewer writes are of another item of the key
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

// minSamples is the number of writes from which on a rate counts. Fewer writes say nothing about how many are lost.
const minSamples = 8

// rateWindow is the least time over which the rate of writes is measured.
const rateWindow = time.Second

// charged returns how many writes are charged for one that is done, as far as this process knows. A write whose
// condition fails is charged too, and the item does not count it.
func (t *tally) charged() float64 {
	return (t.tries + minSamples) / max(t.tries+minSamples-t.lost, (t.tries+minSamples)/2)
}

// cost returns how many writes are charged for one that is done, as far as this process knows.
func (t *traffic) cost() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.charged()
}

// isBusy reports whether an item was written so often, by all processes together, that it is to be split. Without a clock
// that moves nothing is busy.
func (t *traffic) isBusy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// perMillisecond returns the writes of other processes in a millisecond.
func (t *tally) perMillisecond() float64 {
	if t.others <= 0 {
		return 0
	}
	return t.others / max(t.span, 1)
}

// shortWeight is how many writes of this process a request counts as that fell short. Without it, the parts of all processes would add up
// to the whole however they are, and a process that is rejected more often than others would stay so. A greater one makes more of them
// try together.
const shortWeight = 0.125

// fellShort notes requests of this process that fell short.
func (t *traffic) fellShort(requests int) {
	t.mu.Lock()
	t.short += float64(requests)
	t.fell.Store(t.short >= minShort)
	t.mu.Unlock()
}

// isUsedUp reports whether an item has not enough for the requests of this process: at least a quarter of them fell short recently.
func (t *traffic) isUsedUp() bool { return t.fell.Load() && t.fellOften() }

func (t *traffic) fellOften() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.short >= minShort && t.short*3 >= t.mine+float64(t.own)
}

// isFrequent reports whether this process made a few requests recently, so that more of them are to be expected.
func (t *traffic) isFrequent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.short+t.mine+float64(t.own) >= minSamples
}

// minShort is the number of requests that fall short from which on an item may be used up.
const minShort = 1

// isHopeless reports whether an item is used up so much that a look is cheaper than a write: at least three quarters of the requests of
// this process fell short recently. A ration makes the write likely to succeed, unless the parts of all processes together are much more
// than the whole, see [manyProcesses].
func (t *traffic) isHopeless(rationed bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.mine + float64(t.own)
	return t.short >= minShort && t.short >= 3*mine && (!rationed || t.others > max(mine*manyProcesses, fewWrites))
}

// manyProcesses is the number of processes from which on they look before they write, also by their rations.
const manyProcesses = 100

// fewWrites is the number of writes up to which others do not compete with this process for what flows in: about one within the usual age of
// a rejection from memory.
const fewWrites = 5

// share returns the part of what flows into an item that is this process's: its part of all recent writes, and of its rejections. It is
// 1 as long as others write it seldom, such as an aggregator that refills it: a rejection of this process is then exact. The second part
// is that of the writes alone.
func (t *traffic) share() (share, took float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.guess || t.others < fewWrites {
		return 1, 1
	}
	mine := t.mine + shortWeight*t.short
	return mine / (mine + t.others), t.mine / (t.mine + t.others)
}

// crowdWritesPerSecond is the number of writes a second, by other processes, of a bucket that may itself be why its key is throttled. A
// partition serves a thousand, and other keys share it.
const crowdWritesPerSecond = 100

// isCrowded reports whether other processes may cause the throttles of a bucket's key by frequent writes.
func (b *Bucket) isCrowded() bool { return b.writesOfOthers().rate() >= crowdWritesPerSecond }

// isUsedUp reports whether a bucket has not enough for the requests of this process: one of its shards is so.
func (b *Bucket) isUsedUp() (usedUp bool) {
	if first := b.shard(0); !b.isSplit() {
		return first.traffic.isUsedUp() // no closure for the most frequent case
	}
	b.walk((*shard).last, func(s *shard, _ *image) { usedUp = usedUp || s.traffic.isUsedUp() })
	return usedUp
}

// fell reports whether requests of this process fell short of a bucket recently, however few.
func (b *Bucket) fell() (fell bool) {
	b.walk((*shard).last, func(s *shard, _ *image) { fell = fell || s.traffic.fell.Load() })
	return fell
}

// isRaced reports whether this process and others compete for what flows into a bucket: it is used up, and others write it.
func (b *Bucket) isRaced() bool { return b.isUsedUp() && b.writesOfOthers().writes >= minSamples }

// writesOfOthers estimates the writes of a bucket by other processes from images. A process takes shards that it has not seen recently to
// be as busy as the others, each by its share.
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

// otherWrites are the writes of other processes, as images of some shards of a bucket show them.
type otherWrites struct {
	writes    float64
	perSecond float64
	share     float64 // of those shards
}

// add adds what images of one shard of count show. A single image shows nothing.
func (t *otherWrites) add(of *traffic, count int) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.known && !of.guess {
		t.writes += of.others
		t.perSecond += of.perMillisecond() * 1000
		t.share += 1 / float64(count)
	}
}

// rate returns the writes of other processes of all shards in a second, 0 if too few were seen to know.
func (t otherWrites) rate() float64 {
	if t.writes < minSamples {
		return 0
	}
	return t.perSecond / t.share
}

// isSought reports whether a bucket may cause the throttles of its own key. Then others write it often, or look at it
// so often that looks are throttled, too.
func (c *core) isSought(b *Bucket) bool { return b.isCrowded() || b.pace.isStrained(c) }

// Bounds of the number of writes of others that is expected within a time.
const (
	likelyWrites = 0.1 // since an image: a tenth of the plans is lost, and an eventual read costs a tenth of a write
	freshWrites  = 10  // within the freshness: one of them has probably moved the stamp
	maxUnseen    = 4   // times the span of the rate: an item that was not seen for longer may have become quiet
)

// isOutdated reports whether another process has probably written an item since it was last seen.
func (t *traffic) isOutdated(now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.perMillisecond()*float64(now-t.at) > likelyWrites
}

// isOutdated reports whether another process has probably written the item of a bucket that is not split since it was last seen.
func (b *Bucket) isOutdated(now int64) bool {
	return !b.isSplit() && b.shard(0).traffic.isOutdated(now)
}

// raceWrites is the number of concurrent writes from which on a writer expects others.
const raceWrites = 0.5

// race returns what is known of writes that may come before a write that is planned at a time, given how long a call usually takes,
// milliseconds. The last image is about half a call old when it arrives, and the write takes as long to arrive.
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

// isRefreshed reports whether others write an item so often that its stamp is probably fresh, and another one than the
// last seen. Of the writes within the freshness one moves the stamp. The rate counts no longer for an item that was not
// seen for maxUnseen.
func (t *traffic) isRefreshed(c *bucket.Config, now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	rate, unseen := t.perMillisecond(), float64(now-t.at)
	return !t.guess && rate*float64(c.Freshness) > freshWrites && rate*unseen > likelyWrites && unseen < maxUnseen*t.span
}

// lookFirst reads a shard that another process has probably written since an image, and returns the last image. The read
// costs half a read unit; the write that it saves from being lost costs ten times as much. A read that is throttled says nothing.
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

// glimpse remembers an image that may be moments behind, unless a later one is remembered, and returns the later one. It may
// show the item as it was before it was deleted and created again.
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
