package table

import (
	"context"
	"errors"

	"github.com/zlimit/zlimit-go/internal/store"
)

// withheldKey is the key of contexts whose calls are not made.
type withheldKey struct{}

// ErrWithheld is the error of a call that is not made, since the store throttles others like it.
var ErrWithheld error = &store.Error{
	Op: "call", Unavailable: true, Throttled: true, Err: errors.New("not sent, since the store throttles the calls of the bucket"),
}

// Withhold returns a context whose calls are not made. Each ends as a throttle that names no reason, and waits for nothing. So a request is
// decided by what is known already, or by no one.
func Withhold(ctx context.Context) context.Context {
	return context.WithValue(ctx, withheldKey{}, true)
}

// IsWithheld reports whether calls with a context are not made.
func IsWithheld(ctx context.Context) bool { return ctx.Value(withheldKey{}) != nil }
