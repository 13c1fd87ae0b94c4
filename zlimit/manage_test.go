package zlimit_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

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
			found := check.Call(s.Read(context.Background(), []store.Key{k}, true)).Must(tb, "Read()")
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

// populate fills an entity with everything that may belong to one: 4 configs, buckets of 3 resources and 20 usage
// snapshots. One of the buckets has 12 shards.
func populate(tb testing.TB, l *zlimit.RateLimiter, entity string) {
	tb.Helper()
	for _, resource := range []string{"", "gpt-4", "gpt-5", "o3"} {
		setLimits(tb, l, zlimit.Level{Entity: entity, Resource: resource}, zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 5000))
	}
	for _, resource := range []string{"gpt-4", "gpt-5", "o3"} {
		acquire(tb, l, zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"rpm": 1}})
	}
	whole := stored(tb, l, layout.BucketKey{NS: l.NS(), Entity: entity, Resource: "gpt-4"}.Key())
	for shard := range 12 {
		item := check.Call(layout.DecodeBucket(whole)).Must(tb, "layout.DecodeBucket()")
		item.Key.Shard, item.ShardCount = shard, 12
		for i := range item.Limits {
			item.Limits[i].Tokens /= 12
		}
		put(tb, l, item.Key.Key(), item.Encode())
	}
	for i := range 20 {
		usage := layout.Usage{Key: layout.UsageKey{NS: l.NS(), Entity: entity, Resource: "gpt-4", WindowKey: fmt.Sprintf("2026-03-%02d", i+1)}, Window: "daily"}
		put(tb, l, usage.Key.Key(), usage.Encode())
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
