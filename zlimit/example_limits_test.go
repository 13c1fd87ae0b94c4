package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
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
	// rps=10/s
	// rpm=10:60/min
	// rph=1000/h
	// rpd=5000:1000/d
	// tpm=400000:200000/30s
}

func ExampleUSD() {
	fmt.Println(zlimit.USD("usd", 25, zlimit.PerMonth))
	fmt.Println(zlimit.USD("usd", 5, zlimit.PerDay))
	// Output:
	// usd=25/month@UTC
	// usd=5/d
}

func ExamplePerMonth() {
	fmt.Println(zlimit.PerMonth("tokens", 1_000_000))
	// Output: tokens=1000000/month@UTC
}

func ExamplePerWeek() {
	fmt.Println(zlimit.PerWeek("tokens", 250_000).In("Europe/Berlin"))
	// Output: tokens=250000/week@Europe/Berlin
}

func ExampleSession() {
	fmt.Println(zlimit.Session("tokens", 2_000_000, 5*time.Hour))
	// Output: tokens=2000000/session:5h
}

func ExamplePrepaid() {
	fmt.Println(zlimit.Prepaid("credits", 100), zlimit.USD("usd", 5, zlimit.Prepaid))
	// Output: credits=100/never usd=5/never
}

func ExampleLimit_When() {
	fmt.Println(zlimit.PerMinute("rpm", 60).When("* 9-17 * * 1-5", "x2"))
	fmt.Println(zlimit.PerMinute("rpm", 60).When("* 0-5 * * *", "to 20:10/30s").When("* * * * 6,7", "x0.5"))
	// Output:
	// rpm=60/min when "* 9-17 * * 1-5" x2
	// rpm=60/min when "* 0-5 * * *" to 20:10/30s when "* * * * 6,7" x0.5
}

func ExampleLimit_In() {
	fmt.Println(zlimit.PerMinute("rpm", 60).When("* 9-17 * * 1-5", "x2").In("Europe/Berlin"))
	// Output: rpm=60/min when "* 9-17 * * 1-5"@Europe/Berlin x2
}

func ExampleLimit_UnmarshalText() {
	var limit zlimit.Limit
	flag.TextVar(&limit, "limit", zlimit.PerMinute("rpm", 10), "NAME=CAPACITY[:REFILL]/PERIOD")
	fmt.Println(limit)
	fmt.Println(limit.UnmarshalText([]byte("tpm=400_000:100_000/m")), limit)
	fmt.Println(limit.UnmarshalText([]byte("tpm=many/m")))
	// Output:
	// rpm=10/min
	// <nil> tpm=400000:100000/min
	// zlimit: invalid limit "tpm=many/m": capacity "many" must be a whole number from 1 to 9223372036854775
}

func ExampleLimit_MarshalText() {
	text, err := zlimit.PerDay("rpd", 1000, zlimit.Burst(5000)).MarshalText()
	fmt.Println(string(text), err)
	// Output: rpd=5000:1000/d <nil>
}

func ExampleLimit_MarshalJSON() {
	text, err := json.Marshal(zlimit.PerMinute("rpm", 60))
	fmt.Println(string(text), err)
	// Output: {"name":"rpm","capacity":60,"refill_amount":60,"refill_period_seconds":60} <nil>
}

func ExampleLimit_UnmarshalJSON() {
	var limits []zlimit.Limit
	err := json.Unmarshal([]byte(`["rpm=60/m", {"name": "tpm", "capacity": 1000, "refill_period_seconds": 30}]`), &limits)
	fmt.Println(limits, err)
	// Output: [rpm=60/min tpm=1000/30s] <nil>
}

// Any text becomes a name; most texts are their own.
func ExampleName() {
	fmt.Println(zlimit.Name("arn:aws:iam::1:user/alice"))
	fmt.Println(zlimit.Name("Zoë & Co."))
	fmt.Println(len(zlimit.Name(strings.Repeat("a very long text ", 100))))
	// Output:
	// arn:aws:iam::1:user/alice
	// Zo%C3%AB%20%26%20Co.
	// 256
}

