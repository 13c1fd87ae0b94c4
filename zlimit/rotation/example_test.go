package rotation_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// The entity acme has the new ID acme-2: the records of both say so, as the command zlimit entity rotate leaves them.
func Example() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	for _, e := range []zlimit.Entity{
		{ID: "acme", Metadata: map[string]string{rotation.ToKey: "acme-2"}},
		{ID: "acme-2", Metadata: map[string]string{rotation.FromKey: "acme"}},
	} {
		if _, err := limiter.Entities.Create(ctx, e); err != nil {
			panic(err)
		}
	}
	fmt.Println(rotation.NewID(ctx, limiter, "acme"))
	fmt.Println(rotation.CheckBucket(ctx, limiter, "acme-2"))
	for name, check := range map[string]func(context.Context, *zlimit.RateLimiter, string) error{
		"CheckBucket": rotation.CheckBucket, "CheckLimits": rotation.CheckLimits, "CheckServe": rotation.CheckServe, "CheckRelease": rotation.CheckRelease,
	} {
		if err := check(ctx, limiter, "acme"); !errors.As(err, new(*zlimit.ValidationError)) {
			fmt.Println(name, err)
		}
	}
	fmt.Println(rotation.CheckDelete(ctx, limiter, "acme"), rotation.IsKey(rotation.StageKey))
	disabled := &zlimit.DisabledError{Entity: "acme"}
	fmt.Println(errors.Is(rotation.Explain(ctx, limiter, disabled), zlimit.ErrDisabled))
	// Output:
	// acme-2 <nil>
	// <nil>
	// <nil> true
	// true
}
