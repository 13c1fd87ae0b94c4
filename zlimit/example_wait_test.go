package zlimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleRateLimiter_Wait() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
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
	limiter, _ := zlimit.Open(ctx, "memory:")
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

func ExampleRateLimiter_For() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	calls := limiter.For("worker", "backend", zlimit.PerSecond("calls", 20, zlimit.Burst(5))).MaxWait(time.Minute)
	ok, err := calls.AllowN(ctx, 4)
	fmt.Println(ok, err)
	fmt.Println(calls.Limit(ctx)) // the last of the burst
	start := time.Now()
	if err := calls.WaitN(ctx, 2); err != nil {
		panic(err)
	}
	fmt.Println(time.Since(start) >= 90*time.Millisecond)

	reservation, err := calls.ReserveN(ctx, 4)
	if err != nil {
		panic(err)
	}
	fmt.Println(time.Until(reservation.Due()) > time.Millisecond, reservation.Cancel(ctx))
	// Output:
	// true <nil>
	// <nil>
	// true
	// true <nil>
}

func ExampleScoped() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	calls := limiter.For("worker", "backend", zlimit.PerSecond("calls", 20, zlimit.Burst(1))).MaxWait(time.Second)
	ok, err := calls.Allow(ctx)
	fmt.Println(ok, err)
	fmt.Println(calls.Limit(ctx) == nil) // an *ExceededError
	fmt.Println(calls.Wait(ctx))
	reservation, err := calls.Reserve(ctx)
	if err != nil {
		panic(err)
	}
	_, err = reservation.Wait(ctx)
	fmt.Println(err)
	// Output:
	// true <nil>
	// false
	// <nil>
	// <nil>
}

func ExampleRateLimiter_Reserve() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	reservation, err := limiter.Reserve(ctx, zlimit.Request{
		Entity: "worker", Resource: "backend", Consume: zlimit.Amounts{"calls": 1},
		Limits: []zlimit.Limit{zlimit.PerMinute("calls", 60)},
	}, zlimit.MaxWait(time.Minute))
	if err != nil {
		panic(err)
	}
	fmt.Println(time.Until(reservation.Due()) <= 0)
	// Output: true
}
