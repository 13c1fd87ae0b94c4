package protocol

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// startTending starts renewing the slots that a request has taken. If the engine is closed, it releases them.
func (sk *slotKeeper) startTending(ctx context.Context, b *Bucket, holds []*Hold) error {
	if sk.tendUnlessClosed(ctx, b, holds) {
		return nil
	}
	return errors.Join(ErrClosed, sk.leave(context.WithoutCancel(ctx), b, holds))
}

// tendUnlessClosed starts renewing slots. It returns false if the engine is closed.
func (sk *slotKeeper) tendUnlessClosed(ctx context.Context, b *Bucket, holds []*Hold) (runs bool) {
	d := &b.tended
	d.mu.Lock()
	for _, h := range holds {
		d.note(h, SlotsTaken)
	}
	if !d.closed {
		d.running = d.running || sk.background.Tend(ctx, func(ctx context.Context) { sk.tend(ctx, b) })
	}
	if runs = !d.closed && d.running; runs {
		now := sk.elapsed()
		d.holds = append(d.holds, holds...)
		d.end(now) // after a very late reply, some are already lost or due
		d.late = d.late || slices.ContainsFunc(holds, func(h *Hold) bool { return h.phase == held && h.due <= now })
		d.awake()
	}
	d.mu.Unlock()
	sk.reportSlots(ctx, b)
	return runs
}

// tend renews the slots of a bucket until this process holds none, or the engine is closed.
func (sk *slotKeeper) tend(ctx context.Context, b *Bucket) {
	for d := &b.tended; ; {
		if sk.background.open.Err() != nil {
			sk.leaveAll(ctx, b)
			return
		}
		if d.isLate() { // their holder may release them first
			sk.yieldUnlessLost(ctx, b)
		}
		rest, isDue, ok := sk.next(b)
		sk.reportSlots(ctx, b)
		switch {
		case !ok:
			return
		case isDue:
			sk.beat(ctx, b)
		default:
			sk.sleepUnlessWoken(ctx, b, rest)
		}
	}
}

// isLate reports, once, whether slots were already due when they were taken.
func (d *tended) isLate() (late bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	late, d.late = d.late, false
	return late
}

// yieldUnlessLost yields to other goroutines, until a hold is lost.
func (sk *slotKeeper) yieldUnlessLost(ctx context.Context, b *Bucket) {
	ctx, cancel := context.WithTimeout(ctx, sk.untilLost(b))
	defer cancel()
	_ = sk.table.Yield(ctx)
}

// next ends the holds that are lost by now, and reports whether holds are due for renewal. If none are, it returns the time until the next
// hold is lost or due. It returns false if no slots are held any more, and the goroutine ends.
func (sk *slotKeeper) next(b *Bucket) (rest time.Duration, isDue, ok bool) {
	d := &b.tended
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = false
	now := sk.elapsed()
	if d.end(now); len(d.holds) == 0 {
		d.running = false
		return 0, false, false
	}
	rest = math.MaxInt64
	for _, h := range d.holds {
		if h.phase == held {
			isDue = isDue || now >= h.due
			rest = min(rest, h.due-now, h.ends-now)
		}
	}
	if rest == math.MaxInt64 { // all are being released, by callers that wake this goroutine
		rest = time.Minute
	}
	return rest, isDue, true
}

// keptTime is the least time for which a holder may retry a release. It may do so for two terms if that is longer.
const keptTime = time.Minute

// end ends the holds that are lost at a time, and holds whose holders did not retry a release in time. The tended slots are locked.
func (d *tended) end(now time.Duration) {
	d.holds = slices.DeleteFunc(d.holds, func(h *Hold) bool {
		if h.over && h.until == 0 {
			h.until = now + max(keptTime, time.Duration(2*h.term)*time.Millisecond)
		}
		switch {
		case h.phase != held:
		case h.over && now >= h.until:
			h.end()
		case now >= h.ends:
			h.lose()
		}
		return h.phase == gone
	})
}

