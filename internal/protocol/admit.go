package protocol

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Request takes tokens of one entity and resource. It is also charged to the parents that the entity cascades to, and to wider
// resources.
type Request struct {
	Entity, Resource string
	Bucket           *Bucket         // of entity and resource, if the caller has looked it up; nil otherwise
	Amounts          []bucket.Amount // millitokens, each limit once; kept by the receipt
	Own              *Limits         // replace the stored limits; nil for the stored ones
	Wait             time.Duration   // the longest time from now that the caller waits for missing tokens, whole milliseconds
	Priority         string          // limits may have a floor for it

	Place *Place // in the line for slots; nil for a caller that is not in line
	// Asks holds the reason while the request waits for the store's time, which slots need; nil if no one reads it.
	Asks *atomic.Pointer[ClockError]

	Once     *Once     // how a request with an id is taken once; nil for one without
	together *together // replaces entity, resource and amounts; nil for a single request
}

func (r *Request) demand(l *Limits, amounts []bucket.Amount, life int64) bucket.Demand {
	d := bucket.Demand{Amounts: amounts, Life: life, Wait: r.Wait.Milliseconds()}
	if l.Config.Bypass {
		d.Wait = 0
		return d.Bypassing()
	}
	if r.Priority != "" && l.Config.HasFloor(r.Priority) {
		d.Priority = r.Priority
	}
	return d
}

// charges are the amounts of a request in the form that each kind of level needs. Each list is built once.
type charges [4][]bucket.Amount

