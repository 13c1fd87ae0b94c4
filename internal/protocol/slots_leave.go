package protocol

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// enter waits for the turn to move or release slots, and returns the function that ends the turn.
func (d *tended) enter(ctx context.Context) (leave func(), err error) {
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// release releases the slots of a request, with one write for each bucket and epoch. Lost slots are skipped. Callers that arrive while
// slots of the bucket are being moved or released share a write. It returns the holds that provably were not released and are still held.
func (sk *slotKeeper) release(ctx context.Context, holds []*Hold) (kept []*Hold, err error) {
	var errs []error
	for len(holds) > 0 {
		b := holds[0].bucket
		of := func(h *Hold) bool { return h.bucket == b }
		mine := slices.DeleteFunc(slices.Clone(holds), func(h *Hold) bool { return !of(h) })
		holds = slices.DeleteFunc(slices.Clone(holds), of)
		if err := sk.leave(ctx, b, mine); err != nil {
			errs = append(errs, err)
		}
		b.tended.mu.Lock()
		for _, h := range mine {
			if h.phase == held {
				kept = append(kept, h)
			}
		}
		b.tended.mu.Unlock()
	}
	return kept, Joined(errs...)
}

// leave releases slots of one bucket.
func (sk *slotKeeper) leave(ctx context.Context, b *Bucket, holds []*Hold) error {
	d, lv := &b.tended, &leave{}
	d.mu.Lock()
	for _, h := range holds {
		if h.phase == held {
			h.phase = leaving
			lv.holds = append(lv.holds, h)
		}
	}
	if len(lv.holds) == 0 {
		d.mu.Unlock()
		return nil
	}
	d.leaves = append(d.leaves, lv)
	d.mu.Unlock()
	end, err := d.enter(ctx)
	if err != nil {
		defer sk.reportSlots(ctx, b)
		return d.giveUp(lv, err)
	}
	defer end()
	d.mu.Lock()
	if lv.done {
		d.mu.Unlock()
		return lv.err
	}
	leaves := d.leaves
	d.leaves = nil
	d.mu.Unlock()
	sk.writeLeaves(ctx, b, leaves)
	return lv.err
}

// giveUp ends a leave whose caller no longer waits for its turn.
func (d *tended) giveUp(lv *leave, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lv.done {
		return lv.err
	}
	at := slices.Index(d.leaves, lv)
	if at < 0 {
		return err // another caller has begun to release them
	}
	d.leaves = slices.Delete(d.leaves, at, at+1)
	for _, h := range lv.holds {
		d.keep(h)
	}
	d.awake()
	return err
}

// keep continues a hold that was not released, for [keptTime] or two terms: its holder may retry, or may no longer exist. If the engine was
// closed meanwhile, the hold is lost, since it is no longer renewed. The tended slots are locked.
func (d *tended) keep(h *Hold) {
	h.over = true
	if h.phase = held; d.closed {
		h.lose()
	}
}

// awake ends the sleep of the goroutine that tends the slots. The tended slots are locked.
func (d *tended) awake() {
	if d.changed = true; d.wake != nil {
		d.wake()
	}
}

// writeLeaves writes the releases of callers. Each epoch of a limit takes its own write.
func (sk *slotKeeper) writeLeaves(ctx context.Context, b *Bucket, leaves []*leave) {
	var rest []*Hold
	for _, lv := range leaves {
		rest = append(rest, lv.holds...)
	}
	var failure error
	var failed []*Hold
	for len(rest) > 0 && failure == nil {
		round := firstRound(rest)
		if failure = sk.writeRound(ctx, b, round); failure != nil {
			failed = round
			break
		}
		rest = slices.DeleteFunc(rest, func(h *Hold) bool { return slices.Contains(round, h) })
	}
	defer func() { b.line.free(sk.core, b.shard(0).image.Load()) }() // after the lock, like the rest
	defer sk.reportSlots(ctx, b)
	d := &b.tended
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, lv := range leaves {
		lv.done = true
		for _, h := range lv.holds {
			switch {
			case !slices.Contains(rest, h):
				h.end()
				continue
			case IsUnknown(failure) && slices.Contains(failed, h): // never repeated: the slots become free within two terms
				h.end()
			default:
				d.keep(h)
			}
			lv.err = failure
		}
	}
	d.awake()
}

// firstRound returns the holds that one write can release: for each limit, the holds of one epoch and one set of counters.
func firstRound(holds []*Hold) (round []*Hold) {
	for _, h := range holds {
		if !slices.ContainsFunc(round, func(o *Hold) bool { return o.limit == h.limit && (o.epoch != h.epoch || o.enrolled != h.enrolled) }) {
			round = append(round, h)
		}
	}
	return round
}

// writeRound releases holds by one write. It skips slots that are already free. No other goroutine changes their epochs meanwhile.
func (sk *slotKeeper) writeRound(ctx context.Context, b *Bucket, round []*Hold) error {
	s := b.shard(0)
	i := s.image.Load()
	rest := slices.Clone(round)
	for attempt, throttles := 0, 0; attempt < table.MaxAttempts; attempt++ {
		if i == nil {
			var err error
			if i, err = sk.looks.lookPatiently(ctx, s); err != nil {
				return err
			}
		}
		call := layout.Keep()
		hands := sk.handTo(&call, b, i, rest)
		eachLimit(rest, func(h *Hold, amount int64) {
			give := call.ReleaseEven
			if h.epoch%2 != 0 {
				give = call.ReleaseOdd
			}
			if amount -= handed(hands, h.limit); amount > 0 {
				give(h.limit, amount, h.epoch, h.epoch+2, h.enrolled)
			}
		})
		next, applied, err := sk.keep(ctx, s, i, &call, sk.now())
		if applied && err == nil {
			sk.finishHandings(ctx, b, rest, hands, next)
		} else {
			b.line.dropHandings(hands)
		}
		if isKeyThrottled(err) && throttles < maxThrottles { // a release has no failure policy
			if err := sk.table.Sleep(ctx, leaveRest<<throttles/2+time.Duration(sk.table.IntN(int(leaveRest<<throttles)))); err != nil {
				return err
			}
			throttles++
			continue
		}
		if applied || err != nil {
			return err
		}
		if i = next; i != nil {
			rest = slices.DeleteFunc(rest, i.isFree)
		}
		if len(rest) == 0 {
			return nil
		}
		if err := sk.table.Pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// leaveRest is the mean time after which a throttled release is retried. It doubles with each throttle.
const leaveRest = 50 * time.Millisecond

// eachLimit calls a function for each limit of a round, with one of its holds and the sum of their slots.
func eachLimit(round []*Hold, give func(h *Hold, amount int64)) {
	for at, h := range round {
		isSame := func(o *Hold) bool { return o.limit == h.limit }
		if slices.ContainsFunc(round[:at], isSame) {
			continue
		}
		amount := int64(0)
		for _, o := range round {
			if isSame(o) {
				amount += o.amount
			}
		}
		give(h, amount)
	}
}

// isFree reports whether an image shows that the slots of a hold have already become free.
func (i *image) isFree(h *Hold) bool {
	s := i.FindSlots(h.limit)
	return !i.exists || s == nil || s.Lapsed(h.epoch, h.enrolled)
}

// giveBack adds the release of a round of slots to a plan for an item, except for slots that are already free. It returns false if none are
// left, or if the item is not the one that has slots.
func (i *image) giveBack(plan *bucket.Plan, round []*Hold) (gives bool) {
	if len(round) == 0 || !i.exists || i.Shard > 0 {
		return false
	}
	rest := slices.DeleteFunc(slices.Clone(round), i.isFree)
	eachLimit(rest, func(h *Hold, amount int64) { plan.GiveSlotsBack(h.limit, amount, h.epoch, h.enrolled) })
	return true
}

// leaveAlong releases slots of one bucket by a write that a function makes for another purpose. The function gets the holds that one write
// can release, and reports whether the write included them. If its error leaves the outcome open, they may have been released. The other
// slots are still held.
func (sk *slotKeeper) leaveAlong(ctx context.Context, b *Bucket, holds []*Hold, write func(ctx context.Context, round []*Hold) (left bool, err error)) error {
	d := &b.tended
	end, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer end()
	d.mu.Lock()
	round := firstRound(slices.DeleteFunc(slices.Clone(holds), func(h *Hold) bool { return h.phase != held }))
	for _, h := range round {
		h.phase = leaving
	}
	d.mu.Unlock()
	left, err := write(ctx, round)
	defer func() { b.line.free(sk.core, b.shard(0).image.Load()) }() // after the lock, like the rest
	defer sk.reportSlots(ctx, b)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range round {
		if left && (err == nil || IsUnknown(err)) { // never repeated: the slots become free within two terms
			h.end()
		} else {
			d.keep(h)
		}
	}
	d.awake()
	return err
}

// heldOf returns the holds that are still held, except the given ones.
func heldOf(holds, without []*Hold) (left []*Hold) {
	for _, h := range holds {
		d := &h.bucket.tended
		d.mu.Lock()
		isHeld := h.phase == held
		d.mu.Unlock()
		if isHeld && !slices.Contains(without, h) {
			left = append(left, h)
		}
	}
	return left
}

// leaveAll releases all slots of a bucket that this process holds, when the engine is closed. It notifies their holders.
func (sk *slotKeeper) leaveAll(ctx context.Context, b *Bucket) {
	ctx, cancel := context.WithTimeout(table.Insist(ctx), sk.options.SettleLimit)
	defer cancel()
	d := &b.tended
	d.mu.Lock()
	d.closed = true
	holds := slices.Clone(d.holds)
	for _, h := range holds {
		if h.phase == held {
			h.notifyLost()
		}
	}
	d.mu.Unlock()
	err := sk.leave(ctx, b, holds)
	if err = errors.Join(err, sk.finishLeaves(ctx, b)); err != nil {
		sk.options.Logger.Warn("zlimit: slots could not be given back; they are free again within two terms", "entity", b.Entity,
			"resource", b.Resource, "error", err)
	}
	d.mu.Lock()
	d.holds, d.running = nil, false
	d.mu.Unlock()
	sk.reportSlots(ctx, b)
}

// finishLeaves waits for the release that is under way, and writes the releases of waiting callers.
func (sk *slotKeeper) finishLeaves(ctx context.Context, b *Bucket) error {
	d := &b.tended
	end, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer end()
	d.mu.Lock()
	leaves := d.leaves
	d.leaves = nil
	d.mu.Unlock()
	if len(leaves) > 0 {
		sk.writeLeaves(ctx, b, leaves)
	}
	return nil
}

// giveSlotsBack releases slots of a request that was not admitted. It outlives the caller's context. If it fails, the slots become free
// within two terms.
func (sk *slotKeeper) giveSlotsBack(ctx context.Context, holds []*Hold) {
	if len(holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(table.Insist(context.WithoutCancel(ctx)), sk.options.SettleLimit)
	defer cancel()
	kept, err := sk.release(ctx, holds)
	sk.giveUp(ctx, holds[0].bucket, kept, err)
}

// giveUp drops the slots of a bucket that could not be released, and logs why.
func (sk *slotKeeper) giveUp(ctx context.Context, b *Bucket, kept []*Hold, err error) {
	for _, h := range kept {
		sk.drop(ctx, h)
	}
	if err != nil {
		sk.options.Logger.Warn("zlimit: slots of a request that was not admitted could not be given back; they are free again within two terms",
			"entity", b.Entity, "resource", b.Resource, "error", err)
	}
}

// drop ends a hold without a write.
func (sk *slotKeeper) drop(ctx context.Context, h *Hold) {
	d := &h.bucket.tended
	defer sk.reportSlots(ctx, h.bucket)
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.phase == held {
		h.end()
		d.awake()
	}
}
