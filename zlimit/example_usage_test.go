package zlimit_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleUsageService_Buckets() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	for entity, used := range map[string]int64{"alice": 40, "bob": 10} {
		_, _ = limiter.Acquire(ctx, zlimit.Request{
			Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": used},
			Limits: []zlimit.Limit{zlimit.PerDay("rpd", 100)},
		})
	}
	for bucket, err := range limiter.Usage.Buckets(ctx, "gpt-4") {
		fmt.Println(bucket.Entity, bucket.Statuses[0].Available, err)
	}
	// Output:
	// alice 60 <nil>
	// bob 90 <nil>
}

// Where a resource stands, over all entities that use it.
func ExampleCapacity() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	for entity, used := range map[string]int64{"alice": 40, "bob": 10} {
		_, _ = limiter.Acquire(ctx, zlimit.Request{
			Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": used},
			Limits: []zlimit.Limit{zlimit.PerDay("rpd", 100)},
		})
	}
	capacity, err := limiter.Usage.Capacity(ctx, "gpt-4")
	if err != nil {
		panic(err)
	}
	rpd, ok := capacity.Limit("rpd")
	fmt.Printf("%d entities have %v, of which %.2f are used: %t\n", capacity.Entities, rpd.Capacity, rpd.Utilization(), ok)
	// Output: 2 entities have 200, of which 0.25 are used: true
}

// Which part of the buckets is shown: in memory, all of them.
func ExampleUsageService_Coverage() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	covered, err := limiter.Usage.Coverage(ctx, "gpt-4")
	fmt.Println(covered, err)
	fmt.Println(covered.Known(), covered.Missing())
	// Output:
	// all buckets are shown <nil>
	// true 0
}

func ExampleQuantity() {
	q := zlimit.Quantity(1_500) // thousandths
	fmt.Println(q, q.Tokens(), q.Float64())
	// Output: 1.5 2 1.5
}

func ExampleParseWindow() {
	window, err := zlimit.ParseWindow("daily")
	fmt.Println(window == zlimit.WindowDaily, err)
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	fmt.Println(window.Start(noon).Format(time.DateTime), window.End(noon).Format(time.DateTime))
	// Output:
	// true <nil>
	// 2026-03-01 00:00:00 2026-03-02 00:00:00
}

// A request of a key is charged to its team, too. What each consumed itself adds up to what was asked for.
func ExampleBucket_Own() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 100)))
	defer limiter.Close()
	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "team"})
	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "key", ParentID: "team", Cascade: true})
	for entity, used := range map[string]int64{"key": 40, "team": 10} {
		_, _ = limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": used}})
	}
	for bucket, err := range limiter.Usage.Buckets(ctx, "gpt-4") {
		fmt.Println(bucket.Entity, bucket.Consumed["rpd"], bucket.Own()["rpd"], bucket.FromChildren["rpd"], err)
	}
	// Output:
	// key 40 40 0 <nil>
	// team 50 10 40 <nil>
}

// A sum over all resources of an entity leaves out what narrower resources have as well.
func ExampleSnapshot_Counted() {
	models := zlimit.Snapshot{
		Consumed:     map[string]zlimit.Quantity{"tokens": 50_000},
		FromNarrower: map[string]zlimit.Quantity{"tokens": 40_000}, // by requests of gpt-4o, which lies within models
	}
	fmt.Println(models.Counted(zlimit.UsageQuery{Entity: "alice"})["tokens"])
	fmt.Println(models.Counted(zlimit.UsageQuery{Entity: "alice", Resource: "models"})["tokens"])
	// Output:
	// 10
	// 50
}

func ExampleSnapshot_Own() {
	team := zlimit.Snapshot{
		Consumed:     map[string]zlimit.Quantity{"rpd": 50_000}, // what the team was charged
		FromChildren: map[string]zlimit.Quantity{"rpd": 40_000},
	}
	fmt.Println(team.Own()["rpd"])
	// Output: 10
}

// A bill is final when all usage of its range is counted. Without an aggregator nothing is.
func ExampleUsageService_Completeness() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	complete, err := limiter.Usage.Completeness(ctx)
	if err != nil {
		panic(err)
	}
	march, april := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, time.April, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(complete.Covers(march, april), len(complete.Within(march, april)))
	// Output: false 0
}

// Every resource that was used, whether or not it has stored limits.
func ExampleUsageService_Resources() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	n := 0
	for _, err := range limiter.Usage.Resources(ctx) {
		if err != nil {
			panic(err)
		}
		n++
	}
	fmt.Println(n, "resources")
	// Output: 0 resources
}

