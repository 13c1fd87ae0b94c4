package zlimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/wait"
)

// Acquire consumes what the request asks, of all limits or of none, and returns a lease to settle once the real cost is
// known. A lease that needs no settling may be dropped.
//
// It returns an [*ExceededError] when a limit falls short, [ErrNoLimits] when no level has limits for the request, a
// [*ValidationError] for a request that breaks a rule or names a limit that is not configured, an [*UnavailableError]
// during an outage unless the failure policy allows the request, [ErrContended] when other writers came first time and
// again, and the context's error when it ended.
//
// When the entity cascades to a parent, both are charged, side by side, and the strictest limit decides; what was taken
// of one is given back when the other falls short. A parent is charged for those limits of the request that its own limits
// name, which may be none.
//
// A bucket that this process used before costs one conditional write: one call, one write unit; requests that wait for a
// write of it share the next one under [WithCoalescing]. A lost race costs one more. A bucket seen for the first time
// costs a batch read before, of three read units. A rejection costs the failed write, or a consistent read where the last
// image of the bucket foretold it.
func (l *RateLimiter) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if l.closed.Load() {
		return nil, ErrClosed
	}
	lease := &Lease{limiter: l}
	amounts, err := r.validate(lease.amountSpace[:0])
	if err != nil {
		return nil, err
	}
	if lease.links, err = l.chain(ctx, &r, &lease.linkSpace, amounts); err != nil {
		return l.fail(ctx, OpAcquire, &r, err)
	}
	if err := l.chargeAll(ctx, lease.links); err != nil {
		return l.fail(ctx, OpAcquire, &r, err)
	}
	l.stats.admitted.Add(1)
	return lease, nil
}

// Do acquires, calls fn, and settles the lease: it commits when fn returns nil, and rolls back when it returns an error
// or panics. The error of fn comes first in what Do returns; it can be found with [errors.Is] and [errors.As]. In an
// outage, [UnavailableError.Op] tells a request that was not admitted ([OpAcquire]) from one whose work is done and not
// settled ([OpCommit]). It costs what [RateLimiter.Acquire] and [Lease.Commit] or [Lease.Rollback] cost.
func (l *RateLimiter) Do(ctx context.Context, r Request, fn func(context.Context, *Lease) error) error {
	if fn == nil {
		return &ValidationError{Field: "function", Value: "nil", Reason: "must not be nil"}
	}
	lease, err := l.Acquire(ctx, r)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // fn panics, or ends its goroutine
			_ = lease.Rollback(ctx) // the panic goes on; the outcome is counted in Stats
		}
	}()
	err = fn(ctx, lease)
	done = true
	if err != nil {
		return settled(err, lease.Rollback(ctx))
	}
	return settled(nil, lease.Commit(ctx))
}

// settled joins the error of a function with that of settling its lease, which the function may have settled itself.
func settled(err, settling error) error {
	if settling == nil || errors.Is(settling, ErrLeaseClosed) {
		return err
	}
	return errors.Join(err, settling)
}

// fail returns what a request gets that failed with err: an outage follows the failure policy.
func (l *RateLimiter) fail(ctx context.Context, op string, r *Request, err error) (*Lease, error) {
	var exceeded *ExceededError
	if errors.As(err, &exceeded) {
		l.stats.rejected.Add(1)
		return nil, exceeded
	}
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return nil, wrap(op, err)
	}
	err = wrap(op, err)
	var outage *UnavailableError
	if !errors.As(err, &outage) {
		return nil, err
	}
	policy := r.OnUnavailable
	if policy == Inherit {
		policy = l.options.policy
	}
	if policy == Inherit {
		policy = FailurePolicy(l.policy.Load())
	}
	if policy != Allow {
		l.stats.unavailable.Add(1)
		return nil, err
	}
	l.stats.degraded.Add(1)
	return &Lease{limiter: l, degraded: true}, nil
}

// maxAttempts bounds the writes of one demand. Only lost races take more than a few.
const maxAttempts = 64

