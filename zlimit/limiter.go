package zlimit

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A RateLimiter admits or rejects requests. All limiters on the same store and namespace share their limits. It is created by [Open] or
// [New], is safe for concurrent use, and must be closed. A process needs only one.
type RateLimiter struct {
	// Limits keeps the stored limits.
	Limits *LimitService
	// Resources keeps which resources lie within wider ones.
	Resources *ResourceService
	// Entities keeps the records of entities.
	Entities *EntityService
	// Namespaces keeps the namespaces of the table.
	Namespaces *NamespaceService
	// Audit reports who changed entities and limits.
	Audit *AuditService
	// Managed changes stored limits for programs that keep them as code.
	Managed *ManagedService
	// Usage reports the consumption of entities, and their balances.
	Usage *UsageService

	*common
	store   store.Store
	owned   bool // the store was opened by Open and is closed with the limiter
	ns      namespaceID
	options options

	table    *table.Table
	engine   *protocol.Engine
	cache    *limitCache
	policy   atomic.Uint32 // the failure policy of the stored system config as last seen
	retained atomic.Pointer[retention]
	closed   atomic.Bool // no new work
	entry    entry

	clock      clock
	stats      stats
	rejections *rejectionLog // nil unless it reports them
	alerts     *alertLog     // nil unless it has to notice them
}

// common has the parts that a limiter shares with its limiters for other namespaces.
type common struct {
	configs    levelCache     // keys begin with the namespace
	gate       *store.Gate    // of the calls of the store
	breaker    *table.Breaker // refuses them in outages
	outage     *outageLog
	late       lateness
	generation atomic.Uint64          // of the stored limits: counts the changes made through these limiters
	asked      atomic.Pointer[string] // the latest version of clients that these limiters made the table require
	changedAt  atomic.Int64           // when the last of these was made, epoch nanoseconds
	epoch      atomic.Int64           // orders the facts that the limiters learn
	caller     caller
	eventIDs   eventIDs
}

// Open opens the store of a data source name, and returns a limiter on it. Closing the limiter closes the store:
//
//	memory:                                             the memory of this process
//	sqlite:PATH                                         a database file, shared by the processes of one machine
//	dynamodb:TABLE?region=…&endpoint=…&profile=…        a DynamoDB table; every parameter may be left out
//
// The parameter idle of a table is how long idle connections are kept, 50s by default. The parameter timeout bounds a call, 2s by default.
//
// A program that opens database files imports [github.com/zlimit/zlimit-go/zlimit/sqlite] for its effect.
//
// A file is created and set up as needed, with the default namespace. A table is created, or another namespace registered, only with
// [WithSetup]; without it Open returns [ErrTableNotFound] or [ErrNamespaceNotFound]. Open costs one batch read of two items, of one read
// unit. A namespace that is not found is looked up once more, at two units. Open retries throttled reads for up to 13 s, because all
// processes of a fleet read the same two items. It returns a [*VersionError] for a table that this client may not use.
//
// In an outage Open returns an [*UnavailableError]. With [WithFailurePolicy] of [PolicyAllow] it returns a limiter instead, which
// does the rest when the store is back: see there.
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
	impl := store.Of(s)
	if impl == nil {
		return nil, &ValidationError{Field: "store", Value: "", Reason: "must come from DynamoDB with a client, SQLite or Memory"}
	}
	outage := newOutageLog(&o)
	breaker := newBreaker(impl, &o, outage)
	return start(ctx, impl, o, &common{
		gate:    store.NewGate(o.tuning.MaxInFlight, breaker.Away),
		outage:  outage,
		late:    lateness{started: outage.started},
		breaker: breaker,
		configs: otter.Must(&otter.Options[store.Key, *cachedLevel]{MaximumSize: configsOf(o.tuning.CacheSize), Executor: inline}),
	}, store.IsEmbedded(s), (*NamespaceService).find)
}

