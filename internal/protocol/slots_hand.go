package protocol

import (
	"context"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A process with callers in line hands on the slots that it would release: the counters do not change, and one write gives each new holder
// a fencing number. So an admission costs one write, and a slot is never idle in between. Slots that another process has claimed are not
// handed on. A caller that also needs tokens of the bucket gets no slots in this way, since it takes both by one write.

// A handover has the slots of a limit that one write hands on.
type handover struct {
	limit  string
	epoch  int64
	amount int64 // the sum of the slots
	to     []*Place
}

// handOn chooses the callers that get the slots, in the order of the line. It returns nil for none.
func (l *slotLine) handOn(c *core, i *image, limit string, epoch, amount int64) *handover {
	s := i.FindSlots(limit)
	if s == nil || s.Epoch != epoch { // the slots move to another epoch first
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := c.slotNow()
	left := min(amount, amount+s.Free-s.KeptAt(now))
	h := &handover{limit: limit, epoch: epoch}
	for at, p := range l.places {
		if left <= 0 {
			break
		}
		if p.asking || p.handing || len(p.hands) > 0 {
			continue
		}
		fits := len(p.asks) == 1 && p.asks[0].Limit == limit && p.asks[0].Tokens <= left
		switch {
		case fits && p.alone && !p.declined:
			p.handing = true
			h.to = append(h.to, p)
			h.amount += p.asks[0].Tokens
			left -= p.asks[0].Tokens
		case fits, at == 0 && l.isDue(c): // no caller behind may overtake it
			left = 0
		}
	}
	if len(h.to) == 0 {
		return nil
	}
	return h
}

// handTo adds handovers to the write that would release a round of slots.
func (sk *slotKeeper) handTo(call *layout.KeepCall, b *Bucket, i *image, round []*Hold) (all []*handover) {
	known := b.Limits.Load()
	if i == nil || !i.exists || i.Disabled || known == nil || b.outdates(known) || sk.background.open.Err() != nil {
		return nil
	}
	eachLimit(round, func(h *Hold, amount int64) {
		s, of := i.FindSlots(h.limit), known.Config.FindSlots(h.limit)
		if s == nil || of == nil || s.Enrolled != h.enrolled || !s.Fits(of) { // a take must bring the item in line first
			return
		}
		if hand := b.line.handOn(sk.core, i, h.limit, h.epoch, amount); hand != nil {
			call.Hand(h.limit, int64(len(hand.to)), h.epoch, h.enrolled)
			all = append(all, hand)
		}
	})
	if len(all) > 0 { // as for every other take
		call.Admit()
		call.Current(i.Generation())
	}
	return all
}

// handed returns the number of slots of a limit that a write hands on.
func handed(all []*handover, limit string) int64 {
	for _, h := range all {
		if h.limit == limit {
			return h.amount
		}
	}
	return 0
}

// dropHandings notes that slots were not handed on after all.
func (l *slotLine) dropHandings(all []*handover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range all {
		for _, p := range h.to {
			p.handing = false
		}
	}
}

// finishHandings gives callers the slots that a write has handed on, given the image that it left. Slots of callers that have left the line
// meanwhile are released.
func (sk *slotKeeper) finishHandings(ctx context.Context, b *Bucket, round []*Hold, all []*handover, left *image) {
	if len(all) == 0 {
		return
	}
	if left == nil { // the fencing numbers are unknown; the slots become free within two terms
		b.line.dropHandings(all)
		return
	}
	var holds []*Hold
	var fate []func(hold *Hold)
	for _, h := range all {
		from := round[slices.IndexFunc(round, func(o *Hold) bool { return o.limit == h.limit })]
		ends, due := from.ends, from.due
		for _, o := range round {
			if o.limit == h.limit {
				ends, due = min(ends, o.ends), min(due, o.due)
			}
		}
		fence := from.fence + int64(len(h.to))
		if s := left.FindSlots(h.limit); s != nil {
			fence = s.Fence
		}
		for at, p := range h.to {
			holds = append(holds, &Hold{
				bucket: b, limit: h.limit, amount: p.asks[0].Tokens, term: from.term, enrolled: from.enrolled,
				fence: fence - int64(len(h.to)-1-at), lost: make(chan struct{}), done: make(chan struct{}),
				epoch: h.epoch, ends: ends, due: due,
			})
			fate = append(fate, func(hold *Hold) { p.give(ctx, hold) })
		}
	}
	runs := sk.tendUnlessClosed(ctx, b, holds)
	for i, hold := range holds {
		if !runs { // the engine is closed
			sk.drop(ctx, hold)
			hold = nil
		}
		fate[i](hold)
	}
	if !runs {
		ctx, cancel := context.WithTimeout(table.Insist(context.WithoutCancel(ctx)), sk.options.SettleLimit)
		defer cancel()
		_ = sk.writeRound(ctx, b, holds) // on a failure, they become free within two terms
	}
}

// give gives a caller slots that were handed on; nil if the engine is closed.
func (p *Place) give(ctx context.Context, hold *Hold) {
	l := &p.bucket.line
	l.mu.Lock()
	p.handing = false
	isGone := p.gone
	if hold != nil && !isGone {
		p.hands = []*Hold{hold}
	}
	l.mu.Unlock()
	if hold != nil && isGone {
		p.giveBack(ctx, []*Hold{hold})
		return
	}
	p.wake()
}

// giveBack releases slots in the background that were handed to a caller that does not need them.
func (p *Place) giveBack(ctx context.Context, holds []*Hold) {
	if len(holds) > 0 { // closing an engine releases them as well
		p.background.GoOn(ctx, func(ctx context.Context) { p.waits.slotKeeper.giveSlotsBack(ctx, holds) })
	}
}

// takeHands returns the slots that were handed to a caller, which holds them from then on; nil for none, or if they were lost.
func (p *Place) takeHands(b *Bucket) []*Hold {
	if p == nil || !p.bucket.is(b) {
		return nil
	}
	l := &p.bucket.line
	l.mu.Lock()
	hands := p.hands
	p.hands = nil
	l.mu.Unlock()
	if len(hands) == 0 || len(heldOf(hands, nil)) == 0 {
		return nil
	}
	return hands
}

// handsFor returns the slots that were handed to the caller of a request, if a level needs just these, and no tokens. Otherwise it releases
// them.
func (ad *admitter) handsFor(ctx context.Context, r *Request, l *level) []*Hold {
	if len(l.demand.Slots()) == 0 {
		return nil
	}
	hands := r.Place.takeHands(l.bucket)
	if hands == nil {
		return nil
	}
	asks := l.demand.Slots()
	if s := l.limits.Config.FindSlots(asks[0].Limit); len(asks) == 1 && l.demand.Empty() && asks[0] == (bucket.Amount{Limit: hands[0].limit, Tokens: hands[0].amount}) && s != nil {
		return hands
	}
	r.Place.giveBack(ctx, hands)
	return nil
}

// declines notes that a caller releases slots because another level rejects it. It gets no further slots until it has waited for that
// level. Otherwise it would get the same slots again and again, by a write each time.
func (p *Place) declines() {
	if p == nil {
		return
	}
	p.bucket.line.mu.Lock()
	defer p.bucket.line.mu.Unlock()
	p.declined = true
}
