package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

var bucket, bucketKey = storetest.Bucket, storetest.BucketKey

// Benchmark runs the suite's benchmark; logged, with a change stream.
func Benchmark(b *testing.B) {
	memory := func() (*sqlite.Store, error) { return sqlite.OpenMemory(storetest.Table) }
	file := func() (*sqlite.Store, error) {
		return sqlite.Open(filepath.Join(b.TempDir(), "items.db"), storetest.Table)
	}
	for _, bench := range []struct {
		name   string
		open   func() (*sqlite.Store, error)
		stream bool
	}{
		{"memory", memory, false}, {"file", file, false}, {"memory logged", memory, true}, {"file logged", file, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := open(b)(bench.open())
			check.Fatal(b, "Setup()", s.Setup(b.Context()))
			if bench.stream {
				check.Fatal(b, "StartStream()", s.StartStream(b.Context()))
			}
			storetest.Bench(b, s)
		})
	}
}
