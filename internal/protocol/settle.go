package protocol

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Receipt is a ledger of the tokens taken: per level, shard and limit. Its zero value is one of nothing. It must not
// be copied while a take is under way.
type Receipt struct {
	takings []taking
	until   time.Duration // when all of it is there, since the engine was made; 0 for a caller that does not wait
	latest  time.Duration // until when the caller waits, since the engine was made

	priority string // of the request

	levelSpace  [1]level // for the most frequent case: one level, one shard
	takingSpace [1]taking
}

// A taking has the tokens taken of one level.
type taking struct {
	bucket   *Bucket
	limits   *Limits        // by which it was taken
	parts    []shardAmounts // each shard once, and once more for other lives of its limits
	bookings []booking      // of a caller that waits
	holds    []*Hold        // of slots
	round    int32          // of the receipt: requests with the same levels share one
	rung

	partSpace [1]shardAmounts
}

// shardAmounts are amounts taken of one shard, each limit once.
type shardAmounts struct {
	shard   *shard
	amounts []bucket.Amount
	lives   []bucket.Life // of the limits of the shard; nil where they are not known
}

// took notes the tokens taken of a shard of a level. The shard is nil for a level that nothing was taken of so far.
func (t *taking) took(l *level, s *shard, amounts []bucket.Amount, lives []bucket.Life) {
	t.bucket, t.rung, t.limits, t.parts, t.bookings, t.holds = l.bucket, l.rung, l.limits, nil, nil, nil
	if s != nil {
		amounts, lives = l.limits.Config.Entries(&l.demand, amounts, lives)
		t.partSpace[0] = shardAmounts{s, amounts, lives}
		t.parts = t.partSpace[:]
	}
}

// Limits returns the limits of the entity itself by which the request was taken, each once; none for a receipt of nothing.
func (r *Receipt) Limits() []bucket.Params {
	var all []bucket.Params
	for i := range r.takings {
		if r.takings[i].ancestor == 0 {
			all = appendMissing(all, r.takings[i].limits.Config.Limits())
			all = appendMissing(all, r.takings[i].limits.slotNames())
		}
	}
	return all
}

// Has reports whether one of the limits of the entity itself by which the request was taken has a name.
func (r *Receipt) Has(limit string) bool {
	return slices.ContainsFunc(r.takings, func(t taking) bool { return t.ancestor == 0 && t.limits.has(limit) })
}

// HasSlots reports whether one of the limits by which the request was taken is of slots and has a name.
func (r *Receipt) HasSlots(limit string) bool {
	return slices.ContainsFunc(r.takings, func(t taking) bool { return t.limits.Config.FindSlots(limit) != nil })
}

// IsEmpty reports whether the receipt is one of nothing.
func (r *Receipt) IsEmpty() bool { return len(r.takings) == 0 }

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

// Request returns a request for more of the receipt's limits. The receipt is not one of nothing.
func (r *Receipt) Request(amounts []bucket.Amount) Request {
	t := &r.takings[0]
	more := Request{Entity: t.bucket.Entity, Resource: t.bucket.Resource, Amounts: amounts, Priority: r.priority}
	if t.limits.Own {
		more.Own = t.limits
	}
	return more
}

// Add adds the tokens of a later request of the same entity and resource. Where it was taken of other levels, since the entity was moved
// or limits were changed, it begins a new round. Add returns a [*bucket.OverflowError] when that is more than can be counted, and leaves
// the receipt as it is.
func (r *Receipt) Add(more *Receipt) error {
	total := slices.Clone(r.takings)
	first := r.roundOf(len(total))
	if !slices.EqualFunc(total[first:], more.takings, isSameLevel) {
		for _, m := range more.takings {
			m.round = r.takings[first].round + 1
			total = append(total, m)
			if _, err := totalOf(total, m.bucket); err != nil {
				return err
			}
		}
		r.takings = total
		return nil
	}
	for i := range more.takings {
		if err := total[first+i].add(&more.takings[i]); err != nil {
			return err
		}
		if _, err := totalOf(total, more.takings[i].bucket); first > 0 && err != nil {
			return err
		}
	}
	r.takings = total
	return nil
}

// roundOf returns the first taking of the round that ends before a taking.
func (r *Receipt) roundOf(end int) (first int) {
	for first = end - 1; first > 0 && r.takings[first-1].round == r.takings[end-1].round; {
		first--
	}
	return first
}

// isSameLevel reports whether two takings are of one level.
func isSameLevel(a, b taking) bool { return a.isOf(b.bucket) && a.rung == b.rung }

// isOf reports whether a taking is of a bucket, which the engine may have forgotten and seen anew.
func (t *taking) isOf(b *Bucket) bool {
	return t.bucket.is(b)
}

