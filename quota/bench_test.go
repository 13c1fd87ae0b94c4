package quota

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// benchLimiter returns a limiter with n models, each with limits in all three
// dimensions and one request in its window.
func benchLimiter(b *testing.B, n int, q ModelQuota) (*Limiter, []string) {
	b.Helper()
	l := check.Call(NewWithConfig(b.Context(), Config{DefaultQuota: q, Providers: []Provider{ProviderLocal}})).Must(b, "NewWithConfig")
	models := make([]string, n)
	for i := range models {
		models[i] = "model-" + strconv.Itoa(i)
		check.Fatal(b, "RecordUsage", l.RecordUsage(b.Context(), models[i], 10, 10))
	}
	return l, models
}

var (
	benchWide  = ModelQuota{MaxRPM: 1 << 40, MaxTPM: 1 << 40, MaxRPD: 1 << 40}
	benchFull  = ModelQuota{MaxRPM: 1 << 40, MaxTPM: 20, MaxRPD: 1 << 40}
	benchSizes = []int{1, 1_000, 100_000}
)

func benchModes(b *testing.B, models []string, op func(model string) bool, want bool) {
	for _, m := range models { // the errors that refusals share are made once
		op(m)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if op(models[i]) != want {
				b.Fatalf("op = %v, want %v", !want, want)
			}
			if i++; i == len(models) {
				i = 0
			}
		}
	})
	b.Run("64-way", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32)
		var first atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			i := int(first.Add(7919)) % len(models)
			for pb.Next() {
				if op(models[i]) != want {
					b.Errorf("op = %v, want %v", !want, want)
					return
				}
				if i++; i == len(models) {
					i = 0
				}
			}
		})
	})
}

func BenchmarkCanSend(b *testing.B) {
	for _, n := range benchSizes {
		for _, c := range []struct {
			name string
			q    ModelQuota
			want bool
		}{{"allowed", benchWide, true}, {"denied", benchFull, false}} {
			b.Run(fmt.Sprintf("%s/keys=%d", c.name, n), func(b *testing.B) {
				l, models := benchLimiter(b, n, c.q)
				ctx := context.Background()
				benchModes(b, models, func(m string) bool {
					ok, err := l.CanSend(ctx, m, 100)
					return ok && err == nil
				}, c.want)
			})
		}
	}
}

func BenchmarkReserve(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("allowed/keys=%d", n), func(b *testing.B) {
			// The clock moves a millisecond per call, so that windows of one
			// key hold 60,000 entries and every call also drops one.
			var now atomic.Int64
			now.Store(time.Now().UnixNano())
			l, models := benchLimiter(b, n, benchWide)
			l.mem.clock = func() time.Time { return time.Unix(0, now.Add(int64(time.Millisecond))) }
			ctx := context.Background()
			benchModes(b, models, func(m string) bool {
				_, err := l.Reserve(ctx, Request{Model: m, Input: 100})
				return err == nil
			}, true)
		})
		b.Run(fmt.Sprintf("denied/keys=%d", n), func(b *testing.B) {
			l, models := benchLimiter(b, n, benchFull)
			ctx := context.Background()
			benchModes(b, models, func(m string) bool {
				_, err := l.Reserve(ctx, Request{Model: m, Input: 10})
				return err == nil
			}, false)
		})
	}
}
