package zlimit

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"time"

	"github.com/zlimit/zlimit-go/internal/protocol"
)

// A WaitOption says how long a request may wait.
type WaitOption func(*waiting)

type waiting struct {
	longest time.Duration
	bounded bool
}

// MaxWait bounds how long a request waits for its tokens, in whole milliseconds. With 0 it does not wait. A negative time is a
// [*ValidationError].
//
// MaxWait also bounds the depth of a bucket's queue, to the refill of a limit in that time. A request for many tokens
// among small ones of the same MaxWait finds the queue full nearly always. To get a place, it needs a MaxWait that is
// longer by the time it takes to refill its tokens.
func MaxWait(d time.Duration) WaitOption {
	return func(w *waiting) { w.longest, w.bounded = d, true }
}

// waitOf returns the longest wait of a call: that of the options, and no longer than until the deadline.
func waitOf(ctx context.Context, opts []WaitOption) (time.Duration, error) {
	var w waiting
	for _, option := range opts {
		if option != nil {
			option(&w)
		}
	}
	deadline, ok := ctx.Deadline()
	switch {
	case w.longest < 0:
		return 0, &ValidationError{Field: "max wait", Value: w.longest.String(), Reason: "must not be negative"}
	case !w.bounded && !ok:
		return 0, &ValidationError{Field: "max wait", Value: "", Reason: "must be given where no deadline bounds the wait"}
	case !ok:
	case w.bounded:
		w.longest = max(min(w.longest, time.Until(deadline)), 0)
	default:
		w.longest = max(time.Until(deadline), 0)
	}
	return w.longest.Truncate(time.Millisecond), nil
}

// Wait consumes the amounts of the request, of all limits or of none, and returns the lease once the tokens are available. Callers of all
// processes wait in one queue per bucket, in the order in which the store receives their writes. No caller asks again: it takes tokens
// before they are available, and sleeps until they have been refilled. Requests that do not wait see the debt and are rejected.
//
// A caller waits no longer than [MaxWait], and not past the deadline of the context. Without either, Wait returns a [*ValidationError].
// Lost races, reads and throttles count as waiting: the call returns at most a few round trips later. If the wait would be longer, Wait
// fails immediately, takes nothing, and returns an [*ExceededError] with the time at which the tokens would be available. If the context
// ends, the wait ends, and the tokens are returned in the background. If it ends during the write, the outcome of the write is unknown,
// and the tokens count as taken, see [Stats].UnknownOutcomes. Other errors are the same as for [RateLimiter.Acquire].
//
// Over any interval, the admissions of a bucket are at most its capacity plus the refill, plus the refill of [WithFreshness] and of a
// millisecond. An admission without a wait counts at a time within its call, before it is answered. A bucket with waiters may
// exceed this by the depth of its queue: at most the refill within the longest MaxWait. This happens after cancels and refunds while others
// sleep, after limits are raised, and in requests of several limits, with parents, or of split buckets. Since the bucket was created, the
// total never exceeds its capacity plus the refill. If something downstream cannot take more than the capacity, choose a MaxWait in which
// little is refilled.
//
// A used-up quota gets its tokens when it resets. A caller sleeps until then, up to a second longer, and tries once more. It holds nothing
// meanwhile, and callers of a quota are served in no particular order. A wait for limits that refill ends before a quota of the same
// request resets, or begins after it: no request takes tokens of one period and is admitted in the next. Reserve fails immediately in both
// cases.
//
// Each shard of a split bucket has its own queue, and a caller takes the better of two. The queues differ by the refill between two writes
// of a process to one shard. While a new bucket under a flood is split, within three seconds, callers may be two seconds later than in one
// queue.
//
// Changes by operators also reach callers that sleep. A process reads their bucket once a second, for all of them together. Raised limits,
// a reset or a top-up wake them earlier. They return their tokens and fail if the bucket is disabled, if their limit is removed, or if
// lowered limits would take longer than their MaxWait.
//
// In an outage the failure policy decides, as for Acquire. After an unknown outcome, an allowed request sleeps until the queue ahead of it
// is empty, and is [Lease.Degraded]. If the store does not answer, it sleeps for as long as it may.
//
// Wait costs as much as Acquire, at any length of the queue: one write, or a part of a shared one. Giving up costs one more write. A caller
// that sleeps until a quota resets costs a rejection, and then an Acquire.
func (l *RateLimiter) Wait(ctx context.Context, r Request, opts ...WaitOption) (*Lease, error) {
	if l.closed.Load() || !l.engine.Begin() {
		return nil, ErrClosed
	}
	reservation, err := l.reserve(ctx, OpWait, r, opts)
	if err != nil {
		l.engine.End()
		return nil, err
	}
	return reservation.wait(ctx)
}

