package protocol

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Slots bound how many requests are at work at once. They are counters in the first item of a bucket, also where it is divided: see
// [bucket.Slots] for what they mean. A process goes on holding its slots by a write for each epoch and item, which moves all of them to
// the counter of the present epoch. A process that ends loses them within two epochs.

// A tender takes slots, goes on holding them, and gives them back.
type tender struct {
	*core
	items   *items
	looks   *looks
	lister  *lister
	buckets *buckets
}

// A Hold is what a request holds of the slots of one limit. It is safe for concurrent use.
type Hold struct {
	bucket   *Bucket
	limit    string
	amount   int64 // slots
	fence    int64
	term     int64 // milliseconds
	enrolled int64 // by which counters it is held
	lost     chan struct{}
	done     chan struct{} // closed when it is given back, or lost

	// Guarded by the tended slots of the bucket.
	phase holdPhase
	epoch int64         // in which this process was last heard of for certain
	due   time.Duration // when it is to be heard of again, by core.elapsed
	ends  time.Duration // when the hold is lost unless it is
}

// A holdPhase is how far a hold has come.
type holdPhase uint8

const (
	held    holdPhase = iota
	leaving           // it is being given back, and is not moved to another epoch meanwhile
	gone              // given back, or lost
)

// tended are the slots of a bucket that this process holds. It is safe for concurrent use.
type tended struct {
	turn chan struct{} // holds a token while a goroutine moves slots or gives them back: which epoch they count in must be known

	mu      sync.Mutex // guards what follows
	holds   []*Hold
	leaves  []*leave // that wait for the turn
	running bool     // a goroutine tends them
	changed bool     // since that goroutine looked at them last
	closed  bool     // none are taken any more
	wake    func()   // ends the sleep of the goroutine; nil while it does not sleep
}

// A leave is a caller that gives slots back.
type leave struct {
	holds []*Hold
	done  bool
	err   error
}

// retryPart is the part of a term after which a process tries again to be heard of, where no reply came.
const retryPart = 4

// spreadPart is the part of a term over which processes are heard of when an epoch has begun, so that not all write at once.
const spreadPart = 10

// errLostSlots says that a bucket was written and what the write returned cannot be read. The slots are free again in two terms.
var errLostSlots = errors.New("what the write of slots returned cannot be read")

// slotTime returns the time by the clock that slots go by, in epoch milliseconds. It returns an outage where the clock is not known as
// exactly as slots of a term, in milliseconds, need it.
func (c *core) slotTime(term int64) (int64, error) {
	if c.options.SlotTime == nil {
		return c.now(), nil
	}
	now, wrong, known := c.options.SlotTime()
	if !known || wrong.Milliseconds() > term/bucket.SlotClockError {
		reason := fmt.Errorf("the clock is known to %v, and slots of a term of %v need a tenth of that", wrong, milliseconds(term))
		if !known {
			reason = fmt.Errorf("the time of the store is not known yet, and slots need it to a tenth of their term of %v", milliseconds(term))
		}
		return 0, &store.Error{Op: "hold slots", Unavailable: true, Err: reason}
	}
	return now.UnixMilli(), nil
}

// slotsOf returns what a request asks of the slots of a level, in slots; nil for nothing.
func (l *Limits) slotsOf(amounts []bucket.Amount) (asked []bucket.Amount) {
	if len(l.Config.Slots) == 0 {
		return nil
	}
	for _, a := range amounts {
		if a.Tokens > 0 && l.Config.FindSlots(a.Limit) != nil {
			asked = append(asked, bucket.Amount{Limit: a.Limit, Tokens: a.Tokens / bucket.Slot})
		}
	}
	return asked
}