// lose ends a hold that is lost. The tended slots are locked.
func (h *Hold) lose() {
	h.notifyLost()
	h.end()
}

// notifyLost notifies the holder that a hold is lost. The tended slots are locked.
func (h *Hold) notifyLost() {
	if !h.reported {
		h.reported = true
		close(h.lost)
		h.bucket.tended.note(h, SlotsLost)
	}
}

// end ends a hold. The tended slots are locked.
func (h *Hold) end() {
	h.phase = gone
	close(h.done)
	if !h.reported {
		h.bucket.tended.note(h, SlotsGivenBack)
	}
}

// sleepUnlessWoken sleeps for a time, until something changes about the holds, or until the engine is closed.
func (sk *slotKeeper) sleepUnlessWoken(ctx context.Context, b *Bucket, rest time.Duration) {
	if rest <= 0 {
		return
	}
	ctx, cancel := sk.background.whileOpen(ctx)
	defer cancel()
	d := &b.tended
	d.mu.Lock()
	if d.wake = cancel; d.changed {
		cancel()
	}
	d.mu.Unlock()
	sleep := sk.table.Sleep
	if s := sk.options.Sleeper; s != nil {
		sleep = s.Sleep
	}
	_ = sleep(ctx, rest)
	d.mu.Lock()
	d.wake = nil
	d.mu.Unlock()
}

// untilLost returns the time until the next hold of a bucket is lost.
func (sk *slotKeeper) untilLost(b *Bucket) time.Duration {
	b.tended.mu.Lock()
	defer b.tended.mu.Unlock()
	first := sk.after(math.MaxInt64)
	for _, h := range b.tended.holds {
		if h.phase == held {
			first = min(first, h.ends)
		}
	}
	return first - sk.elapsed()
}

// beat renews the slots of this process: one write moves all due slots of a bucket to the present epoch. It ends when a hold is lost, so
// that each holder is notified in time even if the store is silent.
func (sk *slotKeeper) beat(ctx context.Context, b *Bucket) {
	ctx, cancel := context.WithTimeout(ctx, sk.untilLost(b))
	defer cancel()
	if sk.knowTime(ctx, b) != nil { // the holds are due later, or lost
		(&beatTry{slotKeeper: sk, bucket: b}).postpone()
		return
	}
	leave, err := b.tended.enter(ctx)
	if err != nil {
		(&beatTry{slotKeeper: sk, bucket: b}).postpone()
		return
	}
	defer leave()
	s, began := b.shard(0), sk.NextEpoch()
	image := s.image.Load()
	for attempt := range table.MaxAttempts {
		bt := beatTry{slotKeeper: sk, bucket: b, shard: s, began: began}
		if image == nil || !bt.decide(image) {
			if image, err = sk.looks.lookSince(ctx, s, began); err != nil {
				bt.postpone()
				return
			}
			if !bt.decide(image) { // cannot happen, since the image is a later one
				bt.postpone()
				return
			}
		}
		if len(bt.moves) == 0 {
			bt.postpone() // the holds are not lost: the clock was set back
			return
		}
		next, applied, err := sk.keep(ctx, s, image, &bt.call, bt.now)
		if err != nil {
			bt.postpone()
			return
		}
		if applied {
			bt.heard()
			return
		}
		if image = next; sk.table.Pause(ctx, attempt) != nil {
			break
		}
	}
	(&beatTry{slotKeeper: sk, bucket: b}).postpone()
}

// knowTime waits until the clock is accurate enough for the slots that this process holds. The possible error grows while no reply arrives,
// and a process that only holds slots makes no other calls.
func (sk *slotKeeper) knowTime(ctx context.Context, b *Bucket) error {
	_, err := sk.slotTime(b.tended.shortestTerm(b.shard(0).image.Load()))
	var unknown *ClockError
	if !errors.As(err, &unknown) {
		return err
	}
	return sk.clock.know(ctx, unknown, b.shard(0).key, sk.untilLost(b))
}

