package ledger_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// A budget of which no aggregator has counted anything yet.
func ExampleRead() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 5, 9, 20, 0, 0, time.UTC)
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return now }))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	_ = limiter.Limits.Set(ctx, zlimit.Level{Entity: "acme", Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("calls", 1000, "UTC")}})
	_, _ = limiter.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"calls": 10}})
	month, err := ledger.Read(ctx, limiter, ledger.Query{Entity: "acme", Resources: []string{"gpt"}, Limit: "calls", From: ledger.Begin(now), Now: now})
	if err != nil {
		panic(err)
	}
	fmt.Println(month.Spent(), "of", month.Budget, "are counted,", month.Available, "are available")
	fmt.Println(month.Outlook(&month.Forecast, month.Total), month.Complete.IsZero())
	// Output:
	// 0 of 1000 are counted, 990 are available
	// too early true
}