func ExampleOriginalName() {
	fmt.Println(zlimit.OriginalName("Zo%C3%AB%20%26%20Co."))
	fmt.Println(zlimit.OriginalName("alice"))
	fmt.Println(zlimit.OriginalName("50%")) // which Name returns for no text
	// Output:
	// Zoë & Co. true
	// alice true
	//  false
}

// Of four levels the first one that has limits holds.
func ExampleLimitService() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	rpm := func(n int64) []zlimit.Limit { return []zlimit.Limit{zlimit.PerMinute("rpm", n)} }
	err := errors.Join(
		limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: rpm(10), OnUnavailable: zlimit.PolicyAllow}),
		limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: rpm(20)}),
		limiter.Limits.Set(ctx, zlimit.Level{Entity: "alice"}, zlimit.Config{Limits: rpm(30)}),
		limiter.Limits.Set(ctx, zlimit.Level{Entity: "alice", Resource: "gpt-4"}, zlimit.Config{Limits: rpm(40)}),
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
			err = limiter.Limits.Delete(ctx, zlimit.Level{Entity: "alice", Resource: "gpt-4"})
		case zlimit.SourceEntityDefault:
			err = limiter.Limits.Delete(ctx, zlimit.Level{Entity: "alice"})
		case zlimit.SourceResource:
			err = limiter.Limits.Delete(ctx, zlimit.Level{Resource: "gpt-4"})
		default:
			err = limiter.Limits.Delete(ctx, zlimit.Level{})
		}
		if err != nil {
			panic(err)
		}
	}
	_, err = limiter.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(err)
	// Output:
	// entity [rpm=40/min] allow
	// entity_default [rpm=30/min] allow
	// resource [rpm=20/min] allow
	// system [rpm=10/min] allow
	// zlimit: no limits configured: entity "alice", resource "gpt-4"
}

// Each level can be read by itself, and listed.
func ExampleLimitService_levels() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	err := errors.Join(
		limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}}),
		limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 20)}}),
		limiter.Limits.Set(ctx, zlimit.Level{Entity: "alice", Resource: "whisper"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 30)}}),
	)
	if err != nil {
		panic(err)
	}
	system, err := limiter.Limits.Get(ctx, zlimit.Level{})
	fmt.Println(system.Limits, err)
	resource, err := limiter.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"})
	fmt.Println(resource.Limits, err)
	entity, err := limiter.Limits.Get(ctx, zlimit.Level{Entity: "alice", Resource: "gpt-4"}) // which are those of the resource
	fmt.Println(entity.Limits, err)

	for stored, err := range limiter.Limits.List(ctx, zlimit.LevelQuery{}) {
		fmt.Println(stored.Level, stored.Config.Limits, "version", stored.Version, err)
	}
	for stored, err := range limiter.Limits.List(ctx, zlimit.LevelQuery{Resource: "gpt-4", NamesOnly: true}) {
		fmt.Println("of gpt-4:", stored.Level, err)
	}
	// Output:
	// [rpm=10/min] <nil>
	// [rpm=20/min] <nil>
	// [] <nil>
	// system [rpm=10/min] version 1 <nil>
	// resource gpt-4 [rpm=20/min] version 1 <nil>
	// entity alice, resource whisper [rpm=30/min] version 1 <nil>
	// of gpt-4: resource gpt-4 <nil>
}

