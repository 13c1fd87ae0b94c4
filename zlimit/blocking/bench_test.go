package blocking

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// BenchmarkOverhead makes the same calls with and without a context, in turns, and reports the median of what one costs
// more without. Two calls are decided in memory, and one reaches the store.
func BenchmarkOverhead(b *testing.B) {
	l := open(b, "memory:", zlimit.WithRejectionCache(time.Hour), zlimit.WithClock(stopped))
	limits := []zlimit.Limit{zlimit.PerMinute("tpm", 1e12)}
	check.Fatal(b, "Limits.Set()", l.Limits.Set(zlimit.Level{Resource: "plenty"}, zlimit.Config{Limits: limits}))
	rejected := ask(zlimit.Amounts{"tpm": 1001})
	admitted := zlimit.Request{Entity: "key-1", Resource: "plenty", Consume: zlimit.Amounts{"tpm": 1}}
	acquire(b, l, ask(zlimit.Amounts{"tpm": 1}))
	for _, bench := range []struct {
		name           string
		core, blocking func() error
		ok             func(error) bool
	}{
		{
			"resolve",
			func() error { _, err := l.core.Limits.Resolve(b.Context(), "key-1", "gpt-4"); return err },
			func() error { _, err := l.Limits.Resolve("key-1", "gpt-4"); return err },
			func(err error) bool { return err == nil },
		},
		{
			"reject",
			func() error { _, err := l.core.Acquire(b.Context(), rejected); return err },
			func() error { _, err := l.Acquire(rejected); return err },
			func(err error) bool { return errors.As(err, new(*zlimit.ExceededError)) },
		},
		{
			"acquire",
			func() error { _, err := l.core.Acquire(b.Context(), admitted); return err },
			func() error { _, err := l.Acquire(admitted); return err },
			func(err error) bool { return err == nil },
		},
	} {
		b.Run(bench.name, func(b *testing.B) {
			const turn = 20
			run := func(call func() error) float64 {
				start := time.Now()
				for range turn {
					if err := call(); !bench.ok(err) {
						b.Fatalf("call() = %v", err)
					}
				}
				return float64(time.Since(start).Nanoseconds()) / turn
			}
			var core, more []float64
			for b.Loop() {
				with := run(bench.core)
				core, more = append(core, with), append(more, run(bench.blocking)-with)
			}
			b.ReportMetric(median(core), "core-ns/call")
			b.ReportMetric(median(more), "more-ns/call")
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
