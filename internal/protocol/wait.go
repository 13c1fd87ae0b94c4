package protocol

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A waiting caller takes tokens in advance, and sleeps until they are available. The order of the store's writes is the queue, so callers
// of many processes wait without further calls. See package bucket for the arithmetic.

// Waits lets callers wait for tokens or slots. It is safe for concurrent use.
type Waits struct {
	*core
	judge      *judge
	memory     *Memory
	looks      *looks
	slotKeeper *slotKeeper
	families   *families
}

// A Sleeper is a monotonic clock by which callers sleep.
type Sleeper interface {
	Elapsed() time.Duration
	Sleep(ctx context.Context, d time.Duration) error
}

// A booking is the state of a shard after one write, for a waiting caller.
type booking struct {
	shard *shard
	image *image          // nil if it is unknown
	after []bucket.Amount // amounts that the same write took for callers behind this one
	later bool            // the image was read after the write, and may include later takes of others
}

// wait returns the time from now, in epoch milliseconds, until amounts are available. It returns false if that is unknown. If the stamp is
// ahead of now, the wait counts from the stamp, so that it does not depend on clocks.
func (b *booking) wait(amounts []bucket.Amount, now int64) (milliseconds int64, ok bool) {
	if b.image == nil {
		return math.MaxInt64, false
	}
	return max(b.image.Due(amounts, b.after)-b.image.timeAt(now), 0), true
}

// book notes the time at which the tokens of all limits and levels are available for a waiting caller. It returns false if the caller does
// not wait that long. Each write has checked that, so the limits were lowered meanwhile, as the returned image shows.
func (r *Receipt) book(c *core, wait time.Duration, came arrival) bool {
	now, longest := c.now(), int64(0)
	lost := came.lost(c, now)
	left := max(wait.Milliseconds()-lost, 0)
	left += min(lost, c.grace().Milliseconds()) // a few round trips, since others came first
	for i := range r.levels {
		t := &r.levels[i]
		for j := range t.bookings() {
			b := &t.bookings()[j]
			rest, ok := b.wait(t.amountsOf(b.shard), now)
			if !ok || b.later {
				rest = min(rest, left)
			}
			longest = max(longest, rest)
		}
	}
	until := c.after(milliseconds(longest))
	latest := max(until, came.elapsed+min(wait, math.MaxInt64-max(came.elapsed, 0)))
	if longest > left {
		latest = c.after(milliseconds(left))
	}
	r.due(until, latest)
	return longest <= left
}

// An arrival is the time at which a request arrived, by both clocks.
type arrival struct {
	at      int64         // epoch milliseconds
	elapsed time.Duration // by core.elapsed; 0 for a request that does not wait
}

// comes returns the arrival of a request that arrives now. Only waiting callers need both clocks.
func (c *core) comes(r *Request) arrival {
	came := arrival{at: c.now()}
	if r.Wait > 0 {
		came.elapsed = c.elapsed()
	}
	return came
}

// lost returns how much of its wait a request has lost by now to queues, reads, throttles and lost races, in milliseconds. It uses the
// clock by which tokens are refilled, bounded by the time that has really passed.
func (a *arrival) lost(c *core, now int64) int64 {
	if now <= a.at {
		return 0
	}
	return min(now-a.at, (c.elapsed() - a.elapsed).Milliseconds())
}

// shortenWait shortens the wait of a level's caller to what is left of its time when the level is decided. A request without time left no
// longer waits.
func (l *level) shortenWait(c *core, asOf int64) {
	if l.patience > 0 {
		l.demand.Wait = max(l.patience-l.came.lost(c, asOf), 0)
	}
}

const (
	// graceTrips is how many round trips of usual duration may follow after the wait of a call has ended.
	graceTrips = 3
	leastGrace = 20 * time.Millisecond
	// newGrace is the time for these round trips if the duration of a call is not known yet.
	newGrace = 100 * time.Millisecond
	// mostGracePart bounds that time, as a part of the call timeout.
	mostGracePart = 4
)

// Bound returns a context for a call that waits until a reading of Elapsed. It ends a few round trips after that, which leaves time for a
// decision. A write under way then gets more time, since its outcome would otherwise be unknown. For callers that sleep by the clock of a
// test, and for a store that answers immediately, Bound returns the given context.
func (ws *Waits) Bound(ctx context.Context, until time.Duration) (context.Context, context.CancelFunc) {
	if ws.options.Sleeper != nil || ws.table.Immediate() {
		return ctx, func() {}
	}
	grace := ws.grace()
	rest := min(max(until-ws.elapsed(), 0), math.MaxInt64-grace) + grace
	if rest > maxBound {
		return ctx, func() {}
	}
	end := time.Now().Add(rest)
	if deadline, ok := ctx.Deadline(); ok && !deadline.After(end) {
		return ctx, func() {}
	}
	return table.Until(ctx, end, grace)
}

