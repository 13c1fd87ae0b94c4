package zlimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleLease() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	lease, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 500},
		Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 10_000)},
	})
	if err != nil {
		panic(err)
	}
	defer lease.Rollback(ctx) // does nothing after Commit

	_ = lease.Adjust(zlimit.Amounts{"tpm": 120}) // the answer was longer than estimated
	fmt.Println(lease.Consumed(), lease.Degraded())
	fmt.Println(lease.Commit(ctx))
	fmt.Println(lease.Commit(ctx))
	// Output:
	// map[rpm:1 tpm:620] false
	// <nil>
	// zlimit: lease closed
}

func ExampleLease_Consume() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	lease, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "downloads", Consume: zlimit.Amounts{"megabytes": 100},
		Limits: []zlimit.Limit{zlimit.PerDay("megabytes", 250)},
	})
	if err != nil {
		panic(err)
	}
	for range 2 { // each part is asked for before it is sent
		err := lease.Consume(ctx, zlimit.Amounts{"megabytes": 100})
		fmt.Println(err == nil, lease.Consumed())
	}
	_ = lease.Commit(ctx)
	// Output:
	// true map[megabytes:200]
	// false map[megabytes:200]
}

func ExampleLease_Release() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "seats"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("booked", 100)}}); err != nil {
		panic(err)
	}

	lease, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "seats", Consume: zlimit.Amounts{"booked": 4},
	})
	if err != nil {
		panic(err)
	}
	_ = lease.Release(zlimit.Amounts{"booked": 3})
	_ = lease.Commit(ctx)
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "seats"})
	fmt.Println(statuses[0].Available, err)
	// Output: 99 <nil>
}

func ExampleLease_Rollback() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "seats"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("booked", 100)}}); err != nil {
		panic(err)
	}

	lease, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "seats", Consume: zlimit.Amounts{"booked": 4},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(lease.Rollback(ctx))
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "seats"})
	fmt.Println(statuses[0].Available, err)
	// Output:
	// <nil>
	// 100 <nil>
}

func ExampleLease_Statuses() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	lease, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1, "tpd": 500},
		Limits: []zlimit.Limit{zlimit.PerDay("rpd", 60), zlimit.PerDay("tpd", 10_000)},
	})
	if err != nil {
		panic(err)
	}
	for _, s := range lease.Statuses() { // for headers about what remains
		fmt.Printf("%s: %d of %d remain\n", s.Limit.Name, s.Available, s.Limit.Capacity)
	}
	// Output:
	// rpd: 59 of 60 remain
	// tpd: 9500 of 10000 remain
}

func ExampleLease_AppendStatuses() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	var statuses zlimit.Statuses // one list for all requests of a goroutine
	for range 2 {
		lease, err := limiter.Acquire(ctx, zlimit.Request{
			Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1},
			Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)},
		})
		if err != nil {
			panic(err)
		}
		statuses = lease.AppendStatuses(statuses[:0])
		fmt.Println(statuses[0].Available)
	}
	// Output:
	// 59
	// 58
}

func ExampleLease_Repeated() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1000)}}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, limits); err != nil {
		panic(err)
	}
	request := zlimit.Request{ID: "job-17", Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 500}}
	for range 2 {
		lease, err := limiter.Acquire(ctx, request)
		if err != nil {
			panic(err)
		}
		fmt.Println(lease.Repeated(), lease.Consumed())
	}
	// Output:
	// false map[tokens:500]
	// true map[tokens:500]
}

func ExampleLease_Token() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1000)}})
	if err != nil {
		panic(err)
	}

	// One process admits the call, and hands the lease on.
	lease, err := limiter.Acquire(ctx, zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 500}})
	if err != nil {
		panic(err)
	}
	token, err := lease.Token(10 * time.Minute)
	fmt.Println(err, lease.Commit(ctx))

	// Another one learns what the call cost. It settles the token once, however often it is asked to.
	for _, actual := range []int64{120, 120, 130} {
		fmt.Println(limiter.Settle(ctx, token, zlimit.Amounts{"tokens": actual}))
	}
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "gpt-4"})
	fmt.Println(statuses, err)
	// Output:
	// <nil> zlimit: lease closed
	// <nil>
	// <nil>
	// zlimit: lease settled with other amounts: entity "alice", resource "gpt-4", tokens 120
	// alice/gpt-4 tokens 880 of 1000 <nil>
}
