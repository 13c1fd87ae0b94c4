package zlimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleSlots() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.Slots("workers", 1, zlimit.Term(10*time.Second))))
	defer limiter.Close()
	job := zlimit.Request{Entity: "team", Resource: "render", Consume: zlimit.Amounts{"workers": 1}}
	err := limiter.Do(ctx, job, func(ctx context.Context, _ *zlimit.Lease) error {
		_, err := limiter.Acquire(ctx, job)
		return err
	})
	fmt.Println(err)
	// Output: zlimit: rate limit exceeded: team/render workers (requested 1, available 0 of 1), retry after 1s
}

func ExampleStatus_Held() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.Slots("workers", 5)))
	defer limiter.Close()
	lease, err := limiter.Acquire(ctx, zlimit.Request{Entity: "team", Resource: "render", Consume: zlimit.Amounts{"workers": 2}})
	if err != nil {
		panic(err)
	}
	for _, status := range lease.Statuses() {
		fmt.Println(status.Held(), "held,", status.Available, "free")
	}
	fmt.Println(lease.Commit(ctx))
	// Output:
	// 2 held, 3 free
	// <nil>
}

func ExampleLease_Lost() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.Slots("lock", 1)))
	lease, err := limiter.Acquire(ctx, zlimit.Request{Entity: "jobs", Resource: "nightly", Consume: zlimit.Amounts{"lock": 1}})
	if err != nil {
		panic(err)
	}
	if err := limiter.Close(); err != nil {
		panic(err)
	}
	select {
	case <-lease.Lost():
		fmt.Println("another process may run the job")
	case <-time.After(time.Minute):
		fmt.Println("the job took a minute")
	}
	// Output: another process may run the job
}

func ExampleLease_Fence() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.Slots("lock", 1)))
	defer limiter.Close()
	latest := int64(0) // where the lock guards something, beside it
	for range 2 {
		err := limiter.Do(ctx, zlimit.Request{
			Entity: "jobs", Resource: "nightly", Consume: zlimit.Amounts{"lock": 1},
		}, func(_ context.Context, lease *zlimit.Lease) error {
			if lease.Fence() <= latest {
				return fmt.Errorf("a later process was here before")
			}
			latest = lease.Fence()
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
}