// grace returns an upper bound for the time of a few round trips.
func (c *core) grace() time.Duration {
	most := c.table.Timeout() / mostGracePart
	if usual := c.table.Usual(graceTrips); usual > 0 {
		return min(max(usual, leastGrace), most)
	}
	return min(newGrace, most)
}

// maxBound is longer than any call takes.
const maxBound = 24 * time.Hour

func (t *levelReceipt) amountsOf(s *shard) []bucket.Amount {
	for i := range t.parts {
		if t.parts[i].shard == s {
			return t.parts[i].amounts
		}
	}
	return nil
}

// elapsed returns the monotonic time by which callers sleep, since a fixed moment.
func (c *core) elapsed() time.Duration {
	if s := c.options.Sleeper; s != nil {
		return s.Elapsed()
	}
	return c.sinceStart()
}

// after returns the reading of [core.elapsed] at which a time has passed, saturated at the longest duration.
func (c *core) after(d time.Duration) time.Duration {
	now := c.elapsed()
	return now + min(d, math.MaxInt64-max(now, 0))
}

// Remaining returns the time until the tokens of a receipt are available, 0 or less if they are.
func (ws *Waits) Remaining(r *Receipt) time.Duration { return r.rest().until - ws.elapsed() }

// Elapsed returns the monotonic time by which callers sleep, since a fixed moment.
func (ws *Waits) Elapsed() time.Duration { return ws.elapsed() }

// After returns what Elapsed returns once a time has passed, saturated at the longest duration.
func (ws *Waits) After(d time.Duration) time.Duration { return ws.after(d) }

// A Chance is the time at which a rejected waiting caller may be admitted.
type Chance struct {
	In     time.Duration // time since the rejection
	Spread time.Duration // the time within which callers spread their next tries
}

// Bounds of the time within which callers spread their tries, so that callers of different entities do not try at the same moment.
const (
	afterEdge  = time.Second
	afterYield = 100 * time.Millisecond // the least delay
)

// Chance returns when a caller that was rejected now, in epoch milliseconds, has another chance. If quotas rejected it, that is when they
// reset. If refilling limits rejected it, that is when the quota that bounds its wait resets. If its priority has a floor, that is when all
// limits have enough. It returns false if there is no chance within the longest wait.
func (e *RejectedError) Chance(now int64, longest time.Duration) (Chance, bool) {
	next, full, last, yields := int64(math.MaxInt64), int64(0), int64(0), false
	for _, l := range e.Levels {
		for _, s := range l.Statuses {
			if s.Mode != bucket.Enforced {
				continue
			}
			last = max(last, s.Wait)
			yields = yields || s.Short && (s.Kept > 0 || s.Parted)
			if s.ResetsAt == 0 {
				continue
			}
			next = min(next, s.ResetsAt-now)
			if s.Short {
				full = max(full, s.ResetsAt-now)
			}
		}
	}
	chance := Chance{Spread: afterEdge}
	switch {
	case yields:
		full, chance.Spread = max(full, last), afterYield
	case full == 0:
		full = next
	}
	if last > longest.Milliseconds() || full > longest.Milliseconds() {
		return Chance{}, false
	}
	if chance.In = milliseconds(max(full, 1)); yields {
		chance.In = max(chance.In, afterYield)
	}
	return chance, true
}

// Wait returns the time since the rejection after which all limits have enough if nothing else happens.
func (e *RejectedError) Wait() time.Duration {
	last := int64(0)
	for _, l := range e.Levels {
		for _, s := range l.Statuses {
			if s.Mode == bucket.Enforced {
				last = max(last, s.Wait)
			}
		}
	}
	return milliseconds(last)
}

// Delay makes an empty receipt that of a caller that waits for rest, and until the reading latest of Elapsed at most.
func (ws *Waits) Delay(r *Receipt, rest, latest time.Duration) {
	r.due(min(ws.after(rest), latest), latest)
}

// Await sleeps until the tokens of a receipt are available. If limits change meanwhile, the new limits apply. If a change makes the tokens
// available sooner, it wakes the caller within [lookEvery]. Await returns a [*RejectedError] if the tokens become available only after the
// caller's wait, or after the deadline of the context. It returns the error that a new request would get now, such as a [*DisabledError],
// the context's error, or [ErrClosed]. The tokens stay taken. No limit rejects the caller of an empty receipt.
func (ws *Waits) Await(ctx context.Context, r *Receipt) error {
	until := r.rest().until
	if until <= ws.elapsed() {
		return ctx.Err()
	}
	w := newWake(ws, ws.judge, r)
	latest := r.rest().latest
	if deadline, ok := ctx.Deadline(); ok {
		latest = min(latest, ws.after(time.Until(deadline)))
	}
	bounded, end := ws.Bound(ctx, latest)
	defer end()
	var planned atomic.Int64
	planned.Store(int64(until))
	watched := ws.watch(ctx, w.sleeper(func() time.Duration { return time.Duration(planned.Load()) }), until-ws.elapsed())
	defer watched.leave()
	for {
		rest := until - ws.elapsed()
		if rest <= 0 {
			return ctx.Err()
		}
		if until > latest && len(r.levels) > 0 {
			return &RejectedError{w.reported(rest)}
		}
		woken, err := ws.sleepOn(ctx, watched, rest)
		if err == nil {
			err = w.refusal(bounded)
		}
		if err != nil {
			return err
		}
		if !woken {
			more, err := w.more(bounded)
			if until = ws.after(more); err != nil { // it is unknown
				until = latest
			}
		} else if sooner, known := w.rest(); known {
			until = ws.after(sooner)
		}
		planned.Store(int64(until))
	}
}

