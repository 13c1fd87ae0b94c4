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

// plans are reused: a plan holds its steps, and nothing keeps it once its write is bound.
var plans = sync.Pool{New: func() any { return new(bucket.Plan) }}

// takeFromShard takes for a party from one shard. It decides from the last image and sends the write. On a failed
// condition it decides again from the image that came back. Of callers who take together, it then serves those whose
// demands fit the image. It returns errShort when the shard falls short by the level's limits for all of them. An item
// that differs from them is brought in line before the rejection, see refuse.
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
		case t.plan.Kind == bucket.Reject || contested: // a read costs a fifth of a write that is bound to fail
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
		case applied && next == nil: // the item that it left cannot be read
			p.took(s, nil) // nor is the time of the tokens known
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

// sendInTurn sends a plan that was made from an image. A plan that needs a turn waits for it. If the image has changed by then, sendInTurn
// makes the plan again from the latest image, and keeps the turn. Starting over instead would put the caller behind all who wait, and it
// might never be first. If the new plan is not to be sent, the result is that of a failed condition. It returns the image that the sent
// plan was made from, and the results of [items.send].
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
		if t.plan.Kind == bucket.Spend { // it does not disturb those who wait
			leave()
			leave = noTurn
		}
	}
	next, applied, err = t.send(ctx, latest)
	return latest, next, applied, err
}

// dismiss decides on those who fall short of an image of after their requests came, beside those whom the next write is for. They do not wait
// for that write, which may lose its race.
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

