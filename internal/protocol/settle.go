package protocol

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Receipt is a ledger of what was taken: per level, shard and limit. Its zero value is one of nothing. It must not be
// copied while a take is under way.
type Receipt struct {
	takings []taking

	levelSpace  [1]level // for the most frequent case: one level, one shard
	takingSpace [1]taking
}

// A taking is what was taken of one level.
type taking struct {
	bucket *Bucket
	limits *Limits        // by which it was taken
	parts  []shardAmounts // each shard once

	partSpace [1]shardAmounts
}

// shardAmounts are amounts taken of one shard, each limit once.
type shardAmounts struct {
	shard   *shard
	amounts []bucket.Amount
}

// took notes what was taken of a shard of a level. The shard is nil for a level that nothing was taken of so far.
func (t *taking) took(l *level, s *shard, amounts []bucket.Amount) {
	t.bucket, t.limits, t.parts = l.bucket, l.limits, nil
	if s != nil {
		t.partSpace[0] = shardAmounts{s, amounts}
		t.parts = t.partSpace[:]
	}
}

// Limits returns the limits of the entity itself by which the request was taken, nil for a receipt of nothing.
func (r *Receipt) Limits() *Limits {
	if len(r.takings) == 0 {
		return nil
	}
	return r.takings[0].limits
}

// Entity returns the entity of the request, "" for a receipt of nothing.
func (r *Receipt) Entity() string {
	if len(r.takings) == 0 {
		return ""
	}
	return r.takings[0].bucket.Entity
}

// Resource returns the resource of the request, "" for a receipt of nothing.
func (r *Receipt) Resource() string {
	if len(r.takings) == 0 {
		return ""
	}
	return r.takings[0].bucket.Resource
}

// Request returns the request that asks for more of what the receipt is about. The receipt is not one of nothing.
func (r *Receipt) Request(amounts []bucket.Amount) Request {
	t := &r.takings[0]
	more := Request{Entity: t.bucket.Entity, Resource: t.bucket.Resource, Amounts: amounts}
	if t.limits.Own {
		more.Own = t.limits
	}
	return more
}

// Add adds what was taken by a later request of the same entity and resource, and the levels that it has more. It returns
// a [*bucket.OverflowError] when that is more than can be counted, and leaves the receipt as it is.
func (r *Receipt) Add(more *Receipt) error {
	total := slices.Clone(r.takings)
	for _, m := range more.takings {
		at := slices.IndexFunc(total, func(t taking) bool { return t.bucket.Entity == m.bucket.Entity })
		if at < 0 {
			total = append(total, m)
			continue
		}
		if err := total[at].add(&m); err != nil {
			return err
		}
	}
	r.takings = total
	return nil
}

// add adds what was taken of the same level later, perhaps when the engine had forgotten its bucket and seen it anew. Each
// shard stays one part, so that a correction names a limit once.
func (t *taking) add(more *taking) (err error) {
	t.limits, t.parts = more.limits, slices.Clone(t.parts)
	for _, p := range more.parts {
		at := slices.IndexFunc(t.parts, func(known shardAmounts) bool { return known.shard.Shard == p.shard.Shard })
		if at < 0 {
			t.parts = append(t.parts, shardAmounts{t.bucket.shard(p.shard.Shard), p.amounts})
			continue
		}
		if t.parts[at].amounts, err = bucket.Sum(t.parts[at].amounts, p.amounts); err != nil {
			return err
		}
	}
	_, err = t.total()
	return err
}

