package zlimit_test

import (
	"context"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleLease_String() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	request := zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "usd": 1_500_000_000},
		Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.USD("usd", 2, zlimit.PerHour)},
	}
	lease, err := limiter.Acquire(ctx, request)
	if err != nil {
		panic(err)
	}
	fmt.Println(lease)
	statuses := lease.Statuses()
	if rpm, ok := statuses.Limit("rpm"); ok {
		fmt.Println(rpm)
	}
	fmt.Println(len(statuses) == 2 && statuses.String() == statuses[0].String()+"; "+statuses[1].String())
	fmt.Println(lease.Commit(ctx), lease)
	// Output:
	// lease of rpm 1, usd $1.5
	// alice/gpt-4 rpm 59 of 60
	// true
	// <nil> closed lease of rpm 1, usd $1.5
}

func ExampleStatus_String() {
	status := zlimit.Status{Entity: "team", Resource: "models", Limit: zlimit.USD("usd", 25, zlimit.PerMonth), Available: -500_000_000}
	fmt.Println(status)
	fmt.Println(zlimit.Statuses{status, status})
	fmt.Println(new(zlimit.Lease))
	// Output:
	// team/models usd -$0.5 of $25
	// team/models usd -$0.5 of $25; team/models usd -$0.5 of $25
	// no lease
}
