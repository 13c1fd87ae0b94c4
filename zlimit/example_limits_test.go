package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleLimit() {
	fmt.Println(zlimit.PerSecond("rps", 10))
	fmt.Println(zlimit.PerMinute("rpm", 60, zlimit.Burst(10))) // one a second, ten at once
	fmt.Println(zlimit.PerHour("rph", 1_000))
	fmt.Println(zlimit.PerDay("rpd", 1_000, zlimit.Burst(5_000))) // makes up for four idle days
	fmt.Println(zlimit.Limit{Name: "tpm", Capacity: 400_000, RefillAmount: 200_000, RefillPeriod: 30 * time.Second})
	// Output:
	// rps=10:10/1s
	// rpm=10:60/1m0s
	// rph=1000:1000/1h0m0s
	// rpd=5000:1000/24h0m0s
	// tpm=400000:200000/30s
}

// Of four levels the first one that has limits holds.
func ExampleLimitService() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	rpm := func(n int64) []zlimit.Limit { return []zlimit.Limit{zlimit.PerMinute("rpm", n)} }
	err = errors.Join(
		limiter.Limits.SetSystem(ctx, zlimit.SystemConfig{Limits: rpm(10), OnUnavailable: zlimit.Allow}),
		limiter.Limits.SetResource(ctx, "gpt-4", rpm(20)),
		limiter.Limits.SetEntity(ctx, "alice", zlimit.DefaultResource, rpm(30)),
		limiter.Limits.SetEntity(ctx, "alice", "gpt-4", rpm(40)),
	)
	if err != nil {
		panic(err)
	}
	for range 4 {
		found, err := limiter.Limits.Resolve(ctx, "alice", "gpt-4")
		if err != nil {
			panic(err)
		}
		fmt.Println(found.Source, found.Limits, found.OnUnavailable)
		switch found.Source { // uncover the next one
		case zlimit.SourceEntity:
			err = limiter.Limits.DeleteEntity(ctx, "alice", "gpt-4")
		case zlimit.SourceEntityDefault:
			err = limiter.Limits.DeleteEntity(ctx, "alice", zlimit.DefaultResource)
		case zlimit.SourceResource:
			err = limiter.Limits.DeleteResource(ctx, "gpt-4")
		default:
			err = limiter.Limits.DeleteSystem(ctx)
		}
		if err != nil {
			panic(err)
		}
	}
	_, err = limiter.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(err)
	// Output:
	// entity [rpm=40:40/1m0s] allow
	// entity_default [rpm=30:30/1m0s] allow
	// resource [rpm=20:20/1m0s] allow
	// system [rpm=10:10/1m0s] allow
	// zlimit: no limits configured: entity "alice", resource "gpt-4"
}

// Each level can be read by itself, and listed.
func ExampleLimitService_levels() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	err = errors.Join(
		limiter.Limits.SetSystem(ctx, zlimit.SystemConfig{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}}),
		limiter.Limits.SetResource(ctx, "gpt-4", []zlimit.Limit{zlimit.PerMinute("rpm", 20)}),
		limiter.Limits.SetEntity(ctx, "alice", "whisper", []zlimit.Limit{zlimit.PerMinute("rpm", 30)}),
	)
	if err != nil {
		panic(err)
	}
	system, err := limiter.Limits.System(ctx)
	fmt.Println(system.Limits, err)
	resource, err := limiter.Limits.Resource(ctx, "gpt-4")
	fmt.Println(resource, err)
	_, err = limiter.Limits.Entity(ctx, "alice", "gpt-4")
	fmt.Println(err)

	for resource, err := range limiter.Limits.Resources(ctx) {
		fmt.Println("resource:", resource, err)
	}
	for resource, err := range limiter.Limits.ResourcesWith(ctx) {
		for entity, err := range limiter.Limits.EntitiesWith(ctx, resource) {
			fmt.Println("entity:", entity, resource, err)
		}
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// [rpm=10:10/1m0s] <nil>
	// [rpm=20:20/1m0s] <nil>
	// zlimit: no limits configured: entity "alice", resource "gpt-4"
	// resource: gpt-4 <nil>
	// entity: alice whisper <nil>
}

// An application that declares its limits applies them when it starts, and leaves those alone that an operator has
// changed.
func ExampleLimitService_Apply() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	declared := zlimit.Declaration{Resource: "gpt-4", Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
	for range 2 {
		applied, err := limiter.Limits.Apply(ctx, declared)
		fmt.Println(applied.Set, applied.Kept, err)
	}
	// Output:
	// [gpt-4] [] <nil>
	// [] [] <nil>
}

func ExampleLimitService_Invalidate() {
	ctx := context.Background()
	store, err := zlimit.Memory()
	if err != nil {
		panic(err)
	}
	defer store.Close()
	process := func() *zlimit.RateLimiter {
		limiter, err := zlimit.New(ctx, store)
		if err != nil {
			panic(err)
		}
		return limiter
	}
	here, there := process(), process()
	defer here.Close()
	defer there.Close()

	_ = there.Limits.SetResource(ctx, "gpt-4", []zlimit.Limit{zlimit.PerMinute("rpm", 60)})
	found, _ := here.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(found.Limits)
	_ = there.Limits.SetResource(ctx, "gpt-4", []zlimit.Limit{zlimit.PerMinute("rpm", 90)})
	found, _ = here.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(found.Limits, "from memory")
	here.Limits.Invalidate()
	found, _ = here.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(found.Limits)
	fmt.Println(here.Limits.CacheStats().Misses, "reads")
	// Output:
	// [rpm=60:60/1m0s]
	// [rpm=60:60/1m0s] from memory
	// [rpm=90:90/1m0s]
	// 2 reads
}

func ExampleParseFailurePolicy() {
	policy, err := zlimit.ParseFailurePolicy("allow")
	fmt.Println(policy == zlimit.Allow, err)
	_, err = zlimit.ParseFailurePolicy("maybe")
	fmt.Println(err)
	// Output:
	// true <nil>
	// zlimit: invalid failure policy "maybe": must be inherit, block or allow
}

func ExampleFailurePolicy() {
	policy := zlimit.Block
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.TextVar(&policy, "on-outage", policy, "what happens to requests in an outage: block or allow")
	err := flags.Parse([]string{"-on-outage", "allow"})
	fmt.Println(policy, err)

	var config struct {
		OnOutage zlimit.FailurePolicy `json:"on_outage"`
	}
	err = json.Unmarshal([]byte(`{"on_outage": "block"}`), &config)
	fmt.Println(config.OnOutage, err)
	// Output:
	// allow <nil>
	// block <nil>
}