// totalOf returns the tokens of a bucket in several takings.
func totalOf(takings []taking, b *Bucket) (total []bucket.Amount, err error) {
	for i := range takings {
		if t := &takings[i]; t.isOf(b) {
			part, err := t.total()
			if err != nil {
				return nil, err
			}
			if total == nil {
				total = part
			} else if total, err = bucket.Sum(total, part); err != nil {
				return nil, err
			}
		}
	}
	return total, nil
}

// add adds tokens taken of the same level later, perhaps when the engine had forgotten its bucket and seen it anew.
// Each shard stays one part, so that a correction names a limit once.
func (t *taking) add(more *taking) (err error) {
	t.limits, t.parts = more.limits, slices.Clone(t.parts)
	for _, p := range more.parts {
		at := slices.IndexFunc(t.parts, func(known shardAmounts) bool {
			return known.shard.Shard == p.shard.Shard && slices.Equal(known.lives, p.lives)
		})
		if at < 0 {
			t.parts = append(t.parts, shardAmounts{t.bucket.shard(p.shard.Shard), p.amounts, p.lives})
			continue
		}
		if t.parts[at].amounts, err = bucket.Sum(t.parts[at].amounts, p.amounts); err != nil {
			return err
		}
	}
	_, err = t.total()
	return err
}

// total returns the tokens taken of all shards.
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

// A settler writes corrections of takings.
type settler struct {
	*core
	items   *items
	looks   *looks
	aligner *aligner
	lister  *lister
	memory  *Memory
	tender  *tender
	shared  sharing[*payment]
}

// A Settlement has the corrections of a receipt that are still to be written. It is not safe for concurrent use.
type Settlement struct {
	due   []correction
	holds []*Hold // slots to give back
}

// A correction has the amounts due to one shard of a level.
type correction struct {
	bucket  *Bucket
	limits  *Limits
	shard   *shard // nil for any
	amounts []bucket.Amount
	lives   []bucket.Life // of the limits that the amounts are given back to; nil for any
	holds   []*Hold       // slots of the same item that the same write gives back
}

// Done reports whether nothing is due any more.
func (s *Settlement) Done() bool { return len(s.due) == 0 && len(s.holds) == 0 }

// Return returns the settlement that gives everything back.
func (r *Receipt) Return() Settlement {
	var s Settlement
	for i := range r.takings {
		s.due = r.takings[i].returns(s.due)
	}
	for i := range s.due { // what a shadow limit foretold remains so
		for j := range s.due[i].amounts {
			s.due[i].amounts[j].Refusals = 0
		}
	}
	s.holds = r.Holds()
	return s
}

// Holds returns the slots of the request, which end with it.
func (r *Receipt) Holds() (holds []*Hold) {
	for i := range r.takings {
		holds = append(holds, r.takings[i].holds...)
	}
	return holds
}

// returns appends the corrections that give back the takings of a level.
func (t *taking) returns(due []correction) []correction {
	for _, p := range t.parts {
		if d := (bucket.Demand{Amounts: p.amounts}); !d.Empty() {
			due = append(due, correction{bucket: t.bucket, limits: t.limits, shard: p.shard, amounts: bucket.Negated(p.amounts), lives: p.lives})
		}
	}
	return due
}

// Correct returns the settlement that corrects the consumption of the entity itself: positive for more, negative for
// less. Each level is charged for those limits that it had when it was taken from. Each shard gets back at most its own
// part. Of several rounds, the last one is charged for more, and the last ones get back first.
func (r *Receipt) Correct(amounts []bucket.Amount) Settlement {
	var s Settlement
	for end := len(r.takings); end > 0; {
		first, part := r.roundOf(end), amounts
		if first > 0 {
			part, amounts = portionOf(r.takings[first:end], amounts)
		}
		var charges charges
		for i := first; i < end; i++ {
			t := &r.takings[i]
			s.due = t.corrections(s.due, charges.of(part, t.rung))
		}
		end = first
	}
	s.holds = r.Holds()
	return s
}

// portionOf returns the part of a correction that goes to a round, and the rest of it.
func portionOf(round []taking, amounts []bucket.Amount) (part, rest []bucket.Amount) {
	for _, a := range amounts {
		had, taken := false, int64(0)
		for i := range round {
			if t := &round[i]; t.ancestor == 0 && t.limits.Config.Has(a.Limit) {
				total, _ := t.total() // it was added up before
				had, taken = true, max(taken, bucket.OfWhole(total, a.Limit))
			}
		}
		switch {
		case !had:
			rest = append(rest, a)
		case a.Tokens > 0:
			part = append(part, a)
		default:
			part = append(part, a.Move(max(a.Tokens, -taken)))
			rest = append(rest, a)
		}
	}
	return part, rest
}

