package memory_test

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
)

// Benchmark runs the suite's benchmark; logged, with a change stream.
func Benchmark(b *testing.B) {
	for _, bench := range []struct {
		name   string
		stream bool
	}{{"memory", false}, {"memory logged", true}} {
		b.Run(bench.name, func(b *testing.B) {
			s := open(b)
			check.Fatal(b, "Setup()", s.Setup(b.Context()))
			if bench.stream {
				check.Fatal(b, "StartStream()", s.StartStream(b.Context()))
			}
			storetest.Bench(b, s)
		})
	}
}

var copied expr.Item

// BenchmarkCopy is what a write cannot do without, for a ratio: a new item for an old one.
func BenchmarkCopy(b *testing.B) {
	item := storetest.BucketKey.Join(storetest.Bucket)
	b.ReportAllocs()
	for b.Loop() {
		copied = item.Clone()
	}
}