// start returns a limiter that is ready to work. An embedded store is set up, with the default namespace. Another
// namespace is registered only where the options ask for it, so that a misspelt name registers none.
//
// find looks the namespace up.
func start(
	ctx context.Context, s store.Store, o options, c *common, embedded bool,
	find func(*NamespaceService, context.Context, string) (registration, error),
) (made *RateLimiter, err error) {
	c.breaker.Enter()
	defer func() {
		if err != nil {
			c.breaker.Leave()
		}
	}()
	if o.callTimeout == 0 {
		o.callTimeout = defaultCallTimeout(s)
	}
	o.writesAtOnce = cmp.Or(o.hooks.WritesAtOnce, o.writesAtOnce)
	if _, immediate := s.(store.Immediate); o.writesAtOnce == byStore && immediate {
		o.writesAtOnce = 0
	} else if o.writesAtOnce == byStore {
		o.writesAtOnce = sharedAfter
	}
	l := &RateLimiter{
		common:  c,
		store:   s,
		options: o,
	}
	calls := s
	if o.observer != nil {
		calls = l.observed(s)
	}
	tableOptions := table.Options{Timeout: o.callTimeout, Gate: c.gate, Breaker: c.breaker, IntN: o.hooks.Random, Yield: o.hooks.Yield}
	l.table = table.New(calls, tableOptions)
	l.cache = newLimitCache(l)
	l.clock.read, l.clock.lead, l.clock.logger = o.clock, o.maxLead(), o.logger
	if of, ok := s.(store.Clock); ok && !o.ownClock {
		l.clock.store = of
	}
	l.Limits = &LimitService{l}
	l.Resources = &ResourceService{l}
	l.Entities = &EntityService{l}
	l.Namespaces = &NamespaceService{l}
	l.Audit = &AuditService{l}
	l.Managed = &ManagedService{l}
	l.Usage = &UsageService{l}
	l.entry.l, l.entry.find = l, find
	op, away := l.entry.enter(ctx, embedded)
	if away != nil {
		if !l.entry.mayWait(ctx, away) {
			return nil, publicError(op, away)
		}
		l.table = table.New(l.waiting(calls), tableOptions)
	}
	l.engine = protocol.New(protocol.Options{
		Table:        l.table,
		Namespace:    l.ns.id,
		Source:       l.cache,
		Now:          l.now,
		SlotTime:     l.clock.slotTime,
		Freshness:    l.options.freshnessOf,
		MaxShards:    o.tuning.MaxShards,
		RejectionAge: o.rejectionCache,
		WritesAtOnce: o.writesAtOnce,
		Listing:      o.listing,
		Buckets:      o.tuning.CacheSize,
		MaxLead:      o.maxLead(),
		Mixed:        o.mixedFleet,
		Sleeper:      o.hooks.Sleeper,
		SettleLimit:  cmp.Or(o.hooks.SettleLimit, settleTimeout),
		Epoch:        &c.epoch,
		Logger:       o.logger,
		Resized: func(ctx context.Context, entity, resource string, shards int) {
			l.emit(ctx, stopwatch{}, Event{Kind: EventShards, Operation: "resize", Entity: entity, Resource: resource, Shards: shards})
		},
		SlotsChanged: l.emitSlots,
	})
	if o.rejections.Top > 0 {
		l.rejections = newRejectionLog(l)
	}
	if o.alerts != nil {
		l.alerts = &alertLog{l: l, seen: map[layout.AlertKey]time.Time{}}
	}
	if away != nil {
		l.entry.enterLater(ctx, embedded, away)
	}
	return l, nil
}

// check returns the error of a call that must not be made: of a closed limiter, or of its input.
func (l *RateLimiter) check(invalid error) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return invalid
}

// configsOf returns how many configs belong to a number of buckets. Each bucket has three of the entity's, and one of the
// resource, which other buckets share. All have that of the system.
func configsOf(buckets int) int { return 4*min(buckets, math.MaxInt/4-1) + 1 }

// A levelCache is a cache of otter. It is an interface, so that importers of this package do not compile otter again.
// Each of them instantiates a generic type in the fields of a RateLimiter, which takes longer than most of them.
type levelCache interface {
	GetIfPresent(key store.Key) (*cachedLevel, bool)
	Set(key store.Key, value *cachedLevel) (*cachedLevel, bool)
	Compute(key store.Key, remap func(value *cachedLevel, found bool) (*cachedLevel, otter.ComputeOp)) (*cachedLevel, bool)
	Invalidate(key store.Key) (*cachedLevel, bool)
	InvalidateAll()
	EstimatedSize() int
}

// inline runs the maintenance of a cache where it falls due, so that caches have no goroutines.
func inline(task func()) { task() }

// Setup creates the table, or the schema of a database file, writes the version of its layout, and registers the namespace, if they are
// missing. It changes nothing that exists, with one exception: to an older version record, it adds the time from which the table counts
// charges of children to their parents. Several processes may call it concurrently. If nothing is missing, it costs one batch read of two
// items, and on DynamoDB two calls that describe the table. It returns a [*VersionError] for a table that this client may not use.
func (l *RateLimiter) Setup(ctx context.Context) error {
	_, err := principalOf(ctx)
	if err := l.check(err); err != nil {
		return err
	}
	return publicError("set up", l.prepare(ctx, l.options.namespace))
}

