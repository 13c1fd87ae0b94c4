package blocking

import (
	"context"
	"iter"
	"time"
)

// steps yields the elements of a list. Each step, from one element to the next, takes at most the timeout; the time
// that the loop spends on an element does not count.
func steps[T any](timeout callTimeout, list func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	if timeout <= 0 {
		return list(context.Background())
	}
	return func(yield func(T, error) bool) {
		ctx := newStepContext()
		step := time.AfterFunc(time.Duration(timeout), ctx.expire)
		defer ctx.expire()
		defer step.Stop()
		for element, err := range list(ctx) {
			step.Stop()
			if !yield(element, err) {
				return
			}
			step.Reset(time.Duration(timeout))
		}
	}
}

// A stepContext is a context whose deadline moves, so that it reports none. It ends with [context.DeadlineExceeded]
// when the deadline is not moved in time.
type stepContext struct {
	context.Context //nolint:containedctx // it is a context

	expire context.CancelFunc
}

func newStepContext() *stepContext {
	ctx, cancel := context.WithCancel(context.Background())
	return &stepContext{ctx, cancel}
}

// Err returns [context.DeadlineExceeded] when the context has ended, however it did.
func (c *stepContext) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// Value returns nil, so that contexts made of this one ask it, and not the one inside, why it has ended.
func (c *stepContext) Value(any) any { return nil }

// AfterFunc makes contexts of this one without a goroutine for each, see [context.AfterFunc].
func (c *stepContext) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }
