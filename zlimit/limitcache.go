package zlimit

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Source is the level that limits come from.
type Source string

// The levels, in order of precedence: the first one that has limits wins as a whole.
const (
	SourceRequest       Source = "request"        // [Request.Limits]
	SourceEntity        Source = "entity"         // the entity's limits for the resource
	SourceEntityDefault Source = "entity_default" // the entity's limits for every other resource
	SourceResource      Source = "resource"       // the resource's limits
	SourceSystem        Source = "system"         // the limits of the system, the last level
	SourceDefault       Source = "default"        // [WithDefaultLimits], if nothing is stored
)

// A cachedLevel is one stored config as last seen, or the entity's own record. It is never changed.
type cachedLevel struct {
	Config
	toggle  Switch               // whether requests are served
	version int64                // 0 when there is no such config
	lineage layout.Lineage       // of the entity's record
	refused *layout.RefusedError // what other programs limit by here, and this one does not; nil for nothing
	readAt  time.Time
	epoch   int64 // before a consistent read, or the write, began; 0 for a read that may be moments behind
	learned bool  // from the item of a bucket, which another process has written
}

// age returns how long ago the level was read, and the longest duration for one that never was.
func (v *cachedLevel) age(now time.Time) time.Duration {
	if v == nil {
		return math.MaxInt64
	}
	return now.Sub(v.readAt)
}

// resolved are the stored limits for one entity and resource. They do not change, besides the state of their next read.
type resolved struct {
	limits     []Limit
	source     Source
	policy     FailurePolicy // of the first level that has one
	cascade    CascadePolicy // so, too
	again      *atomic.Int64 // when they may be read again in the background, by the cache's time; 0 where that was never tried
	told       *atomic.Bool  // whether the log says that they are stale
	disabledBy Source        // the level that rejects requests; "" where they are served
	bypassedBy Source        // the level at which requests are only counted; "" if limits hold
	refused    error         // a request would not be limited as other programs limit it; nil where it is
	readAt     time.Time     // when the oldest of the levels was read
	generation uint64
}

// A limitCache keeps the stored limits in memory. It is the engine's source of limits.
type limitCache struct {
	l       *RateLimiter
	sharing *table.Sharing // of reads that several callers wait for
	started time.Time      // decides when limits are read again
	repeats repeatLuck

	mu    sync.Mutex
	loads map[string]*limitLoad // reads under way, by their levels
}

// A limitLoad is a read of the limits of a bucket.
type limitLoad struct {
	*table.Shared
	limits *protocol.Limits // set before the read ends
}

func newLimitCache(l *RateLimiter) *limitCache {
	started := time.Now() //nolint:forbidigo // pauses are by the clock of the machine
	return &limitCache{l: l, sharing: l.table.Sharing(), started: started, loads: map[string]*limitLoad{}}
}

var _ protocol.LimitSource = (*limitCache)(nil)

// For returns the stored limits of a bucket, from memory while they are fresh. In the last fifth of their time they are
// read again in the background. Past it a request waits for the read, as long as such reads take. When a read is late
// or meets an outage, the last limits hold on. Requests of the bucket do not wait then, until a read in the background
// succeeds.
func (c *limitCache) For(ctx context.Context, b *protocol.Bucket) (*protocol.Limits, error) {
	l := c.l
	known := b.Limits.Load()
	var last *resolved
	if known != nil {
		last = known.Detail.(*resolved)
	}
	if last != nil && last.generation == l.generation.Load() {
		age := l.now().Sub(last.readAt)
		if age < l.options.configTTL && age >= 0 {
			l.stats.hits.Add(1)
			if age >= l.options.renewal() {
				c.readLater(ctx, b, last)
			} else if known.Disabled && age >= againAfter { // requests are served soon after an operator says so
				if latest, err := c.load(ctx, b, reload{maxAge: againAfter}); err == nil {
					known = latest
				}
			}
			return unlessRefused(known)
		}
		if c.triedRecently(last) {
			c.readLater(ctx, b, last)
			return c.stale(ctx, b, known, nil)
		}
	}
	l.stats.misses.Add(1)
	limits, err := c.inTime(ctx, b, last)
	switch {
	case err == nil && limits != nil:
		return unlessRefused(limits)
	case known != nil && (err == nil || unavailable(err)):
		return c.stale(ctx, b, known, err)
	default:
		return nil, err
	}
}

