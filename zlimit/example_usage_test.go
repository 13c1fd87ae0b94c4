package zlimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleUsageService_Buckets() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
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
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
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
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
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
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 100)))
	if err != nil {
		panic(err)
	}
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

// Usage is complete up to a time once an aggregator has counted all changes before it. Without an aggregator nothing is.
func ExampleUsageService_CompleteTo() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	complete, err := limiter.Usage.CompleteTo(ctx)
	fmt.Println(complete.IsZero(), err)
	// Output: true <nil>
}

// Every resource that was used, whether or not it has stored limits.
func ExampleUsageService_Resources() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
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
