package zlimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestCountUsage adds changes to a snapshot that contains none of them, some, or all.
func TestCountUsage(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s)
		at := func(n int) store.Sequence { return store.SequenceOf(fmt.Sprint(n)) }
		for _, c := range []struct {
			name        string
			changes     []layout.ShardChanges
			applied     bool
			wantCounted map[int]store.Sequence
		}{
			{"the first changes", []layout.ShardChanges{{Shard: 0, First: at(1), Last: at(5)}}, true, map[int]store.Sequence{0: at(5)}},
			{"the next changes", []layout.ShardChanges{{Shard: 0, First: at(6), Last: at(9)}}, true, map[int]store.Sequence{0: at(9)}},
			{"the last change again", []layout.ShardChanges{{Shard: 0, First: at(9), Last: at(9)}}, false, map[int]store.Sequence{0: at(9)}},
			{"some of both", []layout.ShardChanges{{Shard: 0, First: at(8), Last: at(12)}}, false, map[int]store.Sequence{0: at(9)}},
			{
				"new ones of one shard, and old ones of another",
				[]layout.ShardChanges{{Shard: 0, First: at(5), Last: at(6)}, {Shard: 31, First: at(2), Last: at(2)}},
				false,
				map[int]store.Sequence{0: at(9)},
			},
			{
				"new ones of two shards",
				[]layout.ShardChanges{{Shard: 0, First: at(10), Last: at(100)}, {Shard: 31, First: at(2), Last: at(2)}},
				true,
				map[int]store.Sequence{0: at(100), 31: at(2)},
			},
		} {
			delta := layout.UsageDelta{
				NS: l.NS(), Entity: "e", Resource: "r", Window: string(zlimit.WindowDaily),
				Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Events: 1,
				Consumed: []bucket.Amount{{Limit: "rpm", Tokens: 1500}}, Shards: c.changes,
			}
			w := check.Call(delta.Write()).Must(t, "Write()")
			r, err := store.Of(s).Write(context.Background(), w)
			if err != nil || r.Applied != c.applied {
				t.Errorf("%s: applied %t, %v; want %t", c.name, r.Applied, err, c.applied)
			}
			compare.Equal(t, fmt.Sprintf("%s: counted", c.name), c.wantCounted, layout.CountedChanges(r.Item))
		}
		for _, snapshot := range snapshots(t, l, zlimit.UsageQuery{Entity: "e", Resource: "r", Window: zlimit.WindowDaily}) {
			if snapshot.Consumed["rpm"] != 4500 || snapshot.Events != 3 {
				t.Errorf("the snapshot has %v rpm in %d changes, want 4.5 in 3", snapshot.Consumed["rpm"], snapshot.Events)
			}
		}
	})
}

// A reads store counts batch reads, and their keys.
type reads struct {
	store.Store
	calls, keys int
}

func (s *reads) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	s.calls++
	s.keys += len(keys)
	return s.Store.Read(ctx, keys, consistent)
}

// TestLimitOverSparseWindows asks for few snapshots of many days. It takes a call per 100 days if there are none, and
// reads no more than is wanted where each day has one.
func TestLimitOverSparseWindows(t *testing.T) {
	s := &reads{Store: store.Of(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(s))
	first := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	const days = 1500
	for day := range days {
		if day < 50 || day == days-1 {
			record(t, l, usage("e", "r", zlimit.WindowDaily, first.AddDate(0, 0, day), 1))
		}
	}
	for _, test := range []struct {
		limit       int
		calls, keys int // at most
	}{
		{1, 1, 1}, {50, 1, 50}, {51, 2 + days/100, days}, {0, days / 100, days},
	} {
		s.calls, s.keys = 0, 0
		got := snapshots(t, l, zlimit.UsageQuery{Entity: "e", Resource: "r", Window: zlimit.WindowDaily, Limit: test.limit})
		if want := test.limit; want > 0 && len(got) != want || len(got) > 51 {
			t.Errorf("Limit %d yields %d snapshots", test.limit, len(got))
		}
		if s.calls > test.calls || s.keys > test.keys {
			t.Errorf("Limit %d takes %d calls for %d windows, want at most %d for %d", test.limit, s.calls, s.keys, test.calls, test.keys)
		}
	}
	s.calls = 0
	q := zlimit.UsageQuery{Entity: "e", Resource: "r", Window: zlimit.WindowDaily, From: first.AddDate(0, 0, 50), Limit: 1}
	if got := snapshots(t, l, q); len(got) != 1 || s.calls > 1 {
		t.Errorf("the last day alone: %d snapshots in %d calls, want one in one", len(got), s.calls)
	}
	q.To = first.AddDate(0, 0, 149) // 99 days without any
	if s.calls = 0; len(snapshots(t, l, q)) != 0 || s.calls > 7 {
		t.Errorf("days without usage take %d calls, want at most 7", s.calls)
	}
}
