package zlimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A RateLimiter admits or rejects requests by limits that all limiters on the same store and namespace share. It is made
// by [Open] or [New], is safe for concurrent use, and must be closed. One is enough for a process.
type RateLimiter struct {
	// Limits keeps the stored limits.
	Limits *LimitService
	// Entities keeps the records of entities.
	Entities *EntityService
	// Namespaces keeps the namespaces of the table.
	Namespaces *NamespaceService
	// Audit tells who changed entities and limits.
	Audit *AuditService
	// Usage tells what entities consumed, and what they may.
	Usage *UsageService

	*common
	store   store.Store
	owned   bool // the store was opened by Open and is closed with the limiter
	ns      string
	options options

	buckets    *otter.Cache[bucketID, *bucketRef]
	policy     atomic.Uint32 // the stored system-wide failure policy last seen
	retained   atomic.Pointer[retention]
	loads      singleflight.Group // reads that several callers wait for
	background sync.WaitGroup     // the goroutines of loads
	closing    sync.Mutex         // guards closed against background.Add
	closed     atomic.Bool        // no new work
	stats      stats
}

// common is what a limiter shares with those that it makes for other namespaces.
type common struct {
	configs    *otter.Cache[store.Key, *level] // keys begin with the namespace
	gate       *store.Gate                     // of the calls of the store
	generation atomic.Uint64                   // of the stored limits: counts the changes made through these limiters
	caller     caller
	eventIDs   eventIDs
}

// bucketID finds the bucket of a request.
type bucketID struct{ entity, resource string }

// Open opens the store that a data source name stands for, and returns a limiter on it that closes it in the end:
//
//	memory:                                             the memory of this process
//	sqlite:PATH                                         a database file, shared by the processes of one machine
//	dynamodb:TABLE?region=…&endpoint=…&profile=…        a DynamoDB table; every parameter may be left out
//
// A file is created and set up as needed, with the default namespace. A table is not, nor is another namespace registered,
// unless [WithSetup] is given: Open then returns [ErrTableNotFound] or [ErrNamespaceNotFound]. It costs one batch read of two items, and returns a [*VersionError] for a
// table that is not for this client.
func Open(ctx context.Context, dsn string, opts ...Option) (*RateLimiter, error) {
	parsed, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	s, err := parsed.open(ctx, o.logger)
	if err != nil {
		return nil, err
	}
	l, err := New(ctx, s, opts...)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	l.owned = true
	return l, nil
}

// New returns a limiter on a store, which the caller closes after the limiter. It does what [Open] does after opening
// the store, at the same cost.
func New(ctx context.Context, s Store, opts ...Option) (*RateLimiter, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if s.impl == nil {
		return nil, &ValidationError{Field: "store", Value: "", Reason: "must come from DynamoDB with a client, SQLite or Memory"}
	}
	return start(ctx, s.impl, o, &common{
		gate:    store.NewGate(o.maxInFlight),
		configs: otter.Must(&otter.Options[store.Key, *level]{MaximumSize: o.cacheSize, Executor: inline}),
	}, s.embedded)
}

// start returns a limiter that is ready to work. An embedded store is set up, with the default namespace; another
// namespace is registered only where the options ask for it, and not by a misspelt name.
func start(ctx context.Context, s store.Store, o options, c *common, embedded bool) (*RateLimiter, error) {
	if o.callTimeout == 0 {
		o.callTimeout = defaultCallTimeout(s)
	}
	l := &RateLimiter{
		common:  c,
		store:   s,
		options: o,
		buckets: otter.Must(&otter.Options[bucketID, *bucketRef]{MaximumSize: o.cacheSize, Executor: inline}),
	}
	l.Limits = &LimitService{l}
	l.Entities = &EntityService{l}
	l.Namespaces = &NamespaceService{l}
	l.Audit = &AuditService{l}
	l.Usage = &UsageService{l}
	var err error
	switch {
	case o.setup:
		err = l.Setup(ctx)
	case embedded:
		err = l.setUp(ctx, DefaultNamespace)
	}
	if err != nil {
		return nil, err
	}
	found, err := l.lookup(ctx, o.namespace)
	if err != nil {
		return nil, wrap("look up the namespace", err)
	}
	if found.namespace == nil {
		return nil, missing(o.namespace)
	}
	l.ns = found.namespace.ID
	return l, nil
}

// inline runs the maintenance of a cache where it falls due, so that caches have no goroutines.
func inline(task func()) { task() }

// Setup creates the table, or the schema of a database file, writes the version of its layout, and registers the
// namespace, where they are missing. It changes nothing that is there, and may be called by several processes at once.
// Where there is nothing to do it costs one batch read of two items, and on DynamoDB two calls that ask after the table.
// It returns a [*VersionError] for a table that is not for this client.
func (l *RateLimiter) Setup(ctx context.Context) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.setUp(ctx, l.options.namespace)
}

// setUp sets up the store, its version and one namespace.
func (l *RateLimiter) setUp(ctx context.Context, namespace string) error {
	if err := l.store.Setup(ctx); err != nil {
		return wrap("set up", err)
	}
	found, err := l.lookup(ctx, namespace)
	if err == nil && !found.versioned {
		err = l.writeVersion(ctx)
	}
	if err == nil && found.namespace == nil {
		_, err = l.register(ctx, namespace)
	}
	return wrap("set up", err)
}

