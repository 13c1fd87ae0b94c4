package layout

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// storedBucket returns a bucket with two limits and wcu as a store returns it, in another order than encode's.
func storedBucket() expr.Item {
	it := &Bucket{
		Key:        BucketKey{NS: "Zm9vYmFyYmF", Entity: "customer-4711", Resource: "gpt-4o", Shard: 3},
		RefilledAt: 1_760_000_000_000,
		ShardCount: 4,
		Cascade:    true,
		Parent:     "project-12",
		ExpiresAt:  1_760_604_800,
		Limits: []bucket.Limit{
			{Name: "rpm", Tokens: 59_000, Capacity: 60_000, RefillAmount: 60_000, RefillPeriod: 60_000, Consumed: 1_000},
			{Name: "tpm", Tokens: -12_000, Capacity: 1e9, RefillAmount: 1e9, RefillPeriod: 60_000, Consumed: 1e12},
			{Name: "wcu", Tokens: 999_000, Capacity: 1e6, RefillAmount: 1e6, RefillPeriod: 1_000, Consumed: 1_000},
		},
	}
	return stored(it.Key.Key(), it.Encode())
}

// stored returns an item with its key, its attributes reordered.
func stored(key store.Key, item expr.Item) expr.Item {
	item = append(item.Clone(), expr.Attribute{Name: store.PK, Value: expr.S(key.PK)},
		expr.Attribute{Name: store.SK, Value: expr.S(key.SK)})
	shuffled := make(expr.Item, 0, len(item))
	for step := 7; len(item) > 0; step += 7 {
		i := step % len(item)
		shuffled = append(shuffled, item[i])
		item = append(item[:i:i], item[i+1:]...)
	}
	return shuffled
}

func BenchmarkDecodeBucket(b *testing.B) {
	item := storedBucket()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBucket(item); err != nil {
			b.Fatalf("DecodeBucket() = %v", err)
		}
	}
}

func BenchmarkEncodeBucket(b *testing.B) {
	it := check.Call(DecodeBucket(storedBucket())).Must(b, "DecodeBucket()")
	b.ReportAllocs()
	for b.Loop() {
		if item := it.Encode(); len(item) != 28 {
			b.Fatalf("encode = %d attributes, want 28", len(item))
		}
	}
}

func BenchmarkSpend(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		call := Spend(1_760_000_000_000, 1_760_000_000)
		call.Plain()
		call.Take("rpm", 1_000)
		call.Take("tpm", 250_000)
		call.Take("wcu", 1_000)
		if _, err := call.Bind(); err != nil {
			b.Fatalf("Bind() = %v", err)
		}
	}
}

func BenchmarkAdvance(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		call := Advance(1_760_000_000_000, 1_760_000_060_000, -1, 0)
		for _, limit := range [...]string{"rpm", "tpm", "wcu"} {
			call.Credit(limit, 60_000, 1_000)
			call.Cover(limit, 1_000)
			call.Count(limit, 1_000)
		}
		if _, err := call.Bind(); err != nil {
			b.Fatalf("Bind() = %v", err)
		}
	}
}
