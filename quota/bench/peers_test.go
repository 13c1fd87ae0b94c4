package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

const ample = 1 << 30

// A peer is made for the keys of a benchmark and decides on one of them.
type peer struct {
	name string
	make func(b *testing.B, keys []string, allowed bool) func(key string) bool
}

// The peers, each in the way its documentation shows. All but the first two
// decide on one dimension, requests, where quota decides on three.
var peers = []peer{
	{"quota-CanSend-3-dimensions", func(b *testing.B, keys []string, allowed bool) func(string) bool {
		l := newQuota(b, keys, allowed, nil)
		ctx := context.Background()
		return func(key string) bool { ok, err := l.CanSend(ctx, key, 10); return ok && err == nil }
	}},
	{"quota-Reserve-3-dimensions", func(b *testing.B, keys []string, allowed bool) func(string) bool {
		// The clock moves a millisecond per call: a window of one key holds 60,000 entries, and
		// every call records one and drops one. It stands still for refusals, so the window stays
		// full.
		var now atomic.Int64
		now.Store(time.Now().UnixNano())
		step := int64(time.Millisecond)
		if !allowed {
			step = 0
		}
		l := newQuota(b, keys, allowed, func() time.Time { return time.Unix(0, now.Add(step)) })
		ctx := context.Background()
		return func(key string) bool {
			_, err := l.Reserve(ctx, quota.Request{Model: key, Input: 10})
			return err == nil
		}
	}},
	{"x-time-rate-3-limiters", func(_ *testing.B, keys []string, allowed bool) func(string) bool {
		type three struct{ rpm, tpm, rpd *rate.Limiter }
		var limiters sync.Map
		for _, k := range keys {
			n := ample
			if !allowed {
				n = 1
			}
			t := &three{rate.NewLimiter(rate.Limit(n)/60, n), rate.NewLimiter(ample/60, ample), rate.NewLimiter(ample/86400, ample)}
			t.rpm.Allow()
			limiters.Store(k, t)
		}
		return func(key string) bool {
			v, _ := limiters.Load(key)
			t := v.(*three)
			now := time.Now()
			return t.rpd.AllowN(now, 1) && t.rpm.AllowN(now, 1) && t.tpm.AllowN(now, 10)
		}
	}},
	{"x-time-rate", func(_ *testing.B, keys []string, allowed bool) func(string) bool {
		var limiters sync.Map
		for _, k := range keys {
			n := ample
			if !allowed {
				n = 1
			}
			l := rate.NewLimiter(rate.Limit(n)/60, n)
			l.Allow()
			limiters.Store(k, l)
		}
		return func(key string) bool { v, _ := limiters.Load(key); return v.(*rate.Limiter).Allow() }
	}},
	{"sethvargo-go-limiter", func(b *testing.B, keys []string, allowed bool) func(string) bool {
		tokens := uint64(ample)
		if !allowed {
			tokens = 1
		}
		s, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: time.Minute})
		check.Fatal(b, "memorystore.New()", err)
		b.Cleanup(func() { _ = s.Close(context.Background()) })
		ctx := context.Background()
		take := func(key string) bool { _, _, _, ok, err := s.Take(ctx, key); return ok && err == nil }
		for _, k := range keys {
			take(k)
		}
		return take
	}},
	{"throttled-gcra", func(b *testing.B, keys []string, allowed bool) func(string) bool {
		s, err := memstore.NewCtx(2 * len(keys))
		check.Fatal(b, "memstore.NewCtx()", err)
		q := throttled.RateQuota{MaxRate: throttled.PerSec(1_000_000), MaxBurst: ample}
		if !allowed {
			q = throttled.RateQuota{MaxRate: throttled.PerHour(1)}
		}
		l, err := throttled.NewGCRARateLimiterCtx(s, q)
		check.Fatal(b, "NewGCRARateLimiterCtx()", err)
		ctx := context.Background()
		// Its compare-and-swap gives up after ten attempts; many goroutines on
		// one key run into that, and it counts as a decision here.
		take := func(key string) bool { limited, _, _ := l.RateLimitCtx(ctx, key, 1); return !limited }
		for _, k := range keys {
			take(k)
		}
		return take
	}},
	{"ulule-limiter", func(_ *testing.B, keys []string, allowed bool) func(string) bool {
		limit := int64(ample)
		if !allowed {
			limit = 1
		}
		l := ulule.New(memory.NewStore(), ulule.Rate{Period: time.Hour, Limit: limit})
		ctx := context.Background()
		take := func(key string) bool { c, err := l.Get(ctx, key); return err == nil && !c.Reached }
		for _, k := range keys {
			take(k)
		}
		return take
	}},
	// It has no keys and no refusals: a call takes its place and sleeps. At this
	// rate it does not sleep.
	{"uber-ratelimit", func(b *testing.B, keys []string, allowed bool) func(string) bool {
		if !allowed {
			b.Skip("it never refuses")
		}
		limiters := make(map[string]ratelimit.Limiter, len(keys))
		for _, k := range keys {
			limiters[k] = ratelimit.New(1_000_000_000)
		}
		return func(key string) bool { limiters[key].Take(); return true }
	}},
}

func newQuota(b *testing.B, keys []string, allowed bool, clock func() time.Time) *quota.Limiter {
	b.Helper()
	q := quota.ModelQuota{MaxRPM: 1 << 40, MaxTPM: 1 << 40, MaxRPD: 1 << 40}
	if !allowed {
		q.MaxTPM = 20
	}
	l, err := quota.NewWithConfig(b.Context(), quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, DefaultQuota: q, Clock: clock})
	check.Fatal(b, "quota.NewWithConfig()", err)
	for _, k := range keys {
		check.Fatal(b, "RecordUsage()", l.RecordUsage(b.Context(), k, 10, 10))
	}
	return l
}

func BenchmarkDecision(b *testing.B) {
	for _, allowed := range []bool{true, false} {
		for _, n := range []int{1, 1_000, 100_000} {
			for _, p := range peers {
				verdict := map[bool]string{true: "allowed", false: "denied"}[allowed]
				b.Run(fmt.Sprintf("%s/keys=%d/%s", verdict, n, p.name), func(b *testing.B) {
					keys := make([]string, n)
					for i := range keys {
						keys[i] = "model-" + strconv.Itoa(i)
					}
					decide := p.make(b, keys, allowed)
					for _, k := range keys { // what is made once per key is made
						if !allowed {
							decide(k)
						}
					}
					b.Run("serial", func(b *testing.B) {
						b.ReportAllocs()
						i := 0
						for b.Loop() {
							if decide(keys[i]) != allowed {
								b.Fatalf("decision = %v, want %v", !allowed, allowed)
							}
							if i++; i == n {
								i = 0
							}
						}
					})
					b.Run("64-way", func(b *testing.B) {
						b.ReportAllocs()
						b.SetParallelism(32) // times GOMAXPROCS
						var first atomic.Int64
						b.RunParallel(func(pb *testing.PB) {
							i := int(first.Add(7919)) % n
							for pb.Next() {
								if decide(keys[i]) != allowed {
									b.Errorf("decision = %v, want %v", !allowed, allowed)
									return
								}
								if i++; i == n {
									i = 0
								}
							}
						})
					})
				})
			}
		}
	}
}