// inTime reads the limits of a bucket again. Where the last ones may hold on, it returns nil when the read is late or meets an outage.
//
// With WithConfigTTL(0), every request uses the limits that were stored when it arrived. It needs a consistent read that began
// after it.
func (c *limitCache) inTime(ctx context.Context, b *protocol.Bucket, last *resolved) (*protocol.Limits, error) {
	if c.l.options.configTTL == 0 {
		return c.After(ctx, b, c.l.engine.NextEpoch())
	}
	aged := reload{maxAge: c.l.options.renewal()}
	if last == nil || last.generation != c.l.generation.Load() {
		return c.load(ctx, b, aged)
	}
	w := c.sharing.Sharer()
	reading := c.join(ctx, b, aged, &w)
	part := ctx
	if left, ok := timeLeft(ctx); ok {
		var cancel context.CancelFunc
		part, cancel = context.WithTimeout(ctx, left/waitDivisor)
		defer cancel()
	}
	done, err := w.Await(part, reading.Shared)
	switch {
	case part.Err() != nil && ctx.Err() == nil, err == nil && !done:
		return nil, nil
	case err != nil:
		return nil, err
	default:
		return reading.limits, nil
	}
}

// waitDivisor divides the time that a request has left: it waits the result for each level whose last limits may still be used.
const waitDivisor = 4

// againAfter is the pause between two reads of the same limits in the background.
const againAfter = time.Second

// triedRecently reports whether a read of limits in the background was begun some seconds ago at most. It has not succeeded, or there
// were others.
func (c *limitCache) triedRecently(last *resolved) bool {
	again := last.again.Load()
	return again > 0 && c.l.options.configTTL > 0 && time.Since(c.started) < time.Duration(again)+5*againAfter
}

// readLater reads limits again in the background, unless that was tried a moment ago.
func (c *limitCache) readLater(ctx context.Context, b *protocol.Bucket, last *resolved) {
	now, again := int64(time.Since(c.started)), last.again.Load()
	if now < again || c.l.table.Refusal(ctx) != nil || !last.again.CompareAndSwap(again, now+int64(againAfter)) {
		return
	}
	w := c.sharing.Sharer()
	c.join(ctx, b, reload{maxAge: c.l.options.renewal()}, &w)
}

// stale returns limits that could not be read again. The first time it has an error, or nil where the read is late.
func (c *limitCache) stale(ctx context.Context, b *protocol.Bucket, known *protocol.Limits, err error) (*protocol.Limits, error) {
	l, last := c.l, known.Detail.(*resolved)
	age := l.now().Sub(last.readAt)
	l.stats.stale.Add(1)
	l.stats.staleAge.Store(int64(age))
	l.outage.note(ctx, outageCounts{stale: 1}, cmp.Or(err, errLate))
	last.again.CompareAndSwap(0, int64(time.Since(c.started)+againAfter))
	if l.options.observer != nil && last.told.CompareAndSwap(false, true) {
		l.options.observer(ctx, Event{
			Kind: EventConfig, Operation: "stale limits", Time: l.now(), Entity: b.Entity, Resource: b.Resource, Duration: age,
			Result: ResultUnavailable, Err: publicError("read limits", err),
		})
	}
	return unlessRefused(known)
}

// errLate is the cause of stale limits whose read is under way.
var errLate = errors.New("limits cannot be read in time")

// unlessRefused returns stored limits, or why a request of their bucket is refused.
func unlessRefused(limits *protocol.Limits) (*protocol.Limits, error) {
	if err := limits.Detail.(*resolved).refused; err != nil {
		return nil, err
	}
	return limits, nil
}

// After returns the stored limits of a bucket as they were read, or written by this process, after an epoch.
func (c *limitCache) After(ctx context.Context, b *protocol.Bucket, epoch int64) (*protocol.Limits, error) {
	for {
		if known := b.Limits.Load(); known != nil && known.Epoch > epoch {
			return unlessRefused(known)
		}
		limits, err := c.load(ctx, b, reload{after: epoch})
		if err != nil {
			return nil, err
		}
		if limits.Epoch > epoch {
			return unlessRefused(limits)
		}
	}
}