// of takes the amounts of the first level, and returns them in the form that another level needs.
func (c *charges) of(amounts []bucket.Amount, r position) []bucket.Amount {
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

// isBelow reports whether a higher level counts the requests of this level again: if it is the level of a parent for the same resource, or
// the level of the same entity for a wider resource.
func (r position) isBelow(above position, aboveResource, resource string, children bool) bool {
	if children {
		return r.ancestor < above.ancestor && resource == aboveResource
	}
	return r.ancestor == above.ancestor && r.wider < above.wider
}

// countedBelow returns the amounts that a level is charged with. If no child has the limit, the level counts the amount as its own. The
// same applies to narrower resources. So each request counts once in sums. It returns the same list if nothing changes.
func countedBelow(amounts []bucket.Amount, counted func(limit string, children bool) bool) []bucket.Amount {
	cloned := false
	for i := range amounts {
		a := amounts[i]
		if a.FromChildren != 0 && !counted(a.Limit, true) {
			a.FromChildren = 0
		}
		if a.FromNarrower != 0 && !counted(a.Limit, false) {
			a.FromNarrower = 0
		}
		if a == amounts[i] {
			continue
		}
		if !cloned {
			amounts, cloned = slices.Clone(amounts), true
		}
		amounts[i] = a
	}
	return amounts
}

// maxRestarts bounds how often the levels of one request are built. They are built again after others have changed the limits, or after
// returned tokens were taken by others.
const maxRestarts = table.MaxAttempts

// An admitter takes the amounts of a request from all of its levels, or from none.
type admitter struct {
	*core
	items      *items
	looks      *looks
	judge      *judge
	lister     *lister
	families   *families
	refunds    *refunds
	slotKeeper *slotKeeper
	slots      *slotTaker
	taker      *levelTaker
	clock      *clockAsker
}

// takeRequest implements [Engine.Take]: it takes from all levels of a request, or from none. It fails early if the context has ended or the
// breaker is open, since a rejection from memory makes no call that would notice. It builds the levels again if their limits change or
// tokens are returned meanwhile, and returns ErrContended after maxRestarts attempts.
func (ad *admitter) takeRequest(ctx context.Context, r *Request, to *Receipt) error {
	if err := ctx.Err(); err != nil {
		return err // a rejection from memory would not notice
	}
	if err := ad.table.Refusal(ctx); err != nil {
		return err // nor would a caller that waits for the calls of others
	}
	ctx = ad.hasty(ctx)
	if r.Once != nil {
		if repeated, err := r.Once.Already(ctx); repeated || err != nil {
			r.Once.Repeated = repeated
			return err
		}
	}
	began, came := ad.NextEpoch(), ad.comes(r)
	var shadowed forecast
	w := works.Get().(*work)
	defer w.recycle()
	for attempt, rooms := 0, 0; attempt < maxRestarts; {
		if w.kept {
			w.levels, w.kept = new([1]level), false
		}
		levels, err := ad.families.levels(ctx, r, began, w.levels[:0])
		shadowed.apply(levels)
		for i := range levels {
			levels[i].begin(rooms, came)
		}
		hasSlots := asksSlots(levels)
		if w.kept = hasSlots; len(levels) == 1 && !hasSlots {
			levels[0].work = w
		}
		receipts := to.levelSpace[:]
		if len(levels) > 1 {
			receipts = make([]levelReceipt, len(levels))
		}
		switch {
		case err != nil:
		case r.Once != nil:
			if r.Once.Repeated, err = ad.takeOnce(ctx, r, levels, receipts); r.Once.Repeated {
				return nil
			}
		case hasSlots:
			err = ad.takeWithSlots(ctx, r, levels, receipts)
		default:
			err = ad.takeLevels(ctx, levels, receipts)
		}
		if err == nil {
			if len(shadowed) > 0 {
				ad.Foreseen.Add(1)
			}
			to.levels = receipts
			to.of(r.Priority)
			if r.Wait <= 0 {
				return nil
			}
			to.asks(r.Amounts)
			return ad.book(ctx, r, to, came)
		}
		if shadowed.add(err) {
			continue
		}
		var clock *ClockError
		switch {
		case errors.Is(err, errRoom):
			rooms++
		case errors.As(err, &clock):
			if err := ad.clock.knowFor(ctx, r, clock, slotKeyOf(levels)); err != nil {
				return err
			}
			attempt++
			continue
		case !errors.Is(err, errOutdated):
			return ad.undecided(ctx, err, levels, began)
		}
		if err := ad.table.Pause(ctx, attempt); err != nil {
			return ad.undecided(ctx, err, levels, began)
		}
		attempt++
	}
	return ErrContended
}

// undecided returns the error of a request whose context has ended. It is a rejection if images from after the arrival of the request show
// that a level falls short. It is an [*UndecidedError] if the request has taken nothing, and the store has answered calls for all of its
// buckets meanwhile. A bucket whose last call was throttled was not answered.
func (ad *admitter) undecided(ctx context.Context, err error, levels []level, began int64) error {
	if ctx.Err() == nil && store.OutcomeOf(err) != store.Ended || IsUnknown(err) || IsThrottled(err) || len(levels) == 0 {
		return err
	}
	seen := make([]level, 0, len(levels))
	for i := range levels { // the demand may belong to a goroutine that still writes for the caller
		l := &levels[i]
		if l.idle {
			continue
		}
		amounts := level{bucket: l.bucket, limits: l.limits, demand: bucket.Demand{Amounts: l.demand.Amounts}, began: began, position: l.position}
		if !l.bucket.arrivedSince(began) || l.bucket.stall.isThrottled() && !ad.taker.isExhausted(&amounts) {
			return err
		}
		seen = append(seen, amounts)
	}
	if rejected := ad.judge.rejectAsSeen(ctx, seen); rejected != nil {
		return rejected
	}
	return &UndecidedError{err}
}

// book records the time at which a request's tokens are available, and returns them if the caller does not wait that long.
func (ad *admitter) book(ctx context.Context, r *Request, to *Receipt, came arrival) error {
	if to.book(ad.core, r.Wait, came) {
		return nil
	}
	w := newWake(nil, ad.judge, to)
	late := &RejectedError{w.reported(to.rest().until - ad.elapsed())}
	receipts := make([]levelReceipt, len(to.levels))
	for i := range receipts {
		receipts[i] = to.levels[i].apart()
	}
	back := func(ctx context.Context) { ad.giveAllBack(ctx, receipts) }
	if ad.table.Immediate() || !ad.background.GoOn(ctx, back) { // the caller has no time left
		back(ctx)
	}
	return late
}

// takeLevels takes from every level, or from none: if one falls short, the others get their tokens back.
func (ad *admitter) takeLevels(ctx context.Context, levels []level, receipts []levelReceipt) error {
	if len(levels) == 1 {
		err := ad.taker.take(ctx, &levels[0], &receipts[0])
		if err != nil && errors.Is(err, errShort) {
			return ad.judge.refuse(ctx, levels, []error{err})
		}
		return err
	}
	if errs, short := ad.taker.areOutOfRation(levels); short {
		return ad.judge.refuse(ctx, levels, errs)
	}
	if short := ad.judge.predictsRejection(levels); short != nil {
		err := ad.judge.refuse(ctx, levels, nil)
		if errors.As(err, new(*RejectedError)) {
			short.bucket.shard(0).traffic.fellShort(1)
		}
		if !errors.Is(err, errRoom) {
			return err
		}
	}
	if err := ad.refusalOf(ctx, levels); err != nil {
		return err
	}
	if done, err := ad.createLevels(ctx, levels, receipts); done || err != nil {
		return err
	}
	if err := ad.looks.refusesAny(ctx, levels); err != nil {
		return err
	}
	errs := ad.takeAll(ctx, levels, receipts)
	if errs == nil {
		return nil
	}
	ad.compensate(ctx, receipts, errs)
	return ad.failure(ctx, levels, errs)
}

// errUntaken is the error of a level that was not tried, since one before it failed.
var errUntaken = errors.New("not tried")

// takeAll takes from levels in parallel. It returns nil if it took from all of them, otherwise an error for each level that it did not take
// from. Levels for whose tokens processes compete go first, since they are likely to fall short. If one does, nothing has to be taken from
// the other levels and given back. That costs an admitted request one more round trip, and saves a rejected request two writes for each
// other level.
func (ad *admitter) takeAll(ctx context.Context, levels []level, receipts []levelReceipt) []error {
	errs := make([]error, len(levels))
	for i := range levels {
		levels[i].first = levels[i].isRaced()
	}
	for _, first := range []bool{true, false} {
		if ad.takeSome(ctx, levels, receipts, errs, first) == nil {
			continue
		}
		for i := range levels {
			if first && !levels[i].first {
				errs[i] = errUntaken
			}
		}
		return errs
	}
	return nil
}

// takeSome takes from the levels that go first, or from the others. While it takes from the levels that go first, it reads the other levels
// whose images are probably outdated. A failure does not cancel calls under way, since their outcomes would then be unknown.
func (ad *admitter) takeSome(ctx context.Context, levels []level, receipts []levelReceipt, errs []error, first bool) error {
	var group errgroup.Group // the zero group cancels no other goroutine
	var outdated []level
	taken := 0
	for i := range levels {
		l := &levels[i]
		switch {
		case l.first == first:
			taken++
			group.Go(func() error {
				errs[i] = ad.taker.take(ctx, l, &receipts[i])
				return errs[i]
			})
		case first && !l.demand.Empty() && l.bucket.isOutdated(ad.now()):
			outdated = append(outdated, *l)
		}
	}
	if taken > 0 && len(outdated) > 0 {
		_ = ad.looks.readStale(ctx, outdated, ad.looks.seenFor(&levels[0])) // a failed read shows in the takes
	}
	return group.Wait()
}

// isRaced reports whether this process and others compete for tokens that a level needs.
func (l *level) isRaced() bool { return !l.demand.Empty() && l.bucket.isRaced() }

// refusalOf returns an error if the bucket of a level is in a silent part of the store, so that the other levels are not charged
// needlessly. It skips split buckets, whose shards may be in other parts.
func (ad *admitter) refusalOf(ctx context.Context, levels []level) error {
	for i := range levels {
		b := levels[i].bucket
		if levels[i].demand.Empty() || b.isSplit() {
			continue
		}
		if err := ad.table.RefusalOf(ctx, b.shard(0).key.PK); err != nil {
			return err
		}
	}
	return nil
}

// failure returns why levels were not taken from. A level that falls short rejects the request, whatever the outcome of the others: they
// could not have admitted it.
func (ad *admitter) failure(ctx context.Context, levels []level, errs []error) error {
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, errShort) }) {
		return ad.judge.refuse(ctx, levels, errs)
	}
	var outdated, failures []error
	for _, err := range errs {
		if errors.Is(err, errOutdated) {
			outdated = append(outdated, err)
		} else if err != nil && !errors.Is(err, errUntaken) {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return Joined(failures...)
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

// shortestTerm returns the shortest configured term of the slots that levels ask for, milliseconds.
func shortestTerm(levels []level) int64 {
	shortest := int64(math.MaxInt64)
	for i := range levels {
		for _, a := range levels[i].demand.Slots() {
			shortest = min(shortest, levels[i].limits.Config.FindSlots(a.Limit).Term)
		}
	}
	return shortest
}

// slotKeyOf returns the key of an item that has slots for one of the levels.
func slotKeyOf(levels []level) store.Key {
	at := max(slices.IndexFunc(levels, func(l level) bool { return len(l.demand.Slots()) > 0 }), 0)
	return levels[at].bucket.shard(0).key
}

// takeWithSlots takes the slots and the tokens of a request. Slots of an unsplit bucket are written together with its tokens. Other slots
// are taken in parallel with the tokens of the request. They are taken first if the request may wait for tokens, or if the item may be
// missing, since both writes would create it.
func (ad *admitter) takeWithSlots(ctx context.Context, r *Request, levels []level, receipts []levelReceipt) error {
	if !ad.background.Begin() { // otherwise the engine could close between a write and its outcome
		return ErrClosed
	}
	defer ad.background.End()
	holds, errs := make([]levelReceipt, len(levels)), make([]error, len(levels))
	whole := levels
	for i := range levels {
		if hands := ad.handsFor(ctx, r, &levels[i]); hands != nil {
			levels = slices.Clone(levels)
			levels[i].demand = levels[i].demand.TakingSlots(nil)
			holds[i].hold(hands)
		}
	}
	if ad.slots.slotsForeseen(levels, r.Place) {
		ad.giveHolds(ctx, r, holds)
		return ad.judge.rejectSlots(ctx, whole)
	}
	if _, err := ad.slotTime(shortestTerm(levels)); err != nil && asksSlots(levels) {
		ad.giveHolds(ctx, r, holds)
		return err
	}
	alone, rest := separateSlots(levels)
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
			errs[i] = ad.slots.takeSlots(ctx, l, &holds[i])
			return errs[i]
		})
	}
	var failure error
	if isNew || r.Wait > 0 {
		failure = group.Wait()
	}
	tokens := failure
	if failure == nil {
		tokens = ad.takeLevels(ctx, rest, receipts)
	}
	if failure = group.Wait(); failure == nil && tokens == nil {
		for i := range receipts {
			receipts[i].hold(append(receipts[i].holds(), holds[i].holds()...))
		}
		return nil
	}
	if tokens == nil {
		ad.compensate(ctx, receipts, make([]error, len(receipts)))
	}
	ad.giveHolds(ctx, r, holds)
	return ad.slotFailure(ctx, whole, errs, tokens)
}

