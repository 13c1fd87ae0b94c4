package protocol

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// plans has plans for reuse. Nothing refers to a plan after its write was bound.
var plans = sync.Pool{New: func() any { return new(bucket.Plan) }}

// takeFromShard takes for a party from one shard. It decides from the last image and sends the write. After a failed condition, it decides
// again from the returned image. If the callers of a shared write no longer all fit, it serves the ones that do. It returns errShort if the
// shard falls short for all of them, by the limits of the level. If the item has other limits, it is brought in line before the rejection,
// see refuse.
func (tk *levelTaker) takeFromShard(ctx context.Context, p *party, s *shard) error {
	t := shardTake{tk: tk, party: p, s: s, limits: p.limits, plan: p.plan, cameAt: p.at}
	if t.plan == nil {
		t.plan = plans.Get().(*bucket.Plan)
		defer plans.Put(t.plan)
	}
	image := s.image.Load()
	for t.attempt = range table.MaxAttempts {
		var err error
		var ready bool
		if image, ready, err = t.latest(ctx, image); err != nil {
			return err
		}
		if !ready {
			continue
		}
		contested, err := t.decide(ctx, image)
		switch {
		case err != nil:
			return err
		case t.plan.Kind == bucket.Crowded:
			return &CrowdedError{s.Entity, s.Resource}
		case t.plan.Kind == bucket.Reject && (image.since(p.began) || tk.items.isRecent(s, image, t.at)):
			s.traffic.fellShort(max(1, len(p.waiters)))
			p.noteShort(s, image, t.asOf)
			if t.isProof(image) {
				return p.proof()
			}
			return errShort
		case t.plan.Kind == bucket.Reject || contested: // a read costs a fifth of a write that would fail
			if image, err = t.look(ctx, image); err != nil {
				return err
			}
			continue
		}
		t.dismiss(ctx, image)
		from, next, applied, err := t.sendInTurn(ctx, image)
		if image = from; applied && err == nil && t.slots != nil {
			if err := t.noteSlots(ctx, image, next); err != nil {
				return err
			}
		}
		switch {
		case err != nil:
			if image, err = t.afterThrottle(ctx, image, err); err != nil {
				return err
			}
			continue
		case applied && next == nil: // the returned item is unreadable
			p.took(s, nil) // nothing is known of when the tokens are available
			return nil
		case applied:
			if t.plan.Kind == bucket.Create {
				tk.items.expire(ctx)
			}
			tk.lister.listWritten(ctx, s, next, t.plan.Kind)
			tk.resizer.rebalance(ctx, p.level, s, next)
			p.took(s, next)
			tk.aligner.alignFound(ctx, p.level, t.limits, next)
			return nil
		}
		image = next
		if err := tk.table.Pause(ctx, t.attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// sendInTurn sends a plan that was made from an image. A plan that needs a turn waits for it. If a later image is known by then, sendInTurn
// makes the plan again from that image, and keeps the turn. If it started over instead, the caller would wait behind all others, and might
// never be first. If the new plan is not to be sent, the result is that of a failed condition. It returns the image that the sent plan was
// made from, and the results of [items.send].
func (t *shardTake) sendInTurn(ctx context.Context, i *image) (from, next *image, applied bool, err error) {
	if !needsTurn(t.s, t.plan) {
		next, applied, err = t.send(ctx, i)
		return i, next, applied, err
	}
	latest, leave, err := t.tk.items.awaitTurn(ctx, t.s, i, t.plan)
	if err != nil {
		return i, nil, false, err
	}
	defer func() { leave() }()
	if latest != i {
		if !t.replan(ctx, latest) {
			return i, latest, false, nil
		}
		if t.plan.Kind == bucket.Spend { // it does not make other writes fail
			leave()
			leave = noTurn
		}
	}
	next, applied, err = t.send(ctx, latest)
	return latest, next, applied, err
}

// dismiss decides the callers that the next write is not for, if an image from after their arrival has too little for them. They do not
// wait for that write, which may lose its race.
func (t *shardTake) dismiss(ctx context.Context, i *image) {
	switch {
	case len(t.fit) == len(t.waiters), t.demand.Waits(), t.rationed, !t.s.traffic.isUsedUp():
		return
	case !i.exists, !i.since(t.began), !t.limits.Config.InLine(&i.State, t.at), i.Count() > 1 && !t.choosesAgain():
		return
	}
	t.noteShort(t.s, i, t.asOf)
	err := t.proof()
	if i.Count() > 1 {
		err = errElsewhere
	}
	beyond := t.beyond()
	t.s.traffic.fellShort(len(beyond))
	t.tk.shared.deliver(ctx, t.queue, beyond, err)
}

// send sends a plan that was made from an image, see [items.send].
func (t *shardTake) send(ctx context.Context, from *image) (next *image, applied bool, err error) {
	askedAt := t.decidedAt
	if t.attempt > 0 {
		askedAt = t.tk.now()
	}
	next, applied, err = t.tk.items.send(ctx, t.s, &t.limits.Lineage, t.plan, askedAt, t.limits.Repeat.due(t.s, from, askedAt))
	if !applied && t.plan.OnCredit && !t.plan.Places {
		t.unmet++
	}
	return next, applied, err
}

// replan makes the plan again from a later image, and reports whether to send it.
func (t *shardTake) replan(ctx context.Context, i *image) bool {
	if len(t.demand.Slots()) > 0 { // they were made ready for the former image
		return false
	}
	t.attempt++
	next, ready, err := t.latest(ctx, i)
	if err != nil || !ready || next != i {
		return false
	}
	contested, err := t.decide(ctx, i)
	return err == nil && !contested && t.plan.Writes()
}

// A shardTake is one call of takeFromShard.
type shardTake struct {
	tk *levelTaker
	*party
	s         *shard
	limits    *Limits // that the item must have: of the level, or newer and equal
	plan      *bucket.Plan
	cameAt    int64 // when the request arrived, epoch milliseconds
	decidedAt int64 // when the plan was made, epoch milliseconds
	at        int64 // time for which the plan was made, epoch milliseconds
	asOf      int64 // time used to decide which callers fit
	rationed  bool
	unmet     int // writes that failed because they expected too many others: each next one expects a quarter
	attempt   int
	throttles int
	slots     *slotTake // the slots of the attempt; nil for a request without slots
}

// latest returns the image to decide from: the given one, or the result of a look if there is none. It returns false if the caller must
// start over, since slots were made ready first.
func (t *shardTake) latest(ctx context.Context, i *image) (_ *image, ready bool, err error) {
	if err := t.awaited(); err != nil {
		return nil, false, err
	}
	if i == nil {
		if i, err = t.tk.looks.loadShard(ctx, t.bucket, t.s, t.attempt > 0); err != nil {
			return nil, false, err
		}
	}
	if i, err = t.tk.looks.unlessDisabled(ctx, t.s, i, t.began); err != nil {
		return nil, false, err
	}
	if !i.exists && t.s.Shard > 0 {
		return nil, false, t.tk.looks.shardMissing(ctx, t.bucket, t.s)
	}
	if i.exists && !t.tk.items.isOf(&t.lot, i) {
		return nil, false, errNoShard
	}
	if t.bucket.outdates(t.limits) {
		return nil, false, errOutdated
	}
	if len(t.demand.Slots()) == 0 {
		return i, true, nil
	}
	next, err := t.readySlots(ctx, i)
	return next, next == i, err
}

// decide makes the plan from an image. It reports whether the write of the plan would probably fail, since others have taken the refill
// since the image.
//
// Freshness is relative to the arrival of the request. If it were relative to each attempt, every lost race would make the stamp stale
// again, and N writers would cost N attempts.
func (t *shardTake) decide(ctx context.Context, i *image) (contested bool, err error) {
	t.decidedAt = t.tk.now()
	t.cameAt = heldAt(t.cameAt, t.decidedAt)
	t.judge(i)
	if i.exists && i.Count() > 1 && t.limits.Config.Opens([]*bucket.State{&i.State}, &t.demand, t.at) {
		return false, errUnaligned // the shards open a session together
	}
	t.makePlan(i)
	if t.plan.Kind == bucket.Reject && t.mayJudgeAgain(i) {
		t.cameAt, t.judgedAgain = t.decidedAt, true
		t.judge(i)
		t.makePlan(i)
	}
	if t.plan.Kind != bucket.Spend && i.exists && !t.limits.Config.InLine(&i.State, t.at) {
		limits, err := t.tk.aligner.confirm(ctx, t.level, t.limits, i)
		if err != nil {
			return false, err
		}
		t.limits = limits
		if i.Count() > 1 && !t.limits.Config.Matches(&i.State) && t.bucket.alignsAll(t.limits, t.at) {
			return false, errUnaligned
		}
		t.makePlan(i)
	}
	c := &t.limits.Config
	switch {
	case t.plan.Kind == bucket.Advance:
	case t.plan.Kind == bucket.Spend && t.plan.OnCredit && t.s.traffic.isHopeless(t.rationed):
	default:
		return false, nil
	}
	contested = !i.since(t.began) && t.tk.items.isContested(c, t.level, t.s, i, t.at)
	if t.plan.Kind == bucket.Advance && t.attempt == 0 && !contested && t.s.traffic.isRefreshed(c, t.at) {
		t.plan.SpendUnseen(&i.State, c, &t.demand, t.at)
	}
	return contested, nil
}

// judge sets the time by which an image is evaluated.
func (t *shardTake) judge(i *image) {
	t.at = t.tk.items.judgedAt(&t.limits.Config, i, t.cameAt)
	t.shortenWaits(t.tk.core, t.at)
}

// mayJudgeAgain reports whether a request that an image rejects at the clock reading of its arrival is decided again at a present reading.
// Requests that arrived later may have taken from a nearly full bucket, and clamped it at their own readings. At an earlier reading, the
// limit then seems to lack the refill in between, although it is nearly full. A request is decided again once, and only if there is room:
// in a used-up bucket each reply would show another token, and all requests would try again.
func (t *shardTake) mayJudgeAgain(i *image) bool {
	return !t.judgedAgain && i.exists && i.since(t.began) && t.cameAt < t.decidedAt &&
		t.limits.Config.IsRoomy(&i.State, &t.demand, t.decidedAt)
}

// isProof reports whether an image that falls short at the request's arrival rejects it. Only an unsplit bucket with the limits of the
// request proves that.
func (t *shardTake) isProof(i *image) bool {
	return i.exists && i.Count() == 1 && t.limits.Config.InLine(&i.State, t.at)
}

// makePlan makes the plan from an image, for the callers whose demands fit it. In a bucket that is used up, all processes see the refill, and
// few get it:
//   - A strained bucket is evaluated at the time when its image was requested, if that is later than the callers' arrival. Refill from
//     the time of the reply is left to others.
//   - In a used-up or strained bucket, an image that may reject requests is rationed, see ration.
func (t *shardTake) makePlan(i *image) {
	if t.asOf = t.at; i.since(t.began) && t.tk.isStrained(t.bucket) {
		t.asOf = min(t.at, i.askedAt)
	}
	t.rationed = false
	t.planAsOf(i)
	if (t.plan.Kind == bucket.Advance || t.plan.Kind == bucket.Spend && t.plan.OnCredit) && t.asOf == t.at && t.isRationed(i) {
		t.ration(i)
	}
	if t.slots != nil && t.plan.Kind == bucket.Create && !t.plan.EnrolSlots(&t.limits.Config, &t.demand, t.slots.now) {
		t.plan.Kind = bucket.Reject
	}
}

// planAsOf makes the plan for the callers whose demands fit an image at the time asOf.
func (t *shardTake) planAsOf(i *image) {
	state := i.state()
	if t.mayChoose() {
		var shards []*bucket.State
		if state != nil {
			shards = []*bucket.State{state}
		}
		t.choose(&t.limits.Config, shards, t.asOf)
	}
	t.plan.Decide(state, &t.limits.Config, &t.demand, t.asOf)
	if t.asOf != t.at && t.plan.Kind != bucket.Reject {
		t.plan.Decide(state, &t.limits.Config, &t.demand, t.at)
	}
	if t.plan.Kind == bucket.Advance || t.plan.Kind == bucket.Spend && t.plan.OnCredit { // others may come first
		race := t.s.traffic.race(t.decidedAt, t.tk.table.Usual(1).Milliseconds())
		race.Writes /= float64(int(1) << min(2*t.unmet, 30))
		race.Asks = t.asks
		t.plan.DecideIn(race, state, &t.limits.Config, &t.demand, t.at)
	}
}

// readySlots makes the slots ready that the party needs in addition to tokens. It returns the image to decide from, which is the given one
// if they are ready already. If the bucket was split meanwhile, the slots are taken in a separate write.
func (t *shardTake) readySlots(ctx context.Context, i *image) (*image, error) {
	if i.Count() > 1 {
		return nil, errOutdated
	}
	t.slots = &slotTake{by: t.tk.slots, party: t.party, shard: t.s, image: i}
	return t.slots.makeReady(ctx)
}

// noteSlots notes the slots that the write of the plan took. If they are unknown, it returns the tokens as well.
func (t *shardTake) noteSlots(ctx context.Context, from, left *image) error {
	g := takenSlots{now: t.slots.now, sent: t.slots.sent}
	for _, a := range t.demand.Slots() {
		of := from.FindSlots(a.Limit)
		if t.plan.Kind == bucket.Create {
			of = t.plan.Item.FindSlots(a.Limit)
		}
		g.of = append(g.of, *of)
	}
	err := t.note(&g, left)
	if err != nil {
		t.took(t.s, nil)
		t.tk.refunds.giveBack(ctx, t.to)
	}
	return err
}

// judgedAt returns the time by which a call evaluates an image: the beginning of the call, unless the stamp of the image is far ahead of
// that. In that case others may have moved the stamp since, so the present time decides whether the stamp is set back.
func (it *items) judgedAt(c *bucket.Config, i *image, began int64) int64 {
	if i.exists && c.Leads(&i.State, began) {
		return max(began, it.now())
	}
	return began
}

// look returns an image of the shard from after the arrival of the request. After a throttle it returns the given image, up to maxThrottles
// times. It returns errShort if the last images reject the request, and further looks would only prolong the throttle.
func (t *shardTake) look(ctx context.Context, i *image) (*image, error) {
	next, err := t.tk.looks.lookSince(ctx, t.s, t.began)
	switch {
	case isKeyThrottled(err) && t.throttles < maxThrottles:
		t.throttles++
		return i, nil
	case IsThrottled(err) && t.plan.Kind == bucket.Reject:
		t.noteShort(t.s, i, t.asOf)
		return nil, errShort
	}
	return next, err
}

// afterThrottle returns the image to decide from after a throttled write, or the error if the throttle is the outcome. All writers of a key
// cause its throttles, and others may have taken the last tokens. A look also shows whether others write the bucket, which takes a second
// image.
func (t *shardTake) afterThrottle(ctx context.Context, i *image, failure error) (*image, error) {
	t.tk.resizer.splitIfThrottled(ctx, t.level, t.s, i, failure)
	if !isKeyThrottled(failure) {
		return nil, failure
	}
	t.bucket.stall.throttled(t.tk.core, failure)
	latest, hasRoom := i, t.at-i.seenAt < evenTime.Milliseconds() && t.hasRoom(i)
	if !hasRoom || !t.bucket.isCrowded() {
		switch next := t.tk.looks.lookAfter(ctx, t.s, &t.throttles); {
		case next == nil:
		case next.exists != i.exists, next.newer(i) && (!hasRoom && !t.tk.resizer.outgrows(t.level, t.tk.now()) || t.isShortBy(next)):
			return next, nil
		default:
			latest = next
		}
	}
	if len(t.fit) < len(t.waiters) && latest.since(t.began) { // the other callers fall short after these
		t.noteShort(t.s, latest, t.asOf)
	}
	return nil, failure
}

// hasRoom reports whether an image shows tokens for more than a few requests, and the bucket can admit more requests a second than a key
// sustains writes. A throttle then ends when the bucket is split.
func (t *shardTake) hasRoom(i *image) bool {
	return t.tk.resizer.outgrows(t.level, t.tk.now()) && (!i.exists || !isScarce(&t.limits.Config, t.level, i, i.seenAt))
}

// isShortBy reports whether an image shows that a shard falls short for all callers.
func (t *shardTake) isShortBy(i *image) bool {
	t.makePlan(i)
	return t.plan.Kind == bucket.Reject
}

// isRecent reports whether an image is no older than the age of a rejection from memory. Its age counts from the beginning of its call,
// however long that took. While the pace allows no look, an image may be a few pauses old. If the store has answered nothing since a
// throttle, it may have any age.
func (it *items) isRecent(s *shard, i *image, now int64) bool {
	age, most := now-i.askedAt, it.options.RejectionAge.Milliseconds()
	if i.asked == 0 || age < 0 || most == 0 {
		return false
	}
	return age < most || s.bucket.pace.isClosed(it.core) && (s.bucket.stall.isThrottled() || age < s.bucket.pace.pauses(it.core, looksOfView))
}

// looksOfView is the most looks that it takes to see all shards of a bucket: at the drawn one, at another one, and at all.
const looksOfView = 3

// confirm returns the limits for an item whose limits differ from the known ones. They are read after the image arrived: another process
// may have learned of a change first, and its write must not be undone. If they differ from the limits of the level, the level is outdated.
func (al *aligner) confirm(ctx context.Context, l *level, known *Limits, i *image) (*Limits, error) {
	if known.Own || known.Epoch > i.arrived || known.Config.Matches(&i.State) {
		return known, nil
	}
	latest, err := al.options.Source.After(ctx, l.bucket, i.arrived)
	if err != nil {
		return nil, err
	}
	if !latest.Config.Equal(&l.limits.Config) || latest.Lineage != l.limits.Lineage {
		return nil, errOutdated
	}
	return latest, nil
}

// loadShard reads a shard that this process has no image of. If the limits are not in memory, shard 0 is part of the same read. With again,
// it is read once more.
func (lk *looks) loadShard(ctx context.Context, b *Bucket, s *shard, again bool) (*image, error) {
	if s.Shard == 0 && !again {
		if _, err := lk.options.Source.For(ctx, b); err != nil {
			return nil, err
		}
		if i := s.image.Load(); i != nil {
			return i, nil
		}
	}
	return lk.lookPatiently(ctx, s)
}

// shardMissing reads the origin of a missing shard, to correct the next draw.
func (lk *looks) shardMissing(ctx context.Context, b *Bucket, s *shard) error {
	if _, err := lk.items.readShard(ctx, b.shard(bucket.Origin(s.Shard))); err != nil {
		return err
	}
	return errNoShard
}

// write sends a plan in its turn. If another goroutine has moved the refill stamp meanwhile, it sends nothing. It returns what
// [items.send] does.
func (it *items) write(
	ctx context.Context, s *shard, o *layout.Lineage, from *image, plan *bucket.Plan, askedAt int64, repeat *layout.Repeated,
) (*image, bool, error) {
	latest, leave, err := it.awaitTurn(ctx, s, from, plan)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	if latest != from {
		return latest, false, nil
	}
	return it.send(ctx, s, o, plan, askedAt, repeat)
}

// needsTurn reports whether a plan takes turns with plans of other goroutines that move the refill stamp. If several plans move it at the
// same time, only one succeeds. A plan that relies on the stamp would fail as well if another goroutine is moving it.
func needsTurn(s *shard, plan *bucket.Plan) bool {
	return plan.Kind != bucket.Spend || plan.OnCredit && s.turnAt.Load() > 0
}

// awaitTurn waits until a plan may be sent. It returns the function that ends the turn, and the last image. If that is not the given one,
// the plan must be made again from it.
func (it *items) awaitTurn(ctx context.Context, s *shard, from *image, plan *bucket.Plan) (latest *image, leave func(), err error) {
	if !needsTurn(s, plan) {
		return from, noTurn, nil
	}
	if leave, err = it.enter(ctx, s); err != nil {
		return nil, nil, err
	}
	if latest = s.image.Load(); latest == nil || !latest.exists || from.exists && !latest.newer(from) {
		latest = from
	}
	if latest, err = it.lookFirst(ctx, s, latest); err != nil {
		leave()
		return nil, nil, err
	}
	return latest, leave, nil
}

// send sends a plan, and returns the results of [items.exchange]. The time askedAt, in epoch milliseconds, must be from before the call.
// The argument repeat may be nil.
func (it *items) send(
	ctx context.Context, s *shard, o *layout.Lineage, plan *bucket.Plan, askedAt int64, repeat *layout.Repeated,
) (*image, bool, error) {
	w := store.Write{Kind: store.Update, Key: s.key}
	if err := s.WriteTo(&w, plan, o, repeat); err != nil {
		return nil, false, err
	}
	it.unlist(&w)
	next, applied, err := it.exchange(ctx, s, w, plan, askedAt)
	if applied && plan.Kind == bucket.Advance && plan.Now < plan.RefilledAt {
		it.StampsFixed.Add(1)
		it.options.Logger.Warn("zlimit: a refill stamp was ahead of every clock and is set back", "key", s.key.PK,
			"milliseconds", plan.RefilledAt-plan.Now)
	}
	isOwn := plan.Kind != bucket.Spend && plan.Now <= it.now() // if the item is ahead, the stamp is of another clock
	if next != nil && applied && isOwn && next.RefilledAt == plan.Now && it.options.MaxLead > 0 {
		s.stamped.Store(next)
	}
	return next, applied, err
}

// readShard reads a shard: one consistent read.
func (it *items) readShard(ctx context.Context, s *shard) (*image, error) {
	images, err := it.readShards(ctx, []*shard{s})
	if err != nil {
		return nil, err
	}
	return images[0], nil
}

// readShards reads shards: one consistent batch read. If they are all shards of a bucket, it remembers the reading.
func (it *items) readShards(ctx context.Context, shards []*shard) ([]*image, error) {
	keys, known := make([]store.Key, len(shards)), make([]*image, len(shards))
	for i, s := range shards {
		keys[i], known[i] = s.key, s.image.Load()
	}
	by := it.newCall()
	items, err := it.table.Read(ctx, keys...)
	if err != nil {
		it.slowDown(ctx, err, shards...)
		return nil, err
	}
	images := make([]*image, len(shards))
	for i, s := range shards {
		s.bucket.pace.ended(it.core)
		if images[i], err = it.decode(s, items[i], nil, by); err != nil {
			return nil, err
		}
		images[i].follow(known[i])
	}
	for rest := 0; rest < len(shards); {
		from, b := rest, shards[rest].bucket
		for rest < len(shards) && shards[rest].bucket == b {
			rest++
		}
		if rest-from > 1 {
			r := reading{by, shards[from:rest], slices.Clone(images[from:rest])}
			r.remember(b)
		}
	}
	for i, s := range shards {
		images[i] = it.remember(s, images[i], known[i])
	}
	return images, nil
}

// expire deletes some expired buckets, whenever a new one is created, in a store that does not delete expired items itself.
func (it *items) expire(ctx context.Context) {
	err := it.table.Expire(ctx, time.UnixMilli(it.now()))
	if err != nil && ctx.Err() == nil && store.OutcomeOf(err) == store.Refused { // after a cancelled context or an outage, the next call does it
		it.options.Logger.Warn("zlimit: expired buckets could not be deleted", "error", err)
	}
}
