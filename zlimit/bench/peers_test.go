package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

const ample = 1 << 30

// A peer decides on the key of a request. Each is used as its documentation shows.
type peer struct {
	name string
	make func(b *testing.B, keys []string) func(key string) bool
}

var peers = []peer{
	// Two limits, all or none, a balance to the thousandth, and a lease that can be corrected.
	{"zlimit-2-limits", func(b *testing.B, _ []string) func(string) bool {
		ctx := context.Background()
		l, err := zlimit.Open(ctx, "memory:")
		check.Fatal(b, "zlimit.Open()", err)
		b.Cleanup(func() { _ = l.Close() })
		limits := []zlimit.Limit{zlimit.PerMinute("rpm", ample), zlimit.PerMinute("tpm", ample)}
		check.Fatal(b, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}))
		amounts := zlimit.Amounts{"rpm": 1, "tpm": 10}
		return func(key string) bool {
			_, err := l.Acquire(ctx, zlimit.Request{Entity: key, Resource: "gpt-4", Consume: amounts})
			return err == nil
		}
	}},
	// Two limits, one after the other: what the first took stays taken when the second refuses.
	{"x-time-rate-2-limiters", func(_ *testing.B, keys []string) func(string) bool {
		type two struct{ rpm, tpm *rate.Limiter }
		var limiters sync.Map
		for _, k := range keys {
			limiters.Store(k, &two{rate.NewLimiter(ample/60, ample), rate.NewLimiter(ample/60, ample)})
		}
		return func(key string) bool {
			v, _ := limiters.Load(key)
			now := time.Now()
			return v.(*two).rpm.AllowN(now, 1) && v.(*two).tpm.AllowN(now, 10)
		}
	}},
	// From here on one limit.
	{"x-time-rate", func(_ *testing.B, keys []string) func(string) bool {
		var limiters sync.Map
		for _, k := range keys {
			limiters.Store(k, rate.NewLimiter(ample/60, ample))
		}
		return func(key string) bool { v, _ := limiters.Load(key); return v.(*rate.Limiter).Allow() }
	}},
	{"sethvargo-go-limiter", func(b *testing.B, _ []string) func(string) bool {
		s, err := memorystore.New(&memorystore.Config{Tokens: ample, Interval: time.Minute})
		check.Fatal(b, "memorystore.New()", err)
		ctx := context.Background()
		b.Cleanup(func() { _ = s.Close(ctx) })
		return func(key string) bool { _, _, _, ok, err := s.Take(ctx, key); return ok && err == nil }
	}},
	{"throttled-gcra", func(b *testing.B, keys []string) func(string) bool {
		s, err := memstore.NewCtx(2 * len(keys))
		check.Fatal(b, "memstore.NewCtx()", err)
		l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerSec(1_000_000), MaxBurst: ample})
		check.Fatal(b, "NewGCRARateLimiterCtx()", err)
		ctx := context.Background()
		// It gives up after ten races on one key, which counts as a decision here.
		return func(key string) bool { limited, _, _ := l.RateLimitCtx(ctx, key, 1); return !limited }
	}},
	{"ulule-limiter", func(*testing.B, []string) func(string) bool {
		l := ulule.New(memory.NewStore(), ulule.Rate{Period: time.Hour, Limit: ample})
		ctx := context.Background()
		return func(key string) bool { c, err := l.Get(ctx, key); return err == nil && !c.Reached }
	}},
	{"failsafe-go-bursty", func(_ *testing.B, keys []string) func(string) bool {
		var limiters sync.Map
		for _, k := range keys {
			limiters.Store(k, ratelimiter.NewBursty[any](ample, time.Minute))
		}
		return func(key string) bool {
			v, _ := limiters.Load(key)
			return v.(ratelimiter.RateLimiter[any]).TryAcquirePermit()
		}
	}},
}

// BenchmarkAdmit admits requests of known keys by one goroutine. On many keys it also runs one goroutine for each core,
// and reports how many times as fast that is.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("key-%d", i)
		}
		for _, p := range peers {
			b.Run(fmt.Sprintf("keys=%d/%s", n, p.name), func(b *testing.B) {
				admit := p.make(b, keys)
				for _, k := range keys { // what is made once for each key is made
					admit(k)
				}
				var serial float64
				b.Run("serial", func(b *testing.B) {
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						if !admit(keys[i]) {
							b.Fatal("refused")
						}
						if i++; i == n {
							i = 0
						}
					}
					serial = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				})
				b.Run("parallel", func(b *testing.B) {
					var first atomic.Int64
					b.RunParallel(func(pb *testing.PB) {
						i := int(first.Add(7919)) % n
						for pb.Next() {
							if !admit(keys[i]) {
								b.Error("refused")
								return
							}
							if i++; i == n {
								i = 0
							}
						}
					})
					b.ReportMetric(serial/(float64(b.Elapsed().Nanoseconds())/float64(b.N)), "x-serial")
					b.ReportMetric(float64(runtime.GOMAXPROCS(0)), "cores")
				})
			})
		}
	}
}
