package protocol

import (
	"iter"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Memory has the buckets that an engine remembers. It is safe for concurrent use.
type Memory struct {
	core  *core
	items *items
	cache bucketCache
}

type bucketID struct{ entity, resource string }

// A bucketCache is a cache of otter. It is an interface, since every package that uses an Engine would otherwise compile the generic type
// of otter again.
type bucketCache interface {
	GetIfPresent(id bucketID) (*Bucket, bool)
	SetIfAbsent(id bucketID, b *Bucket) (*Bucket, bool)
	Keys() iter.Seq[bucketID]
	EstimatedSize() int
}

// Bucket returns the engine's memory of a bucket.
func (m *Memory) Bucket(entity, resource string) *Bucket {
	id := bucketID{entity, resource}
	if b, ok := m.cache.GetIfPresent(id); ok {
		return b
	}
	ns := m.core.options.Namespace()
	b := newBucket(ns, entity, resource)
	if ns != "" {
		b, _ = m.cache.SetIfAbsent(id, b)
	}
	return b
}

// current returns the engine's present memory of a bucket. A receipt may refer to an earlier memory that was evicted meanwhile. A
// settlement stores what it learns in the present one, so that later requests know it.
func (m *Memory) current(b *Bucket) *Bucket {
	if !b.evicted.Load() {
		return b
	}
	b.evicted.Store(false)
	known, absent := m.cache.SetIfAbsent(bucketID{b.Entity, b.Resource}, b)
	if !absent {
		b.evicted.Store(true)
	}
	return known
}

// Forget makes the engine read a bucket again after its items were deleted.
func (m *Memory) Forget(entity, resource string) {
	b, ok := m.cache.GetIfPresent(bucketID{entity, resource})
	if !ok {
		return
	}
	for _, s := range *b.shards.Load() {
		if s != nil {
			s.image.Store(nil)
		}
	}
}

// Len returns the number of buckets that the engine remembers.
func (m *Memory) Len() int { return m.cache.EstimatedSize() }

// ResourcesOf yields the resources of the buckets of an entity that the engine remembers.
func (m *Memory) ResourcesOf(entity string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for id := range m.cache.Keys() {
			if id.entity == entity && !yield(id.resource) {
				return
			}
		}
	}
}

// Observe remembers the bucket's first item from an eventually consistent read, unless a later state is remembered.
func (m *Memory) Observe(b *Bucket, item expr.Item) error { return m.items.glimpse(b, item) }

// Unseen returns the key of the bucket's first item if this process has no image of it, or one that is probably outdated. A caller that
// reads anyway can include the item.
func (m *Memory) Unseen(b *Bucket) (key store.Key, unseen bool) { return m.items.unseen(b) }
