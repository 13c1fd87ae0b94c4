package zlimit_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleLeases() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.PerMinute("rpm", 10)))
	defer limiter.Close()

	step := func(calls int64) []zlimit.Request {
		return []zlimit.Request{
			{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": calls}},
			{Entity: "alice", Resource: "search", Consume: zlimit.Amounts{"rpm": 1}},
		}
	}
	leases, err := limiter.AcquireAll(ctx, step(7))
	if err != nil {
		panic(err)
	}
	if err := leases.Of(0).Release(zlimit.Amounts{"rpm": 2}); err != nil { // the model was asked five times
		panic(err)
	}
	if err := leases.Commit(ctx); err != nil {
		panic(err)
	}
	leases, err = limiter.AcquireAll(ctx, step(5))
	fmt.Println(err)
	if err := leases.Rollback(ctx); err != nil { // the step was not made
		panic(err)
	}
	_, err = limiter.AcquireAll(ctx, step(6))
	var exceeded *zlimit.ExceededError
	fmt.Println(errors.As(err, &exceeded), exceeded.Statuses[0].Resource)

	// Output:
	// <nil>
	// true gpt-4
}
