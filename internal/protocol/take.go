package protocol

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Request asks for tokens of the limits of one entity and resource, and of the parents that the entity cascades to.
type Request struct {
	Entity, Resource string
	Amounts          []bucket.Amount // millitokens, each limit once; kept by the receipt
	Own              *Limits         // in place of the stored ones; nil for those
}

// A level is the bucket of the entity of a request, or of one of its parents. It says what is taken of that bucket, and
// by which limits. A level is never changed: when a part of one turns out to be outdated, all levels are made anew.
type level struct {
	bucket *Bucket
	limits *Limits
	demand bucket.Demand
	began  int64 // epoch when the request came
}

// MaxDepth bounds the levels of a request.
const MaxDepth = 8

// maxRestarts bounds how often the levels of one request are made. Each time, limits were changed by others, or tokens
// came back and were taken again.
const maxRestarts = table.MaxAttempts

// Take takes what a request asks of all its levels, or of none, and notes it in an empty receipt. Its errors are:
//   - a [*RejectedError] when a limit falls short;
//   - a [*NoLimitsError], [*UnknownLimitError], [*DepthError] or [*CrowdedError] for a request that cannot be decided;
//   - [ErrContended], and errors of the store or the context.
func (e *Engine) Take(ctx context.Context, r *Request, to *Receipt) error {
	if err := ctx.Err(); err != nil {
		return err // a rejection from memory would not notice
	}
	began := e.NextEpoch()
	for attempt := range maxRestarts {
		levels, err := e.levels(ctx, r, began, to.levelSpace[:0])
		if err != nil {
			return err
		}
		takings := to.takingSpace[:]
		if len(levels) > 1 {
			takings = make([]taking, len(levels))
		}
		err = e.takeLevels(ctx, levels, takings)
		if err == nil {
			to.takings = takings
			return nil
		}
		if !errors.Is(err, errOutdated) && !errors.Is(err, errRoom) {
			return err
		}
		if err := e.table.Pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// levels appends the levels of a request: its entity's, and as long as entities cascade, their parents'. A parent is
// charged by its own stored limits, for those limits of the request that it has.
func (e *Engine) levels(ctx context.Context, r *Request, began int64, levels []level) ([]level, error) {
	first, err := e.firstLevel(ctx, r, began)
	if err != nil {
		return nil, err
	}
	levels = append(levels, first)
	for owner := first.limits.Owner; owner.Cascade && owner.Parent != ""; owner = levels[len(levels)-1].limits.Owner {
		if len(levels) == MaxDepth {
			return nil, &DepthError{r.Entity}
		}
		b := e.Bucket(owner.Parent, r.Resource)
		limits, err := e.options.Source.For(ctx, b)
		if err != nil {
			return nil, err
		}
		levels = append(levels, level{b, limits, bucket.Demand{Amounts: limits.only(r.Amounts)}, began})
	}
	return levels, nil
}

// firstLevel returns the level of the entity itself.
func (e *Engine) firstLevel(ctx context.Context, r *Request, began int64) (level, error) {
	b := e.Bucket(r.Entity, r.Resource)
	limits, err := e.limitsOf(ctx, b, r)
	if err != nil {
		return level{}, err
	}
	for _, a := range r.Amounts {
		if !limits.Config.Has(a.Limit) {
			return level{}, &UnknownLimitError{a.Limit, limits.Config.Params}
		}
	}
	return level{b, limits, bucket.Demand{Amounts: r.Amounts}, began}, nil
}

// limitsOf returns the limits that hold for a request: its own, with the stored owner, or the stored ones. Only a
// consistent read can tell that no limits are stored.
func (e *Engine) limitsOf(ctx context.Context, b *Bucket, r *Request) (*Limits, error) {
	stored, err := e.options.Source.For(ctx, b)
	switch {
	case err != nil:
		return nil, err
	case r.Own != nil && r.Own.Owner == stored.Owner:
		return r.Own, nil
	case r.Own != nil:
		own := *r.Own
		own.Owner = stored.Owner
		return &own, nil
	case len(stored.Config.Params) == 0 && stored.Epoch == 0: // by a read that may be moments behind
		if stored, err = e.options.Source.After(ctx, b, e.NextEpoch()); err != nil {
			return nil, err
		}
		if len(stored.Config.Params) > 0 {
			return stored, nil
		}
		return nil, &NoLimitsError{b.Entity, b.Resource}
	case len(stored.Config.Params) == 0:
		return nil, &NoLimitsError{b.Entity, b.Resource}
	default:
		return stored, nil
	}
}

// only returns the amounts of those limits that are configured.
func (l *Limits) only(amounts []bucket.Amount) []bucket.Amount {
	if !slices.ContainsFunc(amounts, func(a bucket.Amount) bool { return !l.Config.Has(a.Limit) }) {
		return amounts
	}
	var known []bucket.Amount
	for _, a := range amounts {
		if l.Config.Has(a.Limit) {
			known = append(known, a)
		}
	}
	return known
}

// takeLevels takes from every level, or from none: what was taken of some is given back when another one falls short.
// It takes from all levels side by side. None cancels another that is under way, since the outcome of that one would be
// unknown then.
func (e *Engine) takeLevels(ctx context.Context, levels []level, takings []taking) error {
	if len(levels) == 1 {
		err := e.take(ctx, &levels[0], &takings[0])
		if errors.Is(err, errShort) {
			err = e.refuse(ctx, levels, true)
		}
		return err
	}
	if e.foreseen(levels) {
		if err := e.refuse(ctx, levels, false); !errors.Is(err, errRoom) {
			return err
		}
	}
	if done, err := e.createLevels(ctx, levels, takings); done || err != nil {
		return err
	}
	errs := make([]error, len(levels))
	var group errgroup.Group // the zero group cancels no other goroutine
	for i := range levels {
		group.Go(func() error {
			errs[i] = e.take(ctx, &levels[i], &takings[i])
			return errs[i]
		})
	}
	if group.Wait() == nil {
		return nil
	}
	e.compensate(ctx, takings, errs)
	return e.failure(ctx, levels, errs)
}

// failure returns why levels were not taken from. A level that falls short rejects the request, whatever became of the
// others. The request would be rejected, too, if they had answered.
func (e *Engine) failure(ctx context.Context, levels []level, errs []error) error {
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, errShort) }) {
		return e.refuse(ctx, levels, true)
	}
	var outdated, failures []error
	for _, err := range errs {
		if errors.Is(err, errOutdated) {
			outdated = append(outdated, err)
		} else if err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	return errors.Join(outdated...)
}

