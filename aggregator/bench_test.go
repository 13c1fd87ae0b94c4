package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// traffic returns a thousand changes of so many buckets, each later than those of earlier rounds.
func traffic(buckets, round int) []store.Change {
	changes := make([]store.Change, 1000)
	for i := range changes {
		s := shard(0)
		s.Entity = fmt.Sprintf("e%d", i%buckets)
		n := int64(round*len(changes) + i)
		changes[i] = store.Change{
			Key: keyOf(s), Sequence: sequence(int(n) + 1), At: noon.Add(time.Duration(i) * time.Millisecond),
			Old: item(s, map[string]int64{"rpm": n * 1000, "tpm": n * 5000, "wcu": n * 1000}),
			New: item(s, map[string]int64{"rpm": n*1000 + 1000, "tpm": n*5000 + 5000, "wcu": n*1000 + 1000}),
		}
	}
	return changes
}

// BenchmarkFold sorts batches of a thousand changes, of one bucket or of many.
func BenchmarkFold(b *testing.B) {
	for _, buckets := range []int{1, 100} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			a := newAggregator(b, newMemory(b))
			changes := traffic(buckets, 0)
			b.ReportAllocs()
			for b.Loop() {
				a.counter.fold(changes, newBatch(len(changes)))
			}
			b.ReportMetric(float64(len(changes)*b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

// BenchmarkDecode reads events of a thousand records.
func BenchmarkDecode(b *testing.B) {
	text := eventOf(b, traffic(100, 0)...)
	for b.Loop() {
		var event events.DynamoDBEvent
		check.Fatal(b, "json.Unmarshal()", json.Unmarshal(text, &event))
		for i := range event.Records {
			if _, err := decodeRecord(&event.Records[i]); err != nil {
				b.Fatalf("decodeRecord() = %v", err)
			}
		}
	}
	b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkApply applies batches of a thousand changes in memory.
func BenchmarkApply(b *testing.B) {
	for _, buckets := range []int{1, 100} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			a := newAggregator(b, newMemory(b))
			n := 0
			for b.Loop() {
				b.StopTimer()
				changes := traffic(buckets, n)
				b.StartTimer()
				if errs := a.apply(context.Background(), changes); errs != nil {
					b.Fatalf("apply() = %v", errs)
				}
				n++
			}
			b.ReportMetric(float64(1000*b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

// BenchmarkMemory applies a million changes of 100 buckets, and reports what the heap holds after the first tenth and
// after the last one.
func BenchmarkMemory(b *testing.B) {
	const rounds = 1000
	heap := func() float64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	a := newAggregator(b, newMemory(b))
	for b.Loop() {
		for round := range rounds {
			if errs := a.apply(context.Background(), traffic(100, round)); errs != nil {
				b.Fatalf("apply() = %v", errs)
			}
			if round == rounds/10 {
				b.ReportMetric(heap(), "MB-at-a-tenth")
			}
		}
		b.ReportMetric(heap(), "MB-at-the-end")
	}
}