// replan makes the plan again from a later image, and reports whether it is to be sent.
func (t *shardTake) replan(ctx context.Context, i *image) bool {
	if len(t.demand.Slots()) > 0 { // which are made ready for an image
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
	limits    *Limits // for the item to be in line with: the level's, or newer equal ones
	plan      *bucket.Plan
	cameAt    int64 // when the request came, epoch milliseconds
	decidedAt int64 // when the plan was made, epoch milliseconds
	at        int64 // time for which the plan was made, epoch milliseconds
	asOf      int64 // time for which the image shows who fits
	rationed  bool
	unmet     int // writes that failed because fewer others came first than they expected: the next one expects a quarter
	attempt   int
	throttles int
	slots     *slotTake // of the attempt; nil for a request without slots
}

// latest returns the image to decide by: the one that it was given, or that of a look if there is none. It returns false for one that is to
// be looked at again, since slots were made ready first.
func (t *shardTake) latest(ctx context.Context, i *image) (_ *image, ready bool, err error) {
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

// decide makes the plan from an image. It reports whether the write of the plan is bound to fail, since others have
// probably taken what flowed in since the image.
//
// Freshness is judged against the time the request came. Judged against each attempt, every lost race would make the stamp
// stale again, and N writers would cost N attempts.
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

// judge sets the time by which an image is judged.
func (t *shardTake) judge(i *image) {
	t.at = t.tk.items.judgedAt(&t.limits.Config, i, t.cameAt)
	t.shortenWaits(t.tk.core, t.at)
}

// mayJudgeAgain reports whether a request that an image rejects by its own clock reading is judged again by a present one. In a bucket that
// is nearly full, others who came later have taken meanwhile, and what did not fit by their time is lost. By an earlier reading, the limit then
// seems to lack what flowed in between, although it is nearly full. A request is judged again once, and only if there is room: in a used-up
// bucket each reply would show another token, and all requests would try again.
func (t *shardTake) mayJudgeAgain(i *image) bool {
	return !t.judgedAgain && i.exists && i.since(t.began) && t.cameAt < t.decidedAt &&
		t.limits.Config.IsRoomy(&i.State, &t.demand, t.decidedAt)
}

// isProof reports whether an image that falls short rejects the request, at the time when it came. Only a whole bucket proves that, with
// the limits that the request uses.
func (t *shardTake) isProof(i *image) bool {
	return i.exists && i.Count() == 1 && t.limits.Config.InLine(&i.State, t.at)
}

// makePlan makes the plan from an image, for the callers whose demands fit it. In a bucket that is used up, all processes see the refill, and
// few get it:
//   - A strained bucket is judged at the time when its image was requested, if that is later than the callers' arrival. Tokens that flowed
//     in while the reply was under way are left to others.
//   - In a used-up or strained one, an image that a rejection may be based on is rationed, see ration.
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

// planAsOf makes the plan for the callers whose demands fit an image at the time that was chosen.
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

// readySlots makes the slots ready that the party asks for beside tokens. It returns the image to decide by: the one that it was given
// where they are. The slots of a bucket that was divided meanwhile are taken apart.
func (t *shardTake) readySlots(ctx context.Context, i *image) (*image, error) {
	if i.Count() > 1 {
		return nil, errOutdated
	}
	t.slots = &slotTake{by: t.tk.slots, party: t.party, shard: t.s, image: i}
	return t.slots.makeReady(ctx)
}

// noteSlots notes the slots that the write of the plan took. Where they are not known, the tokens are given back, too.
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

// judgedAt returns the time by which a call judges an image. That is the beginning of the call, unless the stamp of the
// image is far ahead of it. Others may have moved the stamp since, so that the present decides whether it is to be set
// back.
func (it *items) judgedAt(c *bucket.Config, i *image, began int64) int64 {
	if i.exists && c.Leads(&i.State, began) {
		return max(began, it.now())
	}
	return began
}

// look returns the image of the shard as it was after the request came. It returns the same one after a throttle, up to maxThrottles
// times. It returns errShort for a rejection as far as is known, when asking again would make it worse.
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

// afterThrottle returns the image to decide from again after a write failed, or the error where that is the answer. All
// writers of a key cause its throttles, and others may have taken the few tokens there were. A look also shows whether
// others write the bucket, which one earlier image does not show.
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
	if len(t.fit) < len(t.waiters) && latest.since(t.began) { // the others fall short of what those would leave
		t.noteShort(t.s, latest, t.asOf)
	}
	return nil, failure
}

// hasRoom reports whether an image shows tokens for more than a few requests. The bucket must be able to admit more
// requests a second than a key bears writes. A throttle then ends when the bucket is split.
func (t *shardTake) hasRoom(i *image) bool {
	return t.tk.resizer.outgrows(t.level, t.tk.now()) && (!i.exists || !isScarce(&t.limits.Config, t.level, i, i.seenAt))
}

// isShortBy reports whether an image shows that a shard falls short for all callers.
func (t *shardTake) isShortBy(i *image) bool {
	t.makePlan(i)
	return t.plan.Kind == bucket.Reject
}

// isRecent reports whether an image is not older than the age that is allowed for a rejection from memory. The image shows the item as it may
// have been when the call for it began, however long that took. While the pace of looks allows none, an image may be a few pauses old, and of
// any age if the store has answered nothing since a throttle.
func (it *items) isRecent(s *shard, i *image, now int64) bool {
	age, most := now-i.askedAt, it.options.RejectionAge.Milliseconds()
	if i.asked == 0 || age < 0 || most == 0 {
		return false
	}
	return age < most || s.bucket.pace.isClosed(it.core) && (s.bucket.stall.isThrottled() || age < s.bucket.pace.pauses(it.core, looksOfView))
}

// looksOfView is how many looks it takes at most to see all shards of a bucket: the drawn one, another one, and all of them.
const looksOfView = 3

// confirm returns the limits for bringing an item in line that differs from the known ones. They were read after the
// image arrived, since another process may have known of a change first, and its change must not be undone. When they
// are not the level's, the level is outdated.
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

// loadShard reads a shard that this process has no image of. The first shard comes together with the limits when those
// are not in memory, unless again says that it has to be read once more.
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

// shardMissing looks at the origin of a missing shard, to correct the next draw.
func (lk *looks) shardMissing(ctx context.Context, b *Bucket, s *shard) error {
	if _, err := lk.items.readShard(ctx, b.shard(bucket.Origin(s.Shard))); err != nil {
		return err
	}
	return errNoShard
}

// write sends a plan in its turn. Where another goroutine has moved the refill stamp meanwhile, nothing is sent. It returns what send does.
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

// needsTurn reports whether a plan takes turns with plans of other goroutines that move the refill stamp. Of plans that move it, all but one
// would fail. So would a plan that relies on the stamp, while another goroutine is about to move it.
func needsTurn(s *shard, plan *bucket.Plan) bool {
	return plan.Kind != bucket.Spend || plan.OnCredit && s.turnAt.Load() > 0
}

// awaitTurn waits until a plan may be sent. It returns the last image, from which the plan has to be made again if it is another one, and
// the function that ends the turn.
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

// send sends a plan, and returns what [items.exchange] does. The time askedAt, in epoch milliseconds, is one before the call. repeat may be
// nil.
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
	isOwn := plan.Kind != bucket.Spend && plan.Now <= it.now() // a plan for an item that is ahead has the stamp of another clock
	if next != nil && applied && isOwn && next.RefilledAt == plan.Now && it.options.MaxLead > 0 {
		s.stamped.Store(next)
	}
	return next, applied, err
}

// readShard returns a shard as the store has it: one consistent read.
func (it *items) readShard(ctx context.Context, s *shard) (*image, error) {
	images, err := it.readShards(ctx, []*shard{s})
	if err != nil {
		return nil, err
	}
	return images[0], nil
}

// readShards returns shards as the store has them: one consistent batch read. If they are all shards of a bucket,
// it remembers the reading.
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

// expire deletes some of the buckets that have expired, as new ones come, in a store without an expiry of its own.
func (it *items) expire(ctx context.Context) {
	err := it.table.Expire(ctx, time.UnixMilli(it.now()))
	if err != nil && ctx.Err() == nil && store.OutcomeOf(err) == store.Refused { // after a caller that left, or an outage, the next one does it
		it.options.Logger.Warn("zlimit: expired buckets could not be deleted", "error", err)
	}
}