// renewal returns the age at which limits are read again in the background.
func (o *options) renewal() time.Duration { return o.configTTL - o.configTTL/5 }

// A reload selects the levels to read again: levels of an age, or levels that may be older than an epoch. The latter
// are read consistently.
type reload struct {
	maxAge time.Duration
	after  int64 // 0 for levels of an age
}

func (r reload) isDue(v *cachedLevel, now time.Time) bool {
	if r.after > 0 {
		return v == nil || v.epoch <= r.after
	}
	age := v.age(now)
	return age < 0 || age >= r.maxAge
}

// load reads the due levels of a bucket: one batch read, shared by concurrent callers. A caller whose context ends
// leaves the others alone, and so does a read that is late or meets an outage.
func (c *limitCache) load(ctx context.Context, b *protocol.Bucket, r reload) (*protocol.Limits, error) {
	var waited []*limitLoad // for reads that were late
	for w := c.sharing.Sharer(); ; {
		reading := c.join(ctx, b, r, &w)
		done, err := w.Await(ctx, reading.Shared)
		switch {
		case err != nil:
			return nil, err
		case done:
			return reading.limits, nil
		}
		waited = append(waited, reading)
		if at := slices.IndexFunc(waited, func(l *limitLoad) bool { return l.Succeeded() }); at >= 0 {
			return waited[at].limits, nil
		}
	}
}

// join returns a read that load can wait for. It returns the read under way for the same bucket, generation and consistency, unless that
// read is late for this caller. Otherwise it starts one in the background.
func (c *limitCache) join(ctx context.Context, b *protocol.Bucket, r reload, w *table.Sharer) *limitLoad {
	// A read that began before a change, or before the cache was asked to forget, serves no later caller.
	key := b.Entity + "#" + b.Resource + "#" + strconv.FormatUint(c.l.generation.Load(), 16)
	if r.after > 0 {
		key += "#after"
	}
	c.mu.Lock()
	if under := c.loads[key]; under != nil && !w.Passes(under.Shared) {
		c.mu.Unlock()
		return under
	}
	this := &limitLoad{Shared: c.sharing.Shared()}
	c.loads[key] = this
	c.mu.Unlock()
	w.Begins(this.Shared)
	run := *w
	load := func(ctx context.Context, read func(context.Context) error) {
		run.Run(ctx, this.Shared, read)
		c.mu.Lock()
		if c.loads[key] == this {
			delete(c.loads, key)
		}
		c.mu.Unlock()
		this.End()
	}
	apart := c.l.engine.GoOn(ctx, func(ctx context.Context) {
		load(ctx, func(ctx context.Context) (err error) {
			this.limits, err = c.read(ctx, b, r)
			return err
		})
	})
	if !apart {
		load(ctx, func(context.Context) error { return ErrClosed })
	}
	return this
}

// read does the read of load, together with the first item of the bucket when that was never seen, or probably written
// by others since. In a fleet such an item mostly repeats the stored levels of the entity, see repeated.go. The item is
// then read before.
func (c *limitCache) read(ctx context.Context, b *protocol.Bucket, r reload) (*protocol.Limits, error) {
	l := c.l
	rd := levelReading{
		limitCache: c, reload: r, bucket: b,
		configs: l.ns.levelsOf(b.Entity, b.Resource), generation: l.generation.Load(), now: l.now(),
	}
	for _, config := range rd.configs {
		known, _ := l.configs.GetIfPresent(config.key)
		rd.levels = append(rd.levels, known)
	}
	_, unseen := l.engine.Memory.Unseen(b)
	if unseen && r.after == 0 && c.repeats.expected() {
		if err := rd.read(ctx, configRef.isShared, true); err != nil {
			return nil, err
		}
		unseen = false
	}
	if err := rd.read(ctx, func(configRef) bool { return true }, unseen); err != nil {
		return nil, err
	}
	limits := c.compile(rd.configs, rd.levels, rd.generation)
	b.Limits.Store(limits)
	return limits, nil
}

