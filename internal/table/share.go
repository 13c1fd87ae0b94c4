package table

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Callers of a process share calls, so that the store is called once for all of them. Networks lose replies every day, and a lost reply
// must not affect all callers that share the call:
//
//   - A late call counts as stuck: one of the waiting callers makes another. A call that the store throttles, and that is retried, is not
//     late.
//   - An outage concerns its call alone. Callers who waited for the call each make their own, as if they shared nothing.
//   - A throttle is reported to all who share, since it says something about the key and not about the call.
//   - A caller waits for silent calls no longer than for a call of its own.

// soonestPart and latestPart are the parts of the call timeout after which a call is late at the earliest and at the latest. A caller that
// then makes another call has most of its time left, or half of it. With a shorter bound, the usual pauses of a network, such as a
// retransmission, would count as a loss.
const (
	soonestPart = 10
	latestPart  = 2
)

// A Sharing has what callers of one kind of shared calls know: how long such calls took recently. It is safe for concurrent use.
type Sharing struct {
	table   *Table
	started time.Time // for times, independent of changes of clocks
	took    latency   // of the calls that succeeded
}

// Sharing returns the knowledge of a new kind of shared calls.
func (t *Table) Sharing() *Sharing { return &Sharing{table: t, started: time.Now().Add(-1)} } // so that no call is sent at 0

// Late returns the time after which a call is late: the time of such calls, between its bounds.
func (s *Sharing) Late() time.Duration {
	return min(max(s.table.timeout/soonestPart, s.took.usual()), s.table.timeout/latestPart)
}

// Usual returns the time within which nearly all such calls end: 0 before the first one, and no more than Late.
func (s *Sharing) Usual() time.Duration { return min(s.took.usual(), s.Late()) }

// Took notes how long a call took that succeeded.
func (s *Sharing) Took(d time.Duration) { s.took.add(d) }

// now returns the time since the sharing was made.
func (s *Sharing) now() time.Duration { return time.Since(s.started) }

// A Shared is a call that several callers may wait for. It is safe for concurrent use.
type Shared struct {
	sharing *Sharing
	done    chan struct{} // closed when the call has ended
	err     error         // set before done is closed
	sent    chan struct{} // closed when the call is sent, after any delay by the pace of such calls or the gate
	due     atomic.Int64  // when its last read was sent, nanoseconds by the sharing

	next   atomic.Pointer[Shared] // the call that replaced this one when it was late; nil for none
	served chan struct{}          // closed when an earlier, late call has succeeded
	serve  sync.Once              // closes served
}

// Shared returns a call that is not sent yet.
func (s *Sharing) Shared() *Shared {
	return &Shared{sharing: s, done: make(chan struct{}), sent: make(chan struct{}), served: make(chan struct{})}
}

// Sent notes that a read of the call is sent, or sent again after an incomplete answer. Whether the call is late depends on its last read.
func (c *Shared) Sent() {
	if c.due.Swap(int64(c.sharing.now())) == 0 {
		close(c.sent)
	}
}

// IsHeldUntil waits while a call is held back, and reports whether one of two channels was ready before. It also ends with the context, and when
// another call has made this one needless.
func (c *Shared) IsHeldUntil(ctx context.Context, ends <-chan struct{}, last <-chan time.Time) bool {
	select {
	case <-c.sent:
	case <-c.done:
	case <-c.served:
	case <-ctx.Done():
	case <-ends:
		return true
	case <-last:
		return true
	}
	return false
}

// isLate reports whether a call was sent and is late.
func (c *Shared) isLate() bool {
	select {
	case <-c.sent:
		return c.sharing.now() >= c.dueAt()+c.sharing.Late()
	default:
		return false
	}
}

func (c *Shared) dueAt() time.Duration { return time.Duration(c.due.Load()) }

// End notifies all who wait that the call has ended. If it succeeded, it also notifies those who wait for the calls that replaced it.
func (c *Shared) End() {
	close(c.done)
	if c.err != nil {
		return
	}
	for n := c.next.Load(); n != nil; n = n.next.Load() {
		n.serve.Do(func() { close(n.served) })
	}
}

// Succeeded reports whether the call has ended without an error.
func (c *Shared) Succeeded() bool {
	select {
	case <-c.done:
		return c.err == nil
	default:
		return false
	}
}

