package zlimit_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A way is one of the ways to send requests that a benchmark compares, in turns: a burst of callers is a round.
type way struct {
	name    string
	call    func(caller int) error
	writes  atomic.Int64
	calls   int
	total   []time.Duration // of each round
	medians []time.Duration // of the calls of each round
}

// burst lets callers make some calls each, one after the other.
func (w *way) burst(b *testing.B, callers, calls int) {
	b.Helper()
	took := make([]time.Duration, callers*calls)
	var group sync.WaitGroup
	start := time.Now()
	for caller := range callers {
		group.Go(func() {
			for i := range calls {
				began := time.Now()
				if err := w.call(caller); err != nil {
					b.Errorf("%s: %v", w.name, err)
					return
				}
				took[caller*calls+i] = time.Since(began)
			}
		})
	}
	group.Wait()
	w.total = append(w.total, time.Since(start))
	w.medians = append(w.medians, median(took))
	w.calls += callers * calls
}

// reset forgets what was measured.
func (w *way) reset() {
	w.calls, w.total, w.medians = 0, nil, nil
	w.writes.Store(0)
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// ratio returns the median over all rounds of one duration to another.
func ratio(of, to []time.Duration) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = float64(of[i]) / float64(to[i])
	}
	return median(ratios)
}

// A slowTransport is a network that takes some time for each call, for any number of calls at the same time.
type slowTransport struct {
	base http.RoundTripper
	time time.Duration
}

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.time)
	return s.base.RoundTrip(r)
}

// hotWays returns the bare SDK call and limiters that share writes not at all, by default and early. All take from one
// bucket of the engine, which is not split.
func hotWays(b *testing.B, network time.Duration) []*way {
	l, client, table := benchTable(b, func(engine http.RoundTripper) http.RoundTripper {
		if network == 0 {
			return engine
		}
		return slowTransport{engine, network}
	})
	bare := &way{name: "sdk"}
	update := bareUpdate(client, table, shardKey(l, "key-1", 0).Key().PK)
	bare.call = func(int) error { bare.writes.Add(1); return update() }
	ways := []*way{bare}
	for _, opt := range []struct {
		name string
		opts []zlimit.Option
	}{{"each", []zlimit.Option{zlimit.WithoutCoalescing()}}, {"shared", nil}, {"early", []zlimit.Option{zlimit.WithCoalescing()}}} {
		w := &way{name: opt.name}
		counted := countedWrites{dynamo.New(client, table, layout.Table, withoutStream), &w.writes}
		limiter := newLimiter(b, zlimit.StoreOn(counted), append(opt.opts, zlimit.WithTuning(zlimit.Tuning{MaxShards: 1, MaxInFlight: 1000}))...)
		w.call = func(int) error {
			_, err := limiter.Acquire(context.Background(), benchRequest)
			return err
		}
		ways = append(ways, w)
	}
	return ways
}

// BenchmarkHotKey lets 1 to 512 callers take from one bucket of the engine, directly and over a network of 5 ms. They
// do so by the bare SDK call, with a write for each, sharing writes by default, and early. The four take turns. For
// sharing it reports calls per second against the bare call and against a write for each. It also reports the median
// duration against a write for each, and calls for each write.
func BenchmarkHotKey(b *testing.B) {
	for _, network := range []time.Duration{0, 5 * time.Millisecond} {
		for _, callers := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("network=%v/callers=%d", network, callers), func(b *testing.B) {
				ways := hotWays(b, network)
				for _, w := range ways { // connections
					w.burst(b, callers, 2)
					w.reset()
				}
				for b.Loop() {
					for _, w := range ways {
						w.burst(b, callers, max(4, 40/callers))
					}
				}
				bare, each := ways[0], ways[1]
				b.ReportMetric(0, "ns/op") // of all together: means nothing
				b.ReportMetric(ratio(bare.total, each.total), "each-x-sdk")
				for _, w := range ways[2:] {
					b.ReportMetric(ratio(bare.total, w.total), w.name+"-x-sdk")
					b.ReportMetric(ratio(w.medians, each.medians), w.name+"-p50")
					b.ReportMetric(float64(w.calls)/float64(w.writes.Load()), w.name+"/write")
				}
			})
		}
	}
}

// BenchmarkZipf lets 64 callers take from 10,000 buckets, some of them much more often than others, on the engine and a
// file. They share writes by default, and each have a write of their own, in turns. It reports the calls per second
// with sharing against the calls without.
func BenchmarkZipf(b *testing.B) {
	const keys, callers, calls = 10_000, 64, 10
	_, client, table := benchTable(b, func(engine http.RoundTripper) http.RoundTripper { return engine })
	stores := map[string]func(b *testing.B) zlimit.Store{
		"dynamodb": func(*testing.B) zlimit.Store {
			return zlimit.StoreOn(dynamo.New(client, table, layout.Table, withoutStream))
		},
		"sqlite": func(b *testing.B) zlimit.Store { return openStore(b, newFile(b)) },
	}
	for _, name := range []string{"dynamodb", "sqlite"} {
		b.Run(name, func(b *testing.B) {
			s := stores[name](b)
			ways := []*way{{name: "each"}, {name: "shared"}}
			for i, opts := range [][]zlimit.Option{{zlimit.WithoutCoalescing()}, nil} {
				l := newLimiter(b, s, append(opts, zlimit.WithTuning(zlimit.Tuning{MaxShards: 1}))...)
				setSystem(b, l, zlimit.PerMinute("rpm", 1e12), zlimit.PerMinute("tpm", 1e12))
				var draws [callers]*rand.Zipf
				for at := range draws {
					draws[at] = rand.NewZipf(rand.New(rand.NewPCG(1, uint64(at))), 1.1, 1, keys-1)
				}
				ways[i].call = func(caller int) error {
					_, err := l.Acquire(context.Background(), zlimit.Request{
						Entity: fmt.Sprintf("key-%d", draws[caller].Uint64()), Resource: "gpt-4", Consume: benchRequest.Consume,
					})
					return err
				}
				ways[i].burst(b, callers, 200) // makes most of the buckets
			}
			for _, w := range ways {
				w.reset()
			}
			for b.Loop() {
				for _, w := range ways {
					w.burst(b, callers, calls)
				}
			}
			b.ReportMetric(0, "ns/op") // of both together: means nothing
			b.ReportMetric(ratio(ways[0].total, ways[1].total), "x-each")
			b.ReportMetric(ratio(ways[1].medians, ways[0].medians), "p50-x-each")
		})
	}
}
