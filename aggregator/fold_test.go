package aggregator

import (
	"math"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestConsumption(t *testing.T) {
	limit := func(name string, consumed int64) bucket.Limit { return bucket.Limit{Name: name, Consumed: consumed} }
	for name, c := range map[string]struct {
		before, after []bucket.Limit
		want          []bucket.Amount
	}{
		"the difference of every limit that changed": {
			[]bucket.Limit{limit("a", 10), limit("b", 5), limit("c", 1)},
			[]bucket.Limit{limit("a", 17), limit("b", 2), limit("c", 1)},
			[]bucket.Amount{{Limit: "a", Tokens: 7}, {Limit: "b", Tokens: -3}},
		},
		"all that a new item has counted": {
			nil,
			[]bucket.Limit{limit("a", 10), limit("b", 0)},
			[]bucket.Amount{{Limit: "a", Tokens: 10}},
		},
		"all that a new limit has counted, and nothing of one that is gone": {
			[]bucket.Limit{limit("a", 10)},
			[]bucket.Limit{limit("b", 4)},
			[]bucket.Amount{{Limit: "b", Tokens: 4}},
		},
		"nothing of an item that is gone": {[]bucket.Limit{limit("a", 10)}, nil, nil},
		"a limit with the parts that are guaranteed to priorities": {
			[]bucket.Limit{limit("a", 10), limit("a/low", 5), limit("ab", 1)},
			[]bucket.Limit{limit("a", 11), limit("a/low", 9), limit("a/lower", 2), limit("ab", 2)},
			[]bucket.Amount{{Limit: "a", Tokens: 7}, {Limit: "ab", Tokens: 1}},
		},
		"no write units": {
			[]bucket.Limit{limit("a", 10), limit("wcu", 1000)},
			[]bucket.Limit{limit("a", 11), limit("wcu", 2000)},
			[]bucket.Amount{{Limit: "a", Tokens: 1}},
		},
		"a counter that wraps": {
			[]bucket.Limit{limit("a", math.MaxInt64-1)},
			[]bucket.Limit{limit("a", math.MinInt64+1)},
			[]bucket.Amount{{Limit: "a", Tokens: 3}},
		},
		"a counter that wraps backwards": {
			[]bucket.Limit{limit("a", math.MinInt64+1)},
			[]bucket.Limit{limit("a", math.MaxInt64-1)},
			[]bucket.Amount{{Limit: "a", Tokens: -3}},
		},
	} {
		compare.Equal(t, name, c.want, consumption(c.before, c.after))
	}
}

// TestWindows applies changes around the borders of windows.
func TestWindows(t *testing.T) {
	a := newAggregator(t, newMemory(t))
	at := func(text string) time.Time {
		return check.Call(time.Parse(time.RFC3339, text)).Must(t, "time.Parse()")
	}
	count := func(n int64) map[string]int64 { return map[string]int64{"rpm": n} }
	mustApply(t, a,
		change(1, at("2026-03-31T22:59:59Z"), nil, count(1000)),
		change(2, at("2026-03-31T23:00:00Z"), count(1000), count(3000)),
		change(3, at("2026-04-01T01:59:59+02:00"), count(3000), count(7000)), // still March in UTC
		change(4, at("2026-04-01T00:00:00Z"), count(7000), count(15_000)),
		change(5, at("2026-03-31T23:59:59Z"), count(15_000), count(31_000)), // a clock of the store that is behind
	)
	want := map[string]figures{
		"r#2026-03-31T22:00:00Z": {"rpm": "1", "total_events": "1"},
		"r#2026-03-31T23:00:00Z": {"rpm": "22", "total_events": "3"},
		"r#2026-04-01T00:00:00Z": {"rpm": "8", "total_events": "1"},
		"r#2026-03-31":           {"rpm": "23", "total_events": "4"},
		"r#2026-04-01":           {"rpm": "8", "total_events": "1"},
		"r#2026-03":              {"rpm": "23", "total_events": "4"},
		"r#2026-04":              {"rpm": "8", "total_events": "1"},
	}
	compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
}

// TestSnapshotItem looks at a whole item.
func TestSnapshotItem(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		a := newAggregator(t, s, WithClock(func() time.Time { return noon.Add(time.Hour) }))
		first := change(7, noon, nil, map[string]int64{"rpm": 1000, "t.p-m": 12_500, "wcu": 1000})
		second := store.Change{Key: keyOf(shard(31)), Sequence: sequence(5), At: noon, New: item(shard(31), map[string]int64{"rpm": -333})}
		mustApply(t, a, first, second)
		key := store.Key{PK: "n/ENTITY#e", SK: "#USAGE#r#2026-03-31T12:00:00Z"}
		items := check.Call(a.table.Store().Read(t.Context(), []store.Key{key}, true)).Must(t, "Read()")
		want := key.Join(expr.Item{
			{Name: "entity_id", Value: expr.S("e")},
			{Name: "resource", Value: expr.S("r")},
			{Name: "window", Value: expr.S("hourly")},
			{Name: "window_start", Value: expr.S("2026-03-31T12:00:00Z")},
			{Name: "total_events", Value: expr.N(2)},
			{Name: "rpm", Value: expr.Decimal(667, 3)},
			{Name: "t.p-m", Value: expr.Decimal(12_500, 3)},
			{Name: "seq#0", Value: expr.S(string(sequence(7)))},
			{Name: "seq#31", Value: expr.S(string(sequence(5)))},
			{Name: "ttl", Value: expr.N(time.Date(2026, 3, 31, 13, 0, 0, 0, time.UTC).AddDate(0, 0, 90).Unix())},
			{Name: "GSI2PK", Value: expr.S("n/RESOURCE#r")},
			{Name: "GSI2SK", Value: expr.S("USAGE#2026-03-31T12:00:00Z#e")},
		})
		if !store.Of(s).Partitioned() { // it expires, and no scan would find it
			want = append(want, expr.Attribute{Name: "GSI4PK", Value: expr.S("n")}, expr.Attribute{Name: "GSI4SK", Value: expr.S("n/ENTITY#e")})
		} else {
			want = append(want,
				expr.Attribute{Name: "rollup_carried", Value: expr.S(`{"events":2,"consumed":{"rpm":667,"t.p-m":12500}}`)},
				expr.Attribute{Name: "rollup_closed", Value: expr.S("2026-03-31T13:30:00Z")}, // the clock of the aggregator
			)
		}
		if !items[0].Equal(want) {
			t.Errorf("item = %v,\nwant %v", items[0], want)
		}
	})
}