// takeSlots takes what a level asks of slots, all of it or none, and goes on holding it. It returns errShort where not enough of them are free,
// as was seen since the request came, or within the age of a rejection from memory.
func (td *tender) takeSlots(ctx context.Context, l *level) ([]*Hold, error) {
	s := l.bucket.shard(0)
	image := s.image.Load()
	for attempt := range table.MaxAttempts {
		var err error
		if image == nil {
			if image, err = td.looks.loadShard(ctx, l.bucket, s, attempt > 0); err != nil {
				return nil, err
			}
		}
		if image, err = td.looks.unlessDisabled(ctx, s, image, l.began); err != nil {
			return nil, err
		}
		if l.bucket.outdates(l.limits) {
			return nil, errOutdated
		}
		t := slotTake{tender: td, level: l, shard: s, image: image}
		if err := t.decideSlots(ctx); err != nil {
			return nil, err
		}
		switch {
		case t.short && (image.since(l.began) || td.items.isRecent(s, image, td.now())):
			return nil, errShort
		case t.short || t.looks:
			if image, err = td.looks.lookSince(ctx, s, l.began); err != nil {
				return nil, err
			}
			continue
		}
		holds, next, err := t.writeSlots(ctx)
		if holds != nil || err != nil {
			return holds, err
		}
		if image = next; t.lostRace {
			if err := td.table.Pause(ctx, attempt); err != nil {
				return nil, err
			}
		}
	}
	return nil, ErrContended
}

// A slotTake is one try of a take.
type slotTake struct {
	*tender
	level *level
	shard *shard
	image *image

	now      int64         // by the clock of slots, epoch milliseconds
	sent     time.Duration // by core.elapsed, no later than now
	prepares bool          // the write makes the slots ready, and takes none
	short    bool          // too few are free
	looks    bool          // a read is to come first: others have probably written the item since
	lostRace bool
	call     layout.KeepCall
}

// decideSlots decides what to write by the image.
func (t *slotTake) decideSlots(ctx context.Context) error {
	longest := int64(math.MaxInt64)
	for _, a := range t.level.slots {
		longest = min(longest, t.level.limits.Config.FindSlots(a.Limit).Term)
		if s := t.image.FindSlots(a.Limit); s != nil && s.Term > 0 {
			longest = min(longest, s.Term)
		}
	}
	t.sent = t.elapsed()
	now, err := t.slotTime(longest)
	if err != nil {
		return err
	}
	t.now = now
	if !t.image.exists {
		for _, a := range t.level.slots {
			t.short = t.short || a.Tokens > t.level.limits.Config.FindSlots(a.Limit).Slots
		}
		return nil
	}
	t.call = layout.Keep()
	t.call.Admit()
	t.call.Current(t.image.Generation)
	for _, a := range t.level.slots {
		if err := t.prepare(ctx, a); err != nil {
			return err
		}
	}
	if t.short || t.looks || t.prepares {
		return nil
	}
	for _, a := range t.level.slots {
		s := t.image.FindSlots(a.Limit)
		hold := t.call.HoldEven
		if s.Epoch%2 != 0 {
			hold = t.call.HoldOdd
		}
		hold(a.Limit, a.Tokens, s.Epoch, 1, s.Enrolled)
	}
	return nil
}

