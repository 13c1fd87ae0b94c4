package protocol

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// In TestViewOfImagesReadApart, two calls returned images of two shards after the request came. The images do not hold
// together, unless looks at the bucket are throttled, or one call returned both.
func TestViewOfImagesReadApart(t *testing.T) {
	const began = 10
	lk := &looks{core: &core{started: time.Now()}}
	newSplit := func(first, second int64) *Bucket {
		b := newBucket("ns", "hot", "model")
		for number, asked := range []int64{first, second} {
			b.shard(number).image.Store(&image{State: bucket.State{Shards: 2}, exists: true, call: call{asked: asked}})
		}
		return b
	}
	throttled := newSplit(11, 12)
	throttled.pace.throttle(lk.sinceStart(), noChance)
	early := newSplit(9, 12)
	early.pace.throttle(lk.sinceStart(), noChance)
	together := newSplit(11, 12)
	shards := []*shard{together.shard(0), together.shard(1)}
	r := reading{call{asked: 11}, shards, []*image{shards[0].last(), shards[1].last()}}
	r.remember(together)
	for _, v := range []struct {
		name   string
		bucket *Bucket
		stale  int
	}{
		{"read apart", newSplit(11, 12), 2},
		{"read apart while looks are throttled", throttled, 0},
		{"one of them before the request, while looks are throttled", early, 1},
		{"read together", together, 0},
	} {
		if got := lk.view(v.bucket, lk.seenSince(began)); len(got.stale) != v.stale {
			t.Errorf("%s: %d shards have to be read, want %d", v.name, len(got.stale), v.stale)
		}
	}
}