// A levelReading is what read does. It is not safe for concurrent use.
type levelReading struct {
	*limitCache
	reload
	bucket     *protocol.Bucket
	configs    []configRef
	levels     []*cachedLevel // of the configs, in their order; nil if nothing is known
	generation uint64         // before it began
	now        time.Time      // then
}

// read makes one batch read of the levels that are due, and of the bucket's first item where the caller wants it.
func (rd *levelReading) read(ctx context.Context, of func(configRef) bool, item bool) error {
	l := rd.l
	var keys []store.Key
	var due []int // indexes into configs
	for i, config := range rd.configs {
		if of(config) && rd.isDue(rd.levels[i], rd.now) {
			due = append(due, i)
			keys = append(keys, config.key)
		}
	}
	if item {
		first, _ := l.engine.Memory.Unseen(rd.bucket)
		keys = append(keys, first)
	}
	if len(keys) == 0 {
		return nil
	}
	read, epoch := l.table.ReadEventually, int64(0)
	if rd.after > 0 {
		read, epoch = l.table.Read, l.engine.NextEpoch()
	}
	items, err := read(ctx, keys...)
	if item && store.OutcomeOf(err) == store.Throttled {
		keys, item = keys[:len(due)], false // the key of a bucket that many ask for; the engine waits for its turn to read it
		if items, err = nil, nil; len(keys) > 0 {
			items, err = read(ctx, keys...)
		}
	}
	if err != nil {
		return err
	}
	for i, at := range due {
		next, err := rd.configs[at].decode(items[i])
		if err != nil {
			return err
		}
		next.readAt, next.epoch = rd.now, epoch
		rd.keep(ctx, at, next)
	}
	if !item {
		return nil
	}
	if rd.after == 0 {
		rd.learn(ctx, items[len(due)])
	}
	return l.engine.Memory.Observe(rd.bucket, items[len(due)])
}

// keep remembers a level as the store has it, unless a later one was remembered meanwhile.
func (rd *levelReading) keep(ctx context.Context, at int, next *cachedLevel) {
	l, before, config := rd.l, rd.levels[at], rd.configs[at]
	if before != nil && before.version != next.version {
		l.emit(ctx, stopwatch{}, Event{
			Kind: EventConfig, Operation: "read limits", Entity: config.Entity, Resource: config.storedResource(),
		})
	}
	latest, _ := l.configs.Compute(config.key, func(latest *cachedLevel, _ bool) (*cachedLevel, otter.ComputeOp) {
		if latest != before && latest != nil { // read, or written through this limiter, while the read was under way
			return latest, otter.CancelOp
		}
		if l.generation.Load() != rd.generation { // it may have been forgotten
			return latest, otter.CancelOp
		}
		return next, otter.WriteOp
	})
	if rd.levels[at] = next; latest != nil && latest != before {
		rd.levels[at] = latest
	}
}

// compile resolves levels, in order of precedence, the last of which is the entity's record.
func (c *limitCache) compile(configs []configRef, levels []*cachedLevel, generation uint64) *protocol.Limits {
	found := resolved{readAt: levels[0].readAt, generation: generation, again: new(atomic.Int64), told: new(atomic.Bool)}
	epoch, within := int64(math.MaxInt64), ""
	lineage, cascade := charging(levels)
	found.cascade = cascade
	for i, level := range levels {
		if found.refused == nil && level.refuses(found.source) {
			found.refused = level.refused
		}
		epoch = min(epoch, level.epoch)
		if level.readAt.Before(found.readAt) {
			found.readAt = level.readAt
		}
		if found.source == "" && len(level.Limits) > 0 {
			found.limits, found.source = level.Limits, configs[i].source
		}
		if found.policy == PolicyInherit {
			found.policy = level.OnUnavailable
		}
		if configs[i].source == SourceResource {
			within = level.Within
		}
		if configs[i].source == SourceSystem {
			c.l.policy.Store(uint32(level.OnUnavailable))
		}
	}
	if found.source == "" && len(c.l.options.defaults) > 0 {
		found.limits, found.source = c.l.options.defaults, SourceDefault
	}
	found.limits = inOrder(found.limits)
	by, toggle := deciding(levels)
	switch toggle {
	case SwitchDisabled:
		found.disabledBy = configs[by].source
	case SwitchBypassed:
		found.bypassedBy = configs[by].source
	case SwitchInherit, SwitchEnabled:
	}
	config := c.l.options.configOf(found.limits, found.source)
	config.Bypass, config.MarkUntil = toggle == SwitchBypassed, found.readAt.Add(c.l.options.markTime()).UnixMilli()
	return &protocol.Limits{
		Disabled: toggle == SwitchDisabled,
		ReadAt:   found.readAt.UnixMilli(),
		Config:   config,
		Lineage:  lineage,
		Within:   within,
		Epoch:    epoch,
		Detail:   &found,
		Repeat:   c.repeat(configs, levels),
	}
}