// giveHolds gives back the slots of a request that is not admitted. A caller whose context ends does not wait for that.
func (ad *admitter) giveHolds(ctx context.Context, r *Request, holds []levelReceipt) {
	if !slices.ContainsFunc(holds, func(t levelReceipt) bool { return len(t.holds()) > 0 }) {
		return
	}
	r.Place.declines()
	ad.outlive(ctx, func(ctx context.Context) {
		for i := range holds {
			ad.slotKeeper.giveSlotsBack(ctx, holds[i].holds())
		}
	})
}

// separateSlots returns the levels whose slots are taken in separate writes, and all levels without these slots. If there are none, it
// returns the given levels.
func separateSlots(levels []level) (alone, rest []level) {
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
		alone[i].demand = d.SlotsAlone()
		rest[i].demand = d.TakingSlots(nil)
	}
	return alone, rest
}

// slotFailure returns why a request with slots was not admitted. A level that falls short takes precedence over an outage.
func (ad *admitter) slotFailure(ctx context.Context, levels []level, errs []error, tokens error) error {
	if errors.As(tokens, new(*RejectedError)) {
		return tokens
	}
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, errShort) }) {
		return ad.judge.rejectSlots(ctx, levels)
	}
	var failures []error
	for _, err := range append(slices.Clone(errs), tokens) {
		if err != nil && !errors.Is(err, errOutdated) && !errors.Is(err, errRoom) && !slices.Contains(failures, err) {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return Joined(failures...)
	}
	return errOutdated
}