// prepare decides what has to be written before slots of a limit can be taken.
func (t *slotTake) prepare(ctx context.Context, a bucket.Amount) error {
	p, s := t.level.limits.Config.FindSlots(a.Limit), t.image.FindSlots(a.Limit)
	if s == nil || !s.Fits(p) {
		if err := t.confirm(ctx); err != nil {
			return err
		}
	}
	switch {
	case s == nil:
		n := p.Enrol(0, t.now)
		t.call.Enrol(a.Limit, n.Capacity, 0, n.Epoch, n.Term, n.Fence, n.Enrolled)
		t.prepares, t.short = true, t.short || a.Tokens > p.Slots
		return nil
	case s.Term <= 0:
		return &store.ItemError{Key: t.shard.key, Attribute: "s_" + a.Limit + "_tm", Err: errors.New("is not the length of an epoch")}
	case s.Term != p.Term && s.ChangesTerm():
		t.call.ChangeTerm(a.Limit, p.Term, t.now/p.Term, s.Epoch, 0, s.Enrolled, max(t.now, s.Enrolled+1))
		t.prepares = true
		return nil
	case s.Strays(t.now):
		return &store.Error{Op: "hold slots", Unavailable: true, Err: fmt.Errorf(
			"the slots of limit %q have epoch %d of %v, which begins %v after the time by the clock of this process",
			a.Limit, s.Epoch, milliseconds(s.Term), milliseconds(s.Epoch*s.Term-t.now))}
	case s.Capacity != p.Slots:
		t.call.Resize(a.Limit, p.Slots-s.Capacity, p.Slots, s.Capacity)
		t.prepares, t.short = true, t.short || s.FreeAt(t.now)+p.Slots-s.Capacity < a.Tokens
		return nil
	}
	if t.short = t.short || s.FreeAt(t.now) < a.Tokens; t.short {
		return nil
	}
	if epoch, ok := s.Opens(t.now); ok {
		if !t.image.since(t.level.began) && t.shard.traffic.isOutdated(t.now) {
			t.looks = true
			return nil
		}
		open(&t.call, s, epoch, 0)
		t.prepares = true
	}
	return nil
}

// open adds that an epoch begins, in which the caller goes on holding slots.
func open(call *layout.KeepCall, s *bucket.Slots, epoch, kept int64) {
	if epoch%2 == 0 {
		call.OpenEven(s.Name, s.Epoch, epoch, kept, s.Enrolled)
	} else {
		call.OpenOdd(s.Name, s.Epoch, epoch, kept, s.Enrolled)
	}
}

// confirm makes sure that the limits were read after the image arrived, as [aligner.confirm] does: another process may have known of a
// change first.
func (t *slotTake) confirm(ctx context.Context) error {
	known := t.level.limits
	if known.Own || known.Epoch > t.image.arrived {
		return nil
	}
	latest, err := t.options.Source.After(ctx, t.level.bucket, t.image.arrived)
	if err == nil && (!latest.Config.Equal(&known.Config) || latest.Owner != known.Owner) {
		err = errOutdated
	}
	return err
}

// writeSlots makes the write that was decided. It returns what was taken, or the image from which to decide again.
func (t *slotTake) writeSlots(ctx context.Context) ([]*Hold, *image, error) {
	if !t.image.exists {
		return t.create(ctx)
	}
	next, applied, err := t.keep(ctx, t.shard, t.image, &t.call, t.now)
	switch {
	case err != nil:
		return nil, nil, err
	case !applied:
		t.lostRace = true
		return nil, next, nil
	case t.prepares:
		return nil, next, nil
	case next == nil:
		return nil, nil, errLostSlots
	}
	holds, err := t.hold(ctx, func(limit string) bucket.Slots { return *t.image.FindSlots(limit) }, next)
	return holds, nil, err
}

// create creates the item with slots of which some are held.
func (t *slotTake) create(ctx context.Context) ([]*Hold, *image, error) {
	plan := plans.Get().(*bucket.Plan)
	defer plans.Put(plan)
	l, c := t.level, &t.level.limits.Config
	plan.Decide(nil, c, &bucket.Demand{Life: l.demand.Life}, t.core.now())
	plan.Item.Slots = nil
	for _, a := range l.slots {
		plan.Item.Slots = append(plan.Item.Slots, c.FindSlots(a.Limit).Enrol(a.Tokens, t.now))
	}
	enrolled := plan.Item.Slots
	next, applied, err := t.items.write(ctx, t.shard, l.limits.Owner, t.image, plan, t.core.now(), nil)
	switch {
	case err != nil || !applied:
		t.lostRace = true
		return nil, next, err
	case next == nil:
		return nil, nil, errLostSlots
	}
	t.items.expire(ctx)
	t.lister.listWritten(ctx, t.shard, next, plan.Kind)
	holds, err := t.hold(ctx, func(limit string) bucket.Slots {
		return enrolled[slices.IndexFunc(enrolled, func(s bucket.Slots) bool { return s.Name == limit })]
	}, next)
	return holds, nil, err
}

