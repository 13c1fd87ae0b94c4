package zlimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An event, as a limiter reports it, reaches a log and a warning.
func ExampleObservers() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	observe := zlimit.Observers(
		zlimit.LogTo(logger),
		zlimit.OnLevel("rpm", 0.8, func(_ context.Context, s zlimit.Status) {
			fmt.Println(s.Entity, "has", s.Available, "of", s.Limit.Capacity, "left")
		}),
	)
	observe(context.Background(), zlimit.Event{
		Kind: zlimit.EventDecision, Operation: zlimit.OpAcquire, Time: time.Now(), Entity: "alice", Resource: "api",
		Result: zlimit.ResultOf(&zlimit.ExceededError{}), Limit: "rpm",
		Statuses: zlimit.Statuses{{Entity: "alice", Resource: "api", Limit: zlimit.PerMinute("rpm", 60), Available: 5}},
	})

	// Output:
	// level=INFO msg="zlimit: decision" result=rejected operation=acquire entity=alice resource=api limit=rpm
	// alice has 5 of 60 left
}

func ExampleLease_Statuses() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	lease, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpd": 1},
		Limits: []zlimit.Limit{zlimit.PerDay("rpd", 1000)},
	})
	if err != nil {
		panic(err)
	}
	for _, s := range lease.Statuses() {
		fmt.Println(s.Limit.Name, s.Available)
	}

	// Output:
	// rpd 999
}
