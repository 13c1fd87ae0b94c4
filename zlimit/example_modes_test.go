package zlimit_test

import (
	"context"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

// modesExample returns a limiter with one limit of gpt-4.
func modesExample(limit zlimit.Limit) *zlimit.RateLimiter {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{limit}}); err != nil {
		panic(err)
	}
	return limiter
}

func ExampleLimit_Soft() {
	limiter := modesExample(zlimit.PerDay("tokens", 1000).Soft())
	defer limiter.Close()
	request := zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 1500}}
	lease, err := limiter.Acquire(context.Background(), request)
	if err != nil {
		panic(err)
	}
	tokens, _ := lease.Statuses().Limit("tokens")
	fmt.Println(tokens.Limit, "has", tokens.Available)

	// Output: tokens=1000/d soft has -500
}

func ExampleLimit_Shadow() {
	limiter := modesExample(zlimit.PerDay("tokens", 1000).Shadow())
	defer limiter.Close()
	for _, amount := range []int64{600, 600, 400} {
		request := zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": amount}}
		lease, err := limiter.Acquire(context.Background(), request)
		if err != nil {
			panic(err)
		}
		tokens, _ := lease.Statuses().Limit("tokens")
		fmt.Println(amount, "would be refused:", tokens.Foreseen)
	}

	// Output:
	// 600 would be refused: false
	// 600 would be refused: true
	// 400 would be refused: false
}

func ExampleLimitService_Bypass() {
	ctx := context.Background()
	limiter := modesExample(zlimit.PerDay("tokens", 1000))
	defer limiter.Close()
	if _, err := limiter.Limits.Bypass(ctx, zlimit.Level{Entity: "alice"}, nil); err != nil {
		panic(err)
	}
	for _, entity := range []string{"alice", "bob"} {
		_, err := limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 5000}})
		fmt.Println(entity, "is served:", err == nil)
	}

	// Output:
	// alice is served: true
	// bob is served: false
}
