package protocol

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Request asks for tokens of one entity and resource. It also asks the parents that the entity cascades to, and the
// resources around its own.
type Request struct {
	Entity, Resource string
	Amounts          []bucket.Amount // millitokens, each limit once; kept by the receipt
	Own              *Limits         // in place of the stored ones; nil for those
	Wait             time.Duration   // how long the caller waits at most for tokens that are not there yet, whole milliseconds
	Priority         string          // by which limits may have a floor
}

// demand returns the request's demand on one level.
func (r *Request) demand(l *Limits, amounts []bucket.Amount, life int64) bucket.Demand {
	d := bucket.Demand{Amounts: amounts, Life: life, Wait: r.Wait.Milliseconds()}
	if r.Priority != "" && l.Config.HasFloor(r.Priority) {
		d.Priority = r.Priority
	}
	return d
}

// A level is a bucket of a request: of its entity or of one of the parents, for its resource or for a wider one. It has
// the amounts for that bucket, and the limits. A level is never changed: when a part of one turns out to be outdated,
// all levels are made anew.
type level struct {
	bucket *Bucket
	limits *Limits
	demand bucket.Demand
	began  int64 // epoch when the request came
	rung
}

// A rung says where a level stands beside the first one of its request.
type rung struct {
	ancestor int32 // how far the entity is above that of the request
	wider    int32 // how many resources wider than that of the request the resource is
}

// charges are the amounts of a request as levels are charged with them, each list made once.
type charges [4][]bucket.Amount

// of returns the amounts of the level of the entity itself for the resource itself as another level is charged with them.
func (c *charges) of(amounts []bucket.Amount, r rung) []bucket.Amount {
	at := 0
	if r.ancestor > 0 {
		at = 1
	}
	if r.wider > 0 {
		at += 2
	}
	if c[at] == nil {
		c[at] = bucket.As(amounts, r.ancestor > 0, r.wider > 0)
	}
	return c[at]
}

// maxRestarts bounds how often the levels of one request are made. Each time, limits were changed by others, or tokens
// came back and were taken again.
const maxRestarts = table.MaxAttempts

// A taker takes what requests ask, of all their levels or of none.
type taker struct {
	*core
	items    *items
	looks    *looks
	aligner  *aligner
	judge    *judge
	lister   *lister
	resizer  *resizer
	families *families
	debts    *debts
	tender   *tender
	shared   sharing[*claim]
	times    *table.Sharing // of writes
}