// A Sharer is a caller that needs the results of shared calls. It is not safe for concurrent use.
type Sharer struct {
	*Sharing
	own    *Shared       // the last call that it began
	passed *Shared       // the late call that it replaces
	served *Shared       // the call that an earlier, successful call has made unnecessary
	waited time.Duration // for calls that were late or failed
	alone  bool          // a call of another caller failed: the caller waits for no call any more
}

// Sharer returns a caller that has not waited yet.
func (s *Sharing) Sharer() Sharer { return Sharer{Sharing: s} }

// Passes reports whether the caller may replace a call under way by its own.
func (w *Sharer) Passes(c *Shared) bool {
	passes := w.alone || c.isLate()
	if passes {
		w.passed = c
	}
	return passes
}

// Begins notes that a call is the caller's own. The place where others find the call is taken before.
func (w *Sharer) Begins(c *Shared) {
	if w.passed != nil {
		w.passed.next.Store(c)
	}
	w.own, w.passed = c, nil
}

// Run makes a call by a function, within the rest of the caller's time. It is not late before that time. The function that has the place
// of the call clears it, and then calls [Shared.End].
func (w *Sharer) Run(ctx context.Context, c *Shared, call func(context.Context) error) {
	ctx = store.Watch(ctx, c)
	if w.waited == 0 {
		c.err = call(ctx)
	} else {
		c.err = (*store.Gate)(nil).Do(ctx, max(w.table.timeout-w.waited, w.Late()), call)
	}
	if due := c.dueAt(); c.err == nil && due > 0 {
		w.Took(w.now() - due)
	}
}

// errSilent is the cause of an outage in which no call was answered while a caller waited.
var errSilent = errors.New("no call that it shares was answered within the call timeout")

// Await waits for a call, and reports whether it was done. It was not when the call is late or met an outage, and the
// caller may begin one then. Nor was it when a call begun in its place has succeeded: that may be enough for the
// caller. The error of the call is the caller's if the caller began it, or if a call of its own would meet the same.
func (w *Sharer) Await(ctx context.Context, c *Shared) (done bool, err error) {
	from, served := w.now(), c.served
	if w.served == c {
		served = nil // the caller has looked at that call's result
	}
	select {
	case <-c.done:
		return w.outcome(ctx, c, from)
	case <-c.sent:
	case <-served:
		w.served = c
		return false, w.table.Yield(ctx)
	case <-ctx.Done():
		return false, ctx.Err()
	}
	for {
		now := w.now()
		rest := min(c.dueAt()+w.Late(), w.since(c, from)+w.table.timeout-w.waited) - now
		if rest <= 0 {
			return false, w.give(ctx, c, from)
		}
		timer := time.NewTimer(rest)
		select {
		case <-c.done:
			timer.Stop()
			return w.outcome(ctx, c, from)
		case <-served:
			timer.Stop()
			w.served = c
			return false, w.table.Yield(ctx)
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		}
	}
}

// since returns from when a caller who came at a time waits for the reply of a call.
func (w *Sharer) since(c *Shared, from time.Duration) time.Duration { return max(from, c.dueAt()) }

// outcome returns the end of a call as the caller sees it.
func (w *Sharer) outcome(ctx context.Context, c *Shared, from time.Duration) (done bool, err error) {
	if c == w.own {
		return true, c.err
	}
	switch store.OutcomeOf(c.err) {
	case store.Unavailable, store.Unknown:
		w.alone = w.alone || !c.isLate() // a call that is cut off when it is late was silent, and did not fail
		return false, w.give(ctx, c, from)
	case store.Ended:
		return false, w.table.Yield(ctx)
	default:
		if err := w.table.Yield(ctx); err != nil {
			return false, err
		}
		return true, c.err
	}
}

// give notes that the caller waited for a call without success. It returns an outage when the caller has no time left for another.
func (w *Sharer) give(ctx context.Context, c *Shared, from time.Duration) error {
	w.waited += max(w.now()-w.since(c, from), 0)
	if w.waited >= w.table.timeout {
		return &store.Error{Op: "shared call", Unavailable: true, Err: errSilent}
	}
	return w.table.Yield(ctx)
}
