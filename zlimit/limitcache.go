package zlimit

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Source is the level that limits come from.
type Source string

// The levels, in order of precedence: the first one that has limits wins as a whole.
const (
	SourceRequest       Source = "request"        // [Request.Limits]
	SourceEntity        Source = "entity"         // the entity's limits for the resource
	SourceEntityDefault Source = "entity_default" // the entity's limits for every resource
	SourceResource      Source = "resource"       // the resource's limits
	SourceSystem        Source = "system"         // the limits of last resort
	SourceDefault       Source = "default"        // [WithDefaultLimits], where nothing is stored
)

// A level is one stored config as last seen, or the entity's own record. It is never changed.
type level struct {
	limits  []Limit // nil when there are none
	policy  FailurePolicy
	version int64        // 0 when there is no such config
	owner   layout.Owner // of the entity's record
	readAt  time.Time
	epoch   int64 // before a consistent read, or the write, began; 0 for a read that may be moments behind
}

// age returns how long ago the level was read, and for ever for one that never was.
func (v *level) age(now time.Time) time.Duration {
	if v == nil {
		return math.MaxInt64
	}
	return now.Sub(v.readAt)
}

// resolved are the stored limits that hold for one entity and resource. They are never changed.
type resolved struct {
	limits     []Limit
	source     Source
	policy     FailurePolicy // of the first level that has one
	readAt     time.Time     // when the oldest of the levels was read
	generation uint64
}

// A limitCache keeps the stored limits in memory. It is the engine's source of limits.
type limitCache struct {
	l     *RateLimiter
	loads singleflight.Group // reads that several callers wait for
}

var _ protocol.Source = (*limitCache)(nil)

// For returns the stored limits of a bucket, from memory while they are fresh. In the last fifth of their time they are
// read again in the background. When they cannot be read during an outage, the last ones hold on.
func (c *limitCache) For(ctx context.Context, b *protocol.Bucket) (*protocol.Limits, error) {
	l := c.l
	known := b.Limits.Load()
	if known != nil && known.Detail.(*resolved).generation == l.generation.Load() {
		age := l.now().Sub(known.Detail.(*resolved).readAt)
		if age < l.options.configTTL && age >= 0 {
			l.stats.hits.Add(1)
			if age >= l.options.renewal() {
				c.share(ctx, b, reload{maxAge: l.options.renewal()})
			}
			return known, nil
		}
	}
	l.stats.misses.Add(1)
	limits, err := c.again(ctx, b)
	if err != nil {
		var failed *store.Error
		if known != nil && errors.As(err, &failed) && failed.Unavailable {
			l.stats.stale.Add(1)
			l.options.logger.Warn("zlimit: limits cannot be read again, the last ones hold on",
				"entity", b.Entity, "resource", b.Resource, "error", err)
			return known, nil
		}
		return nil, err
	}
	return limits, nil
}

// again reads the limits of a bucket again. Without a time in memory, every request goes by the limits that were stored
// when it came. A read that may be moments behind, or that another request began before, does not tell those.
func (c *limitCache) again(ctx context.Context, b *protocol.Bucket) (*protocol.Limits, error) {
	if c.l.options.configTTL == 0 {
		return c.After(ctx, b, c.l.engine.NextEpoch())
	}
	return c.load(ctx, b, reload{maxAge: c.l.options.renewal()})
}

// After returns the stored limits of a bucket as they were read, or written by this process, after an epoch.
func (c *limitCache) After(ctx context.Context, b *protocol.Bucket, epoch int64) (*protocol.Limits, error) {
	for {
		if known := b.Limits.Load(); known != nil && known.Epoch > epoch {
			return known, nil
		}
		if limits, err := c.load(ctx, b, reload{after: epoch}); err != nil || limits.Epoch > epoch {
			return limits, err
		}
	}
}

// renewal returns the age at which limits are read again in the background.
func (o *options) renewal() time.Duration { return o.configTTL - o.configTTL/5 }

// A reload says which levels to read again: those of an age, or those that are not known to be as new as an epoch. The
// latter are read consistently.
type reload struct {
	maxAge time.Duration
	after  int64 // 0 for levels of an age
}

func (r reload) isDue(v *level, now time.Time) bool {
	if r.after > 0 {
		return v == nil || v.epoch <= r.after
	}
	age := v.age(now)
	return age < 0 || age >= r.maxAge
}

