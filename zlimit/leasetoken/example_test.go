package leasetoken_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// A service charges an estimate and hands the lease to its client, which sends it back with the actual amount.
func Example() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	signer, err := leasetoken.NewSigner(leasetoken.RandomKey()) // replicas share a key instead
	if err != nil {
		panic(err)
	}

	request := zlimit.Request{
		Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"tokens": 500}, Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1000)},
	}
	lease, err := limiter.Acquire(ctx, request)
	if err != nil {
		panic(err)
	}
	inner, err := lease.Token(10 * time.Minute)
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(10 * time.Minute)
	text, err := signer.Sign(&leasetoken.Claims{
		Caller: "gateway", Expires: end, Last: end,
		Leases: []leasetoken.Lease{{Token: inner, Entity: "alice", Resource: "gpt", Amounts: lease.Consumed()}},
	})
	if err != nil {
		panic(err)
	}

	_, err = signer.Open(text, "", "thief", time.Now())
	fmt.Println(errors.Is(err, leasetoken.ErrForeign))
	claims, err := signer.Open(text, "", "gateway", time.Now())
	if err != nil {
		panic(err)
	}
	for _, of := range claims.Leases {
		if err := limiter.Settle(ctx, of.Token, zlimit.Amounts{"tokens": 120}); err != nil {
			panic(err)
		}
	}
	fmt.Println(limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "gpt", Limits: request.Limits}))
	// Output:
	// true
	// alice/gpt tokens 880 of 1000 <nil>
}