// Reserve takes the amounts of the request, and reports when the tokens will be available. It is [RateLimiter.Wait] for
// a caller that sleeps on its own, at the same cost and with the same errors. The caller then calls [Reservation.Wait],
// which returns immediately after [Reservation.Due], or [Reservation.Cancel].
func (l *RateLimiter) Reserve(ctx context.Context, r Request, opts ...WaitOption) (*Reservation, error) {
	return l.reserve(ctx, OpReserve, r, opts)
}

func (l *RateLimiter) reserve(ctx context.Context, op string, r Request, opts []WaitOption) (*Reservation, error) {
	wait, err := waitOf(ctx, opts)
	if err != nil {
		return nil, err
	}
	lease, err := l.acquire(ctx, op, r, wait)
	if err != nil {
		return nil, err
	}
	return &Reservation{lease, op}, nil
}

// takeAtEdges continues with a request that quotas or slots reject: it sleeps until they reset, and tries again, once
// for each reset. For slots it stands in a line, and tries when some may have been released. Before such a time the
// request takes no tokens for use after it, even if limits that refill would let it wait. Nothing is held meanwhile. It
// takes the outcome of the first try, and reports whether the caller slept.
func (l *RateLimiter) takeAtEdges(
	ctx context.Context, r *Request, request *protocol.Request, lease *Lease, until, wait time.Duration, err error,
) (slept bool, failure error) {
	var rejected *protocol.RejectedError
	var place *protocol.Place // in the line for slots
	defer func() { place.Leave(ctx, failure == nil) }()
	for {
		unclear := errors.As(err, new(*protocol.ClockError)) && ctx.Err() == nil
		if !unclear && !errors.As(err, &rejected) {
			break
		}
		rest := until - l.engine.Waits.Elapsed()
		var chance protocol.Chance
		var short protocol.ShortSlots
		var ok, isShort bool
		if !unclear {
			short, isShort = rejected.ShortOfSlots()
			chance, ok = rejected.Chance(l.now().UnixMilli(), rest)
		}
		if !ok && !isShort && !unclear || rest <= 0 {
			return slept, err
		}
		slept = true
		l.stats.waiting.Add(1)
		switch {
		case unclear:
			place.StepAside(ctx)
			err = l.engine.Waits.Sleep(ctx, min(clockPause, rest))
		case isShort:
			if !place.IsFor(short) {
				place.Leave(ctx, false)
				place = l.engine.Waits.Join(short, place)
				request.Place = place
			}
			err = place.Await(ctx, rest)
		default:
			place.StepAside(ctx)
			pause := min(chance.In+stagger(r.Entity, l.now().UnixNano(), chance.Spread), rest)
			err = l.engine.Waits.SleepUnlessChanged(ctx, pause, rejected)
		}
		l.stats.waiting.Add(-1)
		if err != nil {
			l.stats.abandoned.Add(1)
			return slept, err
		}
		lease.receipt = protocol.Receipt{}
		request.Wait = max(until-l.engine.Waits.Elapsed(), 0).Truncate(time.Millisecond)
		next := l.takeUntil(ctx, r, request, lease, until, wait)
		if rejected != nil && isUndecided(next) { // in the time that was left: the rejection stands
			return slept, rejected
		}
		err = next
	}
	if slept && err == nil && l.remaining(lease) == 0 {
		l.stats.waited.Add(1) // others are counted when they have slept on
	}
	return slept, err
}

// isUndecided reports whether a request had no time to be decided, and took nothing.
func isUndecided(err error) bool { return errors.Is(err, errUndecided) && !protocol.IsUnknown(err) }

// clockPause is how long a caller sleeps before it asks again that needs the time of the store better than it is known.
const clockPause = time.Second

// stagger returns how long after a chance a request of an entity comes that was refused at a time. Each has its own part of a time, since
// quotas of all entities reset at the same time, and many callers may wait for one of them.
func stagger(entity string, refused int64, spread time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64([]byte(entity), uint64(refused))) // never fails
	return spread / 1000 * time.Duration(h.Sum64()%1000)
}

