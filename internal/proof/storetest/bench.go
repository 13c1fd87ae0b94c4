package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Bucket is an item of the size and shape of a bucket of two limits, in three indexes.
var Bucket = Item(
	"entity_id", "user-1", "resource", "gpt-4", "rf", 1_700_000_000_000, "shard_count", 1, "cascade", false,
	"b_rpm_tk", 1_000_000_000, "b_rpm_cp", 100_000, "b_rpm_ra", 100_000, "b_rpm_rp", 60_000, "b_rpm_tc", 1000,
	"b_wcu_tk", 1_000_000_000, "b_wcu_cp", 1000, "b_wcu_ra", 1000, "b_wcu_rp", 1000, "b_wcu_tc", 1,
	"owner", "ABCDEFGHIJK/RESOURCE#gpt-4", "since", "BUCKET#user-1#0",
	"kind", "ABCDEFGHIJK/ENTITY#user-1", "rank", "BUCKET#gpt-4#0", "date", "2024-01-01",
)

// BucketKey is the key of Bucket.
var BucketKey = bucketKey(0)

func bucketKey(i int) store.Key {
	return store.Key{PK: fmt.Sprintf("ABCDEFGHIJK/BUCKET#user-%d#gpt-4#0", i), SK: "#STATE"}
}

var spend = func() *expr.Operation {
	tk, tc := expr.Of("b_", "_tk"), expr.Of("b_", "_tc")
	ttl := expr.Attr("ttl")
	return &expr.Operation{
		Name: "spend", Placeholders: 2,
		Where:   []expr.Condition{expr.GE(expr.Attr("rf"), 0), expr.Any(expr.Absent(ttl), expr.GT(ttl, 1))},
		Clauses: []expr.Clause{{Name: "limit", Placeholders: 3, Where: []expr.Condition{expr.GE(tk, 0)}, Update: []expr.Action{expr.Add(tk, 1), expr.Add(tc, 2)}}},
	}
}()

// spendOf takes an amount of each limit of a bucket.
func spendOf(tb testing.TB, k store.Key, amount int64) store.Write {
	c := spend.Call(expr.N(1_699_999_999_000), expr.N(1_700_000_000))
	for _, limit := range []string{"rpm", "wcu"} {
		c.Pick(0, limit, expr.N(amount), expr.N(-amount), expr.N(amount))
	}
	b, err := c.Bind()
	check.Fatal(tb, "Bind()", err)
	return store.Write{Key: k, Expr: b}
}

// Bench measures spends and reads of buckets of two limits among a thousand. s is ready to use.
func Bench(b *testing.B, s store.Store) {
	keys := make([]store.Key, 1000)
	for i := range keys {
		keys[i] = bucketKey(i)
		if _, err := s.Write(b.Context(), store.Write{Kind: store.Put, Key: keys[i], Item: Bucket}); err != nil {
			b.Fatalf("Write() = %v", err)
		}
	}
	for _, bench := range []struct {
		name   string
		amount int64
	}{{"applied", 1}, {"condition failed", 1 << 60}} {
		w := spendOf(b, BucketKey, bench.amount)
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := s.Write(b.Context(), w); err != nil || r.Applied != (bench.amount == 1) {
					b.Fatal(r, err)
				}
			}
		})
	}
	for _, bench := range []struct {
		name string
		keys []store.Key
	}{{"parallel on one key", keys[:1]}, {"parallel on many keys", keys}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			var goroutine atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				writes := make([]store.Write, len(bench.keys))
				for i, k := range bench.keys {
					writes[i] = spendOf(b, k, 1)
				}
				for i := int(goroutine.Add(1)) * 617; pb.Next(); i++ {
					if r, err := s.Write(b.Context(), writes[i%len(writes)]); err != nil || !r.Applied {
						b.Error(r, err)
						return
					}
				}
			})
		})
	}
	b.Run("transaction of two", func(b *testing.B) {
		writes := []store.Write{spendOf(b, keys[0], 1), spendOf(b, keys[1], 1)}
		b.ReportAllocs()
		for b.Loop() {
			if r, err := s.Transact(b.Context(), writes); err != nil || !r[0].Applied {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Read(b.Context(), keys[:1], true); err != nil {
				b.Fatalf("Read() = %v", err)
			}
		}
	})
}