// corrections appends the corrections of one level.
func (t *taking) corrections(due []correction, amounts []bucket.Amount) []correction {
	first := len(due)
	add := func(p *shardAmounts, a bucket.Amount) {
		for i := range due[first:] {
			if c := &due[first+i]; c.shard == p.shard && slices.Equal(c.lives, p.lives) {
				c.amounts = append(c.amounts, a)
				return
			}
		}
		due = append(due, correction{bucket: t.bucket, limits: t.limits, shard: p.shard, amounts: []bucket.Amount{a}, lives: p.lives})
	}
	for _, a := range amounts {
		if a.Tokens > 0 && t.limits.Config.Has(a.Limit) {
			more := a
			for at := range t.parts { // of the same part of the limit, whichever shards it was taken of
				for _, taken := range t.parts[at].amounts {
					if bucket.LimitOf(taken.Limit) == a.Limit && taken.Tokens > 0 {
						more.Limit = taken.Limit
					}
				}
			}
			add(t.charged(a.Limit), more)
		}
		for at := len(t.parts) - 1; at >= 0; at-- {
			for _, taken := range t.parts[at].amounts {
				if back := min(-a.Tokens, taken.Tokens); back > 0 && bucket.LimitOf(taken.Limit) == a.Limit {
					moved := a.Move(-back)
					moved.Limit = taken.Limit
					add(&t.parts[at], moved)
				}
			}
		}
	}
	return due
}

// charged returns the part of a taking by which more of a limit is charged.
func (t *taking) charged(limit string) *shardAmounts {
	for i := range t.parts {
		if bucket.IsUnowned(t.parts[i].lives, limit) {
			return &t.parts[i]
		}
	}
	if len(t.parts) > 0 {
		return &t.parts[0]
	}
	var none shardAmounts
	_, none.lives = t.limits.Config.Entries(&bucket.Demand{}, nil, nil)
	return &none
}

// settleAll is [Engine.Settle].
func (st *settler) settleAll(ctx context.Context, s *Settlement) error {
	if len(s.holds) == 0 {
		return st.settleTokens(ctx, s)
	}
	return errors.Join(st.settleBoth(ctx, s))
}

// settleBoth is settleAll with the errors of tokens and of slots apart. Slots go along with tokens of the same item, and take a write of
// their own elsewhere.
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
	rest, err := st.leave(ctx, heldOf(s.holds, kept)) // which did not go along after all
	s.holds = slices.Concat(kept, rest)
	return tokens, errors.Join(slots, err)
}

// carry has corrections carry those slots of a settlement that are given back by the same write. It returns the others.
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