// Two operators change a level, each a part of it. Neither undoes what the other did.
func ExampleLimitService_Update() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	gpt4 := zlimit.Level{Resource: "gpt-4"}
	err := errors.Join(
		limiter.Limits.Update(ctx, gpt4, func(c *zlimit.Config) error {
			c.Limits = []zlimit.Limit{zlimit.PerMinute("rpm", 60)}
			return nil
		}),
		limiter.Limits.Update(ctx, gpt4, func(c *zlimit.Config) error {
			c.OnUnavailable = zlimit.PolicyAllow
			return nil
		}),
	)
	fmt.Println(err)
	err = limiter.Limits.Update(ctx, gpt4, func(c *zlimit.Config) error {
		if len(c.Limits) > 0 {
			return errors.New("leave it")
		}
		return nil
	})
	fmt.Println(err)
	stored, err := limiter.Limits.Get(ctx, gpt4)
	fmt.Println(stored.Limits, stored.OnUnavailable, err)
	// Output:
	// <nil>
	// leave it
	// [rpm=60/min] allow <nil>
}

// An application that declares its limits applies them when it starts, and leaves those alone that an operator has
// changed.
func ExampleLimitService_Patch() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	system := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerDay("rpd", 500)}}
	if err := limiter.Limits.Set(ctx, zlimit.Level{}, system); err != nil {
		panic(err)
	}
	gpt4 := zlimit.Level{Resource: "gpt-4"}
	for _, change := range []func() error{
		func() error { return limiter.Limits.Patch(ctx, gpt4, zlimit.PerMinute("rpm", 90)) },
		func() error { return limiter.Limits.Exclude(ctx, gpt4, "rpd") },
		func() error { return limiter.Limits.Inherit(ctx, gpt4, "rpm") },
		func() error { return limiter.Limits.Inherit(ctx, gpt4, "rpd") },
	} {
		if err := change(); err != nil {
			panic(err)
		}
		stored, err := limiter.Limits.Get(ctx, gpt4)
		fmt.Println(stored.Limits, err)
	}
	// Output:
	// [rpd=500/d rpm=90/min] <nil>
	// [rpm=90/min] <nil>
	// [rpm=60/min] <nil>
	// [] <nil>
}

func ExampleLimitService_Apply() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
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

func ExampleLimitService_InvalidateAll() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	_ = limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}})
	limiter.Limits.InvalidateAll()
	fmt.Println(limiter.Limits.CacheStats().Entries)
	// Output: 0
}

// What happens in an outage can be said of a resource or an entity, with limits or without.
func ExampleLimitService_Set() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.PerMinute("rpm", 10)))
	defer limiter.Close()

	err := errors.Join(
		limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{
			Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}, OnUnavailable: zlimit.PolicyAllow,
		}),
		limiter.Limits.Set(ctx, zlimit.Level{Entity: "trial"}, zlimit.Config{OnUnavailable: zlimit.PolicyBlock}),
	)
	fmt.Println(err)
	for _, of := range [][2]string{{"alice", "gpt-4"}, {"trial", "gpt-4"}, {"trial", "whisper"}} {
		found, err := limiter.Limits.Resolve(ctx, of[0], of[1])
		fmt.Println(of, found.Limits, found.Source, found.OnUnavailable, err)
	}
	gpt4, err := limiter.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"})
	fmt.Println(gpt4.Limits, gpt4.OnUnavailable, err)
	trial, err := limiter.Limits.Get(ctx, zlimit.Level{Entity: "trial"})
	fmt.Println(trial.Limits, trial.OnUnavailable, err)
	// Output:
	// <nil>
	// [alice gpt-4] [rpm=60/min] resource allow <nil>
	// [trial gpt-4] [rpm=60/min] resource block <nil>
	// [trial whisper] [rpm=10/min] default block <nil>
	// [rpm=60/min] allow <nil>
	// [] block <nil>
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

	_ = there.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}})
	found, _ := here.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(found.Limits)
	_ = there.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 90)}})
	found, _ = here.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(found.Limits, "from memory")
	here.Limits.Invalidate("alice", "gpt-4")
	found, _ = here.Limits.Resolve(ctx, "alice", "gpt-4")
	fmt.Println(found.Limits)
	fmt.Println(here.Limits.CacheStats().Misses, "reads")
	// Output:
	// [rpm=60/min]
	// [rpm=60/min] from memory
	// [rpm=90/min]
	// 2 reads
}

