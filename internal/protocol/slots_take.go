package protocol

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// If a bucket is not split, the write that takes the tokens of a request also takes its slots. In a split bucket, and for a request without
// tokens of the bucket, slots take a separate write. In both cases callers of a process share writes. A further write makes slots ready
// first if necessary: it creates the counters, applies a configured number or term, or begins an epoch.

// A slotTaker takes the slots of levels, which a slotKeeper then renews.
type slotTaker struct {
	*core
	items      *items
	looks      *looks
	lister     *lister
	slotKeeper *slotKeeper
	shared     sharing[*claim]
}

// takeSlots takes the slots of a level, and no tokens, in a separate or a shared write. It returns errShort if too few slots are free.
func (sk *slotTaker) takeSlots(ctx context.Context, l *level, to *levelReceipt) error {
	if sk.options.WritesAtOnce == 0 {
		return sk.takeSlotsAlone(ctx, l, to)
	}
	q := l.bucket.tended.slotQueue(l.bucket)
	return sk.shared.patiently(ctx, q, l.patience > 0, func() error {
		if round, ok := q.begin(sk.core); ok {
			defer sk.shared.finish(ctx, q, round)
			return sk.takeSlotsAlone(ctx, l, to)
		}
		return sk.shared.await(ctx, q, &claim{level: l, to: to})
	})
}

// slotQueue returns the queue of callers that take only slots.
func (d *tended) slotQueue(b *Bucket) *queue[*claim] {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue == nil {
		q := newQueue[*claim](b, false)
		d.queue = &q
	}
	return d.queue
}

var _ writer[*claim] = (*slotTaker)(nil)

// write implements [writer].
func (sk *slotTaker) write(ctx context.Context, c *claim) error {
	return sk.takeSlotsAlone(ctx, c.level, c.to)
}

// takeSlotsAlone takes slots for a single caller.
func (sk *slotTaker) takeSlotsAlone(ctx context.Context, l *level, to *levelReceipt) error {
	p := party{level: l, to: to}
	p.to.took(l, nil, nil, nil)
	if err := sk.takeSlotsDirect(ctx, &p); err != nil {
		return err
	}
	return sk.handOut(ctx, &p)
}

// writeTogether implements [writer]: each write is for the callers that free slots suffice for, in the order of their arrival.
func (sk *slotTaker) writeTogether(ctx context.Context, q *queue[*claim], waiters []*waiter[*claim]) {
	var to levelReceipt
	for p := partyOf(waiters, &to); len(p.waiters) > 0; {
		err := sk.takeSlotsDirect(ctx, &p)
		switch {
		case err == nil:
			p.portion()
			err = sk.handOut(ctx, &p)
			sk.shared.deliver(ctx, q, p.leave(), err)
		case IsUnknown(err):
			sk.shared.deliver(ctx, q, p.leave(), err)
		default:
			sk.shared.deliver(ctx, q, p.waiters, err)
			return
		}
	}
}

// undo implements [writer]: it releases the slots of a caller that gave up.
func (sk *slotTaker) undo(ctx context.Context, c *claim) {
	sk.slotKeeper.giveSlotsBack(ctx, c.to.holds())
}

// takeSlotsDirect takes slots for a party by one write, and notes whether the store throttled it.
func (sk *slotTaker) takeSlotsDirect(ctx context.Context, p *party) error {
	err := sk.takeSlotsFor(ctx, p)
	p.bucket.tended.slotQueue(p.bucket).ended(sk.core, err, p.patience > 0)
	return err
}