// charge writes the demand of a link to its bucket, alone or together with others. What was taken of which shard, and the
// limits by which it was decided, are noted in the link.
func (l *RateLimiter) charge(ctx context.Context, k *link) error {
	if k.demand.Empty() {
		return nil
	}
	k.asked = k.bucket.calls.Load()
	if !l.options.coalescing {
		return l.chargeAlone(ctx, k)
	}
	return l.ride(ctx, &rider{pool: &k.bucket.pool, link: k})
}

// chargeAlone writes the demand of a link to a shard drawn at random, or where that falls short to others.
func (l *RateLimiter) chargeAlone(ctx context.Context, k *link) error {
	k.parts = nil
	for range maxAttempts {
		s := k.bucket.draw(ctx, l.now().UnixMilli())
		err := l.chargeShard(ctx, k, s, &k.demand)
		if err == nil {
			k.shard = s
			return nil
		}
		var short *shortError
		switch {
		case errors.Is(err, errNoShard):
		case errors.As(err, &short) && k.bucket.divided():
			return l.chargeShards(ctx, k)
		case errors.As(err, &short):
			return short.exceeded(k)
		default:
			return err
		}
	}
	return ErrContended
}

// A shortError says that a shard falls short of a demand, as it was seen at a time.
type shortError struct {
	image *image
	now   int64
}

// Error returns the condition; it never leaves the package.
func (e *shortError) Error() string { return "the shard falls short" }

func (e *shortError) exceeded(k *link) error {
	return exceeded(k.statuses(k.bucket.states(e.image.state()), e.now))
}

// errNoShard says that a shard, other than the first, is not there: it was merged.
var errNoShard = errors.New("no such shard")

// plans are reused: a plan holds its steps, and nothing keeps it once its write is bound.
var plans = sync.Pool{New: func() any { return new(bucket.Plan) }}