func ExampleParseFailurePolicy() {
	policy, err := zlimit.ParseFailurePolicy("allow")
	fmt.Println(policy == zlimit.PolicyAllow, err)
	_, err = zlimit.ParseFailurePolicy("maybe")
	fmt.Println(err)
	// Output:
	// true <nil>
	// zlimit: invalid failure policy "maybe": must be inherit, block or allow
}

func ExampleFailurePolicy() {
	policy := zlimit.PolicyBlock
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

func ExampleLimitService_Disable() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	gpt4, alice := zlimit.Level{Resource: "gpt-4"}, zlimit.Level{Entity: "alice", Resource: "gpt-4"}
	if err := limiter.Limits.Set(ctx, gpt4, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}); err != nil {
		panic(err)
	}
	ask := func(entity string) error {
		_, err := limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
		return err
	}
	if _, err := limiter.Limits.Disable(ctx, gpt4, nil); err != nil {
		panic(err)
	}
	if _, err := limiter.Limits.Enable(ctx, alice, nil); err != nil { // though the resource is disabled
		panic(err)
	}
	fmt.Println("alice:", ask("alice"))
	fmt.Println("bob:", ask("bob"))

	if _, err := limiter.Limits.LeaveSwitch(ctx, alice, nil); err != nil { // to the resource
		panic(err)
	}
	fmt.Println("alice:", ask("alice"))

	// Output:
	// alice: <nil>
	// bob: zlimit: disabled: entity "bob", resource "gpt-4"
	// alice: zlimit: disabled: entity "alice", resource "gpt-4"
}

func ExampleLimitService_Reset() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	day := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("reports", 10)}}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "billing"}, day); err != nil {
		panic(err)
	}
	take := func() error {
		_, err := limiter.Acquire(ctx, zlimit.Request{Entity: "alice", Resource: "billing", Consume: zlimit.Amounts{"reports": 10}})
		return err
	}
	if err := take(); err != nil {
		panic(err)
	}
	request := zlimit.ResetRequest{Entity: "alice", Resource: "billing", OperationID: "ticket-17"}
	for range 2 { // the second call finds that the first has done it
		change, err := limiter.Limits.Reset(ctx, request)
		fmt.Println(change.Limits[0].Before.Tokens(), "before,", change.Limits[0].After.Tokens(), "after, repeated:", change.Repeated, err)
	}
	fmt.Println(take())
	// Output:
	// 0 before, 10 after, repeated: false <nil>
	// 0 before, 10 after, repeated: true <nil>
	// <nil>
}

func ExampleLimitService_TopUp() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	day := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("reports", 10)}}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "billing"}, day); err != nil {
		panic(err)
	}
	request := zlimit.Request{Entity: "alice", Resource: "billing", Consume: zlimit.Amounts{"reports": 8}}
	if _, err := limiter.Acquire(ctx, request); err != nil {
		panic(err)
	}
	for _, id := range []string{"ticket-18", "ticket-18", "ticket-19"} {
		change, err := limiter.Limits.TopUp(ctx, zlimit.TopUpRequest{
			Entity: "alice", Resource: "billing", Amounts: zlimit.Amounts{"reports": 5}, OperationID: id,
		})
		fmt.Println(change.Limits[0].Added.Tokens(), "added,", change.Limits[0].After.Tokens(), "after, repeated:", change.Repeated, err)
	}
	// Output:
	// 5 added, 7 after, repeated: false <nil>
	// 5 added, 7 after, repeated: true <nil>
	// 3 added, 10 after, repeated: false <nil>
}

func ExampleLimit_Floor() {
	limit := zlimit.PerMinute("tpm", 100_000).Floor("crawl", 50).Floor("batch", 20)
	fmt.Println(limit)
	// Output: tpm=100000/min floors batch=20 crawl=50
}

func ExampleLimit_Share() {
	limit := zlimit.PerMinute("tpm", 100_000).Floor("batch", 20).Share("batch", 5)
	fmt.Println(limit)
	// Output: tpm=100000/min floors batch=20+5
}