// Who is rejected most by this process since its last report.
func ExampleRateLimiter_Rejected() {
	ctx := context.Background()
	s, err := zlimit.Memory()
	if err != nil {
		panic(err)
	}
	defer s.Close()
	limiter, err := zlimit.New(ctx, s, zlimit.WithRejectionReports(zlimit.RejectionReports{Top: 10}))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	for range 5 {
		_, _ = limiter.Acquire(ctx, zlimit.Request{
			Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1}, Limits: []zlimit.Limit{zlimit.PerDay("rpd", 2)},
		})
	}
	for _, r := range limiter.Rejected().Heaviest {
		fmt.Println(r.Entity, r.Resource, r.Limit, r.Count)
	}
	// Output:
	// acme gpt-4 rpd 3
}

// Who is rejected most, as far as processes report it. Here two requests are rejected, which the limiter reports when it is closed.
func ExampleUsageService_Rejected() {
	ctx := context.Background()
	s, err := zlimit.Memory()
	if err != nil {
		panic(err)
	}
	defer s.Close()
	reporting, err := zlimit.New(ctx, s, zlimit.WithRejectionReports(zlimit.RejectionReports{}))
	if err != nil {
		panic(err)
	}
	for range 3 {
		_, _ = reporting.Acquire(ctx, zlimit.Request{
			Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1}, Limits: []zlimit.Limit{zlimit.PerDay("rpd", 1)},
		})
	}
	fmt.Println(reporting.Rejected().Total, "to report")
	if err := reporting.Close(); err != nil {
		panic(err)
	}
	limiter, err := zlimit.New(ctx, s)
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	all, err := limiter.Usage.Rejected(ctx, zlimit.RejectedQuery{Resource: "gpt-4"})
	if err != nil {
		panic(err)
	}
	for _, r := range all.Heaviest {
		fmt.Println(r.Entity, r.Limit, r.Count)
	}
	minutes, err := limiter.Usage.RejectedByMinute(ctx, zlimit.RejectedQuery{Entity: "acme"})
	fmt.Println(len(minutes), err)
	// Output:
	// 2 to report
	// acme rpd 2
	// 1 <nil>
}

// When a budget is used up, and which of its thresholds were crossed. Without usage of earlier days there is no forecast.
func ExampleUsageService_Forecast() {
	ctx := context.Background()
	noon := time.Date(2026, time.March, 11, 0, 0, 0, 0, time.UTC)
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return noon }))
	defer limiter.Close()
	limits := []zlimit.Limit{zlimit.Monthly("tokens", 1000, "UTC")}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}); err != nil {
		panic(err)
	}
	lease, err := limiter.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 500}})
	if err != nil {
		panic(err)
	}
	tokens, _ := lease.Statuses().Limit("tokens")
	at, ok := tokens.UsedUp(noon) // half of it in the first ten days
	fmt.Println(at.Format(time.DateOnly), ok)
	at, ok = tokens.UsedUpAt(noon, 100) // tokens a day
	fmt.Println(at.Format(time.DateOnly), ok)
	forecasts, err := limiter.Usage.Forecast(ctx, "acme", "gpt-4")
	if err != nil {
		panic(err)
	}
	fmt.Println(forecasts[0].Available, forecasts[0].UsedUp.IsZero())
	alerts, err := limiter.Usage.Alerts(ctx, "acme", "gpt-4")
	fmt.Println(len(alerts), err)
	// Output:
	// 2026-03-21 true
	// 2026-03-16 true
	// 500 true
	// 0 <nil>
}

// The rates of the last week: as much on each day, since it is too little for a pattern of weekdays.
func ExampleWeekdayRates() {
	rates := zlimit.WeekdayRates([]float64{10, 20, 30}, time.Friday)
	fmt.Println(rates[time.Saturday], rates[time.Monday])
	// Output: 20 20
}

// Usage of a day in the past, in a store whose changes have that time.
func ExampleMemoryAt() {
	ctx, cancel := context.WithCancel(context.Background())
	now := func() time.Time { return time.Date(2026, time.March, 5, 10, 20, 0, 0, time.UTC) }
	store, err := zlimit.MemoryAt(now)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	limiter, err := zlimit.New(ctx, store, zlimit.WithClock(now))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	counting, err := aggregator.New(store, aggregator.WithClock(now), aggregator.WithPoll(time.Millisecond))
	if err != nil {
		panic(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = counting.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for len(counting.Status().Partitions) == 0 {
		time.Sleep(time.Millisecond)
	}
	_, _ = limiter.Acquire(ctx, zlimit.Request{
		Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 3}, Limits: []zlimit.Limit{zlimit.PerDay("rpd", 100)},
	})
	q := zlimit.UsageQuery{Entity: "acme", Window: zlimit.WindowHourly, From: now().Add(-time.Hour), To: now()}
	for counted := false; !counted; time.Sleep(time.Millisecond) {
		for s, err := range limiter.Usage.Snapshots(ctx, q) {
			fmt.Println(s.Start, s.Consumed["rpd"], err)
			counted = true
		}
	}
	// Output: 2026-03-05 10:00:00 +0000 UTC 3 <nil>
}