// hold goes on holding what was taken, by the slots as the write asked for them, and the image that it returned.
func (t *slotTake) hold(ctx context.Context, asked func(limit string) bucket.Slots, left *image) ([]*Hold, error) {
	holds := make([]*Hold, len(t.level.slots))
	for i, a := range t.level.slots {
		s := asked(a.Limit)
		h := &Hold{
			bucket: t.level.bucket, limit: a.Limit, amount: a.Tokens, term: s.Term, enrolled: s.Enrolled,
			lost: make(chan struct{}), done: make(chan struct{}),
		}
		if now := left.FindSlots(a.Limit); now != nil {
			h.fence = now.Fence
		}
		h.heard(t.core, s.Epoch, t.now, t.sent)
		holds[i] = h
	}
	return holds, t.startTending(ctx, t.level.bucket, holds)
}

// heard notes that the process was heard of in an epoch, by a write that was sent at a time.
func (h *Hold) heard(c *core, epoch, now int64, sent time.Duration) {
	h.epoch = epoch
	s := bucket.Slots{Term: h.term}
	h.ends = sent + milliseconds(s.Ends(epoch)-now)
	h.due = sent + milliseconds((epoch+1)*h.term-now) + milliseconds(int64(c.table.IntN(int(min(h.term/spreadPart, math.MaxInt32))+1)))
}

// keep writes slots of an item, and remembers the image that the store returned. It returns whether the write was applied.
func (td *tender) keep(ctx context.Context, s *shard, from *image, call *layout.KeepCall, now int64) (*image, bool, error) {
	if from.Writes() != 0 {
		call.Tally(bucket.WriteUnits, int64(from.units())*1000)
	}
	if expiry, ok := from.SlotsUntil(now); ok {
		call.Prolong(expiry)
	}
	bound, err := call.Bind()
	if err != nil {
		return nil, false, err
	}
	known, by := s.image.Load(), td.newCall()
	s.traffic.sent()
	result, err := td.table.Write(ctx, store.Write{Kind: store.Update, Key: s.key, Expr: bound})
	if !result.Applied && !IsUnknown(err) {
		s.traffic.refused(err == nil)
	}
	if errors.Is(err, store.ErrConflict) {
		td.LostRaces.Add(1)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	bound.Release()
	if !result.Applied {
		td.LostRaces.Add(1)
	}
	next := td.items.observe(s, &result, by, known)
	result.Release()
	return next, result.Applied, nil
}

// Lost returns a channel that is closed when the slots are lost, or the engine was closed.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Gone returns a channel that is closed when the slots are held no more, whether they were lost or given back.
func (h *Hold) Gone() <-chan struct{} { return h.done }

// Fence returns the fencing number: it is greater than that of all who held slots of the limit before.
func (h *Hold) Fence() int64 { return h.fence }

// slotNow returns the time by the clock that slots go by, as well as it is known, in epoch milliseconds.
func (c *core) slotNow() int64 {
	if now, err := c.slotTime(math.MaxInt64); err == nil {
		return now
	}
	return c.now()
}

// held returns what is held of the slots of a level, each limit once.
func (t *taking) held() (amounts []bucket.Amount) {
	for _, h := range t.holds {
		amounts = append(amounts, bucket.Amount{Limit: h.limit, Tokens: h.amount})
	}
	return amounts
}

// slotsForeseen reports whether images that are recent enough for a rejection from memory show too few slots of one of the levels.
func (td *tender) slotsForeseen(levels []level) bool {
	now := td.now()
	for i := range levels {
		l := &levels[i]
		first := l.bucket.shard(0)
		image := first.image.Load()
		if len(l.slots) == 0 || image == nil || !image.exists || !td.items.isRecent(first, image, now) {
			continue
		}
		for _, a := range l.slots {
			s, p := image.FindSlots(a.Limit), l.limits.Config.FindSlots(a.Limit)
			if s != nil && s.Fits(p) && s.FreeAt(td.slotNow()) < a.Tokens {
				return true
			}
		}
	}
	return false
}