// Sleep waits for a time. It ends with the context, or with [ErrClosed] when the engine is closed.
func (ws *Waits) Sleep(ctx context.Context, d time.Duration) error {
	until, cancel := ws.background.whileOpen(ctx)
	defer cancel()
	sleep := ws.table.Sleep
	if s := ws.options.Sleeper; s != nil {
		sleep = s.Sleep
	}
	err := sleep(until, d)
	if err != nil && ctx.Err() == nil {
		return ErrClosed
	}
	return err
}

// more returns the further time until the tokens are available: 0 unless limits were changed.
func (w *wake) more(ctx context.Context) (longest time.Duration, err error) {
	for i := range w.receipts {
		t := &w.receipts[i]
		if !w.changed(ctx, i) {
			continue
		}
		for j := range t.bookings() {
			more, err := w.moreOf(ctx, t, &t.bookings()[j], w.limits[i])
			if err != nil {
				return 0, err
			}
			longest = max(longest, more)
		}
	}
	return longest, nil
}

// changed reports whether the limits of a level receipt have changed since the caller fell asleep. It uses the new limits from then on.
// Limits that cannot be read count as unchanged.
func (w *wake) changed(ctx context.Context, at int) bool {
	t := &w.receipts[at]
	if len(t.bookings()) == 0 || w.limits[at].Own {
		return false
	}
	known, err := w.judge.options.Source.For(ctx, t.bucket)
	if err != nil || known.Config.Equal(&w.limits[at].Config) {
		return false
	}
	w.limits[at] = known
	return true
}

// moreOf returns the further time until the tokens of one booking are available. The balance and the count of consumed tokens show the
// refill since, at any rate. If the bucket was split, or its item is gone, they do not, and the caller waits for the whole debt.
func (w *wake) moreOf(ctx context.Context, t *levelReceipt, b *booking, known *Limits) (time.Duration, error) {
	i := b.shard.image.Load()
	if now := w.judge.now(); i == nil || !i.exists || !known.Config.InLine(&i.State, now) || !w.judge.aligner.items.isRecent(b.shard, i, now) {
		var err error
		if i, err = w.judge.aligner.items.readShard(ctx, b.shard); err != nil {
			return 0, err
		}
	}
	if b.image == nil || !i.exists || i.Count() != b.image.Count() {
		return w.untilPaid(ctx, t)
	}
	due := i.DueSince(&b.image.State, t.amountsOf(b.shard), b.after)
	return milliseconds(due - i.timeAt(w.judge.now())), nil
}

// untilPaid returns how long it takes until the bucket of a level receipt has no debt.
func (w *wake) untilPaid(ctx context.Context, t *levelReceipt) (time.Duration, error) {
	return w.judge.untilPaid(ctx, &Request{Entity: t.bucket.Entity, Resource: t.bucket.Resource}, false)
}

// reported returns the status of the limits as last seen, with the further wait of those that the caller waits for.
func (w *wake) reported(more time.Duration) (levels []LevelStatus) {
	w.judge.reportTaken(w.receipt, func(seen LevelStatus) {
		level := LevelStatus{Entity: seen.Entity, Resource: seen.Resource, Ancestor: seen.Ancestor, Wider: seen.Wider}
		for _, s := range seen.Statuses {
			if s.Requested > 0 && s.Mode == bucket.Enforced {
				s.Short, s.Wait = true, max(more.Milliseconds(), 1)
			}
			level.Statuses = append(level.Statuses, s)
		}
		levels = append(levels, level)
	})
	return levels
}

// untilPaid is [Waits.UntilPaid], of one level or of all.
func (ju *judge) untilPaid(ctx context.Context, r *Request, family bool) (time.Duration, error) {
	levels, err := ju.status(ctx, r, family)
	longest := int64(0)
	for _, l := range levels {
		for _, s := range l.Statuses {
			longest = max(longest, s.Queue)
		}
	}
	return milliseconds(longest), err
}

// UntilPaid returns the time until no bucket of a request is in debt. If tokens were written for the caller, they are available by then. It
// costs a consistent read of every shard.
func (ws *Waits) UntilPaid(ctx context.Context, r *Request) (time.Duration, error) {
	return ws.judge.untilPaid(ctx, r, true)
}

// milliseconds returns a number of milliseconds as a duration, saturated.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}