// compensate gives back what was taken of those levels that did not fail. It outlives the caller's context.
func (e *Engine) compensate(ctx context.Context, takings []taking, errs []error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.SettleLimit)
	defer cancel()
	var group errgroup.Group
	for i := range takings {
		if errs[i] == nil {
			group.Go(func() error {
				e.giveBack(ctx, &takings[i])
				return nil
			})
		}
	}
	_ = group.Wait() // the functions return no error
}

// giveBack returns what was taken of one level. A failure is counted and logged: it changes nothing for the request.
func (e *Engine) giveBack(ctx context.Context, t *taking) {
	if err := e.settleAll(ctx, &Settlement{due: t.returns(nil)}); err != nil {
		e.Unreturned.Add(1)
		e.options.Logger.Warn("zlimit: tokens of a request that was not admitted could not be given back",
			"entity", t.bucket.Entity, "resource", t.bucket.Resource, "error", err)
	}
}

// createLevels takes from levels none of which has an item yet, in one transaction. It returns false when a level has
// one.
func (e *Engine) createLevels(ctx context.Context, levels []level, takings []taking) (done bool, err error) {
	now := e.now()
	writes, plans := make([]store.Write, len(levels)), make([]bucket.Plan, len(levels))
	for i := range levels {
		l := &levels[i]
		first := l.bucket.shard(0)
		if image := first.image.Load(); image == nil || image.exists || l.demand.Empty() {
			return false, nil
		}
		plans[i].Decide(nil, &l.limits.Config, &l.demand, now)
		if plans[i].Kind != bucket.Create {
			return false, nil
		}
		if writes[i], err = first.Write(&plans[i], l.limits.Owner); err != nil {
			return false, err
		}
		e.unlist(&writes[i])
	}
	by := e.newCall()
	results, err := e.table.TryTransact(ctx, writes)
	if err != nil || results == nil || !table.Applied(results) {
		return false, err
	}
	for i := range levels {
		first := levels[i].bucket.shard(0)
		created := plans[i].Item
		created.Limits = slices.Clone(created.Limits) // they lie in the memory of the plan
		first.remember(&image{
			State: created, exists: true, listed: !e.table.Partitioned() || e.options.Mixed, seenAt: now, call: by, arrived: e.NextEpoch(),
		}, nil)
		e.list(ctx, first, first.image.Load(), true)
		takings[i].took(&levels[i], first, levels[i].demand.Amounts)
	}
	return true, nil
}

// take takes the demand of one level, alone or together with other callers. It returns errShort when the level falls
// short, as it was seen since the request came, or within the age of a rejection from memory. A write
// that the store throttles is tried again at the pace of the bucket's writes, where other processes write the bucket often.
func (e *Engine) take(ctx context.Context, l *level, to *taking) (err error) {
	if l.demand.Empty() {
		to.took(l, nil, l.demand.Amounts)
		return nil
	}
	if e.options.WritesAtOnce == 0 {
		return e.takeDirect(ctx, l, to)
	}
	for range patience + 1 {
		if err = e.takeInTurn(ctx, l, to); !l.bucket.queue.triesAgain(err) {
			break
		}
	}
	return err
}

// takeInTurn takes the demand of a level by a write of its own, or one that it shares with other callers. A rejection that
// takes no call does not wait for the turn of one.
func (e *Engine) takeInTurn(ctx context.Context, l *level, to *taking) error {
	q := &l.bucket.queue
	if q.begin(&e.items) {
		defer e.finish(ctx, q)
		return e.takeDirect(ctx, l, to)
	}
	if q.pace.isClosed(&e.items) && e.isShort(l) {
		return errShort
	}
	return e.shareWrite(ctx, &waiter{queue: q, level: l, taking: to})
}

// takeDirect takes the demand of a level, and notes how the store takes the writes of the bucket.
func (e *Engine) takeDirect(ctx context.Context, l *level, to *taking) error {
	err := e.takeAnywhere(ctx, l, to)
	l.bucket.queue.ended(&e.items, err)
	return err
}

// takeAnywhere takes the demand of a level from a shard drawn at random, or where that falls short from several.
func (e *Engine) takeAnywhere(ctx context.Context, l *level, to *taking) error {
	for range table.MaxAttempts {
		s := e.draw(l.bucket)
		if e.isUneven(l, s) {
			if done, err := e.takeEvenly(ctx, l, to); done || err != nil {
				return err
			}
		}
		err := e.takeFromShard(ctx, l, s)
		switch {
		case err == nil:
			to.took(l, s, l.demand.Amounts)
			return nil
		case errors.Is(err, errNoShard):
		case errors.Is(err, errShort) && l.bucket.divided():
			return e.takeFromShards(ctx, l, to)
		default:
			return err
		}
	}
	return ErrContended
}
