package hindsight_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// Why a request was refused at 9:30, and what the limit was then.
func ExampleExplain() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 5, 9, 20, 0, 0, time.UTC)
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return now }), zlimit.WithPrincipal("olga"),
		zlimit.WithRejectionReports(zlimit.RejectionReports{}))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	_ = limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1)}})
	now = now.Add(10 * time.Minute)
	for range 3 {
		_, _ = limiter.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}})
	}
	at := now
	now = now.Add(time.Minute)
	found, err := hindsight.Explain(ctx, limiter, hindsight.Question{Entity: "acme", Resource: "gpt", At: at, Now: now})
	if err != nil {
		panic(err)
	}
	clock := func(t time.Time) string { return t.Format(time.TimeOnly) }
	words := &hindsight.Words{
		Limit:  func(l *zlimit.Limit, _ *hindsight.Level) string { return l.String() },
		Who:    func(e *zlimit.AuditEvent) string { return e.Principal },
		Moment: clock, Second: clock,
	}
	for _, r := range found.During {
		fmt.Printf("limit %s refused %d times.%s\n", r.Limit, r.Count, words.Then(&r))
	}
	// Output: limit rpm refused 2 times. The limit was rpm=1/min, set by olga at 09:20:00, as now.
}

// A monthly budget was raised today. The amount holds from the next month on: this one began with 200.
func ExampleRaised() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 5, 9, 20, 0, 0, time.UTC)
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return now }))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	at := zlimit.Level{Entity: "acme", Resource: "gpt"}
	for _, budget := range []int64{200, 300} {
		_ = limiter.Limits.Set(ctx, at, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("calls", budget, "UTC")}})
		_, _ = limiter.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"calls": 10}})
		now = now.Add(time.Hour)
	}
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "acme", Resource: "gpt"})
	if err != nil {
		panic(err)
	}
	raise, raised, err := hindsight.Raised(ctx, limiter, &statuses[0], now)
	fmt.Println(raise.Least, raise.Most, raise.Known(), raised, err)
	_, cut, err := hindsight.CutOf(ctx, limiter, &statuses[0], now)
	fmt.Println(cut, err)
	// Output:
	// 200 200 true true <nil>
	// false <nil>
}
