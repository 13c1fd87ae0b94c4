package zlimit_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

// One budget a month for all models, besides what each of them allows a minute.
func ExampleResourceService_Put() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	limits := func(resource, text string) error {
		var limit zlimit.Limit
		if err := limit.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		return limiter.Limits.Set(ctx, zlimit.Level{Resource: resource}, zlimit.Config{Limits: []zlimit.Limit{limit}})
	}
	err := errors.Join(
		limits("models", "tokens=1M/month@UTC"),
		limits("gpt-4o", "rpm=60/min"),
		limits("gpt-4o-mini", "rpm=600/min"),
		limiter.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4o", Within: "models"}),
		limiter.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4o-mini", Within: "models"}),
	)
	if err != nil {
		panic(err)
	}
	for _, model := range []string{"gpt-4o", "gpt-4o-mini"} {
		_, err := limiter.Acquire(ctx, zlimit.Request{
			Entity: "alice", Resource: model, Consume: zlimit.Amounts{"rpm": 1, "tokens": 700_000},
		})
		var exceeded *zlimit.ExceededError
		if errors.As(err, &exceeded) {
			s := exceeded.Violations()[0]
			fmt.Println(model, "is refused by", s.Resource, s.Limit.Name, "which has", s.Available)
			continue
		}
		fmt.Println(model, err)
	}
	// Output:
	// gpt-4o <nil>
	// gpt-4o-mini is refused by models tokens which has 300000
}

func ExampleResourceService_Get() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1_000_000)}}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "models"}, limits); err != nil {
		panic(err)
	}
	fmt.Println(limiter.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4o", Within: "models"}))
	r, err := limiter.Resources.Get(ctx, "gpt-4o")
	fmt.Println(r.ID, "within", r.Within, err)
	fmt.Println(limiter.Resources.Put(ctx, zlimit.Resource{ID: "models", Within: "gpt-4o"}))
	// Output:
	// <nil>
	// gpt-4o within models <nil>
	// zlimit: invalid within "gpt-4o": makes a circle, or a chain of more than three resources: gpt-4o within models within gpt-4o
}

func ExampleResourceService_List() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1_000_000)}}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "models"}, limits); err != nil {
		panic(err)
	}
	for _, model := range []string{"gpt-4o-mini", "gpt-4o"} {
		if err := limiter.Resources.Put(ctx, zlimit.Resource{ID: model, Within: "models"}); err != nil {
			panic(err)
		}
	}
	for r, err := range limiter.Resources.List(ctx) {
		fmt.Printf("%s within %q %v\n", r.ID, r.Within, err)
	}
	// Output:
	// gpt-4o within "models" <nil>
	// gpt-4o-mini within "models" <nil>
	// models within "" <nil>
}
