package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleMonthly() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	budget := zlimit.Monthly("tokens", 1_000_000, "Europe/Berlin")
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{budget}}); err != nil {
		panic(err)
	}
	request := zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 600_000}}
	for range 2 {
		_, err = limiter.Acquire(ctx, request)
	}
	var exceeded *zlimit.ExceededError
	if errors.As(err, &exceeded) {
		tokens, _ := exceeded.Statuses.Limit("tokens")
		fmt.Println(budget, "has", tokens.Available)
	}
	// Output: tokens=1000000/month@Europe/Berlin has 400000
}

func ExampleExceededError_SpreadRetryAfter() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	daily := zlimit.Daily("requests", 1000, "UTC")
	if err := limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{daily}}); err != nil {
		panic(err)
	}
	request := zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"requests": 600}}
	for range 2 {
		_, err = limiter.Acquire(ctx, request)
	}
	var exceeded *zlimit.ExceededError
	if errors.As(err, &exceeded) {
		later := exceeded.SpreadRetryAfter() - exceeded.RetryAfter()
		fmt.Println(later >= 0 && later < time.Minute)
	}
	// Output: true
}

func ExampleLimit_CarryOver() {
	ctx, now := context.Background(), time.Date(2027, time.January, 20, 0, 0, 0, 0, time.UTC)
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return now }))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	budget := zlimit.Monthly("tokens", 1000, "UTC").CarryOver(500)
	if err := limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{budget}}); err != nil {
		panic(err)
	}
	request := zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 600}}
	if _, err := limiter.Acquire(ctx, request); err != nil {
		panic(err)
	}
	now = now.AddDate(0, 1, 0)
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "gpt-4"})
	if err != nil {
		panic(err)
	}
	fmt.Println(budget, "has", statuses[0].Available, "with", statuses[0].Carried, "carried")
	// Output: tokens=1000/month@UTC carry 500 has 1400 with 400 carried
}

func ExampleWeekly() {
	fmt.Println(zlimit.Weekly("tokens", 500_000, "UTC"))
	// Output: tokens=500000/week@UTC
}

func ExampleDaily() {
	fmt.Println(zlimit.Daily("requests", 1000, "America/New_York"))
	// Output: requests=1000/day@America/New_York
}

func ExampleCron() {
	shift := zlimit.Cron("calls", 200, "0 6,14,22 * * *", "Asia/Tokyo") // three shifts a day
	fmt.Println(shift)
	fmt.Println(zlimit.Cron("calls", 200, "0 0 15 * *", "UTC"))
	// Output:
	// calls=200/cron "0 6,14,22 * * *"@Asia/Tokyo
	// calls=200/month@UTC:15
}
