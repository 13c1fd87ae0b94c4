package protocol

import (
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A view is the known state of all shards of a bucket.
//
// Images of shards that were read at different times cannot be added up. Other processes may have moved tokens in between: by a merge and
// a split, by a gather, or by a refund to one shard while another is charged. The sum may then be less than the bucket ever had. So a view
// of several shards has the images of one batch read, or images recent enough for a rejection from memory. The latter may miss writes of
// others in that time.
//
// DynamoDB reads the items of a batch milliseconds apart. If their counts of shards differ, there was a merge or a split in between, and
// all of them are read again. Tokens that others gathered or returned in between may be missed.
type view struct {
	shards []*shard // that exist, with images and states in the same order
	images []*image
	states []*bucket.State
	stale  []*shard // that have to be read, none when the view holds
}

// need notes that a shard has to be read.
func (v *view) need(s *shard) {
	if !slices.Contains(v.stale, s) {
		v.stale = append(v.stale, s)
	}
}

// isWhole reports whether the bucket is not split, or does not exist.
func (v *view) isWhole() bool { return len(v.states) == 0 || v.states[0].Count() == 1 }

// askedAt returns when the last of the images was asked for, epoch milliseconds.
func (v *view) askedAt() (at int64) {
	for _, i := range v.images {
		at = max(at, i.askedAt)
	}
	return at
}

// A recency says how recent the images of a view have to be.
type recency struct {
	epoch  int64 // of calls that began later
	recent int64 // those that are recent at this time as well, epoch milliseconds; 0 for no others
}

// seenSince returns the recency of images that show items after an epoch.
func (lk *looks) seenSince(epoch int64) recency { return recency{epoch: epoch} }

// seenFor returns the recency of images that a rejection of a level may be based on.
func (lk *looks) seenFor(l *level) recency { return recency{l.began, lk.now()} }

// view returns the known state of the shards of a bucket. It holds when all images in memory will do, or the last
// reading does. Otherwise all shards have to be read, since images that were read apart do not add up. While looks at
// the bucket are throttled, images that were read apart after the request came will do. A rejection may then be one too
// many, but another read of all shards would have more looks throttled.
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

// viewOf returns a view of images. A shard without an image that will do is stale.
//
// A shard that is missing where the tree has it was split or merged meanwhile. It and its origin are read again. A shard
// that is missing then as well is lost.
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

// A reading is the shards of a split bucket as one batch read returned them. It is never changed. Later writes of this
// process do not change its picture of a moment.
type reading struct {
	call
	shards []*shard
	images []*image // in the same order, also of shards that do not exist
}

// imageOf returns the image of a shard, nil when the reading has none.
func (r *reading) imageOf(s *shard) *image {
	if at := slices.Index(r.shards, s); at >= 0 {
		return r.images[at]
	}
	return nil
}

// view returns the view of a bucket that the reading gives. Stale shards in it were not read, or were moving.
func (r *reading) view(b *Bucket) view {
	return b.viewOf(r.imageOf, func(*shard, *image) bool { return true })
}

// remember keeps a reading that has all shards of a bucket, unless a later one is remembered.
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
