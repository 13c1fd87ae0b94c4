package protocol

import "iter"

// buckets are those that an engine remembers.
type buckets struct {
	*core
	cache bucketCache
}

// bucketID finds a bucket.
type bucketID struct{ entity, resource string }

// A bucketCache is a cache of otter. It is an interface, so that packages above this one do not compile otter again.
// Each of them instantiates a generic type in the fields of an Engine.
type bucketCache interface {
	GetIfPresent(id bucketID) (*Bucket, bool)
	SetIfAbsent(id bucketID, b *Bucket) (*Bucket, bool)
	Keys() iter.Seq[bucketID]
	EstimatedSize() int
}

// get returns the engine's memory of a bucket.
func (bs *buckets) get(entity, resource string) *Bucket {
	id := bucketID{entity, resource}
	if b, ok := bs.cache.GetIfPresent(id); ok {
		return b
	}
	ns := bs.options.Namespace()
	b := newBucket(ns, entity, resource)
	if ns != "" {
		b, _ = bs.cache.SetIfAbsent(id, b)
	}
	return b
}

// current returns the engine's present memory of a bucket. A receipt may be of one that the engine has forgotten since,
// to make room, and has perhaps seen anew. Facts learned when the receipt is settled are then known to later requests.
func (bs *buckets) current(b *Bucket) *Bucket {
	if !b.evicted.Load() {
		return b
	}
	b.evicted.Store(false)
	known, absent := bs.cache.SetIfAbsent(bucketID{b.Entity, b.Resource}, b)
	if !absent {
		b.evicted.Store(true)
	}
	return known
}

// forget is [Engine.Forget].
func (bs *buckets) forget(entity, resource string) {
	b, ok := bs.cache.GetIfPresent(bucketID{entity, resource})
	if !ok {
		return
	}
	for _, s := range *b.shards.Load() {
		if s != nil {
			s.image.Store(nil)
		}
	}
}
