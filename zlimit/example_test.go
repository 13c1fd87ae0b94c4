package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // for ExampleSQLite
)

// A request is admitted by an estimate, and settled by what it really took.
func Example() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	limits := []zlimit.Limit{zlimit.PerDay("rpd", 60), zlimit.PerDay("tpd", 1_000)}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}); err != nil {
		panic(err)
	}

	request := zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1, "tpd": 500},
	}
	err = limiter.Do(ctx, request, func(_ context.Context, lease *zlimit.Lease) error {
		const used = 620 // what the model says that it took
		return lease.Adjust(zlimit.Amounts{"tpd": used - 500})
	})
	fmt.Println(err)
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "gpt-4"})
	for _, s := range statuses {
		fmt.Println(s.Limit.Name, s.Available)
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// rpd 59
	// tpd 380
	// <nil>
}

func ExampleOpen() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithFreshness(0), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Ping(ctx))

	_, err = zlimit.Open(ctx, "redis:localhost")
	fmt.Println(err)
	// Output:
	// <nil>
	// zlimit: invalid store "redis:localhost": must be memory:, sqlite:PATH or dynamodb:TABLE
}

func ExampleNew() {
	ctx := context.Background()
	store, err := zlimit.Memory()
	if err != nil {
		panic(err)
	}
	defer store.Close()

	// Limiters on one store share their limits, as processes on one table do.
	for range 3 {
		limiter, err := zlimit.New(ctx, store)
		if err != nil {
			panic(err)
		}
		_, err = limiter.Acquire(ctx, zlimit.Request{
			Entity: "alice", Resource: "reports", Consume: zlimit.Amounts{"runs": 1},
			Limits: []zlimit.Limit{zlimit.PerDay("runs", 2)},
		})
		fmt.Println(err == nil)
		_ = limiter.Close()
	}
	// Output:
	// true
	// true
	// false
}

func ExampleSQLite() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "zlimit")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := zlimit.SQLite(filepath.Join(dir, "limits.db"))
	if err != nil {
		panic(err)
	}
	defer store.Close()
	limiter, err := zlimit.New(ctx, store)
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Ping(ctx))
	// Output: <nil>
}

// A store by its name, for a program that need not have a limiter.
func ExampleOpenStore() {
	ctx := context.Background()
	store, err := zlimit.OpenStore(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer store.Close()
	limiter, err := zlimit.New(ctx, store)
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Ping(ctx))
	// Output: <nil>
}

// A table on which programs in Python use zae-limiter.
func ExampleWithMixedFleet() {
	ctx := context.Background()
	table := zlimit.WithTable(zlimit.TableSettings{MixedFleet: true}) // where the table is not there yet
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithSetup(), table, zlimit.WithMixedFleet())
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Ping(ctx))
	// Output: <nil>
}

func ExampleRateLimiter_Setup() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:") // set up by itself, as files are
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.Setup(ctx)) // changes nothing that is there
	// Output: <nil>
}

func ExampleRateLimiter_SetAuditRetention() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	fmt.Println(limiter.SetAuditRetention(ctx, 365*24*time.Hour)) // in namespaces that do not say otherwise
	fmt.Println(limiter.SetAuditRetention(ctx, time.Hour))
	// Output:
	// <nil>
	// zlimit: invalid audit retention "1h0m0s": must be whole days, at most 36500
}

func ExampleRateLimiter_Acquire() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	request := zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rph": 1, "tph": 600},
		Limits: []zlimit.Limit{zlimit.PerHour("rph", 60), zlimit.PerHour("tph", 1_000)},
	}
	for range 2 {
		_, err := limiter.Acquire(ctx, request)
		var exceeded *zlimit.ExceededError
		switch {
		case errors.As(err, &exceeded):
			fmt.Println("rejected by", exceeded.Violations()[0].Limit.Name)
		case err != nil:
			panic(err)
		default:
			fmt.Println("admitted")
		}
	}
	// Output:
	// admitted
	// rejected by tph
}

func ExampleRateLimiter_Do() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "mail"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("sent", 100)}}); err != nil {
		panic(err)
	}

	request := zlimit.Request{Entity: "alice", Resource: "mail", Consume: zlimit.Amounts{"sent": 10}}
	err := limiter.Do(ctx, request, func(context.Context, *zlimit.Lease) error {
		return errors.New("the mail server is down")
	})
	fmt.Println(err)
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "mail"})
	fmt.Println(statuses[0].Available, "left,", err) // what failed was given back
	// Output:
	// the mail server is down
	// 100 left, <nil>
}

func ExampleRateLimiter_TimeUntil() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return now }))
	defer limiter.Close()
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "search"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("calls", 60)}}); err != nil {
		panic(err)
	}

	request := zlimit.Request{Entity: "alice", Resource: "search", Consume: zlimit.Amounts{"calls": 50}}
	_, err := limiter.Acquire(ctx, request)
	fmt.Println(err)
	fmt.Println(limiter.TimeUntil(ctx, request))
	now = now.Add(30 * time.Second)
	fmt.Println(limiter.TimeUntil(ctx, request))
	// Output:
	// <nil>
	// 40s <nil>
	// 10s <nil>
}