// load reads what is due of the levels of a bucket: one batch read that concurrent callers share. A caller whose context
// ends leaves the others alone.
func (c *limitCache) load(ctx context.Context, b *protocol.Bucket, r reload) (*protocol.Limits, error) {
	select {
	case outcome := <-c.share(ctx, b, r):
		if outcome.Err != nil {
			return nil, outcome.Err
		}
		return outcome.Val.(*protocol.Limits), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// share starts the read of load, or joins the one under way.
func (c *limitCache) share(ctx context.Context, b *protocol.Bucket, r reload) <-chan singleflight.Result {
	// A read that began before a change, or before the cache was asked to forget, serves no caller that comes after that.
	key := b.Entity + "#" + b.Resource + "#" + strconv.FormatUint(c.l.generation.Load(), 16)
	if r.after > 0 {
		key += "#after"
	}
	return c.loads.DoChan(key, func() (any, error) {
		if !c.l.engine.Begin() && !c.l.engine.GoOn() {
			return nil, ErrClosed
		}
		defer c.l.engine.End()
		return c.read(context.WithoutCancel(ctx), b, r)
	})
}

// read does the read of load, together with the first item of the bucket when that was never seen.
func (c *limitCache) read(ctx context.Context, b *protocol.Bucket, r reload) (*protocol.Limits, error) {
	l := c.l
	generation, now := l.generation.Load(), l.now()
	read, epoch := l.table.ReadEventually, int64(0)
	if r.after > 0 {
		read, epoch = l.table.Read, l.engine.NextEpoch()
	}
	configs := l.ns.levelsOf(b.Entity, b.Resource)
	levels := make([]*level, len(configs))
	var keys []store.Key
	var due []int // indexes into configs of those to read
	for i, config := range configs {
		levels[i], _ = l.configs.GetIfPresent(config.key)
		if r.isDue(levels[i], now) {
			due = append(due, i)
			keys = append(keys, config.key)
		}
	}
	first, unseen := l.engine.Unseen(b)
	if unseen {
		keys = append(keys, first)
	}
	var items []expr.Item
	if len(keys) > 0 {
		var err error
		if items, err = read(ctx, keys...); unseen && store.OutcomeOf(err) == store.Throttled {
			keys, unseen = keys[:len(due)], false // the key of a bucket that many ask for; the engine waits for its turn to read it
			if items, err = nil, nil; len(keys) > 0 {
				items, err = read(ctx, keys...)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for i, at := range due {
		next, err := configs[at].decode(items[i])
		if err != nil {
			return nil, err
		}
		next.readAt, next.epoch = now, epoch
		before := levels[at]
		if before != nil && before.version != next.version {
			l.tell(ctx, stopwatch{}, Event{
				Kind: EventConfig, Operation: "read limits", Entity: configs[at].entity, Resource: configs[at].resource,
			})
		}
		latest, _ := l.configs.Compute(configs[at].key, func(latest *level, _ bool) (*level, otter.ComputeOp) {
			if latest != before && latest != nil { // read, or written through this limiter, while the read was under way
				return latest, otter.CancelOp
			}
			if l.generation.Load() != generation { // it may have been forgotten
				return latest, otter.CancelOp
			}
			return next, otter.WriteOp
		})
		if levels[at] = next; latest != nil && latest != before {
			levels[at] = latest
		}
	}
	if unseen {
		if err := l.engine.Observe(b, items[len(due)]); err != nil {
			return nil, err
		}
	}
	limits := c.compile(configs, levels, generation)
	b.Limits.Store(limits)
	return limits, nil
}

// compile resolves levels, in order of precedence, the last of which is the entity's record.
func (c *limitCache) compile(configs []configRef, levels []*level, generation uint64) *protocol.Limits {
	found := resolved{readAt: levels[0].readAt, generation: generation}
	epoch := int64(math.MaxInt64)
	for i, level := range levels {
		epoch = min(epoch, level.epoch)
		if level.readAt.Before(found.readAt) {
			found.readAt = level.readAt
		}
		if found.source == "" && len(level.limits) > 0 {
			found.limits, found.source = level.limits, configs[i].source
		}
		if found.policy == Inherit {
			found.policy = level.policy
		}
		if configs[i].source == SourceSystem {
			c.l.policy.Store(uint32(level.policy))
		}
	}
	if found.source == "" && len(c.l.options.defaults) > 0 {
		found.limits, found.source = c.l.options.defaults, SourceDefault
	}
	found.limits = inOrder(found.limits)
	return &protocol.Limits{
		Config: c.l.options.configOf(found.limits, found.source),
		Owner:  levels[len(levels)-1].owner,
		Epoch:  epoch,
		Detail: &found,
	}
}

// inOrder returns limits in the order of their names.
func inOrder(limits []Limit) []Limit {
	return slices.SortedFunc(slices.Values(limits), func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
}

// configOf returns limits, in the order of their names, in the form in which buckets are charged.
func (o *options) configOf(limits []Limit, source Source) bucket.Config {
	c := bucket.Config{Partial: source == SourceRequest, Lead: o.maxLead().Milliseconds(), Mixed: o.mixedFleet}
	for _, l := range limits {
		c.Params = append(c.Params, bucket.Params{
			Name:         l.Name,
			Capacity:     l.Capacity * millis,
			RefillAmount: l.RefillAmount * millis,
			RefillPeriod: l.RefillPeriod.Milliseconds(),
		})
	}
	c.Freshness = o.freshnessOf(c.Params)
	if source != SourceEntity && source != SourceEntityDefault {
		c.Lifetime = int64(o.bucketTTL)
	}
	return c
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
