package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A limiter warns before a limit is reached, and counts what it decides.
func ExampleWithObserver() {
	ctx := context.Background()
	decisions := map[zlimit.Result]int{}
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithObserver(zlimit.Observers(
		zlimit.OnLevel("rpd", 0.8, func(_ context.Context, s zlimit.Status) {
			fmt.Println(s.Entity, "has", s.Available, "of", s.Limit.Capacity, "left")
		}),
		func(_ context.Context, e zlimit.Event) { // called by one goroutine here; guard it if there are more
			if e.Kind == zlimit.EventDecision {
				decisions[e.Result]++
			}
		},
	)))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	for range 7 {
		_, _ = limiter.Acquire(ctx, zlimit.Request{
			Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpd": 2},
			Limits: []zlimit.Limit{zlimit.PerDay("rpd", 10)},
		})
	}
	fmt.Println(decisions)
	// Output:
	// alice has 2 of 10 left
	// map[ok:5 rejected:2]
}

// A limiter logs what an operator should know, without the time here.
func ExampleLogTo() {
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "duration" {
			return slog.Attr{}
		}
		return a
	}}))
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithObserver(zlimit.LogTo(logger)))
	defer limiter.Close()

	_, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpd": 11},
		Limits: []zlimit.Limit{zlimit.PerDay("rpd", 10)},
	})
	fmt.Println(zlimit.ResultOf(err))
	// Output:
	// level=INFO msg="zlimit: decision" result=rejected operation=acquire entity=alice resource=api limit=rpd amounts.rpd=11
	// rejected
}

func ExampleResultOf() {
	fmt.Println(zlimit.ResultOf(nil), zlimit.ResultOf(zlimit.ErrNoLimits), zlimit.ResultOf(context.Canceled))
	// Output: ok no_limits canceled
}

// A request that a parent refuses: the error and the event say whose limit it was.
func ExampleStatus_Level() {
	ctx := context.Background()
	tell := func(_ context.Context, e zlimit.Event) {
		if e.Kind == zlimit.EventDecision && e.Result == zlimit.ResultRejected {
			fmt.Println(e.Entity, "is refused by", e.Limit, "of", e.LimitEntity, e.Ancestor)
		}
	}
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 100)), zlimit.WithObserver(tell))
	defer limiter.Close()
	for _, e := range []zlimit.Entity{{ID: "org"}, {ID: "team", ParentID: "org", Cascade: true}, {ID: "key", ParentID: "team", Cascade: true}} {
		_, _ = limiter.Entities.Create(ctx, e)
	}
	_ = limiter.Limits.Set(ctx, zlimit.Level{Entity: "org"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 10)}})
	_, err := limiter.Acquire(ctx, zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 11}})
	var exceeded *zlimit.ExceededError
	if errors.As(err, &exceeded) {
		fmt.Println(exceeded.Violations()[0].Level())
	}
	// Output:
	// key is refused by rpd of org 2
	// parent2
}
