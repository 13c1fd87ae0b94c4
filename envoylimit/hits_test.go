package envoylimit

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// A provider has meters that count by name and attributes.
type (
	provider struct {
		noop.MeterProvider
		counts map[string]int64
	}
	meter struct {
		noop.Meter
		of *provider
	}
	counter struct {
		noop.Int64Counter
		name string
		of   *provider
	}
)

func (p *provider) Meter(string, ...metric.MeterOption) metric.Meter { return meter{of: p} }

func (m meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{name: name, of: m.of}, nil
}

func (c counter) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	key := c.name
	attributes := metric.NewAddConfig(opts).Attributes()
	for _, a := range attributes.ToSlice() {
		key += fmt.Sprintf(" %s=%s", a.Key, a.Value.AsString())
	}
	c.of.counts[key] += n
}

// TestHits counts hits by limit and result. A value without a limit, and a question, are not counted.
func TestHits(t *testing.T) {
	limiter, clock := zlimittest.New(t)
	m := &provider{counts: map[string]int64{}}
	s := check.Call(New(t.Context(), limiter, shopConfig(), WithClock(clock.Now), WithMeterProvider(m))).Must(t, "New()")
	for range 4 {
		ask1(t, s, "shop", descriptor("user=ann"))
	}
	ask1(t, s, "shop", withHits(descriptor("all=yes"), 2), descriptor("user=guest"))
	ask1(t, s, "shop", withHits(descriptor("plan=gold"), 0))
	for range 2 {
		ask1(t, s, "shop", descriptor("user=ann", "path=/shadow"))
	}
	ask1(t, s, "shop", descriptor("user=ann", "path=/admin"))
	of := func(limit, result string) string {
		return "zlimit.envoy.hits domain=shop limit=" + limit + " result=" + result
	}
	want := map[string]int64{
		of("shop|user", "within"): 2, of("shop|user", "near"): 1, of("shop|user", "over"): 1, of("shop|all=yes", "within"): 2,
		of("shop|user|path=/shadow", "near"): 1, of("shop|user|path=/shadow", "shadow"): 1, of("shop|user|path=/admin", "over"): 1,
	}
	if !maps.Equal(m.counts, want) {
		t.Errorf("counts = %v, want %v", m.counts, want)
	}
}