// chargeShard writes a demand to one shard: it decides from the last image, sends the write, and on a failed condition
// decides again from the image that came back. It notes later limits in the link when the item shows that they changed.
// An unchecked demand leaves the limits of the item as they are; it is checked where the bucket is divided, since all of
// its shards bear a debt.
//
// A refill stamp is fresh for the demand if it is for the time at which the call began: whoever won a race moved it since,
// or the next one does. So however many writers there are, and however small δ, a call loses a few races, not one to each.
func (l *RateLimiter) chargeShard(ctx context.Context, k *link, s *shard, d *bucket.Demand) error {
	plan := plans.Get().(*bucket.Plan)
	defer plans.Put(plan)
	image := s.image.Load()
	began := l.now().UnixMilli()
	for attempt := range maxAttempts {
		if image == nil {
			var err error
			if image, err = l.meet(ctx, k.bucket, s); err != nil {
				return err
			}
		}
		if !image.exists && s.Shard > 0 {
			return l.lost(ctx, k.bucket, s)
		}
		config := &k.limits.config
		switch {
		case !image.exists:
		case d.Unchecked:
			config = l.options.keep(&image.State)
		case !config.Matches(&image.State):
			var err error
			if k.limits, err = l.recheck(ctx, k.bucket, k.limits, d); err != nil {
				return err
			}
			config = &k.limits.config
		}
		demand := *d
		demand.Unchecked = d.Unchecked && image.Shards <= 1
		now := began
		plan.Decide(image.state(), config, &demand, now)
		if plan.Kind != bucket.Spend && attempt > 0 {
			now = l.now().UnixMilli()
			plan.Decide(image.state(), config, &demand, now)
		}
		switch {
		case plan.Kind == bucket.Reject && (image.call > k.asked || l.trusts(image, now)): // seen since the request came
			return &shortError{image, now}
		case plan.Kind == bucket.Reject: // a read costs a fifth of a write that is bound to fail
			var err error
			if image, err = l.read(ctx, s); err != nil {
				return err
			}
			continue
		case plan.Kind == bucket.Create && d.Unchecked && d.Returns():
			return nil // what is given back to a bucket that is gone is part of the full one that takes its place
		}
		next, applied, err := l.attempt(ctx, s, k.limits.owner, image, plan)
		if err != nil {
			l.strained(ctx, k, s, image, err)
			return err
		}
		if applied {
			if plan.Kind == bucket.Create {
				l.expire(ctx)
			}
			l.balance(ctx, k, s, next)
			return nil
		}
		image = next
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// expire has a store without an expiry of its own delete some of the buckets that have expired, as new ones come.
func (l *RateLimiter) expire(ctx context.Context) {
	s, ok := l.store.(store.Expirer)
	if !ok {
		return
	}
	err := l.call(ctx, func(ctx context.Context) error { return s.Expire(ctx, thousands(l.now().UnixMilli())) })
	if err != nil {
		l.options.logger.Warn("zlimit: expired buckets could not be deleted", "error", err)
	}
}

// attempt sends a plan that was made from an image; it returns the image that it left, or failed on. A plan that moves
// the refill stamp takes turns with those of other goroutines: all but one of them would fail. When another one has
// moved it meanwhile, nothing is sent.
func (l *RateLimiter) attempt(ctx context.Context, s *shard, o owner, from *image, plan *bucket.Plan) (*image, bool, error) {
	if plan.Kind != bucket.Spend {
		leave, err := s.enter(ctx)
		if err != nil {
			return nil, false, err
		}
		defer leave()
		if latest := s.image.Load(); latest != from && latest != nil && latest.newer(from) {
			return latest, false, nil
		}
	}
	w, err := s.write(plan, o)
	if err != nil {
		return nil, false, err
	}
	known, call := s.image.Load(), s.calls.Add(1)
	var result store.Result
	err = l.call(ctx, func(ctx context.Context) error {
		result, err = l.store.Write(ctx, w)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if !result.Applied {
		l.stats.lostRaces.Add(1)
	}
	next, err := s.observe(result.Item, l.now(), call, known)
	return next, result.Applied, err
}

// read returns a shard as the store has it: one consistent read.
func (l *RateLimiter) read(ctx context.Context, s *shard) (*image, error) {
	images, err := l.readAll(ctx, []*shard{s})
	if err != nil {
		return nil, err
	}
	return images[0], nil
}

// readAll returns shards as the store has them: one consistent batch read.
func (l *RateLimiter) readAll(ctx context.Context, shards []*shard) ([]*image, error) {
	keys, known, calls := make([]store.Key, len(shards)), make([]*image, len(shards)), make([]int64, len(shards))
	for i, s := range shards {
		keys[i], known[i], calls[i] = s.key, s.image.Load(), s.calls.Add(1)
	}
	var items []expr.Item
	err := l.call(ctx, func(ctx context.Context) (err error) {
		items, err = l.store.Read(ctx, keys, true)
		return err
	})
	if err != nil {
		return nil, err
	}
	images := make([]*image, len(shards))
	for i, s := range shards {
		if images[i], err = s.observe(items[i], l.now(), calls[i], known[i]); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// call bounds one call of the store by the limiter's timeout.
func (l *RateLimiter) call(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, l.options.callTimeout)
	defer cancel()
	if err := do(bounded); err != nil {
		return l.failed(err, ctx.Err() == nil && bounded.Err() != nil)
	}
	return nil
}

// failed counts what is unknown, and turns the end of the limiter's own timeout, late, into the outage that it is.
func (l *RateLimiter) failed(err error, late bool) error {
	failed := &store.Error{Op: "call", Err: err}
	if known := (*store.Error)(nil); errors.As(err, &known) {
		*failed = *known
	} else if !late {
		return err
	}
	if failed.Unknown {
		l.stats.unknown.Add(1)
	}
	failed.Unavailable = failed.Unavailable || late
	return failed
}

// trusts reports whether an image is recent enough for a rejection from memory.
func (l *RateLimiter) trusts(i *image, now int64) bool {
	age := now - i.seenAt
	return l.options.rejectionCache > 0 && age >= 0 && age <= l.options.rejectionCache.Milliseconds()
}

// pause waits after lost races, with full jitter: not after the first ones, up to 64 ms after many.
func pause(ctx context.Context, attempt int) error {
	if attempt < 2 {
		return ctx.Err()
	}
	longest := time.Millisecond << min(attempt-2, 6)
	return wait.For(ctx, time.Duration(door.Random(ctx, int64(longest))))
}
