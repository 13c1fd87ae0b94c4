package zlimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
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
)

// A level is one stored config as last seen, or the entity's own record. It is never changed.
type level struct {
	limits  []Limit // nil when there are none
	policy  FailurePolicy
	version int64        // 0 when there is no such config
	owner   layout.Owner // of the entity's record
	readAt  time.Time
}

// age returns how long ago the level was read, and for ever for one that never was.
func (v *level) age(now time.Time) time.Duration {
	if v == nil {
		return math.MaxInt64
	}
	return now.Sub(v.readAt)
}

// resolved are the limits that hold for one entity and resource. They are never changed.
type resolved struct {
	limits     []Limit
	source     Source
	policy     FailurePolicy // of the system
	owner      layout.Owner
	config     bucket.Config
	readAt     time.Time // when the oldest of the levels was read
	generation uint64
}

func (r *resolved) has(limit string) bool {
	return slices.ContainsFunc(r.limits, func(l Limit) bool { return l.Name == limit })
}

// covers returns an error for an amount of a limit that there is not.
func (r *resolved) covers(amounts []bucket.Amount) error {
	for _, a := range amounts {
		if !r.has(a.Limit) {
			return &ValidationError{Field: "consume", Value: a.Limit, Reason: r.unknown()}
		}
	}
	return nil
}

// unknown is what is wrong with the name of a limit that there is not.
func (r *resolved) unknown() string {
	names := make([]string, len(r.limits))
	for i, l := range r.limits {
		names[i] = l.Name
	}
	return "no limit of that name is configured for the resource, which has " + strings.Join(names, ", ")
}

// noLimits returns an ErrNoLimits that names what it is about: the system where there is neither entity nor resource.
func noLimits(entity, resource string) error {
	switch {
	case entity != "":
		return fmt.Errorf("%w: entity %q, resource %q", ErrNoLimits, entity, resource)
	case resource != "":
		return fmt.Errorf("%w: resource %q", ErrNoLimits, resource)
	default:
		return ErrNoLimits
	}
}

// keep returns a config under which a bucket stays what it is: settling leaves the limits alone.
func (o *options) keep(s *bucket.State) *bucket.Config {
	c := &bucket.Config{Params: s.Params()}
	c.Freshness = o.freshnessOf(c.Params)
	if s.ExpiresAt > 0 {
		c.Lifetime = int64(max(o.bucketTTL, 1))
	}
	return c
}