// takeRequest is [Engine.Take].
func (tk *taker) takeRequest(ctx context.Context, r *Request, to *Receipt) error {
	if err := ctx.Err(); err != nil {
		return err // a rejection from memory would not notice
	}
	if err := tk.table.Refusal(ctx); err != nil {
		return err // nor would one who waits for the calls of others
	}
	began := tk.NextEpoch()
	for attempt := range maxRestarts {
		levels, err := tk.families.levels(ctx, r, began, to.levelSpace[:0])
		if err != nil {
			return err
		}
		takings := to.takingSpace[:]
		if len(levels) > 1 {
			takings = make([]taking, len(levels))
		}
		if asksSlots(levels) {
			err = tk.takeWithSlots(ctx, r, levels, takings)
		} else {
			err = tk.takeLevels(ctx, levels, takings)
		}
		if err == nil {
			to.takings, to.priority = takings, r.Priority
			return tk.book(ctx, r, to)
		}
		if !errors.Is(err, errOutdated) && !errors.Is(err, errRoom) {
			return err
		}
		if err := tk.table.Pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// book notes the time at which a request's tokens are there, and gives them back where that is later than the caller
// waits.
func (tk *taker) book(ctx context.Context, r *Request, to *Receipt) error {
	if to.book(tk.core, r.Wait) {
		return nil
	}
	w := newWake(tk.judge, to)
	late := &RejectedError{w.told(to.until - tk.elapsed())}
	tk.giveAllBack(ctx, to.takings)
	return late
}

// takeLevels takes from every level, or from none: when one falls short, the others get their tokens back. It takes
// from all levels side by side. None cancels another one under way, since the outcome of that one would be unknown
// then.
func (tk *taker) takeLevels(ctx context.Context, levels []level, takings []taking) error {
	if len(levels) == 1 {
		errs := [1]error{tk.take(ctx, &levels[0], &takings[0])}
		if errors.Is(errs[0], errShort) {
			return tk.judge.refuse(ctx, levels, errs[:])
		}
		return errs[0]
	}
	if tk.judge.foreseen(levels) {
		if err := tk.judge.refuse(ctx, levels, nil); !errors.Is(err, errRoom) {
			return err
		}
	}
	if err := tk.refusalOf(ctx, levels); err != nil {
		return err
	}
	if done, err := tk.createLevels(ctx, levels, takings); done || err != nil {
		return err
	}
	if err := tk.looks.refusesAny(ctx, levels); err != nil {
		return err
	}
	errs := make([]error, len(levels))
	var group errgroup.Group // the zero group cancels no other goroutine
	for i := range levels {
		group.Go(func() error {
			errs[i] = tk.take(ctx, &levels[i], &takings[i])
			return errs[i]
		})
	}
	if group.Wait() == nil {
		return nil
	}
	tk.compensate(ctx, takings, errs)
	return tk.failure(ctx, levels, errs)
}

// refusalOf returns an error if the bucket of a level is in a silent part of the store. The other levels are then not
// charged in vain. The shards of a split bucket may lie in other parts.
func (tk *taker) refusalOf(ctx context.Context, levels []level) error {
	for i := range levels {
		b := levels[i].bucket
		if levels[i].demand.Empty() || b.isSplit() {
			continue
		}
		if err := tk.table.RefusalOf(ctx, b.shard(0).key.PK); err != nil {
			return err
		}
	}
	return nil
}

// failure returns why levels were not taken from. A level that falls short rejects the request, at any outcome of the
// others. The request would be rejected, too, if they had answered.
func (tk *taker) failure(ctx context.Context, levels []level, errs []error) error {
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, errShort) }) {
		return tk.judge.refuse(ctx, levels, errs)
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

// asksSlots reports whether a request asks for slots of one of its levels.
func asksSlots(levels []level) bool {
	for i := range levels {
		if len(levels[i].demand.Slots()) > 0 {
			return true
		}
	}
	return false
}

// takeWithSlots takes what a request asks that asks for slots. Slots of a bucket that is not divided go along with its tokens. Others are taken
// side by side with the tokens of the request. They come first where tokens may have to be waited for, or where their item may be missing,
// which both would create.
func (tk *taker) takeWithSlots(ctx context.Context, r *Request, levels []level, takings []taking) error {
	if tk.tender.slotsForeseen(levels) {
		return tk.judge.rejectSlots(ctx, levels)
	}
	alone, rest := apart(levels)
	holds, errs := make([]taking, len(levels)), make([]error, len(levels))
	var group errgroup.Group // the zero group cancels no other goroutine
	isNew := false
	for i := range alone {
		l := &alone[i]
		if len(l.demand.Slots()) == 0 {
			continue
		}
		first := l.bucket.shard(0).image.Load()
		isNew = isNew || first == nil || !first.exists
		group.Go(func() error {
			errs[i] = tk.tender.takeSlots(ctx, l, &holds[i])
			return errs[i]
		})
	}
	var failure error
	if isNew || r.Wait > 0 {
		failure = group.Wait()
	}
	tokens := failure
	if failure == nil {
		tokens = tk.takeLevels(ctx, rest, takings)
	}
	if failure = group.Wait(); failure == nil && tokens == nil {
		for i := range takings {
			takings[i].holds = append(takings[i].holds, holds[i].holds...)
		}
		return nil
	}
	if tokens == nil {
		tk.compensate(ctx, takings, make([]error, len(takings)))
	}
	for i := range holds {
		tk.tender.giveSlotsBack(ctx, holds[i].holds)
	}
	return tk.slotFailure(ctx, levels, errs, tokens)
}

// apart parts the levels of a request: those whose slots are taken alone, with nothing else, and all of them with the rest. The levels are
// the latter where no slots are.
func apart(levels []level) (alone, rest []level) {
	rest = levels
	for i := range levels {
		d := &levels[i].demand
		if len(d.Slots()) == 0 || !d.Empty() && !levels[i].bucket.isSplit() {
			continue
		}
		if alone == nil {
			alone, rest = slices.Clone(levels), slices.Clone(levels)
			for at := range alone {
				alone[at].demand = bucket.Demand{}
			}
		}
		alone[i].demand = (&bucket.Demand{Life: d.Life}).TakingSlots(d.Slots())
		rest[i].demand = d.TakingSlots(nil)
	}
	return alone, rest
}

// slotFailure returns why a request with slots was not admitted. A level that falls short counts more than an outage.
func (tk *taker) slotFailure(ctx context.Context, levels []level, errs []error, tokens error) error {
	var rejected *RejectedError
	if errors.As(tokens, &rejected) {
		return tokens
	}
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, errShort) }) {
		return tk.judge.rejectSlots(ctx, levels)
	}
	var failures []error
	for _, err := range append(slices.Clone(errs), tokens) {
		if err != nil && !errors.Is(err, errOutdated) && !errors.Is(err, errRoom) {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	return errOutdated
}

// giveAllBack gives back the tokens of all levels.
func (tk *taker) giveAllBack(ctx context.Context, takings []taking) {
	tk.compensate(ctx, takings, make([]error, len(takings)))
}

// compensate gives back what was taken of the levels that did not fail.
func (tk *taker) compensate(ctx context.Context, takings []taking, errs []error) {
	var group errgroup.Group
	for i := range takings {
		if errs[i] == nil {
			group.Go(func() error {
				tk.debts.giveBack(ctx, &takings[i])
				return nil
			})
		}
	}
	_ = group.Wait() // the functions return no error
}

// giveBack returns the tokens of one level. It outlives the caller's context, and changes nothing for the request: what
// the store does not take is given back later. What cannot be given back is counted and logged.
func (ds *debts) giveBack(ctx context.Context, t *taking) {
	ctx = table.Insist(context.WithoutCancel(ctx))
	s := Settlement{due: t.returns(nil), holds: t.holds}
	err, slots := ds.settler.settleBoth(ctx, &s)
	if err != nil && (len(s.due) == 0 || !ds.owe(ctx, t.bucket, s.due, err)) {
		ds.tell(ctx, t.bucket, 1, err)
	}
	ds.settler.tender.giveUp(t.bucket, s.holds, slots)
}

// createLevels takes from levels none of which has an item yet, in one transaction. It returns false when a level has
// one.
func (tk *taker) createLevels(ctx context.Context, levels []level, takings []taking) (done bool, err error) {
	now := tk.now()
	writes, plans, parties := make([]store.Write, len(levels)), make([]bucket.Plan, len(levels)), make([]party, len(levels))
	for i := range levels {
		l := &levels[i]
		first := l.bucket.shard(0)
		if image := first.image.Load(); image == nil || image.exists || l.demand.Empty() {
			return false, nil
		}
		plans[i].Decide(nil, &l.limits.Config, &l.demand, now)
		if plans[i].Kind != bucket.Create || !tk.enrol(l, &plans[i], &parties[i]) {
			return false, nil
		}
		repeat := l.limits.Repeat.due(first, first.image.Load(), now)
		if writes[i], err = first.WriteAt(first.key, &plans[i], l.limits.Owner, repeat); err != nil {
			return false, err
		}
		tk.items.unlist(&writes[i])
	}
	by := tk.newCall()
	results, err := tk.table.TryTransact(ctx, writes)
	if err != nil || results == nil || !table.Applied(results) {
		return false, err
	}
	for i := range levels {
		first := levels[i].bucket.shard(0)
		created := plans[i].Item
		created.Limits = slices.Clone(created.Limits) // they lie in the memory of the plan
		lives := created.Lives(nil)
		tk.items.remember(first, &image{
			State: created, exists: true, listed: !tk.table.Partitioned() || tk.options.Mixed, seenAt: now, call: by, arrived: tk.NextEpoch(),
			lives: lives,
		}, nil)
		tk.lister.list(ctx, first, first.image.Load(), true)
		takings[i].took(&levels[i], first, levels[i].demand.Amounts, lives)
		parties[i].to = &takings[i]
		err = errors.Join(err, tk.tender.handOut(ctx, &parties[i]))
	}
	if err != nil {
		tk.giveAllBack(ctx, takings)
	}
	return true, err
}

// enrol has a new item begin with the slots that a level asks for. It returns false where that cannot be.
func (tk *taker) enrol(l *level, plan *bucket.Plan, p *party) bool {
	p.level = l
	if len(l.demand.Slots()) == 0 {
		return true
	}
	t := slotTake{tender: tk.tender, party: p, image: new(image)}
	if t.clock() != nil || !plan.EnrolSlots(&l.limits.Config, &l.demand, t.now) {
		return false
	}
	return p.granted(&grant{of: plan.Item.Slots, now: t.now, sent: t.sent}, &image{State: plan.Item}) == nil
}

// take takes the demand of one level, alone or together with other callers. It returns errShort when the level falls
// short, as it was seen since the request came, or within the age of a rejection from memory. A write that the store
// throttles is tried again at the pace of the bucket's writes, where other processes write the bucket often. Where
// tokens still to be given back make up for the shortage, they are given back first.
func (tk *taker) take(ctx context.Context, l *level, to *taking) error {
	if l.demand.Empty() {
		to.took(l, nil, nil, nil)
		return nil
	}
	err := tk.takePatiently(ctx, l, to)
	if !errors.Is(err, errShort) || !l.bucket.owing.owes.Load() {
		return err
	}
	if states, _ := l.bucket.states(nil); !l.limits.Config.Covers(states, l.held(), tk.now()) || !tk.coversSlots(l, states) {
		return err
	}
	if err := tk.debts.returnDue(ctx, l.bucket); err != nil {
		return err
	}
	return tk.takePatiently(ctx, l, to)
}

// held returns the demand of a level, with the tokens still to be given back to its bucket.
func (l *level) held() *bucket.Demand {
	if !l.bucket.owing.owes.Load() {
		return &l.demand
	}
	return l.demand.Holding(l.bucket.owing.amounts())
}

// takePatiently takes the demand of a level, and waits where the store throttles it. A lasting throttle is no outage if
// the store names the key as its reason, and others take the little that flows in.
func (tk *taker) takePatiently(ctx context.Context, l *level, to *taking) error {
	if tk.options.WritesAtOnce == 0 {
		return tk.takeAlone(ctx, l, to)
	}
	err := tk.shared.patiently(ctx, &l.bucket.queue, func() error { return tk.takeInTurn(ctx, l, to) })
	if isHotKey(err) && tk.isExhausted(l) {
		return ErrContended
	}
	return err
}

// isExhausted reports whether a bucket that is sought is scarce.
func (tk *taker) isExhausted(l *level) bool { return tk.isScarce(l) && tk.isSought(l.bucket) }

// isScarce reports whether the shards of a bucket had tokens for a few requests each when they were last seen.
func (tk *taker) isScarce(l *level) bool {
	shards, room := int64(0), int64(0)
	l.bucket.walk((*shard).last, func(_ *shard, i *image) {
		if i != nil && i.exists {
			shards++
			room += min(l.limits.Config.Room([]*bucket.State{&i.State}, &l.demand, i.seenAt, 0), math.MaxInt32)
		}
	})
	return room < shards*crowdCallers
}

// takeInTurn takes the demand of a level by a write of its own, or one that it shares with other callers. A rejection that
// takes no call does not wait for the turn of one.
func (tk *taker) takeInTurn(ctx context.Context, l *level, to *taking) error {
	q := &l.bucket.queue
	if round, ok := q.begin(tk.core); ok {
		defer tk.shared.finish(ctx, q, round)
		return tk.takeAlone(ctx, l, to)
	}
	if q.pace.isClosed(tk.core) && tk.judge.isShort(l) {
		return errShort
	}
	return tk.shared.await(ctx, q, &claim{l, to})
}

// parties are reused: nothing keeps the party of a single caller once it is served.
var parties = sync.Pool{New: func() any { return new(party) }}

// takeAlone takes the demand of a level for a single caller.
func (tk *taker) takeAlone(ctx context.Context, l *level, to *taking) error {
	p := parties.Get().(*party)
	defer func() {
		*p = party{}
		parties.Put(p)
	}()
	p.level, p.to = l, to
	if err := tk.takeDirect(ctx, p); err != nil || p.grant == nil {
		return err
	}
	err := tk.tender.handOut(ctx, p)
	if err != nil {
		tk.debts.giveBack(ctx, to)
	}
	return err
}

// takeDirect takes for a party by one write, and notes how the store takes the writes of the bucket.
func (tk *taker) takeDirect(ctx context.Context, p *party) error {
	began := tk.sinceStart()
	err := tk.takeAnywhere(ctx, p)
	if err == nil && tk.options.WritesAtOnce > 0 {
		tk.times.Took(tk.sinceStart() - began)
	}
	p.bucket.queue.ended(tk.core, err)
	return err
}

// takeAnywhere takes for a party from a shard drawn at random, or where that falls short from several. A party that has
// taken from a shard goes on there: that shard shows without a call whether the others fall short.
func (tk *taker) takeAnywhere(ctx context.Context, p *party) error {
	for attempt := range table.MaxAttempts {
		if err := tk.aligner.alignParted(ctx, p.level); err != nil {
			return err
		}
		if p.short.whole && tk.goesByShare(p) {
			return p.proof()
		}
		s := p.last
		if p.last = nil; s == nil {
			s = tk.items.draw(p.bucket)
		}
		if !tk.isStrained(p.bucket) && tk.isUneven(p.level, s) {
			if done, err := tk.takeEvenly(ctx, p.level, p.to); done || err != nil {
				return err
			}
		}
		err := tk.takeFromShard(ctx, p, s)
		switch {
		case errors.Is(err, errNoShard):
		case errors.Is(err, errShort) && attempt < maxDraws && tk.goesByShare(p):
		case errors.Is(err, errUnaligned), errors.Is(err, errShort) && p.bucket.isSplit():
			unaligned := errors.Is(err, errUnaligned)
			err = tk.takeFromShards(ctx, p)
			if unaligned && err != nil && !errors.Is(err, errShort) {
				tk.aligner.part(ctx, p.level, err)
			}
			if IsThrottled(err) && tk.goesByShare(p) {
				return p.proof()
			}
			return err
		default:
			return err
		}
	}
	return ErrContended
}

// maxDraws bounds how often a shard is drawn to find a second one short. All shards are looked at where that fails,
// since the images of them are outdated.
const maxDraws = 8

// isStrained reports whether the store throttled looks at a bucket, or requests that write it, of late.
func (c *core) isStrained(b *Bucket) bool {
	return b.pace.isStrained(c) || b.queue.pace.isStrained(c)
}

// goesByShare reports whether a party is told by one or two shards that it falls short, and not by a view of all
// shards. In a strained bucket, some tokens flow in while all shards are read, and others take them. No view proves
// that the shards are exhausted. A request may then be rejected though a third shard has its tokens. So it must be
// small beside the capacity of a shard.
func (tk *taker) goesByShare(p *party) bool { return tk.isStrained(p.bucket) && p.isSmall() }