// Ping returns nil when the table is there and the store answers. It costs one read.
func (l *RateLimiter) Ping(ctx context.Context) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return wrap("ping", l.call(ctx, l.store.Ping))
}

// Close waits for reads in the background, and closes the store if [Open] opened it. Later calls of the limiter fail with
// [ErrClosed]; leases should be settled before, since their adjustments cannot be written any more. Closing again does
// nothing.
func (l *RateLimiter) Close() error {
	l.closing.Lock()
	before := l.closed.Swap(true)
	l.closing.Unlock()
	if before {
		return nil
	}
	l.background.Wait()
	if !l.owned {
		return nil
	}
	return l.store.Close()
}

// begin counts work in the background; false when the limiter is closed.
func (l *RateLimiter) begin() bool {
	l.closing.Lock()
	defer l.closing.Unlock()
	if l.closed.Load() {
		return false
	}
	l.background.Add(1)
	return true
}

// now returns the time by the limiter's clock.
func (l *RateLimiter) now() time.Time { return l.options.clock() }

// bucket returns what is known of a bucket.
func (l *RateLimiter) bucket(entity, resource string) *bucketRef {
	id := bucketID{entity, resource}
	if b, ok := l.buckets.GetIfPresent(id); ok {
		return b
	}
	b, _ := l.buckets.SetIfAbsent(id, newBucketRef(l.ns, entity, resource))
	return b
}

// Stats are counts of what a limiter did since it was made.
type Stats struct {
	Admitted    uint64 `json:"admitted"`    // requests admitted and counted
	Rejected    uint64 `json:"rejected"`    // requests that exceeded a limit
	Degraded    uint64 `json:"degraded"`    // requests admitted uncounted, during an outage
	Unavailable uint64 `json:"unavailable"` // requests that failed because of an outage
	LostRaces   uint64 `json:"lost_races"`  // writes whose condition failed because another writer came first
	// UnknownOutcomes counts writes that were sent and not answered. They may have happened, and count as charged.
	UnknownOutcomes uint64     `json:"unknown_outcomes"`
	Config          CacheStats `json:"config"`
}

// CacheStats are counts of the cache of stored limits.
type CacheStats struct {
	Hits    uint64 `json:"hits"`    // resolutions from memory
	Misses  uint64 `json:"misses"`  // resolutions that waited for a read
	Stale   uint64 `json:"stale"`   // resolutions that served what could not be read again because of an outage
	Entries int    `json:"entries"` // configs in memory, absent ones included
}

type stats struct {
	admitted, rejected, degraded, unavailable, lostRaces, unknown atomic.Uint64
	hits, misses, stale                                           atomic.Uint64
}

// Stats returns the counts of this limiter.
func (l *RateLimiter) Stats() Stats {
	return Stats{
		Admitted:        l.stats.admitted.Load(),
		Rejected:        l.stats.rejected.Load(),
		Degraded:        l.stats.degraded.Load(),
		Unavailable:     l.stats.unavailable.Load(),
		LostRaces:       l.stats.lostRaces.Load(),
		UnknownOutcomes: l.stats.unknown.Load(),
		Config:          l.Limits.CacheStats(),
	}
}

// Available returns the status of every limit of an entity and resource, as the store has them, without those of its
// parents. It costs one consistent read of each shard of the bucket, and one more read when the stored limits are not in
// memory; a bucket that does not exist yet counts as full.
func (l *RateLimiter) Available(ctx context.Context, entity, resource string) (Statuses, error) {
	r := Request{Entity: entity, Resource: resource}
	if err := r.validateNames(); err != nil {
		return nil, err
	}
	links, err := l.inspect(ctx, "available", &r, nil)
	if err != nil {
		return nil, err
	}
	return l.look(ctx, "available", &links[0])
}

// TimeUntil returns how long it takes until the request would be admitted if nothing else happened, by the entity and the
// parents that it cascades to; 0 when it would be now. A request for more than a limit can hold is an [*ExceededError].
// It consumes nothing, and costs what [RateLimiter.Available] costs for each of them.
func (l *RateLimiter) TimeUntil(ctx context.Context, r Request) (time.Duration, error) {
	amounts, err := r.validate(nil)
	if err != nil {
		return 0, err
	}
	links, err := l.inspect(ctx, "time until", &r, amounts)
	if err != nil {
		return 0, err
	}
	var all Statuses
	for i := range links {
		statuses, err := l.look(ctx, "time until", &links[i])
		if err != nil {
			return 0, err
		}
		all = append(all, statuses...)
	}
	if e := exceeded(all); !e.Possible() {
		return 0, e
	}
	return all.retryAfter(), nil
}

// inspect returns the links of a request that is only looked at.
func (l *RateLimiter) inspect(ctx context.Context, op string, r *Request, amounts []bucket.Amount) ([]link, error) {
	if l.closed.Load() {
		return nil, ErrClosed
	}
	links, err := l.chain(ctx, r, new([1]link), amounts)
	return links, wrap(op, err)
}

// look reads a bucket and returns where its limits stand.
func (l *RateLimiter) look(ctx context.Context, op string, k *link) (Statuses, error) {
	images, err := l.survey(ctx, k.bucket)
	if err != nil {
		return nil, wrap(op, err)
	}
	return k.statuses(statesOf(images), l.now().UnixMilli()), nil
}
