package quota

import (
	"context"
	"sync/atomic"
)

// A Reservation is a request that was admitted and recorded with estimated
// tokens. Settle it with the real counts, or cancel it where the call was not
// made; left alone, it counts as estimated. It must not be copied after its
// first use. It is safe for concurrent use; one of the callers wins.
type Reservation struct {
	l          *Limiter
	req        Request
	model, key place
	ticket     Ticket
	closed     atomic.Bool
}

// Reserve checks a request and records it, as one step: of several callers who
// race for the last place one gets it. Where a limit refuses, the error is an
// *ExceededError and nothing is recorded.
//
//	r, err := limiter.Reserve(ctx, quota.Request{Model: model, Input: estimate})
//	if err != nil {
//		return err
//	}
//	defer r.Cancel(ctx) // does nothing after Settle
//	… make the call …
//	return r.Settle(ctx, usage.Input, usage.Output)
func (l *Limiter) Reserve(ctx context.Context, r Request) (res Reservation, err error) {
	if err = r.validateTokens(); err != nil {
		return
	}
	counted := r
	if counted.Model, err = l.model(ctx, r.Model); err != nil {
		return
	}
	var denied *ExceededError
	if l.store != nil {
		res.model, res.ticket, denied, err = l.store.reserve(ctx, counted)
	} else {
		res.model, res.key, denied, err = l.mem.charge(&counted, false)
	}
	switch {
	case err != nil:
	case denied != nil:
		l.event(EventDenied, r, denied)
		err = denied
	default:
		res.l, res.req = l, r
		l.event(EventReserved, r, nil)
	}
	return
}

// Request returns the reserved request.
func (r *Reservation) Request() Request { return r.req }

// Settle replaces the estimated tokens with the real ones, at the time of the reservation. Entries that have aged out
// of a window stay out. It checks no limit: the call was made. It happens although ctx has ended; a store then has five
// seconds more. A second Settle, and one after Cancel, returns ErrClosed. After any other error the reservation is
// still open.
func (r *Reservation) Settle(ctx context.Context, input, output int) error {
	if err := (&Request{Input: input, Output: output}).validateTokens(); err != nil {
		return err
	}
	inStore := func(ctx context.Context) error { return r.l.store.Settle(ctx, r.ticket, int64(input), int64(output)) }
	if err := r.end(ctx, inStore); err != nil {
		return err
	}
	r.l.mem.settle(&r.model, &r.key, &r.req, int64(input), int64(output))
	if input < r.req.Input || output < r.req.Output {
		r.l.waiting.wake()
	}
	done := r.req
	done.Input, done.Output = input, output
	r.l.event(EventSettled, done, nil)
	return nil
}

// Cancel takes the request back where it still counts, as if it had not been
// made. It happens although ctx has ended; a store then has five seconds more.
// After Settle or another Cancel it returns ErrClosed, which a deferred call may
// ignore. After any other error the reservation is still open.
func (r *Reservation) Cancel(ctx context.Context) error {
	inStore := func(ctx context.Context) error { return r.l.store.Cancel(ctx, r.ticket) }
	if err := r.end(ctx, inStore); err != nil {
		return err
	}
	r.l.mem.cancel(&r.model, &r.key, &r.req)
	r.l.waiting.wake()
	r.l.event(EventCancelled, r.req, nil)
	return nil
}

// end closes the reservation, and ends it in the store if it has a ticket there. After an error of the store it is
// still open.
func (r *Reservation) end(ctx context.Context, inStore func(context.Context) error) error {
	if r.l == nil || !r.closed.CompareAndSwap(false, true) {
		return ErrClosed
	}
	if r.ticket == nil {
		return nil
	}
	ctx, end := outlive(ctx)
	defer end()
	err := inStore(ctx)
	if err != nil {
		r.closed.Store(false)
	}
	return err
}
