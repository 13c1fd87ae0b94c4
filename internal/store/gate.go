package store

import (
	"context"
	"errors"
	"time"
)

// A Gate bounds the number of concurrent calls of a store; a nil one does not. It is safe for concurrent use.
//
// A call that waits for its turn has not been sent: when its context ends, nothing was read or written. The time of a
// call runs from the moment when it is sent. Too many concurrent callers are slow, but are not taken for an outage.
type Gate struct {
	turns chan struct{}
	away  func(context.Context) <-chan struct{} // nil for never
}

// NewGate returns a gate for at most inFlight concurrent calls, which is positive. A call with a context waits until what away returns
// is closed, and then ends with [ErrLeft]. With a nil function, or a nil channel, calls wait for their turn without limit.
func NewGate(inFlight int, away func(context.Context) <-chan struct{}) *Gate {
	return &Gate{make(chan struct{}, inFlight), away}
}

// ErrLeft is the error of a call that does not wait for its turn any more, since the store went away. It was not sent.
var ErrLeft = errors.New("the store went away while the call waited for its turn")

// Do waits for its turn, and then makes one call of a store within a timeout. It returns the context's error when the context ends first,
// [ErrLeft] when the store goes away first, and otherwise the call's. A call beyond the timeout is an outage: an [*Error] that is
// Unavailable, and Unknown for a call of unknown outcome.
func (g *Gate) Do(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	if g != nil {
		if err := g.enter(ctx); err != nil {
			return err
		}
		defer func() { <-g.turns }()
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= timeout {
		return call(ctx) // which ends before the timeout does
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := call(bounded)
	if err == nil || ctx.Err() != nil || bounded.Err() == nil && !isPrematureEnd(err) {
		return err // a call may give up before its time, since it has no time for more
	}
	late := &Error{Op: "call", Err: err}
	if known := (*Error)(nil); errors.As(err, &known) {
		*late = *known
	}
	late.Unavailable = true
	return late
}

// isPrematureEnd reports whether a call ended by the deadline of its context, which the context itself may meet a moment later.
func isPrematureEnd(err error) bool {
	return OutcomeOf(err) == Ended && errors.Is(err, context.DeadlineExceeded)
}

// enter waits for a turn. It gives a turn back that comes when the context has ended. It also gives one back that comes
// after the deadline, since a context on a busy machine may end late.
func (g *Gate) enter(ctx context.Context) error {
	select {
	case g.turns <- struct{}{}:
	default:
		var away <-chan struct{}
		if g.away != nil {
			away = g.away(ctx)
		}
		select {
		case g.turns <- struct{}{}:
		case <-away:
			return ErrLeft
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := ctx.Err()
	if deadline, ok := ctx.Deadline(); err == nil && ok && time.Until(deadline) <= 0 {
		err = context.DeadlineExceeded
	}
	if err != nil {
		<-g.turns
	}
	return err
}