// total returns what was taken of all shards.
func (t *taking) total() (total []bucket.Amount, err error) {
	if len(t.parts) == 1 {
		return t.parts[0].amounts, nil
	}
	for _, p := range t.parts {
		if total, err = bucket.Sum(total, p.amounts); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// A Settlement is what is still to be written to correct a receipt. It is not safe for concurrent use.
type Settlement struct{ due []correction }

// A correction is what is due to one shard of a level.
type correction struct {
	bucket  *Bucket
	limits  *Limits
	shard   *shard // nil for any
	amounts []bucket.Amount
}

// Done reports whether nothing is due any more.
func (s *Settlement) Done() bool { return len(s.due) == 0 }

// Return returns the settlement that gives back all that was taken.
func (r *Receipt) Return() Settlement {
	var s Settlement
	for i := range r.takings {
		s.due = r.takings[i].returns(s.due)
	}
	return s
}

// returns appends the corrections that give back what was taken of a level.
func (t *taking) returns(due []correction) []correction {
	for _, p := range t.parts {
		if d := (bucket.Demand{Amounts: p.amounts}); !d.Empty() {
			due = append(due, correction{t.bucket, t.limits, p.shard, bucket.Negated(p.amounts)})
		}
	}
	return due
}

// Correct returns the settlement of corrections of what the entity itself consumed: positive for more, negative for
// less. Each level is charged for those limits that it had when it was taken from. Each shard gets back at most what it
// gave.
func (r *Receipt) Correct(amounts []bucket.Amount) Settlement {
	var s Settlement
	for i := range r.takings {
		s.due = r.takings[i].corrections(s.due, amounts)
	}
	return s
}

// corrections appends the corrections of one level.
func (t *taking) corrections(due []correction, amounts []bucket.Amount) []correction {
	first := len(due)
	add := func(s *shard, a bucket.Amount) {
		for i := range due[first:] {
			if c := &due[first+i]; c.shard == s {
				c.amounts = append(c.amounts, a)
				return
			}
		}
		due = append(due, correction{t.bucket, t.limits, s, []bucket.Amount{a}})
	}
	for _, a := range amounts {
		if a.Tokens > 0 && t.limits.Config.Has(a.Limit) {
			var s *shard
			if len(t.parts) > 0 {
				s = t.parts[0].shard
			}
			add(s, a)
		}
		for at := len(t.parts) - 1; at >= 0 && a.Tokens < 0; at-- {
			back := min(-a.Tokens, bucket.Of(t.parts[at].amounts, a.Limit))
			if back > 0 {
				add(t.parts[at].shard, bucket.Amount{Limit: a.Limit, Tokens: -back})
				a.Tokens += back
			}
		}
	}
	return due
}

// Settle writes what is due, to every shard side by side, bounded by the context. A correction that provably was not
// written stays due, and the next call writes it. The error joins those of all shards.
func (e *Engine) Settle(ctx context.Context, s *Settlement) error {
	if len(s.due) == 0 {
		return nil
	}
	return e.settleAll(ctx, s)
}

func (e *Engine) settleAll(ctx context.Context, s *Settlement) error {
	errs := make([]error, len(s.due))
	if len(s.due) == 1 {
		errs[0] = e.settle(ctx, &s.due[0])
	} else {
		var group errgroup.Group
		for i := range s.due {
			group.Go(func() error {
				errs[i] = e.settle(ctx, &s.due[i])
				return nil
			})
		}
		_ = group.Wait() // the errors are in errs
	}
	var due []correction
	for i, err := range errs {
		if err != nil && !IsUnknown(err) {
			due = append(due, s.due[i])
		}
	}
	s.due = due
	return errors.Join(errs...)
}

// settle writes a correction, alone or together with those of other callers. It is never rejected: it may leave a debt. What the
// store throttles it tries again: unlike a request, it has no policy for that.
func (e *Engine) settle(ctx context.Context, c *correction) (err error) {
	if d := (bucket.Demand{Amounts: c.amounts}); d.Empty() {
		return nil
	}
	s := c.shard
	if b := e.current(c.bucket); b != c.bucket {
		c = &correction{b, c.limits, nil, c.amounts}
		if s != nil {
			s = b.shard(s.Shard)
		}
	}
	if s == nil {
		s = e.draw(c.bucket)
	}
	for range patience + 1 {
		if err = e.settleInTurn(ctx, c, s); !s.queue.triesAgain(err) {
			break
		}
	}
	return err
}

// settleInTurn writes a correction by a write of its own, or one that it shares with other callers. Where no writes are shared,
// the correction waits for the pace of the shard's writes alone.
func (e *Engine) settleInTurn(ctx context.Context, c *correction, s *shard) error {
	q := &s.queue
	if e.options.WritesAtOnce == 0 {
		if err := e.table.Sleep(ctx, q.pace.rest(&e.items)); err != nil {
			return err
		}
		return e.settleDirect(ctx, c, s, c.amounts)
	}
	if q.begin(&e.items) {
		defer e.finish(ctx, q)
		return e.settleDirect(ctx, c, s, c.amounts)
	}
	return e.shareWrite(ctx, &waiter{queue: q, correction: c, shard: s})
}

// settleDirect writes a correction, and notes how the store takes the writes of the shard.
func (e *Engine) settleDirect(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount) error {
	err := e.settleAnywhere(ctx, c, s, amounts)
	s.queue.ended(&e.items, err)
	return err
}

// settleAnywhere writes a correction to a shard, or when that was merged to the one that has its tokens now. Where a
// shard of a divided bucket falls short, all of them pay, since a debt of one alone would not hold the others back.
func (e *Engine) settleAnywhere(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount) error {
	for {
		err := e.settleOnShard(ctx, c, s, amounts)
		switch {
		case errors.Is(err, errNoShard):
			s = c.bucket.shard(bucket.Origin(s.Shard))
		case errors.Is(err, errShort):
			return e.settleAcrossShards(ctx, c, s, amounts)
		default:
			return err
		}
	}
}

// settleOnShard writes a correction to one shard, whose limits stay what they are. It returns errShort for a debt of a
// divided bucket. Tokens that are given back to a bucket that is gone are part of the full one that takes its place.
func (e *Engine) settleOnShard(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount) error {
	plan := plans.Get().(*bucket.Plan)
	defer plans.Put(plan)
	image := s.image.Load()
	began := e.now()
	for attempt := range table.MaxAttempts {
		if image == nil {
			var err error
			if image, err = e.loadShard(ctx, c.bucket, s, attempt > 0); err != nil {
				return err
			}
		}
		d := bucket.Demand{Amounts: amounts, Unchecked: true}
		config := &c.limits.Config
		switch {
		case !image.exists && s.Shard > 0:
			return e.shardMissing(ctx, c.bucket, s)
		case image.exists:
			config = e.keep(&image.State)
			d.Unchecked = image.Count() == 1
		case d.Returns() && (attempt > 0 || image.asked > 0):
			return nil
		case d.Returns(): // as far as a read that may be moments behind tells
			next, err := e.readShard(ctx, s)
			if err != nil {
				return err
			}
			image = next
			continue
		}
		now := e.judgedAt(config, image, began)
		plan.Decide(image.state(), config, &d, now)
		if plan.Kind != bucket.Spend && attempt > 0 {
			now = e.now()
			plan.Decide(image.state(), config, &d, now)
		}
		if !plan.Writes() {
			return errShort
		}
		next, applied, err := e.write(ctx, s, c.limits.Owner, image, plan, e.now())
		if err != nil || applied {
			return err
		}
		image = next
		if err := e.table.Pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// settleAcrossShards charges a correction to all shards of a bucket, in one transaction.
func (e *Engine) settleAcrossShards(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount) error {
	return e.table.Optimistic(ctx, func() (bool, error) {
		l := level{bucket: c.bucket, limits: c.limits, began: e.NextEpoch()}
		seen := e.seenSince(l.began)
		if err := e.readStale(ctx, []level{l}, seen); err != nil {
			return false, err
		}
		v := e.view(c.bucket, seen)
		if v.isWhole() {
			err := e.settleOnShard(ctx, c, c.bucket.shard(0), amounts)
			return err == nil, unlessMoved(err)
		}
		parts, ok := bucket.Spread(e.keep, v.states, max(slices.Index(v.shards, s), 0), amounts, e.now())
		if !ok {
			return false, nil
		}
		var paid taking
		return e.writeParts(ctx, &l, v.shards, parts, &paid)
	})
}

// statusSpaces are reused: nothing keeps what is told.
var statusSpaces = sync.Pool{New: func() any { return new(statusSpace) }}

type statusSpace struct {
	states   []*bucket.State
	statuses []bucket.Status
}

// Statuses tells where the limits of each level of a receipt stand, as this process last saw them, with what was taken as
// what was requested. The list is valid during the call. It makes no call of the store, and allocates nothing for what one
// shard took.
func (e *Engine) Statuses(r *Receipt, tell func(entity, resource string, statuses []bucket.Status)) {
	now := e.now()
	space := statusSpaces.Get().(*statusSpace)
	defer statusSpaces.Put(space)
	for i := range r.takings {
		t := &r.takings[i]
		space.states, _ = e.current(t.bucket).states(space.states[:0])
		space.statuses = t.limits.Config.Statuses(space.statuses[:0], space.states, &nothingAsked, now)
		clear(space.states)   // which the pool must not keep alive
		total, _ := t.total() // it was added up before
		for j := range space.statuses {
			space.statuses[j].Requested = bucket.Of(total, space.statuses[j].Name)
		}
		tell(t.bucket.Entity, t.bucket.Resource, space.statuses)
	}
}

// nothingAsked is the demand of who only looks.
var nothingAsked bucket.Demand