// leave gives slots back, and returns those that provably were not given back.
func (st *settler) leave(ctx context.Context, holds []*Hold) (kept []*Hold, err error) {
	if len(holds) == 0 {
		return nil, nil
	}
	err = st.withinLimit(ctx, func(ctx context.Context) (err error) {
		kept, err = st.tender.release(ctx, holds)
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
	return errors.Join(errs...)
}

// settle writes a correction, alone or together with those of other callers. It is never rejected: it may leave a debt.
// Unlike a request, a correction has no policy for throttles, so it is tried again. The end of the settle limit is an
// outage.
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

// withinLimit calls a function that writes a correction. Where the settle limit ends it, and not its context, that is
// an outage. The result of the function still says whether the correction may have been written.
func (st *settler) withinLimit(ctx context.Context, settle func(context.Context) error) error {
	return (*store.Gate)(nil).Do(ctx, st.options.SettleLimit, settle)
}

// settleInTurn writes a correction by a write of its own, or one that it shares with other callers. Where no writes are shared,
// the correction waits for the pace of the shard's writes alone.
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

// settleDirect writes a correction, and notes how the store takes the writes of the shard. Slots go along where one write can have them.
func (st *settler) settleDirect(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount, holds []*Hold) error {
	var err error
	if len(holds) == 0 {
		_, err = st.settleAnywhere(ctx, c, s, amounts, nil)
	} else {
		err = st.tender.leaveAlong(ctx, s.bucket, holds, func(ctx context.Context, round []*Hold) (bool, error) {
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

// writeTogether writes the corrections of waiters on one shard in one write. All of them hear what became of it.
func (st *settler) writeTogether(ctx context.Context, q *queue[*payment], waiters []*waiter[*payment]) {
	first := waiters[0].job
	total, holds := first.amounts, slices.Clone(first.holds)
	for i, w := range waiters[1:] {
		next, err := bucket.Sum(total, w.job.amounts)
		if err != nil { // more than can be counted at once
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

// undo implements [writer]. A caller does not leave a settlement that is under way.
func (*settler) undo(context.Context, *payment) {}

// settleAnywhere writes a correction to a shard, or after a merge to the shard that has its tokens now. Where a shard
// of a split bucket falls short, all of them pay, since a debt of one alone would not hold the others back. Where it
// has no room for tokens given back, the others get the rest. It reports whether slots were given back along with the
// correction.
func (st *settler) settleAnywhere(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount, holds []*Hold) (left bool, err error) {
	for {
		left, err := st.settleOnShard(ctx, c, s, amounts, holds)
		switch {
		case errors.Is(err, errNoShard):
			s = c.bucket.shard(bucket.Origin(s.Shard))
		case errors.Is(err, errShort):
			return false, st.settleAcrossShards(ctx, c, s, amounts)
		default:
			return left, err
		}
	}
}

// settleOnShard writes a correction to one shard, and leaves its limits alone. It returns errShort for amounts that a
// shard of a split bucket cannot bear: a debt, or tokens without room. A missing bucket, or a limit that was started
// anew, has a full one in its place. Tokens given back to the former are part of that one.
func (st *settler) settleOnShard(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount, holds []*Hold) (left bool, err error) {
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
			if d.GiveBack(amounts, c.lives, &image.State); d.Empty() {
				return false, nil
			}
			d.Unchecked = image.Count() == 1
		case d.Returns() && (attempt > 0 || image.asked > 0):
			return false, nil
		case d.Returns(): // as far as a read that may be moments behind tells
			next, err := st.items.readShard(ctx, s)
			if err != nil {
				return false, err
			}
			image = next
			continue
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
		next, applied, err := st.items.write(ctx, s, c.limits.Owner, image, plan, st.now(), nil)
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

// settleAcrossShards charges a correction to all shards of a bucket, or gives it back to them, in one transaction.
func (st *settler) settleAcrossShards(ctx context.Context, c *correction, s *shard, amounts []bucket.Amount) error {
	return st.table.Optimistic(ctx, func() (bool, error) {
		l := level{bucket: c.bucket, limits: c.limits, began: st.NextEpoch()}
		seen := st.looks.seenSince(l.began)
		if err := st.looks.readStale(ctx, []level{l}, seen); err != nil {
			return false, err
		}
		v := st.looks.view(c.bucket, seen)
		if v.isWhole() {
			_, err := st.settleOnShard(ctx, c, c.bucket.shard(0), amounts, nil)
			return err == nil, unlessMoved(err)
		}
		home := max(slices.Index(v.shards, s), 0)
		var due bucket.Demand
		due.GiveBack(amounts, c.lives, v.states[home])
		parts, ok := bucket.Spread(st.items.keep, v.states, home, &due, st.now())
		if !ok || len(parts) == 0 {
			return ok, nil
		}
		var paid taking
		return st.aligner.writeParts(ctx, &l, &v, parts, &paid)
	})
}

// statusSpaces are reused: callers keep no statuses.
var statusSpaces = sync.Pool{New: func() any { return new(statusSpace) }}

type statusSpace struct {
	states   []*bucket.State
	statuses []bucket.Status
}

// tellTaken is [Engine.Statuses].
func (ju *judge) tellTaken(r *Receipt, tell func(LevelStatus)) {
	now := ju.now()
	space := statusSpaces.Get().(*statusSpace)
	defer statusSpaces.Put(space)
	for i := range r.takings {
		t := &r.takings[i]
		if slices.ContainsFunc(r.takings[i+1:], func(later taking) bool { return later.isOf(t.bucket) }) {
			continue // of a later round
		}
		space.states, _ = ju.memory.current(t.bucket).states(space.states[:0])
		space.statuses = t.limits.Config.Statuses(space.statuses[:0], space.states, &nothingAsked, now)
		if len(t.limits.Config.Slots) > 0 {
			space.statuses = t.limits.Config.SlotStatuses(space.statuses, space.states, t.held(), ju.slotNow())
		}
		clear(space.states)                      // which the pool must not keep alive
		total, _ := totalOf(r.takings, t.bucket) // it was added up before
		for j := range space.statuses {
			if space.statuses[j].Term > 0 {
				continue
			}
			space.statuses[j].Requested = bucket.OfWhole(total, space.statuses[j].Name)
			space.statuses[j].Foreseen = t.isForeseen(&space.statuses[j])
		}
		tell(LevelStatus{t.bucket.Entity, t.bucket.Resource, int(t.ancestor), int(t.wider), space.statuses})
	}
}

// isForeseen reports whether a shadow limit would have refused the request.
func (t *taking) isForeseen(s *bucket.Status) bool {
	return s.Mode == bucket.Shadow && !t.limits.Config.Bypass && slices.ContainsFunc(t.parts, func(p shardAmounts) bool { return bucket.IsUnowned(p.lives, s.Name) })
}

// nothingAsked is the demand of who only looks.
var nothingAsked bucket.Demand