func ExampleRateLimiter_Available() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	limits := []zlimit.Limit{zlimit.PerHour("calls", 60, zlimit.Burst(10)), zlimit.PerDay("bytes", 1_000_000)}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "search"}, zlimit.Config{Limits: limits}); err != nil {
		panic(err)
	}

	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "search"})
	if err != nil {
		panic(err)
	}
	for _, s := range statuses {
		fmt.Println(s.Limit)
	}
	// Output:
	// bytes=1000000/d
	// calls=10:60/h
}

func ExampleRateLimiter_Available_parents() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithDefaultLimits(zlimit.PerDay("calls", 100)))
	defer limiter.Close()
	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "acme"})
	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "alice", ParentID: "acme", Cascade: true})
	_, _ = limiter.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "search", Consume: zlimit.Amounts{"calls": 30}})

	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "search", Parents: true})
	for _, s := range statuses {
		fmt.Println(s.Entity, s.Limit, s.Available, err)
	}
	// Output:
	// alice calls=100/d 100 <nil>
	// acme calls=100/d 70 <nil>
}

func ExampleStatuses() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	limits := []zlimit.Limit{zlimit.PerHour("calls", 60, zlimit.Burst(10)), zlimit.PerDay("bytes", 1_000_000)}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "search"}, zlimit.Config{Limits: limits}); err != nil {
		panic(err)
	}

	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: "search"})
	if err != nil {
		panic(err)
	}
	calls, ok := statuses.Limit("calls")
	fmt.Println(calls.Available, ok)
	// Output: 10 true
}

// A rejection reports the status of every limit.
func ExampleStatus() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	_, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 2_500},
		Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 1_000)},
	})
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		panic(err)
	}
	for _, s := range exceeded.Statuses {
		fmt.Println(s.Limit.Name, s.Requested, "of", s.Available, "exceeded:", s.Exceeded, "possible:", s.Possible())
	}
	// Output:
	// tpm 2500 of 1000 exceeded: true possible: false
	// rpm 1 of 60 exceeded: false possible: true
}

// A prepaid limit admits a request after a top-up, and never before.
func ExampleExceededError_NeedsTopUp() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	key := zlimit.Level{Entity: "key-1", Resource: "models"}
	if err := limiter.Limits.Set(ctx, key, zlimit.Config{Limits: []zlimit.Limit{zlimit.Prepaid("credits", 5)}}); err != nil {
		panic(err)
	}
	_, err := limiter.Acquire(ctx, zlimit.Request{Entity: "key-1", Resource: "models", Consume: zlimit.Amounts{"credits": 7}})
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		panic(err)
	}
	fmt.Println("possible:", exceeded.Possible(), "needs a top-up:", exceeded.NeedsTopUp(), "retry after:", exceeded.RetryAfterHeader())
	// Output: possible: true needs a top-up: true retry after:
}

// The limit that needs the top-up says how much is missing.
func ExampleStatus_NeedsTopUp() {
	s := zlimit.Status{Entity: "key-1", Limit: zlimit.Prepaid("credits", 5), Available: 5, Requested: 7, Exceeded: true, RetryAfter: zlimit.Never}
	if s.NeedsTopUp() {
		fmt.Println(s.Entity, "lacks", s.Requested-s.Available, s.Limit.Name)
	}
	// Output: key-1 lacks 2 credits
}

func ExampleRateLimiter_Stats() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	for range 3 {
		_, _ = limiter.Acquire(ctx, zlimit.Request{
			Entity: "alice", Resource: "reports", Consume: zlimit.Amounts{"runs": 1},
			Limits: []zlimit.Limit{zlimit.PerDay("runs", 2)},
		})
	}
	s := limiter.Stats()
	fmt.Println(s.Admitted, "admitted,", s.Rejected, "rejected,", s.Unavailable, "failed")
	// Output: 2 admitted, 1 rejected, 0 failed
}

func ExampleRateLimiter_Namespace() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	staging, err := limiter.Namespace(ctx, "staging", zlimit.WithSetup())
	if err != nil {
		panic(err)
	}
	defer staging.Close()

	if err := limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}); err != nil {
		panic(err)
	}
	system, err := staging.Limits.Get(ctx, zlimit.Level{}) // a world of its own
	fmt.Println(system.Limits, err)
	// Output: [] <nil>
}

func ExampleExceededError() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return now }))
	defer limiter.Close()

	_, err := limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 2_500},
		Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 1_000)},
	})
	var exceeded *zlimit.ExceededError
	if errors.As(err, &exceeded) {
		fmt.Println(exceeded.Possible(), exceeded.RetryAfter() == zlimit.Never, len(exceeded.Violations()))
	}

	_, _ = limiter.Acquire(ctx, zlimit.Request{
		Entity: "bob", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 1_000},
		Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 1_000)},
	})
	_, err = limiter.Acquire(ctx, zlimit.Request{
		Entity: "bob", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 125},
		Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 1_000)},
	})
	if errors.As(err, &exceeded) {
		fmt.Println(exceeded.Possible(), exceeded.RetryAfter())
		fmt.Println("Retry-After:", exceeded.RetryAfterHeader())
		body, err := json.Marshal(exceeded)
		fmt.Println(string(body), err)
	}
	// Output:
	// false true 1
	// true 7.5s
	// Retry-After: 8
	// {"error":"rate_limit_exceeded","possible":true,"retry_after_seconds":7.5,"limits":[{"entity":"bob","resource":"gpt-4","limit":"tpm","capacity":1000,"refill_amount":1000,"refill_period_seconds":60,"available":0,"requested":125,"exceeded":true,"retry_after_seconds":7.5}]} <nil>
}