func inOrder(limits []Limit) []Limit {
	return slices.SortedFunc(slices.Values(limits), func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
}

// configOf returns limits, in the order of their names, in the form in which buckets are charged.
func (o *options) configOf(limits []Limit, source Source) bucket.Config {
	c := bucket.Config{Partial: source == SourceRequest, Lead: o.maxLead().Milliseconds(), Mixed: o.mixedFleet}
	for _, l := range limits {
		if l.Term != 0 {
			c.Slots = append(c.Slots, bucket.SlotParams{Name: l.Name, Slots: l.Capacity, Term: l.Term.Milliseconds()})
			continue
		}
		c.Params = append(c.Params, l.params().Divide()...)
	}
	c.Freshness = o.freshnessOf(c.Params)
	if source != SourceEntity && source != SourceEntityDefault {
		c.ExpiryFactor = int64(max(o.tuning.BucketTTL, 0))
	}
	return c
}

// markTime is how long after a read of the limits the item of a bucket may say what refuses nothing.
func (o *options) markTime() time.Duration { return max(o.configTTL, time.Minute) }

// quotaPeriod is the refill period of a quota, in milliseconds, which says nothing.
const quotaPeriod = 1000

// modes has the mode of a limit at the number of its mode in buckets.
var modes = []LimitMode{bucket.Enforced: ModeEnforced, bucket.Soft: ModeSoft, bucket.Shadow: ModeShadow}

// params returns a validated limit in the form for charging buckets.
func (l *Limit) params() bucket.Params {
	p := bucket.Params{
		Name: l.Name, Capacity: l.Capacity * millis, RefillAmount: l.RefillAmount * millis, RefillPeriod: l.RefillPeriod.Milliseconds(),
		Session: int64(l.Session / time.Second), Carry: l.Carry * millis, Floors: bucket.Floors(l.Floors), Mode: bucket.Mode(max(slices.Index(modes, l.Mode), 0)),
	}
	if l.kind() != kindRefill {
		p.RefillPeriod = quotaPeriod
	}
	if l.Resets != "" {
		p.Times, _ = calendar.Parse(l.Resets, l.Zone) // which the validation has done before
	}
	if l.Windows != "" {
		p.Windows, _ = calendar.ParseWindows(l.Windows, l.Zone) // which the validation has done before
	}
	return p
}

// maxOwn is the number of sets of [Request.Limits] that are kept compiled for a bucket.
const maxOwn = 4

// own returns the limits of a request in the form in which buckets are charged. Requests of one bucket mostly bring the
// same few sets, which are compiled once.
func (c *limitCache) own(b *protocol.Bucket, limits []Limit) *protocol.Limits {
	known := b.Own.Load()
	if known != nil {
		for _, own := range *known {
			if slices.Equal(own.Detail.([]Limit), limits) {
				return own
			}
		}
	}
	own := &protocol.Limits{
		Config: c.l.options.configOf(inOrder(limits), SourceRequest), Own: true, Detail: slices.Clone(limits),
	}
	next := []*protocol.Limits{own}
	if known != nil {
		next = append(next, (*known)[:min(len(*known), maxOwn-1)]...)
	}
	b.Own.CompareAndSwap(known, &next)
	return own
}