// prepare is Setup with the errors of the store as they are.
func (l *RateLimiter) prepare(ctx context.Context, namespace string) error {
	if err := l.setUpStore(ctx); err != nil {
		return err
	}
	found, err := l.Namespaces.lookup(ctx, namespace)
	if err == nil && !found.versioned {
		err = l.writeVersion(ctx)
	}
	if err == nil && found.namespace == nil {
		_, err = l.Namespaces.register(ctx, namespace)
	}
	if deployed := l.options.hooks.Deployment; err == nil && deployed != nil {
		err = l.raiseVersion(ctx, deployed.Aggregator)
	}
	return err
}

// setUpStore creates the table, where it is one of DynamoDB's by the settings of [WithTable].
func (l *RateLimiter) setUpStore(ctx context.Context) error {
	type tableStore interface {
		SetupWith(context.Context, TableSettings, *slog.Logger) error
	}
	if s, ok := l.store.(tableStore); ok {
		return s.SetupWith(ctx, l.options.table, l.options.logger)
	}
	return l.store.Setup(ctx)
}

// Ping returns nil when the table exists and the store answers. It costs one read of half a unit. The read is of one of
// many keys, so that the probes of a large fleet are not throttled.
func (l *RateLimiter) Ping(ctx context.Context) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return publicError("ping", l.table.Call(table.Insist(ctx), l.store.Ping))
}

// Close wakes all callers that sleep, with [ErrClosed]. It gives back their tokens, the tokens of callers that gave up
// before, and all slots. It waits until this is done, and for reads in the background. If the store does not answer, Close
// gives up after ten seconds: [Stats].Unreturned then includes the requests whose tokens were not given back, and slots
// are free again within two terms. It writes a last report of rejections, see [WithRejectionReports]. It closes the store
// if [Open] opened it. Later calls of the limiter fail with [ErrClosed]. Settle leases before, since their adjustments
// cannot be written any more. Closing again does nothing.
func (l *RateLimiter) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.entry.stop()
	l.engine.Close()
	if l.rejections != nil {
		l.rejections.close()
	}
	if l.alerts != nil {
		l.alerts.close()
	}
	if l.breaker.Leave() {
		l.outage.close()
	}
	if !l.owned {
		return nil
	}
	return l.store.Close()
}

// query yields the items of a query, page by page, and names the operation in its error.
func (l *RateLimiter) query(ctx context.Context, op string, q store.Query) iter.Seq2[expr.Item, error] {
	return func(yield func(expr.Item, error) bool) {
		for item, err := range l.table.Items(ctx, q) {
			if !yield(item, publicError(op, err)) || err != nil {
				return
			}
		}
	}
}

// Stats are the counts of a limiter since it was made.
type Stats struct {
	Admitted    uint64 `json:"admitted"`    // requests admitted and counted
	Rejected    uint64 `json:"rejected"`    // requests that exceeded a limit
	Degraded    uint64 `json:"degraded"`    // requests admitted uncounted, during an outage
	Unavailable uint64 `json:"unavailable"` // requests that failed because of an outage
	// Waiting is the number of callers of [RateLimiter.Wait] and [Reservation.Wait] that sleep now. Waited counts
	// requests that slept and then had their tokens. Abandoned counts requests that gave up or were refused while they
	// slept.
	Waiting   int64  `json:"waiting"`
	Waited    uint64 `json:"waited"`
	Abandoned uint64 `json:"abandoned"`
	LostRaces uint64 `json:"lost_races"` // writes whose condition failed because another writer came first
	// UnknownOutcomes counts writes that were sent and not answered. They may have happened, and count as charged.
	UnknownOutcomes uint64 `json:"unknown_outcomes"`
	// UnknownSettled counts leases among them that were committed or rolled back. Their corrections may be owed still,
	// and are not known.
	UnknownSettled uint64 `json:"unknown_settled"`
	// Unreturned counts requests that were not admitted and whose tokens could not be given back to one of the levels, or
	// perhaps were not. Tokens that the store does not take back immediately are retried until Close, and are not counted before.
	Unreturned uint64 `json:"unreturned"`
	// StampsFixed counts refill stamps of a clock far ahead of all others that were set back.
	StampsFixed uint64 `json:"stamps_fixed"`
	// SlotsHeld is the number of slots that this limiter holds now, including slots of parents and of wider resources: see
	// [Slots]. SlotsTaken counts slots taken since the limiter was created, and SlotsLost how many of them were lost. The
	// rest were given back.
	SlotsHeld  int64  `json:"slots_held"`
	SlotsTaken uint64 `json:"slots_taken"`
	SlotsLost  uint64 `json:"slots_lost"`
	// Foreseen counts admitted requests that a shadow limit would have refused, see [Limit.Shadow].
	Foreseen uint64 `json:"foreseen"`
	// Outages counts how often the store became unavailable, so that calls of it were not made until it answered again. The
	// limiters that [RateLimiter.Namespace] returns share it. Outage is true while that is so.
	Outages uint64     `json:"outages"`
	Outage  bool       `json:"outage"`
	Config  CacheStats `json:"config"`
}

