package protocol

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Options are the configuration of an engine.
type Options struct {
	Table        *table.Table
	Namespace    func() string // "" until it is known; every call of the store fails until then
	Source       Source
	Now          func() time.Time
	Freshness    func([]bucket.Params) int64 // δ of a bucket, milliseconds
	MaxShards    int
	RejectionAge time.Duration // of the oldest image that a rejection may be decided from; 0 for none older than the request
	WritesAtOnce int           // of one bucket, each of one caller, before others wait to share one; 0 for no sharing
	Buckets      int           // that are remembered
	Listing      bool          // items are entered into the index of their resource, see lister
	MaxLead      time.Duration // of a refill stamp before it is set back
	Mixed        bool          // other clients write the buckets, see [bucket.Config]
	SettleLimit  time.Duration // of writes that outlive the caller's context
	Epoch        *atomic.Int64 // shared by the engines that share a Source
	Logger       *slog.Logger

	// Resized is told of a bucket that this process has divided or joined, with the number of items that it has more.
	Resized func(ctx context.Context, entity, resource string, shards int)
}

// Limits are the limits that hold for the bucket of an entity and resource. They are never changed.
type Limits struct {
	Config bucket.Config
	Owner  layout.Owner
	Own    bool  // given by the request, whatever is stored
	Epoch  int64 // when a consistent read of them began; 0 for a read that may be moments behind
	Detail any   // for the Source
}

// A Source keeps the stored limits. It is safe for concurrent use.
type Source interface {
	// For returns the limits of a bucket, from memory while they are fresh. It returns limits without any parameters where
	// none are stored. It may read the bucket's first item in the same call, see [Engine.Unseen].
	For(ctx context.Context, b *Bucket) (*Limits, error)
	// After returns limits that were read after an epoch: if need be, it reads them again, consistently.
	After(ctx context.Context, b *Bucket, epoch int64) (*Limits, error)
}

// Counts are what an engine counts.
type Counts struct {
	LostRaces   atomic.Uint64 // writes whose condition failed because another writer came first
	Unreturned  atomic.Uint64 // takes of one level that could not be given back when another level fell short
	StampsFixed atomic.Uint64 // refill stamps too far ahead that were set back
}

// An Engine takes and settles. It is safe for concurrent use.
type Engine struct {
	items
	background
	buckets *otter.Cache[bucketID, *Bucket]
	lister  lister
}

// items are what an engine does with single items of buckets: it reads and writes them, and remembers their images.
type items struct {
	Counts

	table   *table.Table
	options Options
	started time.Time // by which paces are kept, whatever clocks are set to
}

// bucketID finds a bucket.
type bucketID struct{ entity, resource string }

// New returns an engine.
func New(o Options) *Engine {
	if o.Epoch == nil {
		o.Epoch = new(atomic.Int64)
	}
	e := &Engine{
		items:  items{table: o.Table, options: o, started: time.Now()},
		lister: lister{pace: pace{bounds: &ofListings}},
		buckets: otter.Must(&otter.Options[bucketID, *Bucket]{
			MaximumSize: o.Buckets,
			Executor:    func(task func()) { task() },
			OnDeletion:  func(d otter.DeletionEvent[bucketID, *Bucket]) { d.Value.evicted.Store(true) },
		}),
	}
	e.init()
	return e
}

// Buckets returns the number of buckets that the engine remembers.
func (e *Engine) Buckets() int { return e.buckets.EstimatedSize() }

// Bucket returns what the engine knows of a bucket.
func (e *Engine) Bucket(entity, resource string) *Bucket {
	id := bucketID{entity, resource}
	if b, ok := e.buckets.GetIfPresent(id); ok {
		return b
	}
	ns := e.options.Namespace()
	b := newBucket(ns, entity, resource)
	if ns != "" {
		b, _ = e.buckets.SetIfAbsent(id, b)
	}
	return b
}

// current returns what the engine knows of a bucket by now. A receipt may be of one that the engine has forgotten since, to
// make room, and has perhaps seen anew. What is learned when the receipt is settled is then known to later requests.
func (e *Engine) current(b *Bucket) *Bucket {
	if !b.evicted.Load() {
		return b
	}
	b.evicted.Store(false)
	known, absent := e.buckets.SetIfAbsent(bucketID{b.Entity, b.Resource}, b)
	if !absent {
		b.evicted.Store(true)
	}
	return known
}

// Forget has the engine read a bucket anew, whose items were deleted.
func (e *Engine) Forget(entity, resource string) {
	b, ok := e.buckets.GetIfPresent(bucketID{entity, resource})
	if !ok {
		return
	}
	for _, s := range *b.shards.Load() {
		if s != nil {
			s.image.Store(nil)
		}
	}
}

// ResourcesOf yields the resources of the buckets of an entity that the engine remembers.
func (e *Engine) ResourcesOf(entity string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for id := range e.buckets.Keys() {
			if id.entity == entity && !yield(id.resource) {
				return
			}
		}
	}
}

// NextEpoch returns a number greater than all that were drawn before. Epochs order what a process learns: what a call
// returns is as new as the epoch that was drawn before the call.
func (it *items) NextEpoch() int64 { return it.options.Epoch.Add(1) }

// now returns the time in epoch milliseconds.
func (it *items) now() int64 { return it.options.Now().UnixMilli() }

// keep returns the config under which an item stays what it is: settling leaves its limits alone. An item that expires is
// kept until it would be full again: before, it must not be taken for a new, full one.
func (it *items) keep(s *bucket.State) *bucket.Config {
	c := s.Own()
	c.Lead, c.Freshness = it.options.MaxLead.Milliseconds(), it.options.Freshness(c.Params)
	c.Mixed = it.options.Mixed
	return c
}