// giveAllBack gives back the tokens of all levels.
func (ad *admitter) giveAllBack(ctx context.Context, receipts []levelReceipt) {
	ad.compensate(ctx, receipts, make([]error, len(receipts)))
}

// compensate gives back the tokens of the levels that did not fail. A caller whose context ends does not wait for that.
func (ad *admitter) compensate(ctx context.Context, receipts []levelReceipt, errs []error) {
	var taken []levelReceipt
	for i := range receipts {
		if errs[i] == nil {
			taken = append(taken, receipts[i].apart())
		}
	}
	if len(taken) > 0 {
		ad.outlive(ctx, func(ctx context.Context) { ad.returnAll(ctx, taken) })
	}
}

// outlive is [background.outlive]. If the store answers immediately, it runs the work directly.
func (ad *admitter) outlive(ctx context.Context, work func(context.Context)) {
	if ad.table.Immediate() {
		work(ctx)
		return
	}
	ad.background.outlive(ctx, work)
}

// returnAll gives back the tokens of receipts in parallel.
func (ad *admitter) returnAll(ctx context.Context, taken []levelReceipt) {
	var group errgroup.Group
	for i := range taken {
		group.Go(func() error {
			ad.refunds.giveBack(ctx, &taken[i])
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
}

// giveBack returns the tokens of one level. It outlives the caller's context, and cannot fail the request: tokens that the store does not
// accept are returned later. Tokens that cannot be returned are counted and logged.
func (rf *refunds) giveBack(ctx context.Context, t *levelReceipt) {
	ctx = table.Insist(context.WithoutCancel(ctx))
	s := Settlement{due: t.returns(nil), holds: t.holds()}
	err, slots := rf.settler.settleBoth(ctx, &s)
	if err != nil && (len(s.due) == 0 || !rf.owe(ctx, t.bucket, s.due, err)) {
		rf.report(ctx, t.bucket, 1, err)
	}
	rf.settler.slotKeeper.giveUp(ctx, t.bucket, s.holds, slots)
}

// createLevels creates the items of levels in one transaction, and takes from them. It returns false if a level already has an item.
func (ad *admitter) createLevels(ctx context.Context, levels []level, receipts []levelReceipt) (done bool, err error) {
	now := ad.now()
	writes, plans, parties := make([]store.Write, len(levels)), make([]bucket.Plan, len(levels)), make([]party, len(levels))
	demands := make([]*bucket.Demand, len(levels))
	for i := range levels {
		l := &levels[i]
		first := l.bucket.shard(0)
		if image := first.image.Load(); image == nil || image.exists || l.demand.Empty() {
			return false, nil
		}
		demands[i] = l.demand.Through(&l.limits.Config, nil, now)
		plans[i].Decide(nil, &l.limits.Config, demands[i], now)
		if plans[i].Kind != bucket.Create || !ad.enrol(l, &plans[i], &parties[i]) {
			return false, nil
		}
		repeat := l.limits.Repeat.due(first, first.image.Load(), now)
		if writes[i], err = first.WriteAt(first.key, &plans[i], l.limits.Lineage, repeat); err != nil {
			return false, err
		}
		ad.items.unlist(&writes[i])
	}
	by := ad.newCall()
	results, err := ad.table.TryTransact(ctx, writes)
	if err != nil || results == nil || !table.Applied(results) {
		return false, err
	}
	for i := range levels {
		first := levels[i].bucket.shard(0)
		created := plans[i].Item
		created.Limits = slices.Clone(created.Limits) // the plan owns their memory
		known := &lives{all: created.Lives(nil)}
		ad.items.remember(first, &image{
			State: created, exists: true, listed: !ad.table.Partitioned() || ad.options.Mixed, seenAt: now, call: by, arrived: ad.NextEpoch(),
		}, nil)
		ad.lister.list(ctx, first, first.image.Load(), true)
		receipts[i].took(&levels[i], first, demands[i].Amounts, known)
		parties[i].to = &receipts[i]
		err = errors.Join(err, ad.slots.handOut(ctx, &parties[i]))
	}
	if err != nil {
		ad.giveAllBack(ctx, receipts)
	}
	return true, err
}

// enrol adds the slots of a level's demand to a new item. It returns false if it cannot.
func (ad *admitter) enrol(l *level, plan *bucket.Plan, p *party) bool {
	p.level = l
	if len(l.demand.Slots()) == 0 {
		return true
	}
	t := slotTake{by: ad.slots, party: p, image: new(image)}
	if t.clock() != nil || !plan.EnrolSlots(&l.limits.Config, &l.demand, t.now) {
		return false
	}
	return p.note(&takenSlots{of: plan.Item.Slots(), now: t.now, sent: t.sent}, &image{State: plan.Item}) == nil
}
