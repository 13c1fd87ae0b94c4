package quota_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/zlimit/zlimit-go/quota"
	_ "github.com/zlimit/zlimit-go/quota/quotasqlite"
)

func Example() {
	ctx := context.Background()
	limiter, err := quota.NewWithConfig(ctx, quota.Config{
		Quotas: map[string]quota.ModelQuota{"gpt-4o": {MaxRPM: 500, MaxTPM: 2_000}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The estimate is reserved before the call and settled after it.
	r, err := limiter.Reserve(ctx, quota.Request{Model: "gpt-4o", Input: 900, Output: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = r.Cancel(ctx) }() // does nothing once settled
	if err := r.Settle(ctx, 912, 40); err != nil {
		fmt.Println(err)
	}
	stats, _ := limiter.Stats(ctx, "gpt-4o")
	fmt.Printf("%d of %d tokens, %d of %d requests\n", stats.TPM, stats.MaxTPM, stats.RPM, stats.MaxRPM)
	// Output: 952 of 2000 tokens, 1 of 500 requests
}

func ExampleLimiter_CanSend() {
	ctx := context.Background()
	limiter, _ := quota.NewWithConfig(ctx, quota.Config{Providers: []quota.Provider{quota.ProviderAnthropic}})
	for _, tokens := range []int{30_000, 40_001} {
		ok, err := limiter.CanSend(ctx, "claude-opus-4", tokens)
		fmt.Println(tokens, ok, err)
	}
	_ = limiter.RecordUsage(ctx, "claude-opus-4", 29_500, 600)
	ok, err := limiter.CanSend(ctx, "claude-opus-4", 10_000)
	fmt.Println(10_000, ok, err)
	// Output:
	// 30000 true <nil>
	// 40001 false <nil>
	// 10000 false <nil>
}

func ExampleLimiter_Wait() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	limiter, _ := quota.NewWithConfig(ctx, quota.Config{Quotas: map[string]quota.ModelQuota{"o1": {MaxRPM: 1}}})
	for range 2 {
		_, err := limiter.Wait(ctx, quota.Request{Model: "o1", Input: 100})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// quota: wait for model "o1": there is no room before the deadline: context deadline exceeded (quota: model "o1" is at its limit: rpm 1)
}

func ExampleLimiter_TimeUntil() {
	ctx := context.Background()
	now := time.Date(2026, 2, 20, 9, 0, 0, 0, time.UTC)
	limiter, _ := quota.NewWithConfig(ctx, quota.Config{
		Quotas: map[string]quota.ModelQuota{"o1": {MaxRPM: 1}},
		Clock:  func() time.Time { return now },
	})
	_ = limiter.RecordUsage(ctx, "o1", 10, 10)
	now = now.Add(45 * time.Second)
	fmt.Println(limiter.TimeUntil(ctx, quota.Request{Model: "o1"}))
	// Output: 15s <nil>
}

func ExampleConfig_keys() {
	ctx := context.Background()
	limiter, _ := quota.NewWithConfig(ctx, quota.Config{
		Providers:       []quota.Provider{quota.ProviderOpenAI},
		DefaultKeyQuota: quota.ModelQuota{MaxRPM: 1}, // for each tenant, over all models
	})
	for _, tenant := range []string{"ann", "tom", "ann"} {
		_, err := limiter.Reserve(ctx, quota.Request{Model: "gpt-4o", Key: tenant})
		var exceeded *quota.ExceededError
		if errors.As(err, &exceeded) {
			fmt.Println(tenant, "must wait for", exceeded.Scope, "limit", exceeded.Limit)
			continue
		}
		fmt.Println(tenant, "may send")
	}
	// Output:
	// ann may send
	// tom may send
	// ann must wait for key limit rpm
}

func ExampleNewWithSQLite() {
	dir, err := os.MkdirTemp("", "quota")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	// Two processes would each open the file; they share its windows.
	for range 2 {
		limiter, err := quota.NewWithSQLite(ctx, filepath.Join(dir, "ratelimits.db"))
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := limiter.RecordUsage(ctx, "gemini-2.5-pro", 1200, 300); err != nil {
			fmt.Println(err)
		}
		stats, _ := limiter.Stats(ctx, "gemini-2.5-pro")
		fmt.Println(stats.RPM, stats.TPM)
		_ = limiter.Close()
	}
	// Output:
	// 1 1500
	// 2 3000
}

func ExampleCountTokens() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
		fmt.Fprint(w, `{"totalTokens": 4}`)
	}))
	defer provider.Close()
	n, err := quota.CountTokens(context.Background(), "the-key", "gemini-2.5-pro", "How many am I?",
		quota.CountBaseURL(provider.URL), quota.CountTimeout(time.Second))
	fmt.Println(n, err)
	// Output:
	// POST /v1beta/models/gemini-2.5-pro:countTokens
	// 4 <nil>
}

func ExampleTransport() {
	ctx := context.Background()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ratelimit-remaining-tokens", "500")
		w.Header().Set("x-ratelimit-reset-tokens", "30s")
	}))
	defer provider.Close()
	limiter, _ := quota.NewWithConfig(ctx, quota.Config{Providers: []quota.Provider{quota.ProviderOpenAI}})
	client := &http.Client{Transport: &quota.Transport{Limiter: limiter, Base: provider.Client().Transport}}
	req, _ := http.NewRequestWithContext(quota.WithModel(ctx, "gpt-4o"), http.MethodPost, provider.URL, nil)
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	_, err = limiter.Reserve(ctx, quota.Request{Model: "gpt-4o", Input: 501})
	fmt.Println(err)
	// Output: quota: model "gpt-4o" has not enough left according to the provider
}

func ExampleWithReservation() {
	ctx := context.Background()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ratelimit-remaining-tokens", "9000")
		w.Header().Set("x-ratelimit-reset-tokens", "6m0s")
	}))
	defer provider.Close()
	limiter, _ := quota.NewWithConfig(ctx, quota.Config{Providers: []quota.Provider{quota.ProviderOpenAI}})
	client := &http.Client{Transport: &quota.Transport{Limiter: limiter}}

	// Of two calls in flight one is answered: the provider may not have counted the other.
	waiting, _ := limiter.Reserve(ctx, quota.Request{Model: "gpt-4o", Input: 500})
	defer func() { _ = waiting.Cancel(ctx) }()
	answered, _ := limiter.Reserve(ctx, quota.Request{Model: "gpt-4o", Input: 2000})
	req, _ := http.NewRequestWithContext(quota.WithReservation(ctx, &answered), http.MethodPost, provider.URL, http.NoBody)
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	learned, _ := limiter.Learned("gpt-4o")
	fmt.Println(learned.Tokens.Left, "tokens are left")
	// Output: 8500 tokens are left
}
