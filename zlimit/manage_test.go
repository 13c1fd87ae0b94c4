package zlimit_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/zlimit"
)

// dump returns every item of namespaces, by its key, as text.
func dump(tb testing.TB, s store.Store, namespaces ...string) map[string]string {
	tb.Helper()
	enginetest.CatchUp()
	items := map[string]string{}
	for _, ns := range namespaces {
		calls := table.New(s, table.Options{Timeout: time.Hour, Gate: store.NewGate(1, nil)})
		for _, item := range check.All(tb, "Items()", calls.Items(context.Background(), layout.QueryNamespaceItems(ns))) {
			k := store.KeyOf(item)
			found, err := s.Read(context.Background(), []store.Key{k}, true)
			check.Fatal(tb, "Read()", err)
			if found[0] != nil {
				items[k.PK+" "+k.SK] = found[0].String()
			}
		}
	}
	return items
}

// without returns the items whose keys do not belong.
func without(items map[string]string, belongs func(key string) bool) map[string]string {
	items = maps.Clone(items)
	maps.DeleteFunc(items, func(key, _ string) bool { return belongs(key) })
	return items
}

// collect returns what a sequence yields, and fails the test on an error.
func collect[T any](tb check.TB, call string, seq iter.Seq2[T, error]) []T {
	tb.Helper()
	enginetest.CatchUp()
	return check.All(tb, call, seq)
}

// endOf returns the error that a sequence ends with.
func endOf[T any](seq iter.Seq2[T, error]) (failed error) {
	for _, err := range seq {
		failed = err
	}
	return failed
}

// populate fills an entity with everything that may belong to one: 4 configs, buckets of 3 resources and 20 usage
// snapshots. One of the buckets has 12 shards.
func populate(tb testing.TB, l *zlimit.RateLimiter, entity string) {
	tb.Helper()
	ctx := context.Background()
	for _, resource := range []string{"", "gpt-4", "gpt-5", "o3"} {
		if err := l.Limits.Set(ctx, zlimit.Level{Entity: entity, Resource: resource}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 5000)}}); err != nil {
			tb.Fatalf("Limits.Set() = %v", err)
		}
	}
	for _, resource := range []string{"gpt-4", "gpt-5", "o3"} {
		acquire(tb, l, zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"rpm": 1}})
	}
	first := layout.BucketKey{NS: l.NS(), Entity: entity, Resource: "gpt-4"}
	items, err := l.Calls().Read(ctx, []store.Key{first.Key()}, true)
	check.Fatal(tb, "Read()", err)
	put := func(key store.Key, item expr.Item) {
		tb.Helper()
		if _, err := l.Calls().Write(ctx, store.Write{Kind: store.Put, Key: key, Item: item}); err != nil {
			tb.Fatalf("Write() = %v", err)
		}
	}
	for shard := range 12 {
		item, err := layout.DecodeBucket(items[0])
		check.Fatal(tb, "layout.DecodeBucket()", err)
		item.Key.Shard, item.ShardCount = shard, 12
		for i := range item.Limits {
			item.Limits[i].Tokens /= 12
		}
		put(item.Key.Key(), item.Encode())
	}
	for i := range 20 {
		usage := layout.Usage{Key: layout.UsageKey{NS: l.NS(), Entity: entity, Resource: "gpt-4", WindowKey: fmt.Sprintf("2026-03-%02d", i+1)}, Window: "daily"}
		put(usage.Key.Key(), usage.Encode())
	}
}

// actions returns the actions of the events of an entity, in their order.
func actions(tb testing.TB, l *zlimit.RateLimiter, entity string) (list []zlimit.AuditAction) {
	tb.Helper()
	for _, e := range collect(tb, "Events()", l.Audit.Events(context.Background(), entity, zlimit.AuditQuery{})) {
		list = append(list, e.Action)
	}
	return list
}

// count returns how often a value is in a list.
func count[T comparable](list []T, value T) (n int) {
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}
