package protocol

import (
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A view is the known state of all shards of a bucket.
//
// Images of shards that were read at different times cannot be added up. Other processes may have moved tokens in between: by a merge and a
// split, by a gather, or by a refund to one shard and a charge of another. The sum may then be less than the bucket ever had. So a view of
// several shards has the images of one batch read, or images that are recent enough for a rejection from memory. The latter may miss recent
// writes of others.
//
// DynamoDB reads the items of a batch milliseconds apart. If their counts of shards show a merge or a split in between, all of them are
// read again. Tokens that others move between shards within these milliseconds may be missed.
type view struct {
	shards []*shard // existing shards, with images and states in the same order
	images []*image
	states []*bucket.State
	stale  []*shard // shards that must be read; none if the view holds
}

// need notes that a shard must be read.
func (v *view) need(s *shard) {
	if !slices.Contains(v.stale, s) {
		v.stale = append(v.stale, s)
	}
}

// isWhole reports whether the bucket is unsplit, or does not exist.
func (v *view) isWhole() bool { return len(v.states) == 0 || v.states[0].Count() == 1 }

// askedAt returns when the latest of the images was requested, epoch milliseconds.
func (v *view) askedAt() (at int64) {
	for _, i := range v.images {
		at = max(at, i.askedAt)
	}
	return at
}

// A recency states how recent the images of a view must be.
type recency struct {
	epoch  int64 // images of calls that began after it suffice
	recent int64 // images that are recent at this time suffice as well, epoch milliseconds; 0 for none
}

// seenSince returns the recency that requires images from after an epoch.
func (lk *looks) seenSince(epoch int64) recency { return recency{epoch: epoch} }

// seenFor returns the recency that a rejection of a level requires.
func (lk *looks) seenFor(l *level) recency { return recency{l.began, lk.now()} }

// view returns the known state of the shards of a bucket. It holds if all images in memory are recent enough, or if the last reading is.
// Otherwise all shards must be read, since images from separate reads do not add up. While looks at the bucket are throttled, separate
// reads from after the arrival of the request suffice. A rejection may then be unnecessary, but another read of all shards would cause more
// throttles.
func (lk *looks) view(b *Bucket, seen recency) view {
	strained := b.pace.isStrained(lk.core)
	v := b.viewOf((*shard).last, func(s *shard, i *image) bool {
		isOnly := s.Shard == 0 && i.Count() == 1
		return (isOnly || strained) && i.since(seen.epoch) || seen.recent > 0 && lk.items.isRecent(s, i, seen.recent)
	})
	if len(v.stale) == 0 || strained {
		return v
	}
	if r := b.reading.Load(); r != nil && r.since(seen.epoch) {
		return r.view(b)
	}
	return b.viewOf((*shard).last, func(*shard, *image) bool { return false })
}

func (s *shard) last() *image { return s.image.Load() }

// viewOf returns a view of images. A shard is stale if it has no image that willDo accepts.
//
// If a shard that should exist by the tree is missing, there was a split or merge meanwhile. It and its origin are then read again. If it
// is still missing, it is lost.
func (b *Bucket) viewOf(imageOf func(*shard) *image, willDo func(*shard, *image) bool) (v view) {
	b.walk(imageOf, func(s *shard, i *image) {
		switch {
		case i == nil || !willDo(s, i):
			v.need(s)
		case !i.exists && s.Shard > 0 && !i.isLost(imageOf(b.shard(bucket.Origin(s.Shard)))):
			v.need(s)
			v.need(b.shard(bucket.Origin(s.Shard)))
		}
		if i != nil && i.exists {
			v.shards, v.images, v.states = append(v.shards, s), append(v.images, i), append(v.states, &i.State)
		}
	})
	return v
}

// A reading has the shards of a split bucket, as one batch read returned them. It is never changed, even by later writes of this process.
type reading struct {
	call
	shards []*shard
	images []*image // in the same order, including shards that do not exist
}

// imageOf returns the image of a shard, nil if the reading has none.
func (r *reading) imageOf(s *shard) *image {
	if at := slices.Index(r.shards, s); at >= 0 {
		return r.images[at]
	}
	return nil
}

// view returns the view of a bucket from the reading. Its stale shards were not read, or were being split or merged.
func (r *reading) view(b *Bucket) view {
	return b.viewOf(r.imageOf, func(*shard, *image) bool { return true })
}

// remember stores a reading that has all shards of a bucket, unless a later one is remembered.
func (r *reading) remember(b *Bucket) {
	if v := r.view(b); len(v.stale) > 0 {
		return
	}
	for {
		last := b.reading.Load()
		if last != nil && last.asked > r.asked || b.reading.CompareAndSwap(last, r) {
			return
		}
	}
}