// waitForUnknown delays a request that was admitted after an unknown outcome until none of its buckets is in debt. If the store does not
// answer, the request waits as long as it may.
func (l *RateLimiter) waitForUnknown(ctx context.Context, r *protocol.Request, lease *Lease, until time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, until-l.engine.Waits.Elapsed())
	defer cancel()
	rest, err := l.engine.Waits.UntilPaid(ctx, r)
	if err != nil {
		rest = r.Wait
	}
	l.engine.Waits.Delay(&lease.receipt, rest, until)
}

// remaining returns how long it takes until the tokens of a lease that was just acquired are there.
func (l *RateLimiter) remaining(lease *Lease) time.Duration {
	return max(l.engine.Waits.Remaining(&lease.receipt), 0)
}

// A Reservation holds the tokens of an admitted request, which may not be available yet. It is safe for concurrent use. Its zero value
// behaves like a settled lease.
type Reservation struct {
	lease *Lease
	op    string
}

// Due returns when the tokens will be available, by the clock of the machine or of [WithClock]. It is now or earlier if they are. It uses
// the limits at the time of the reservation. It does no I/O.
func (r *Reservation) Due() time.Time {
	if r.lease == nil {
		return time.Time{}
	}
	l := r.lease.limiter
	return l.options.clock().Add(l.engine.Waits.Remaining(&r.lease.receipt))
}

// Wait sleeps until the tokens are available, and returns their lease. It sleeps like [RateLimiter.Wait], with the same
// errors. It costs nothing unless limits have changed meanwhile. Then it costs one read, of half a unit for each 4 KB
// of the bucket, or a unit if the read is consistent. After [Reservation.Cancel], or once the lease is settled, it
// returns [ErrLeaseClosed].
func (r *Reservation) Wait(ctx context.Context) (*Lease, error) {
	if r.lease == nil {
		return nil, ErrLeaseClosed
	}
	l := r.lease.limiter
	if l.closed.Load() || !l.engine.Begin() {
		return nil, ErrClosed
	}
	if r.lease.isClosed() {
		l.engine.End()
		return nil, ErrLeaseClosed
	}
	return r.wait(ctx)
}

// wait is Wait as work of the engine that has begun, and ends it. Where the engine is closed before the tokens are there, they are given
// back.
func (r *Reservation) wait(ctx context.Context) (*Lease, error) {
	l := r.lease.limiter
	slept := l.engine.Waits.Remaining(&r.lease.receipt) > 0
	l.stats.waiting.Add(1)
	err := l.engine.Waits.Await(ctx, &r.lease.receipt)
	l.stats.waiting.Add(-1)
	if err == nil {
		l.engine.End()
		if slept {
			l.stats.waited.Add(1)
		}
		if r.lease.isClosed() { // by a cancel meanwhile
			return nil, ErrLeaseClosed
		}
		return r.lease, nil
	}
	l.stats.abandoned.Add(1)
	go func() {
		defer l.engine.End()
		r.lease.abandon(ctx)
	}()
	return nil, r.failure(ctx, err)
}

// failure returns the public error of a wait that ended before its time.
func (r *Reservation) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	err = publicError(r.op, err)
	if rejected := new(*ExceededError); errors.As(err, rejected) {
		r.lease.limiter.rejected(r.lease.receipt.Entity(), r.lease.receipt.Resource(), *rejected, 1)
	}
	return err
}

// Cancel returns the tokens, whether or not they are available yet. Callers behind it keep their reported times. It is
// [Lease.Rollback] of the lease, with the same cost and errors.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r.lease == nil {
		return new(Lease).Rollback(ctx)
	}
	return r.lease.Rollback(ctx)
}

// isClosed reports whether a lease was settled, or is being settled.
func (le *Lease) isClosed() bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.phase != leaseOpen
}

// abandon closes a lease whose caller gave up, and gives its tokens back. It outlives the context.
func (le *Lease) abandon(ctx context.Context) {
	le.mu.Lock()
	if le.phase != leaseOpen {
		le.mu.Unlock()
		return
	}
	le.phase = leaseClosed
	if watcher := le.limiter.options.hooks.Leases; watcher != nil && !le.degraded {
		watcher.Settled(le)
	}
	le.mu.Unlock()
	le.limiter.engine.Undo(ctx, &le.receipt)
}
