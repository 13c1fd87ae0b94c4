package zlimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleRateLimiter_Wait() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	request := zlimit.Request{
		Entity: "worker", Resource: "backend", Consume: zlimit.Amounts{"calls": 1},
		Limits: []zlimit.Limit{zlimit.PerSecond("calls", 100, zlimit.Burst(1))},
	}
	start := time.Now()
	for range 6 {
		if _, err := limiter.Wait(ctx, request, zlimit.MaxWait(time.Minute)); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(start) >= 45*time.Millisecond)
	// Output: true
}

func ExampleReservation() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	request := zlimit.Request{
		Entity: "worker", Resource: "backend", Consume: zlimit.Amounts{"calls": 60},
		Limits: []zlimit.Limit{zlimit.PerMinute("calls", 60)},
	}
	for range 2 {
		reservation, err := limiter.Reserve(ctx, request, zlimit.MaxWait(time.Hour))
		if err != nil {
			panic(err)
		}
		wait := time.Until(reservation.Due())
		fmt.Println(wait > time.Second)
		if wait > time.Second {
			fmt.Println(reservation.Cancel(ctx))
			continue
		}
		lease, err := reservation.Wait(ctx) // which is at once here
		fmt.Println(lease.Consumed(), err)
	}
	// Output:
	// false
	// map[calls:60] <nil>
	// true
	// <nil>
}
