package zlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A link is one level of a request: the bucket of the entity, or of one of its parents, and what is taken of it.
type link struct {
	bucket *bucketRef
	limits *resolved
	demand bucket.Demand
	asked  int64  // calls that were made for the bucket before the demand came
	shard  *shard // that was charged, when it was one
	parts  []part // that were charged, when they were several
}

// A part is what was taken of one shard.
type part struct {
	shard   *shard
	amounts []bucket.Amount
}

// maxDepth bounds the entities of a chain.
const maxDepth = 8

// chain returns the links of a request: its entity's, and as long as entities cascade, their parents'. A parent is charged
// for those limits that it has, by its own stored limits. The first link is in space, and asks for the amounts.
func (l *RateLimiter) chain(ctx context.Context, r *Request, space *[1]link, amounts []bucket.Amount) ([]link, error) {
	b := l.bucket(r.Entity, r.Resource)
	limits, err := l.limitsOf(ctx, b, r)
	if err != nil {
		return nil, err
	}
	if err := limits.covers(amounts); err != nil {
		return nil, err
	}
	space[0] = link{bucket: b, limits: limits, demand: bucket.Demand{Amounts: amounts}}
	links := space[:]
	for limits.owner.cascade && limits.owner.parent != "" {
		if len(links) == maxDepth {
			return nil, fmt.Errorf("zlimit: entity %q has more than %d ancestors", r.Entity, maxDepth-1)
		}
		b := l.bucket(limits.owner.parent, r.Resource)
		if limits, err = l.resolve(ctx, b); err != nil {
			return nil, err
		}
		links = append(links, link{bucket: b, limits: limits, demand: bucket.Demand{Amounts: limits.only(links[0].demand.Amounts)}})
	}
	return links, nil
}

// only returns the amounts of those limits that there are.
func (r *resolved) only(amounts []bucket.Amount) []bucket.Amount {
	var known []bucket.Amount
	for _, a := range amounts {
		if r.has(a.Limit) {
			known = append(known, a)
		}
	}
	return known
}

// chargeAll charges every link, or none: what was taken of some is given back when another one fails. Links are charged
// side by side, and none cancels another on its way, whose outcome would be unknown then.
func (l *RateLimiter) chargeAll(ctx context.Context, links []link) error {
	if len(links) == 1 {
		return l.charge(ctx, &links[0])
	}
	if err := l.refused(ctx, links); err != nil {
		return err
	}
	if done, err := l.createAll(ctx, links); done || err != nil {
		return err
	}
	errs := make([]error, len(links))
	var group sync.WaitGroup
	for i := range links {
		group.Go(func() { errs[i] = l.charge(ctx, &links[i]) })
	}
	group.Wait()
	if errors.Join(errs...) == nil {
		return nil
	}
	return l.undo(ctx, links, errs)
}

// refused asks the links whose last images foretell a rejection, before the others are charged and given back: a read for
// each, and the rejection if it is one.
func (l *RateLimiter) refused(ctx context.Context, links []link) error {
	var refusals []*image // by link, once there is one
	now := l.now().UnixMilli()
	for i := range links {
		k := &links[i]
		last := k.bucket.shard(0).image.Load()
		if last == nil || k.bucket.divided() || !k.rejected(last, now) {
			continue
		}
		if !l.trusts(last, now) {
			var err error
			if last, err = l.read(ctx, k.bucket.shard(0)); err != nil {
				return err
			}
		}
		if !k.bucket.divided() && k.rejected(last, now) {
			if refusals == nil {
				refusals = make([]*image, len(links))
			}
			refusals[i] = last
		}
	}
	if refusals == nil {
		return nil
	}
	var statuses Statuses
	for i, refusal := range refusals {
		k := &links[i]
		states := k.bucket.states(nil)
		if refusal != nil {
			states = statesOf([]*image{refusal})
		}
		statuses = append(statuses, k.statuses(states, now)...)
	}
	return exceeded(statuses)
}

// rejected reports whether the demand is rejected on an image, by limits that the image has.
func (k *link) rejected(i *image, now int64) bool {
	if i.exists && !k.limits.config.Matches(&i.State) {
		return false
	}
	var plan bucket.Plan
	plan.Decide(i.state(), &k.limits.config, &k.demand, now)
	return plan.Kind == bucket.Reject
}

