package protocol

import (
	"context"
	"errors"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A settler writes corrections of receipts.
type settler struct {
	*core
	items      *items
	looks      *looks
	aligner    *aligner
	lister     *lister
	memory     *Memory
	slotKeeper *slotKeeper
	shared     sharing[*payment]
}

// settleAll is [Engine.Settle].
func (st *settler) settleAll(ctx context.Context, s *Settlement) error {
	if len(s.holds) == 0 {
		return st.settleTokens(ctx, s)
	}
	return errors.Join(st.settleBoth(ctx, s))
}

// settleBoth is settleAll with separate errors for tokens and slots. Slots are released by the write that corrects tokens of the same item.
// If there is none, they have a separate write.
func (st *settler) settleBoth(ctx context.Context, s *Settlement) (tokens, slots error) {
	holds := carry(s)
	var group errgroup.Group
	group.Go(func() error {
		tokens = st.settleTokens(ctx, s)
		return nil
	})
	kept, slots := st.leave(ctx, holds)
	_ = group.Wait() // the error is in tokens
	for i := range s.due {
		s.due[i].holds = nil
	}
	if tokens != nil {
		s.holds = heldOf(s.holds, nil)
		return tokens, slots
	}
	rest, err := st.leave(ctx, heldOf(s.holds, kept)) // slots that were not written with tokens after all
	s.holds = slices.Concat(kept, rest)
	return tokens, errors.Join(slots, err)
}

// carry moves slots of a settlement into the corrections whose writes can release them. It returns the others.
func carry(s *Settlement) (others []*Hold) {
	for _, h := range s.holds {
		at := slices.IndexFunc(s.due, func(c correction) bool {
			return c.bucket == h.bucket && !h.bucket.isSplit() && (c.shard == nil || c.shard.Shard == 0)
		})
		if at < 0 {
			others = append(others, h)
			continue
		}
		s.due[at].holds = append(s.due[at].holds, h)
	}
	return others
}

// leave releases slots, and returns the ones that provably were not released.
func (st *settler) leave(ctx context.Context, holds []*Hold) (kept []*Hold, err error) {
	if len(holds) == 0 {
		return nil, nil
	}
	err = st.withinLimit(ctx, func(ctx context.Context) (err error) {
		kept, err = st.slotKeeper.release(ctx, holds)
		return err
	})
	return kept, err
}

// settleTokens is settleAll for the tokens.
func (st *settler) settleTokens(ctx context.Context, s *Settlement) error {
	if len(s.due) == 0 {
		return nil
	}
	errs := make([]error, len(s.due))
	if len(s.due) == 1 {
		errs[0] = st.settle(ctx, &s.due[0])
	} else {
		var group errgroup.Group
		for i := range s.due {
			group.Go(func() error {
				errs[i] = st.settle(ctx, &s.due[i])
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
	return Joined(errs...)
}

// settle writes a correction, in a separate or a shared write. A correction is never rejected, since it may leave a debt. Unlike a request,
// it has no failure policy, so it is retried after throttles. If the settle limit ends it, that is an outage.
func (st *settler) settle(ctx context.Context, c *correction) error {
	if d := (bucket.Demand{Amounts: c.amounts}); d.Empty() {
		return nil
	}
	s := c.shard
	if b := st.memory.current(c.bucket); b != c.bucket {
		c = &correction{bucket: b, limits: c.limits, amounts: c.amounts, lives: c.lives}
		if s != nil {
			s = b.shard(s.Shard)
		}
	}
	if s == nil {
		s = st.items.draw(c.bucket, new(lot))
	}
	return st.withinLimit(ctx, func(ctx context.Context) error {
		return st.shared.patiently(ctx, &s.queue, false, func() error { return st.settleInTurn(ctx, c, s) })
	})
}

// withinLimit calls a function that writes a correction. If the settle limit ends the function, and not its context, that is an outage. The
// error of the function still shows whether the correction may have been written.
func (st *settler) withinLimit(ctx context.Context, settle func(context.Context) error) error {
	return (*store.Gate)(nil).Do(table.Insist(ctx), st.options.SettleLimit, settle)
}

// settleInTurn writes a correction by a separate write, or by a write that other callers share. If writes are not shared, the correction
// waits only for the pace of the shard's writes.
func (st *settler) settleInTurn(ctx context.Context, c *correction, s *shard) error {
	q := &s.queue
	if st.options.WritesAtOnce == 0 {
		if err := st.table.Sleep(ctx, q.pace.rest(st.core)); err != nil {
			return err
		}
		return st.settleDirect(ctx, c, s, c.amounts, c.holds)
	}
	if round, ok := q.begin(st.core); ok {
		defer st.shared.finish(ctx, q, round)
		return st.settleDirect(ctx, c, s, c.amounts, c.holds)
	}
	return st.shared.await(ctx, q, &payment{c, s})
}

// settleDirect writes a correction, and notes whether the store throttled it. It releases slots if the same write can.
func (st *settler) settleDirect(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount, holds []*Hold) error {
	var err error
	if len(holds) == 0 {
		_, err = st.settleAnywhere(ctx, c, s, amounts, nil)
	} else {
		err = st.slotKeeper.leaveAlong(ctx, s.bucket, holds, func(ctx context.Context, round []*Hold) (bool, error) {
			return st.settleAnywhere(ctx, c, s, amounts, round)
		})
	}
	s.queue.ended(st.core, err, false)
	return err
}

var _ writer[*payment] = (*settler)(nil)

// write implements [writer].
func (st *settler) write(ctx context.Context, p *payment) error {
	return st.settleDirect(ctx, p.correction, p.on, p.amounts, p.holds)
}

// writeTogether writes the corrections of waiters on one shard in one write, and delivers its outcome to all of them.
func (st *settler) writeTogether(ctx context.Context, q *queue[*payment], waiters []*waiter[*payment]) {
	first := waiters[0].job
	total, holds := first.amounts, slices.Clone(first.holds)
	for i, w := range waiters[1:] {
		next, err := bucket.Sum(total, w.job.amounts)
		if err != nil { // the sum overflows
			st.writeTogether(ctx, q, waiters[i+1:])
			waiters = waiters[:i+1]
			break
		}
		total, holds = next, append(holds, w.job.holds...)
	}
	var err error
	if d := (bucket.Demand{Amounts: total}); !d.Empty() {
		err = st.withinLimit(ctx, func(ctx context.Context) error {
			return st.settleDirect(ctx, first.correction, first.on, total, holds)
		})
	}
	st.shared.deliver(ctx, q, waiters, err)
}

// undo implements [writer]. It does nothing, since no caller leaves a settlement that is under way.
func (*settler) undo(context.Context, *payment) {}

// settleAnywhere writes a correction to a shard. After a merge, it uses the shard that now has the tokens. If a shard of a split bucket
// falls short, all shards pay, since a debt of one shard would not stop the others from admitting requests. If the shard has no room for a
// refund, the others get the remainder. It reports whether slots were released by the same write.
//
// In a bucket with many writers, a transaction loses races and is throttled. Then only this shard goes into debt. Over time that happens to
// all shards alike, since requests are spread over them. A small debt is not worth many tries. If no shard has room for a refund, a
// transaction is not worth its price either: only this shard counts the refund. If another shard has room for the whole refund, that shard
// gets it.
func (st *settler) settleAnywhere(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount, holds []*Hold) (left bool, err error) {
	var refused error // the throttle of the transaction
	passed := false
	for alone := (tolerance{}); ; {
		left, err := st.settleOnShard(ctx, c, s, amounts, holds, alone)
		switch {
		case errors.Is(err, errNoShard):
			s = c.bucket.shard(bucket.Origin(s.Shard))
		case errors.Is(err, errShort) && refused != nil: // it has no room for the refund
			return false, refused
		case errors.Is(err, errShort) && !alone.refund && st.isFull(ctx, c, s, amounts):
			alone.refund = true
		case errors.Is(err, errShort) && !passed:
			if to, _ := st.passOn(c, s, amounts); to != nil {
				s, holds = to, nil // the slots belong to the first shard
			}
			passed = true
		case errors.Is(err, errShort) && !alone.debt && st.isStrained(c.bucket) && isSmallDebt(c, s, amounts):
			alone.debt = true
		case errors.Is(err, errShort):
			tries := table.MaxAttempts
			if isSmallDebt(c, s, amounts) {
				tries = maxSpreads
			}
			if refused = st.settleAcrossShards(ctx, c, s, amounts, tries); !IsThrottled(refused) && !errors.Is(refused, ErrContended) {
				return false, refused
			}
			alone.debt = true
		default:
			return left, err
		}
	}
}

// A tolerance states which amounts one shard of a split bucket may absorb by itself.
type tolerance struct {
	debt   bool // a debt
	refund bool // a refund that no shard has room for, which it only counts
}

// asks adapts the demand of a correction to a shard. It reports whether the shard has any of its limits.
func (b tolerance) asks(d *bucket.Demand, lives []bucket.Life, s *bucket.State) bool {
	if d.GiveBack(d.Amounts, lives, s); d.Empty() {
		return false
	}
	if d.Unchecked = b.debt || s.Count() == 1; b.refund {
		d.CountOnly()
	}
	return true
}

// passOn returns another shard that, as last seen, has room for a whole refund; nil if none has. The lives of its limits are those that the
// tokens were taken from. passOn also reports whether no shard, including s, has any room.
func (st *settler) passOn(c *correction, s *shard, amounts []bucket.Amount) (to *shard, full bool) {
	home, d := s.last().state(), bucket.Demand{Amounts: amounts}
	if !d.Returns() || home == nil {
		return nil, false
	}
	d.GiveBack(amounts, c.lives, home)
	now, found := st.now(), 0
	some, _ := st.items.keep(home).TakesBack(home, home, &d, now)
	full = !some
	c.bucket.walk((*shard).last, func(o *shard, i *image) {
		switch {
		case o == s:
		case i == nil:
			full = false
		case i.exists:
			some, all := st.items.keep(&i.State).TakesBack(&i.State, home, &d, now)
			full = full && !some
			var there bucket.Demand
			there.GiveBack(amounts, c.lives, &i.State)
			isSame := len(d.Amounts) == len(amounts) && len(there.Amounts) == len(amounts)
			if found++; all && isSame && (to == nil || st.table.IntN(found) == 0) { // different processes choose different shards
				to = o
			}
		}
	})
	return to, full && found > 0
}

// isFull reports whether no shard has room for a refund that is refilled within the age of a rejection from memory. It uses the images in
// memory with the refill since, and the limits of the shard. The images of the shard and of one other shard must not be older than that
// age. If they are, it reads both; the other one is the shard whose image is oldest. Tokens that others took within that age are refilled
// as fast.
func (st *settler) isFull(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount) bool {
	if !st.looksFull(c, s, amounts) {
		return false
	}
	isRecent := func(o *shard) bool { i := o.last(); return i != nil && st.items.isRecent(o, i, st.now()) }
	oldest, since, seen := s, int64(math.MaxInt64), false
	c.bucket.walk((*shard).last, func(o *shard, i *image) {
		if o == s {
			return
		}
		asked := int64(0) // a shard that has just split off
		if i != nil {
			asked = i.askedAt
		}
		if asked < since {
			oldest, since = o, asked
		}
		seen = seen || isRecent(o)
	})
	if seen && since > 0 && isRecent(s) {
		return true
	}
	w := st.looks.sharing.Sharer()
	_, err := st.looks.lookAt(ctx, []*shard{s, oldest}, &w)
	return err == nil && isRecent(s) && isRecent(oldest) && st.looksFull(c, s, amounts)
}

// looksFull is isFull for images of any age.
func (st *settler) looksFull(c *correction, s *shard, amounts []bucket.Amount) bool {
	now, home := st.now(), s.last().state()
	if home == nil || !st.items.keep(home).Regains(&bucket.Demand{Amounts: amounts}, now-st.options.RejectionAge.Milliseconds(), now) {
		return false
	}
	_, full := st.passOn(c, s, amounts)
	return full
}

// maxSpreads is how many tries spread a debt that is small compared with a shard over all shards.
const maxSpreads = 3

// isSmallDebt reports whether a correction has no refund, and is small compared with a shard, as last seen.
func isSmallDebt(c *correction, s *shard, amounts []bucket.Amount) bool {
	i := s.image.Load()
	return i != nil && i.exists && !slices.ContainsFunc(amounts, func(a bucket.Amount) bool { return a.Tokens < 0 }) &&
		c.limits.Config.IsSmall(&i.State, &bucket.Demand{Amounts: amounts})
}

// settleOnShard writes a correction to one shard, and leaves its limits alone. It returns errShort for amounts that the shard of a split
// bucket may not absorb by itself: a debt, or a refund without room. It drops a refund if the bucket is missing or the limit was started
// again: the new one starts full, which includes the refund.
func (st *settler) settleOnShard(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount, holds []*Hold, alone tolerance) (left bool, err error) {
	plan := plans.Get().(*bucket.Plan)
	defer plans.Put(plan)
	image := s.image.Load()
	began, epoch := st.now(), st.NextEpoch()
	for attempt := range table.MaxAttempts {
		if image == nil {
			var err error
			if image, err = st.looks.loadShard(ctx, c.bucket, s, attempt > 0); err != nil {
				return false, err
			}
		}
		d := bucket.Demand{Amounts: amounts, Unchecked: true, Settles: true, Life: st.life(epoch)}
		config := &c.limits.Config
		switch {
		case !image.exists && s.Shard > 0:
			return false, st.looks.shardMissing(ctx, c.bucket, s)
		case image.exists:
			config = st.items.keep(&image.State)
			if !alone.asks(&d, c.lives, &image.State) {
				return false, nil
			}
		case d.Returns() && (attempt > 0 || image.asked > 0):
			return false, nil
		case d.Returns(): // an eventually consistent read shows no room
			next, err := st.items.readShard(ctx, s)
			if err != nil {
				return false, err
			}
			image = next
			continue
		default:
			if d.Amounts = c.limits.configured(amounts); d.Empty() {
				return false, nil
			}
		}
		now := st.items.judgedAt(config, image, began)
		plan.Decide(image.state(), config, &d, now)
		if plan.Kind != bucket.Spend && attempt > 0 {
			now = st.now()
			plan.Decide(image.state(), config, &d, now)
		}
		if !plan.Writes() || image.Count() > 1 && (plan.Overflows || config.Opens([]*bucket.State{&image.State}, &d, now)) {
			return false, errShort
		}
		left := image.giveBack(plan, holds)
		next, applied, err := st.items.write(ctx, s, &c.limits.Lineage, image, plan, st.now(), nil)
		if applied && next != nil {
			st.lister.listWritten(ctx, s, next, plan.Kind)
		}
		if applied || err != nil {
			return left, err
		}
		image = next
		if err := st.table.Pause(ctx, attempt); err != nil {
			return false, err
		}
	}
	return false, ErrContended
}

// settleAcrossShards writes a correction to all shards of a bucket in one transaction.
func (st *settler) settleAcrossShards(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount, tries int) error {
	return st.table.Optimistic(ctx, func() (bool, error) {
		if tries--; tries < 0 {
			return false, ErrContended
		}
		l := level{bucket: c.bucket, limits: c.limits, began: st.NextEpoch()}
		seen := st.looks.seenSince(l.began)
		if err := st.looks.readStale(ctx, []level{l}, seen); err != nil {
			return false, err
		}
		v := st.looks.view(c.bucket, seen)
		if v.isWhole() {
			_, err := st.settleOnShard(ctx, c, c.bucket.shard(0), amounts, nil, tolerance{})
			return err == nil, unlessMoved(err)
		}
		home := max(slices.Index(v.shards, s), 0)
		var due bucket.Demand
		due.GiveBack(amounts, c.lives, v.states[home])
		parts, ok := bucket.Spread(st.items.keep, v.states, home, &due, st.now())
		if !ok || len(parts) == 0 {
			return ok, nil
		}
		var paid levelReceipt
		return st.aligner.writeParts(ctx, &l, &v, parts, &paid)
	})
}
