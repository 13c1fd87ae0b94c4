package quota_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/zlimit/zlimit-go/quota"
)

// Checks and records manually, for calls that other code makes.
func ExampleLimiter() {
	ctx := context.Background()
	limiter, err := quota.New(ctx) // with the default quotas of Gemini
	if err != nil {
		panic(err)
	}
	_ = limiter.AddProvider(ctx, quota.ProviderOpenAI)
	_ = limiter.SetQuota(ctx, "my-model", quota.ModelQuota{MaxRPM: 2, MaxTPM: 1_000})

	request := quota.Request{Model: "my-model", Input: 300, Output: 200}
	fmt.Println(limiter.Check(ctx, request))
	_ = limiter.Record(ctx, request)
	_ = limiter.Record(ctx, request)
	fmt.Println(limiter.Check(ctx, request))

	all, err := limiter.AllStats(ctx)
	fmt.Println(all["my-model"].RPM, all["my-model"].TPM, err)
	_ = limiter.Reset(ctx, "my-model")
	fmt.Println(limiter.Check(ctx, request))
	fmt.Println(limiter.ResetAll(ctx), limiter.Close())
	// Output:
	// <nil>
	// quota: model "my-model" is at its limit: rpm 2
	// 2 1000 <nil>
	// <nil>
	// <nil> <nil>
}

func ExampleLimiter_KeyStats() {
	ctx := context.Background()
	limiter, err := quota.New(ctx)
	if err != nil {
		panic(err)
	}
	_ = limiter.SetKeyQuota(ctx, "ann", quota.ModelQuota{MaxTPM: 5_000})
	_ = limiter.Record(ctx, quota.Request{Model: "gemini-2.5-pro", Key: "ann", Input: 1_200})
	_ = limiter.Record(ctx, quota.Request{Model: "gemini-2.5-flash", Key: "ann", Input: 800})

	ann, err := limiter.KeyStats(ctx, "ann") // over all models
	fmt.Println(ann.TPM, "of", ann.MaxTPM, err)
	_ = limiter.ResetKey(ctx, "ann")
	all, err := limiter.AllKeyStats(ctx)
	fmt.Println(all["ann"].TPM, err)
	// Output:
	// 2000 of 5000 <nil>
	// 0 <nil>
}

func ExampleLimiter_Persist() {
	dir, err := os.MkdirTemp("", "quota")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	open := func() *quota.Limiter {
		limiter, err := quota.NewWithConfig(ctx, quota.Config{FilePath: filepath.Join(dir, "state.yaml")})
		if err != nil {
			panic(err)
		}
		return limiter
	}

	before := open()
	_ = before.RecordUsage(ctx, "gemini-2.5-pro", 1_000, 200)
	fmt.Println(before.Persist(ctx))

	after := open()
	fmt.Println(after.Load(ctx))
	stats, err := after.Stats(ctx, "gemini-2.5-pro")
	fmt.Println(stats.TPM, err)
	// Output:
	// <nil>
	// <nil>
	// 1200 <nil>
}

func ExampleMigrateYAMLToSQLite() {
	dir, err := os.MkdirTemp("", "quota")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	old, db := filepath.Join(dir, "state.yaml"), filepath.Join(dir, "state.db")
	before, err := quota.NewWithConfig(ctx, quota.Config{FilePath: old})
	if err != nil {
		panic(err)
	}
	_ = before.RecordUsage(ctx, "gemini-2.5-pro", 1_000, 200)
	_ = before.Persist(ctx)

	fmt.Println(quota.MigrateYAMLToSQLite(ctx, old, db))
	after, err := quota.NewWithSQLite(ctx, db)
	if err != nil {
		panic(err)
	}
	stats, err := after.Stats(ctx, "gemini-2.5-pro")
	fmt.Println(stats.TPM, err, after.Close())
	// Output:
	// <nil>
	// 1200 <nil> <nil>
}

// A client without an http.RoundTripper passes on the provider's headers.
func ExampleLimiter_Learn() {
	ctx := context.Background()
	now := time.Date(2026, time.February, 20, 9, 0, 0, 0, time.UTC)
	limiter, err := quota.NewWithConfig(ctx, quota.Config{
		Providers: []quota.Provider{quota.ProviderOpenAI},
		Clock:     func() time.Time { return now },
	})
	if err != nil {
		panic(err)
	}
	err = limiter.Learn("gpt-4o", http.StatusTooManyRequests, http.Header{"Retry-After": {"20"}})
	fmt.Println(err)
	learned, ok := limiter.Learned("gpt-4o")
	fmt.Println(learned.RetryAt.Sub(now), ok)
	// Output:
	// <nil>
	// 20s true
}

func ExampleModelQuota() {
	q := quota.DefaultProfiles()[quota.ProviderOpenAI]["gpt-4o"]
	q.MaxTPM = 30_000
	fmt.Println(q.Max(quota.LimitTPM), q.Unlimited(), q.Validate("gpt-4o"))
	fmt.Println(q.Impossible(40_000, 0)) // a request of that size never passes
	fmt.Println(q.Exceeded(&quota.Usage{Requests: 3, InputTokens: 25_000}, 4_000, 2_000))
	// Output:
	// 30000 false <nil>
	// tpm
	// tpm
}
