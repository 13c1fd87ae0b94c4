package memory_test

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
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
			if err := s.Setup(b.Context()); err != nil {
				b.Fatal(err)
			}
			if bench.stream {
				if err := s.StartStream(b.Context()); err != nil {
					b.Fatal(err)
				}
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