// shortestTerm returns the shortest term of the held slots, milliseconds. It includes the terms in an image, which may have changed.
func (d *tended) shortestTerm(i *image) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	shortest := int64(math.MaxInt64)
	for _, h := range d.holds {
		if h.phase != held {
			continue
		}
		shortest = min(shortest, h.term)
		if i == nil || !i.exists {
			continue
		}
		if s := i.FindSlots(h.limit); s != nil && s.Term > 0 {
			shortest = min(shortest, s.Term)
		}
	}
	return shortest
}

// A beatTry is one try of a beat.
type beatTry struct {
	slotKeeper *slotKeeper
	bucket     *Bucket
	shard      *shard
	began      int64 // epoch when the beat began
	now        int64
	sent       time.Duration
	call       layout.KeepCall
	moves      []move
}

// A move is the effect of a beat on a hold.
type move struct {
	hold  *Hold
	epoch int64
}

// decide decides what to write, given an image. It returns false if the image is too old for that.
func (bt *beatTry) decide(i *image) bool {
	d := &bt.bucket.tended
	d.mu.Lock()
	defer d.mu.Unlock()
	bt.call, bt.moves, bt.sent = layout.Keep(), nil, bt.slotKeeper.elapsed()
	var limits []string
	for _, h := range d.holds {
		if h.phase != held || slices.Contains(limits, h.limit) {
			continue
		}
		limits = append(limits, h.limit)
		if !bt.decideLimit(i, h.limit) {
			return false
		}
	}
	return true
}

// decideLimit is decide for the slots of one limit.
func (bt *beatTry) decideLimit(i *image, limit string) bool {
	s, recent := i.FindSlots(limit), i.since(bt.began)
	current, former := int64(0), int64(0)
	for _, h := range bt.bucket.tended.holds {
		if h.limit != limit || h.phase != held {
			continue
		}
		switch {
		case !i.exists || s == nil || s.Lapsed(h.epoch, h.enrolled):
			if !recent {
				return false
			}
			h.lose()
		case s.Epoch < h.epoch:
			return false
		case s.Epoch == h.epoch:
			current += h.amount
		default:
			former += h.amount
		}
	}
	if s == nil || s.Term <= 0 || current+former == 0 {
		return true
	}
	now, err := bt.slotKeeper.slotTime(s.Term)
	if err != nil {
		return true // nothing is moved: the holds are due later, or lost
	}
	bt.now = now
	to := s.Epoch
	switch {
	case former > 0:
		beat := bt.call.BeatEven
		if to%2 != 0 {
			beat = bt.call.BeatOdd
		}
		beat(limit, former, to, s.Enrolled)
	case now/s.Term > s.Epoch: // by a longer pause the holds are lost
		to++
		open(&bt.call, s, to, current)
	default:
		return true
	}
	for _, h := range bt.bucket.tended.holds {
		if h.limit == limit && h.phase == held && h.epoch == to-1 {
			bt.moves = append(bt.moves, move{h, to})
		}
	}
	return true
}

// heard notes that the store has renewed the slots of this process.
func (bt *beatTry) heard() {
	d := &bt.bucket.tended
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range bt.moves {
		m.hold.heard(bt.slotKeeper.core, m.epoch, bt.now, bt.sent)
	}
}

// postpone schedules another try for the due holds. The outcome of the last try is unknown, so they count in their former epochs.
func (bt *beatTry) postpone() {
	d := &bt.bucket.tended
	d.mu.Lock()
	defer d.mu.Unlock()
	now := bt.slotKeeper.elapsed()
	for _, h := range d.holds {
		if h.phase == held && h.due <= now {
			h.due = now + milliseconds(h.term/retryPart)
		}
	}
}
