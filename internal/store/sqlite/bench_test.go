package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
	"github.com/zlimit/zlimit-go/internal/store/storetest"
)

// bucket is an item of the size and shape of a bucket of two limits, in three indexes.
var bucket = storetest.Item(
	"entity_id", "user-1", "resource", "gpt-4", "rf", 1_700_000_000_000, "shard_count", 1, "cascade", false,
	"b_rpm_tk", 1_000_000_000, "b_rpm_cp", 100_000, "b_rpm_ra", 100_000, "b_rpm_rp", 60_000, "b_rpm_tc", 1000,
	"b_wcu_tk", 1_000_000_000, "b_wcu_cp", 1000, "b_wcu_ra", 1000, "b_wcu_rp", 1000, "b_wcu_tc", 1,
	"owner", "ABCDEFGHIJK/RESOURCE#gpt-4", "since", "BUCKET#user-1#0",
	"kind", "ABCDEFGHIJK/ENTITY#user-1", "rank", "BUCKET#gpt-4#0", "date", "2024-01-01",
)

var bucketKey = store.Key{PK: "ABCDEFGHIJK/BUCKET#user-1#gpt-4#0", SK: "#STATE"}

var spend = func() *expr.Operation {
	tk, tc := expr.Of("b_", "_tk"), expr.Of("b_", "_tc")
	return &expr.Operation{
		Name: "spend", Slots: 1, Where: []expr.Condition{expr.GE(expr.Attr("rf"), 0)},
		Clauses: []expr.Clause{{Name: "limit", Slots: 3, Where: []expr.Condition{expr.GE(tk, 0)}, Update: []expr.Action{expr.Add(tk, 1), expr.Add(tc, 2)}}},
	}
}()

func spendOf(tb testing.TB, amount int64) expr.Bound {
	c := spend.Call(expr.N(1_699_999_999_000))
	c.Pick(0, "rpm", expr.N(amount), expr.N(-amount), expr.N(amount))
	c.Pick(0, "wcu", expr.N(1), expr.N(-1), expr.N(1))
	b, err := c.Bind()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// BenchmarkUpdate is a spend on a bucket of two limits among a thousand other items; logged, with a change stream.
func BenchmarkUpdate(b *testing.B) {
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
		s := open(b)(bench.open())
		if err := s.Setup(b.Context()); err != nil {
			b.Fatal(err)
		}
		if bench.stream {
			if err := s.StartStream(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		for i := range 1000 {
			k := bucketKey
			if i > 0 {
				k.PK = "ABCDEFGHIJK/BUCKET#user-" + expr.N(int64(i)).Number() + "#gpt-4#0"
			}
			if _, err := s.Write(b.Context(), store.Write{Kind: store.Put, Key: k, Item: bucket}); err != nil {
				b.Fatal(err)
			}
		}
		for name, amount := range map[string]int64{"applied": 1, "condition failed": 1 << 60} {
			w := store.Write{Key: bucketKey, Expr: spendOf(b, amount)}
			b.Run(bench.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if r, err := s.Write(b.Context(), w); err != nil || r.Applied != (amount == 1) {
						b.Fatal(r, err)
					}
				}
			})
		}
		b.Run(bench.name+"/parallel", func(b *testing.B) {
			w := store.Write{Key: bucketKey, Expr: spendOf(b, 1)}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if r, err := s.Write(b.Context(), w); err != nil || !r.Applied {
						b.Error(r, err)
					}
				}
			})
		})
		b.Run(bench.name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Read(b.Context(), []store.Key{bucketKey}, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