// takeSlotsFor takes slots for a party. It decides from the last image and sends the write. After a failed condition, it decides again from
// the returned image.
func (sk *slotTaker) takeSlotsFor(ctx context.Context, p *party) error {
	s := p.bucket.shard(0)
	image := s.image.Load()
	for attempt := range table.MaxAttempts {
		var err error
		if image == nil {
			if image, err = sk.looks.loadShard(ctx, p.bucket, s, attempt > 0); err != nil {
				return err
			}
		}
		if image, err = sk.looks.unlessDisabled(ctx, s, image, p.began); err != nil {
			return err
		}
		if p.bucket.outdates(p.limits) {
			return errOutdated
		}
		t := slotTake{by: sk, party: p, shard: s, image: image}
		next, err := t.makeReady(ctx)
		if err != nil {
			return err
		}
		if next != image {
			image = next
			continue
		}
		if t.choose(); t.isShort() {
			if image.since(p.began) || sk.items.isRecent(s, image, sk.now()) {
				p.noteShort(s, image, t.now)
				return errShort
			}
			if image, err = sk.looks.lookSince(ctx, s, p.began); err != nil {
				return err
			}
			continue
		}
		next, applied, err := t.writeSlots(ctx)
		if applied || err != nil {
			return err
		}
		image = next
		if err := sk.table.Pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// A slotTake is one try of a take of slots.
type slotTake struct {
	by *slotTaker
	*party
	shard *shard
	image *image

	now      int64         // by the clock of slots, epoch milliseconds
	sent     time.Duration // by core.elapsed, no later than now
	prepares bool          // a write must make slots ready first
	looks    bool          // a read must precede that write: others have probably written the item
	call     layout.KeepCall
}

// asked returns, for each limit, the fewest slots that a caller of the party needs.
func (p *party) asked() (asked []bucket.Amount) {
	if len(p.waiters) == 0 {
		return p.demand.Slots()
	}
	for _, w := range p.waiters {
	next:
		for _, a := range w.job.level.demand.Slots() {
			for i := range asked {
				if asked[i].Limit == a.Limit {
					asked[i].Tokens = min(asked[i].Tokens, a.Tokens)
					continue next
				}
			}
			asked = append(asked, a)
		}
	}
	return asked
}

// choose makes the write take for the callers that free slots suffice for.
func (t *slotTake) choose() {
	var shards []*bucket.State
	if t.image.exists {
		shards = []*bucket.State{&t.image.State}
	}
	t.party.choose(&t.limits.Config, shards, t.now)
}

// isShort reports whether the image has too few slots for the party.
func (t *slotTake) isShort() bool {
	for _, a := range t.demand.Slots() {
		free := t.limits.Config.FindSlots(a.Limit).Slots
		if t.image.exists {
			of := t.image.FindSlots(a.Limit)
			free = of.Free - of.KeptAt(t.now)
		}
		if free < a.Tokens {
			return true
		}
	}
	return false
}

// makeReady makes the slots of the party ready, by a write if necessary. It returns the image to decide from, which is the given one if the
// slots are ready already.
func (t *slotTake) makeReady(ctx context.Context) (*image, error) {
	if err := t.clock(); err != nil || !t.image.exists {
		return t.image, err
	}
	t.call = layout.Keep()
	t.call.Admit()
	t.call.Current(t.image.Generation())
	for _, a := range t.asked() {
		if err := t.prepare(ctx, a); err != nil {
			return nil, err
		}
	}
	switch {
	case t.looks:
		return t.by.looks.lookSince(ctx, t.shard, t.began)
	case !t.prepares:
		return t.image, nil
	}
	next, _, err := t.by.slotKeeper.keep(ctx, t.shard, t.image, &t.call, t.now)
	return next, err
}

// clock notes the time. It returns a [*ClockError] if the clock is not accurate enough for the slots.
func (t *slotTake) clock() (err error) {
	shortest := int64(math.MaxInt64)
	for _, a := range t.asked() {
		shortest = min(shortest, t.limits.Config.FindSlots(a.Limit).Term)
		if s := t.image.FindSlots(a.Limit); s != nil && s.Term > 0 {
			shortest = min(shortest, s.Term)
		}
	}
	t.sent = t.by.elapsed()
	t.now, err = t.by.slotTime(shortest)
	return err
}

// prepare decides what must be written before slots of a limit can be taken.
func (t *slotTake) prepare(ctx context.Context, a bucket.Amount) error {
	p, s := t.limits.Config.FindSlots(a.Limit), t.image.FindSlots(a.Limit)
	if s == nil || !s.Fits(p) {
		if err := t.confirm(ctx); err != nil {
			return err
		}
	}
	switch {
	case s == nil:
		n := p.Enrol(0, 0, t.now)
		t.call.Enrol(a.Limit, n.Capacity, 0, n.Epoch, n.Term, n.Fence, n.Enrolled)
		t.prepares = true
	case s.Term <= 0:
		return &store.ItemError{Key: t.shard.key, Attribute: layout.AttrBucketSlotsTerm.Name(a.Limit), Err: errors.New("is not the length of an epoch")}
	case s.Term != p.Term && s.ChangesTerm():
		t.call.ChangeTerm(a.Limit, p.Term, t.now/p.Term, s.Epoch, 0, s.Enrolled, max(t.now, s.Enrolled+1))
		t.prepares = true
	case s.Strays(t.now) && !t.image.since(t.began): // the item may have been deleted meanwhile
		t.looks = true
	case s.Strays(t.now):
		return &ClockError{Term: milliseconds(s.Term), Ahead: milliseconds(s.Epoch*s.Term - t.now)}
	case s.Capacity != p.Slots:
		t.call.Resize(a.Limit, p.Slots-s.Capacity, p.Slots, s.Capacity)
		t.prepares = true
	case max(s.Free-s.KeptAt(t.now), s.FreeAt(t.now)) < a.Tokens: // not even enough in the next epoch
	default:
		if epoch, ok := s.Opens(t.now); ok {
			t.looks = t.looks || !t.image.since(t.began) && t.shard.traffic.isOutdated(t.now)
			open(&t.call, s, epoch, 0)
			t.prepares = true
		}
	}
	return nil
}

// open makes a write begin an epoch, and renew the slots that the caller holds.
func open(call *layout.KeepCall, s *bucket.Slots, epoch, kept int64) {
	if epoch%2 == 0 {
		call.OpenEven(s.Name, s.Epoch, epoch, kept, s.Enrolled)
	} else {
		call.OpenOdd(s.Name, s.Epoch, epoch, kept, s.Enrolled)
	}
}

// confirm ensures that the limits were read after the image arrived, as [aligner.confirm] does: another process may have learned of a
// change first.
func (t *slotTake) confirm(ctx context.Context) error {
	known := t.limits
	if known.Own || known.Epoch > t.image.arrived {
		return nil
	}
	latest, err := t.by.options.Source.After(ctx, t.bucket, t.image.arrived)
	if err == nil && (!latest.Config.Equal(&known.Config) || latest.Lineage != known.Lineage) {
		err = errOutdated
	}
	return err
}

// writeSlots takes the slots of an item, or creates the item. If the write was not applied, it returns the image to decide from again.
func (t *slotTake) writeSlots(ctx context.Context) (*image, bool, error) {
	if !t.image.exists {
		return t.create(ctx)
	}
	t.call = layout.Keep()
	t.call.Admit()
	t.call.Current(t.image.Generation())
	g := takenSlots{now: t.now, sent: t.sent}
	for _, a := range t.demand.Slots() {
		s := t.image.FindSlots(a.Limit)
		hold := t.call.HoldEven
		if s.Epoch%2 != 0 {
			hold = t.call.HoldOdd
		}
		hold(a.Limit, a.Tokens, a.Tokens+s.KeptAt(t.now), s.Epoch, t.demand.Holders(), s.Enrolled)
		if s.IsClaimedBy(t.by.claimant(), t.now) {
			t.call.Unclaim(a.Limit)
		}
		g.of = append(g.of, *s)
	}
	next, applied, err := t.by.slotKeeper.keep(ctx, t.shard, t.image, &t.call, t.now)
	if applied && err == nil {
		err = t.note(&g, next)
	}
	return next, applied, err
}

// create creates the item with its slots, some of which are held.
func (t *slotTake) create(ctx context.Context) (*image, bool, error) {
	plan := plans.Get().(*bucket.Plan)
	defer plans.Put(plan)
	plan.Decide(nil, &t.limits.Config, &bucket.Demand{Life: t.demand.Life}, t.by.now())
	plan.Item.Change(func(n *bucket.Notes) { n.Slots = nil })
	if !plan.EnrolSlots(&t.limits.Config, &t.demand, t.now) {
		return nil, false, errShort
	}
	g := takenSlots{now: t.now, sent: t.sent, of: plan.Item.Slots()}
	next, applied, err := t.by.items.write(ctx, t.shard, &t.limits.Lineage, t.image, plan, t.by.now(), nil)
	if !applied || err != nil {
		return next, false, err
	}
	if err := t.note(&g, next); err != nil {
		return nil, true, err
	}
	t.by.items.expire(ctx)
	t.by.lister.listWritten(ctx, t.shard, next, plan.Kind)
	return next, true, nil
}

// takenSlots are the slots that a write took, which are still to be handed out to its callers.
type takenSlots struct {
	of     []bucket.Slots // as the write requested them
	fences []int64        // the fencing numbers handed out so far
	now    int64          // when the write was sent, by the clock of slots, epoch milliseconds
	sent   time.Duration  // the same, by core.elapsed
}

// note notes the slots of a write and the image that it left, nil for an unreadable one.
func (p *party) note(g *takenSlots, left *image) error {
	if left == nil {
		return &store.ItemError{Key: p.bucket.shard(0).key, Err: errLostSlots}
	}
	for i := range g.of {
		fence := g.of[i].Fence
		if now := left.FindSlots(g.of[i].Name); now != nil {
			fence = now.Fence
		}
		g.fences = append(g.fences, fence)
	}
	p.taken = g
	return nil
}

// handOut gives the slots of the last write to its callers, and starts renewing them. If the engine is closed, it releases them.
func (sk *slotTaker) handOut(ctx context.Context, p *party) error {
	g := p.taken
	if p.taken = nil; g == nil {
		return nil
	}
	var all []*Hold
	if len(p.waiters) == 0 {
		all = sk.holdsOf(g, p.level, 0)
		p.to.hold(all)
	}
	others := int64(0)
	for _, w := range slices.Backward(p.fit) {
		w.job.to.hold(sk.holdsOf(g, w.job.level, others))
		others += w.job.level.demand.Holders()
		all = append(all, w.job.to.holds()...)
	}
	return sk.slotKeeper.startTending(ctx, p.bucket, all)
}

// holdsOf returns the holds of a level in taken slots, given the number of takers behind it.
func (sk *slotTaker) holdsOf(g *takenSlots, l *level, others int64) []*Hold {
	holds := make([]*Hold, 0, len(l.demand.Slots()))
	each := l.demand.SlotsOfEach()
	for at, asked := range each {
		behind := others + int64(len(each)-1-at)
		for i := range g.of {
			s := &g.of[i]
			amount := bucket.Of(asked, s.Name)
			if amount == 0 {
				continue
			}
			h := &Hold{
				bucket: l.bucket, limit: s.Name, amount: amount, term: s.Term, enrolled: s.Enrolled, fence: g.fences[i] - behind,
				lost: make(chan struct{}), done: make(chan struct{}),
			}
			h.heard(sk.core, s.Epoch, g.now, g.sent)
			holds = append(holds, h)
		}
	}
	return holds
}

// slotsForeseen reports whether images that are recent enough for a rejection from memory show too few slots for one of the levels.
func (sk *slotTaker) slotsForeseen(levels []level, p *Place) bool {
	now := sk.now()
	for i := range levels {
		l := &levels[i]
		first := l.bucket.shard(0)
		image := first.image.Load()
		if len(l.demand.Slots()) == 0 || image == nil || !image.exists || !sk.items.isRecent(first, image, now) {
			continue
		}
		kept := l.bucket.line.keeps(sk.core, p)
		for _, a := range l.demand.Slots() {
			s, of := image.FindSlots(a.Limit), l.limits.Config.FindSlots(a.Limit)
			if s != nil && s.Fits(of) && s.FreeAt(sk.slotNow())-bucket.Of(kept, a.Limit) < a.Tokens {
				l.kept = kept
				return true
			}
		}
	}
	return false
}