// createAll charges links that all have no item yet in one transaction; false when that is not so.
func (l *RateLimiter) createAll(ctx context.Context, links []link) (done bool, err error) {
	now := l.now().UnixMilli()
	writes := make([]store.Write, len(links))
	for i, k := range links {
		first := k.bucket.shard(0)
		image := first.image.Load()
		if image == nil || image.exists || k.demand.Empty() {
			return false, nil
		}
		var plan bucket.Plan
		plan.Decide(nil, &k.limits.config, &k.demand, now)
		if plan.Kind != bucket.Create {
			return false, nil
		}
		if writes[i], err = first.write(&plan, k.limits.owner); err != nil {
			return false, err
		}
	}
	if done, err = l.transact(ctx, writes); !done || err != nil {
		return false, err
	}
	for i := range links {
		links[i].shard = links[i].bucket.shard(0)
		links[i].shard.forget()
	}
	return true, nil
}

// undo gives back what was taken of the links that were charged, and returns why the others were not: a failure of the
// store, or the status of every limit of every link.
func (l *RateLimiter) undo(ctx context.Context, links []link, errs []error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	lost := make([]error, len(links))
	var group sync.WaitGroup
	for i := range links {
		if errs[i] == nil {
			group.Go(func() { lost[i] = l.giveBack(ctx, &links[i]) })
		}
	}
	group.Wait()
	var failures []error
	var statuses Statuses
	for i, err := range errs {
		var exceeded *ExceededError
		switch {
		case errors.As(err, &exceeded):
			statuses = append(statuses, exceeded.Statuses...)
		case err != nil:
			failures = append(failures, err)
		default:
			k := &links[i]
			statuses = append(statuses, k.statuses(k.bucket.states(nil), l.now().UnixMilli())...)
		}
	}
	if err := errors.Join(append(failures, lost...)...); err != nil {
		return err
	}
	return exceeded(statuses)
}

// giveBack returns to each shard what was taken of it.
func (l *RateLimiter) giveBack(ctx context.Context, k *link) error {
	var errs []error
	for _, p := range k.returns() {
		errs = append(errs, l.correct(ctx, k, p.shard, p.amounts))
	}
	return errors.Join(errs...)
}

// correct writes an unchecked demand to a shard, alone or together with others.
func (l *RateLimiter) correct(ctx context.Context, k *link, s *shard, amounts []bucket.Amount) error {
	d := bucket.Demand{Amounts: amounts}
	if d.Empty() {
		return nil
	}
	if s == nil {
		s = k.bucket.draw(ctx, l.now().UnixMilli())
	}
	if !l.options.coalescing {
		return l.correctAlone(ctx, k, s, amounts)
	}
	return l.ride(ctx, &rider{pool: &s.pool, link: k, shard: s, more: amounts})
}

// correctAlone writes an unchecked demand to a shard, or when that was merged to the one that has its tokens now.
func (l *RateLimiter) correctAlone(ctx context.Context, k *link, s *shard, amounts []bucket.Amount) error {
	d := bucket.Demand{Amounts: amounts, Unchecked: true}
	for {
		err := l.chargeShard(ctx, k, s, &d)
		var short *shortError
		switch {
		case errors.Is(err, errNoShard):
			s = k.bucket.shard(origin(s.Shard))
		case errors.As(err, &short):
			return l.spread(ctx, k, s, amounts)
		default:
			return err
		}
	}
}

func negated(amounts []bucket.Amount) []bucket.Amount {
	negative := make([]bucket.Amount, len(amounts))
	for i, a := range amounts {
		negative[i] = bucket.Amount{Limit: a.Limit, Tokens: -a.Tokens}
	}
	return negative
}

// exceeded returns the error of a rejection, the strictest limit first: those that can never admit the request, then
// those that take longest.
func exceeded(statuses Statuses) *ExceededError {
	slices.SortStableFunc(statuses, func(a, b Status) int {
		return cmp.Compare(b.strictness(), a.strictness())
	})
	return &ExceededError{statuses}
}

// strictness orders statuses.
func (s *Status) strictness() time.Duration {
	if s.Exceeded && !s.Possible() {
		return 1<<63 - 1
	}
	return s.RetryAfter
}
