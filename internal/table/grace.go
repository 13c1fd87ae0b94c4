package table

import (
	"context"
	"time"
)

// A graceContext ends when a caller does not wait any more. Calls of the store that are under way by then may end: the outcome of a write is
// known a moment later, and would not be if the write were given up.
type graceContext struct {
	context.Context //nolint:containedctx // that it is made of
	callers         context.Context
	last            time.Time // when calls under way end at the latest
}

// graceKey is the key of a graceContext, in itself and in those that are made of it.
type graceKey struct{}

// Value returns the context itself for its key.
func (c *graceContext) Value(key any) any {
	if key == (graceKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Until returns a context that ends at a time at the latest. No call of the store begins after that. Calls that are under way have a grace to
// end.
func Until(ctx context.Context, end time.Time, grace time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithDeadline(ctx, end)
	return &graceContext{Context: bounded, callers: ctx, last: end.Add(grace)}, cancel
}

// graced returns the context for a call of the store by a caller with a context. Contexts that end otherwise are returned as they are.
func graced(ctx context.Context) (context.Context, context.CancelFunc) {
	c, ok := ctx.Value(graceKey{}).(*graceContext)
	if !ok || c.Done() != ctx.Done() || c.Err() != nil {
		return ctx, nil
	}
	return context.WithDeadline(c.callers, c.last)
}