// CacheStats are counts of the cache of stored limits.
type CacheStats struct {
	Hits    uint64 `json:"hits"`    // resolutions from memory
	Misses  uint64 `json:"misses"`  // resolutions that waited for a read
	Stale   uint64 `json:"stale"`   // resolutions by old limits that could not be read again because of an outage
	Entries int    `json:"entries"` // configs in memory, absent ones included
	// StaleSeconds is how old the limits were that the last one of Stale served.
	StaleSeconds float64 `json:"stale_seconds"`
}

type stats struct {
	admitted, rejected, degraded, unavailable atomic.Uint64
	hits, misses, stale                       atomic.Uint64
	unsettled                                 atomic.Uint64
	waited, abandoned                         atomic.Uint64
	waiting                                   atomic.Int64
	staleAge                                  atomic.Int64 // of the limits that were served last, nanoseconds
}

// Stats returns the counts of this limiter.
func (l *RateLimiter) Stats() Stats {
	open, outages := l.outage.state()
	return Stats{
		Outages:         outages,
		Outage:          open,
		Admitted:        l.stats.admitted.Load(),
		Rejected:        l.stats.rejected.Load(),
		Degraded:        l.stats.degraded.Load(),
		Unavailable:     l.stats.unavailable.Load(),
		Waiting:         l.stats.waiting.Load(),
		Waited:          l.stats.waited.Load(),
		Abandoned:       l.stats.abandoned.Load(),
		LostRaces:       l.engine.LostRaces.Load(),
		UnknownOutcomes: l.table.Unknown(),
		UnknownSettled:  l.stats.unsettled.Load(),
		Unreturned:      l.engine.Unreturned.Load(),
		StampsFixed:     l.engine.StampsFixed.Load(),
		SlotsHeld:       l.engine.SlotsHeld.Load(),
		SlotsTaken:      l.engine.SlotsTaken.Load(),
		SlotsLost:       l.engine.SlotsLost.Load(),
		Foreseen:        l.engine.Foreseen.Load(),
		Config:          l.Limits.CacheStats(),
	}
}

// An AvailableQuery says whose limits to look at.
type AvailableQuery struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	// Limits, if any, replace the stored limits, as [Request.Limits] do.
	Limits []Limit `json:"limits,omitempty"`
	// Parents adds the parents that the entity cascades to. Together they are the limits that check a request.
	Parents bool `json:"parents,omitempty"`
}

// Available returns the status of every limit of an entity and resource, as the store has them. A bucket that does not
// exist yet counts as full. It costs one consistent read of each shard of the bucket, and one more read when the stored
// limits are not in memory. Each parent costs the same.
func (l *RateLimiter) Available(ctx context.Context, q AvailableQuery) (Statuses, error) {
	r := Request{Entity: q.Entity, Resource: q.Resource, Limits: q.Limits}
	if err := r.validateNames(); err != nil {
		return nil, err
	}
	if err := l.check(r.validateLimits()); err != nil {
		return nil, err
	}
	request := l.request(&r)
	levels, err := l.engine.Status(ctx, &request, q.Parents)
	return statusesOfLevels(levels), publicError("available", err)
}

// TimeUntil returns how long it takes until the entity, and the parents that it cascades to, would admit the request if
// nothing else happened. It is 0 if they would admit it now. For more than a limit can hold it is [Never], with an
// [*ExceededError]. If limits have windows, see [ExceededError.RetryAfter].
//
// TimeUntil consumes nothing, and costs as much as [RateLimiter.Available] for each of them. The limits of a bucket may
// have changed since its last use. If TimeUntil returns a wait, it updates such a bucket with one write, so that the
// wait is right.
func (l *RateLimiter) TimeUntil(ctx context.Context, r Request) (time.Duration, error) {
	amounts, err := r.validate(nil)
	if err != nil {
		return 0, err
	}
	if l.closed.Load() {
		return 0, ErrClosed
	}
	request := l.request(&r)
	request.Amounts = amounts
	levels, err := l.engine.TimeUntil(ctx, &request)
	if err != nil {
		return 0, publicError("time until", err)
	}
	all := statusesOfLevels(levels)
	if e := exceeded(all); e.RetryAfter() == Never {
		return Never, e
	}
	return all.retryAfter(), nil
}