// resolvedOf returns limits in the form in which buckets are charged, in the order of their names.
func (o *options) resolvedOf(limits []Limit, source Source) *resolved {
	limits = slices.SortedFunc(slices.Values(limits), func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	r := &resolved{limits: limits, source: source}
	for _, l := range limits {
		r.config.Params = append(r.config.Params, bucket.Params{
			Name:         l.Name,
			Capacity:     l.Capacity * millis,
			RefillAmount: l.RefillAmount * millis,
			RefillPeriod: l.RefillPeriod.Milliseconds(),
		})
	}
	r.config.Freshness = o.freshnessOf(r.config.Params)
	r.config.Partial = source == SourceRequest
	if source != SourceEntity && source != SourceEntityDefault {
		r.config.Lifetime = int64(o.bucketTTL)
	}
	return r
}

// limitsOf returns the limits that hold for a request: its own, or the stored ones.
func (l *RateLimiter) limitsOf(ctx context.Context, b *bucketRef, r *Request) (*resolved, error) {
	stored, err := l.resolve(ctx, b)
	switch {
	case err != nil:
		return nil, err
	case len(r.Limits) > 0:
		own := l.options.resolvedOf(r.Limits, SourceRequest)
		own.owner, own.policy = stored.owner, stored.policy
		return own, nil
	case len(stored.limits) == 0:
		return nil, noLimits(b.Entity, b.Resource)
	default:
		return stored, nil
	}
}

// resolve returns the stored limits of a bucket, from memory while they are fresh. In the last fifth of their time they
// are read again in the background. When they cannot be read during an outage, the last ones hold on.
func (l *RateLimiter) resolve(ctx context.Context, b *bucketRef) (*resolved, error) {
	ttl := l.options.configTTL
	known := b.limits.Load()
	if known != nil && known.generation == l.generation.Load() {
		age := l.now().Sub(known.readAt)
		if age < ttl && age >= 0 {
			l.stats.hits.Add(1)
			if age >= l.options.renewal() {
				l.refresh(ctx, b)
			}
			return known, nil
		}
	}
	l.stats.misses.Add(1)
	if err := l.load(ctx, b, l.options.renewal()); err != nil {
		var failed *store.Error
		if known != nil && errors.As(err, &failed) && failed.Unavailable {
			l.stats.stale.Add(1)
			l.options.logger.Warn("zlimit: limits cannot be read again, the last ones hold on",
				"entity", b.Entity, "resource", b.Resource, "error", err)
			return known, nil
		}
		return nil, err
	}
	return b.limits.Load(), nil
}

// renewal returns the age at which limits are read again in the background.
func (o *options) renewal() time.Duration { return o.configTTL - o.configTTL/5 }

// maxMismatch is how old limits may be that an item is brought in line with.
const maxMismatch = time.Second

// recheck returns the limits by which to decide when an item has other ones than those known. Another process may have
// known of a change first; so those that are not recent are read again, once.
func (l *RateLimiter) recheck(ctx context.Context, b *bucketRef, known *resolved, d *bucket.Demand) (*resolved, error) {
	if known.source == SourceRequest || l.now().Sub(known.readAt) < maxMismatch {
		return known, nil
	}
	if err := l.load(ctx, b, min(maxMismatch, l.options.renewal())); err != nil {
		return nil, err
	}
	limits := b.limits.Load()
	if len(limits.limits) == 0 {
		return nil, noLimits(b.Entity, b.Resource)
	}
	return limits, limits.covers(d.Amounts)
}

// refresh reads the limits of a bucket again, unless that is under way.
func (l *RateLimiter) refresh(ctx context.Context, b *bucketRef) {
	l.share(ctx, b, l.options.renewal())
}

// load reads what is not known of a bucket, and what decides about its limits if that is of an age: one batch read that
// concurrent callers share. A caller whose context ends leaves the others alone.
func (l *RateLimiter) load(ctx context.Context, b *bucketRef, maxAge time.Duration) error {
	select {
	case outcome := <-l.share(ctx, b, maxAge):
		return outcome.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// share starts the read of load, or joins the one under way.
func (l *RateLimiter) share(ctx context.Context, b *bucketRef, maxAge time.Duration) <-chan singleflight.Result {
	return l.loads.DoChan(b.Entity+"#"+b.Resource+"#"+maxAge.String(), func() (any, error) {
		if !l.begin() {
			return nil, ErrClosed
		}
		defer l.background.Done()
		return nil, l.call(context.WithoutCancel(ctx), func(ctx context.Context) error { return l.fetch(ctx, b, maxAge) })
	})
}

// fetch does the read of load.
func (l *RateLimiter) fetch(ctx context.Context, b *bucketRef, maxAge time.Duration) error {
	generation := l.generation.Load()
	now := l.now()
	configs := l.levelsOf(b.Entity, b.Resource)
	levels := make([]*level, len(configs))
	var keys []store.Key
	var stale []int // indexes into configs of those to read
	for i, c := range configs {
		levels[i], _ = l.configs.GetIfPresent(c.key)
		if age := levels[i].age(now); age < 0 || age >= maxAge {
			stale = append(stale, i)
			keys = append(keys, c.key)
		}
	}
	first := b.shard(0)
	withBucket := first.image.Load() == nil
	if withBucket {
		keys = append(keys, first.key)
	}
	var items []expr.Item
	if len(keys) > 0 {
		var err error
		if items, err = l.store.Read(ctx, keys, false); err != nil {
			return err
		}
	}
	for i, at := range stale {
		read, err := configs[at].decode(items[i])
		if err != nil {
			return err
		}
		read.readAt = now
		before := levels[at]
		levels[at], _ = l.configs.Compute(configs[at].key, func(latest *level, _ bool) (*level, otter.ComputeOp) {
			if latest != before && latest != nil { // written through this limiter while the read was under way
				return latest, otter.CancelOp
			}
			return read, otter.WriteOp
		})
	}
	if withBucket {
		if _, err := first.observe(items[len(stale)], now, 0, nil); err != nil {
			return err
		}
	}
	b.limits.Store(l.derive(configs, levels, generation))
	return nil
}

// derive resolves levels, in order of precedence, the last of which is the entity's record.
func (l *RateLimiter) derive(configs []configRef, levels []*level, generation uint64) *resolved {
	var limits []Limit
	var source Source
	var policy FailurePolicy
	oldest := levels[0].readAt
	for i, level := range levels {
		if level.readAt.Before(oldest) {
			oldest = level.readAt
		}
		if source == "" && len(level.limits) > 0 {
			limits, source = level.limits, configs[i].source
		}
		if configs[i].source == SourceSystem {
			policy = level.policy
		}
	}
	r := l.options.resolvedOf(limits, source)
	r.owner = levels[len(levels)-1].owner
	r.policy = policy
	r.readAt, r.generation = oldest, generation
	l.policy.Store(uint32(policy))
	return r
}
