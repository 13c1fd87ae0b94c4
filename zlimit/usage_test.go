package zlimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// forEachIndex runs a test on every kind of store, and on a table whose index of resources holds whole items, as older
// ones do.
func forEachIndex(t *testing.T, test func(t *testing.T, s zlimit.Store)) {
	forEachStore(t, test)
	t.Run("dynamodb, with whole items in the index", func(t *testing.T) {
		engine := enginetest.Start(t)
		test(t, zlimit.StoreOn(dynamo.New(engine.Client(), engine.Table(t), layout.Table, func(table string) *dynamodb.CreateTableInput {
			input := withoutStream(table)
			for i := range input.GlobalSecondaryIndexes {
				if x := &input.GlobalSecondaryIndexes[i]; *x.IndexName == "GSI2" {
					x.Projection = &types.Projection{ProjectionType: types.ProjectionTypeAll}
				}
			}
			return input
		})))
	})
}

// record stores snapshots, as an aggregator does.
func record(tb rapid.TB, l *zlimit.RateLimiter, snapshots ...zlimit.Snapshot) {
	tb.Helper()
	for _, s := range snapshots {
		item := usageItemOf(l, s)
		recordItem(tb, l, &item)
	}
}

func recordItem(tb rapid.TB, l *zlimit.RateLimiter, item *layout.Usage) {
	tb.Helper()
	absent := check.Call(layout.Insert()).Must(tb, "layout.Insert()")
	w := store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode(), Expr: absent}
	if r, err := l.Calls().Write(context.Background(), w); err != nil || !r.Applied {
		tb.Fatalf("Write(%v) = %t, %v", w.Key, r.Applied, err)
	}
}

func usageItemOf(l *zlimit.RateLimiter, s zlimit.Snapshot) layout.Usage {
	item := layout.Usage{
		Key:    layout.UsageKey{NS: l.NS(), Entity: s.Entity, Resource: s.Resource, WindowKey: s.Window.Key(s.Start)},
		Window: string(s.Window), WindowStart: layout.FormatTime(s.Start), TotalEvents: s.Events,
	}
	for name, consumed := range s.Consumed {
		item.Limits = append(item.Limits, layout.UsageCount{Name: name, Consumed: int64(consumed)})
	}
	return item
}

// usage is a snapshot of one event.
func usage(entity, resource string, w zlimit.Window, at time.Time, tpm zlimit.Quantity) zlimit.Snapshot {
	return zlimit.Snapshot{
		Entity: entity, Resource: resource, Window: w, Start: w.Start(at), End: w.End(at), Events: 1,
		Consumed: map[string]zlimit.Quantity{"tpm": tpm},
	}
}

func snapshots(tb testing.TB, l *zlimit.RateLimiter, q zlimit.UsageQuery) []zlimit.Snapshot {
	tb.Helper()
	return collect(tb, fmt.Sprintf("Snapshots(%+v)", q), l.Usage.Snapshots(context.Background(), q))
}

// choose returns what a query chooses among snapshots, in the order of the answer.
func choose(q zlimit.UsageQuery, all []zlimit.Snapshot) (chosen []zlimit.Snapshot) {
	for _, s := range all {
		if (q.Entity == "" || s.Entity == q.Entity) && (q.Resource == "" || s.Resource == q.Resource) && s.Window == q.Window &&
			!s.Start.Before(q.From) && (q.To.IsZero() || s.Start.Before(q.To)) {
			chosen = append(chosen, s)
		}
	}
	slices.SortFunc(chosen, func(a, b zlimit.Snapshot) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Resource, b.Resource))
	})
	if q.Limit > 0 && len(chosen) > q.Limit {
		chosen = chosen[:q.Limit]
	}
	return chosen
}

// someUsage returns snapshots at random over four months, of names that begin alike.
func someUsage() (all []zlimit.Snapshot) {
	start := time.Date(2025, time.November, 20, 0, 0, 0, 0, time.UTC)
	taken := map[string]bool{}
	for range 500 {
		w := []zlimit.Window{zlimit.WindowHourly, zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly}[rand.N(4)]
		s := usage([]string{"e", "e-1", "e:2", "f"}[rand.N(4)], []string{"gpt", "gpt-4", "gpt/4", "o3"}[rand.N(4)], w,
			start.Add(rand.N(100*zlimit.Day)), zlimit.Quantity(rand.Int64N(5000)-500))
		if key := fmt.Sprint(s.Entity, s.Resource, s.Window, s.Start); !taken[key] {
			taken[key] = true
			all = append(all, s)
		}
	}
	return all
}

// TestUsageQueries compares queries with what a filter makes of all snapshots.
func TestUsageQueries(t *testing.T) {
	forEachIndex(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s)
		all := someUsage()
		record(t, l, all...)
		moment := func() time.Time {
			switch rand.N(5) {
			case 0:
				return time.Time{}
			case 1:
				return all[rand.N(len(all))].Start // on the dot
			case 2:
				return all[rand.N(len(all))].Start.Add(time.Nanosecond).In(time.FixedZone("", 3*3600))
			case 3:
				return []time.Time{time.Unix(-1e9, 0), time.Date(9998, 12, 31, 23, 59, 0, 0, time.UTC), time.Date(200_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)}[rand.N(4)]
			default:
				return all[rand.N(len(all))].Start.Add(rand.N(10*zlimit.Day) - 5*zlimit.Day)
			}
		}
		for range soak.Pick(80, 200) {
			q := zlimit.UsageQuery{
				Entity: []string{"", "e", "e-1", "f", "nobody"}[rand.N(5)], Resource: []string{"", "gpt", "gpt-4", "nothing"}[rand.N(4)],
				Window: []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly}[rand.N(3)],
				From:   moment(), To: moment(), Limit: []int{0, 0, 1, 7, 1000}[rand.N(5)],
			}
			if q.Entity == "" && q.Resource == "" {
				continue
			}
			if diff := gocmp.Diff(choose(q, all), snapshots(t, l, q)); diff != "" {
				t.Fatalf("Snapshots(%+v) (-want +got):\n%s", q, diff)
			}
		}
	})
}

// TestUsageOfOneWindowLengthAlone covers an hour, a day and a month that start together.
func TestUsageOfOneWindowLengthAlone(t *testing.T) {
	forEachIndex(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s)
		start := time.Date(2026, time.February, 1, 0, 0, 0, 0, time.UTC)
		for i, w := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly} {
			record(t, l, usage("e", "gpt-4", w, start, zlimit.Quantity(i)+1))
		}
		for i, w := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly} {
			want := []zlimit.Snapshot{usage("e", "gpt-4", w, start, zlimit.Quantity(i)+1)}
			for _, q := range []zlimit.UsageQuery{
				{Entity: "e", Window: w},
				{Resource: "gpt-4", Window: w},
				{Entity: "e", Resource: "gpt-4", Window: w},
				{Entity: "e", Resource: "gpt-4", Window: w, From: start, To: start.Add(1)},
				{Resource: "gpt-4", Window: w, From: start, To: start.Add(1)},
			} {
				if diff := gocmp.Diff(want, snapshots(t, l, q)); diff != "" {
					t.Errorf("Snapshots(%+v) (-want +got):\n%s", q, diff)
				}
			}
			for _, q := range []zlimit.UsageQuery{
				{Entity: "e", Window: w, From: start.Add(1)},
				{Entity: "e", Window: w, To: start},
				{Entity: "e", Window: w, From: start, To: start},
				{Entity: "e", Window: w, From: start.AddDate(1, 0, 0), To: start},
			} {
				if got := snapshots(t, l, q); got != nil {
					t.Errorf("Snapshots(%+v) = %v, want none", q, got)
				}
			}
		}
	})
}

// TestUsageLeavesOut stores snapshots that no program shows. They are past their time, of unknown or misnamed
// windows, of write units, or overdrafts counted by zae-limiter.
func TestUsageLeavesOut(t *testing.T) {
	forEachIndex(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		for i := range 4 {
			item := usageItemOf(l, usage("e", "gpt-4", zlimit.WindowDaily, c.now().AddDate(0, 0, i-4), zlimit.Quantity(i)))
			switch i {
			case 0:
				item.ExpiresAt = c.now().Unix()
			case 1:
				item.ExpiresAt = c.now().Unix() + 1
			case 2:
				item.Window = string(zlimit.WindowHourly)
			case 3:
				item.Limits = append(item.Limits, layout.UsageCount{Name: bucket.WriteUnits, Consumed: 9}, layout.UsageCount{Name: "rpm#od", Consumed: 1})
			}
			recordItem(t, l, &item)
		}
		for _, key := range []string{"0", "2026", "2026-02-25T01:30:00Z", "2026-02-25T00:00:00+01:00", "2026-2-25", "~"} {
			item := usageItemOf(l, usage("e", "gpt-4", zlimit.WindowDaily, c.now(), 1))
			item.Key.WindowKey = key
			recordItem(t, l, &item)
		}
		want := []zlimit.Snapshot{usage("e", "gpt-4", zlimit.WindowDaily, c.now().AddDate(0, 0, -3), 1), usage("e", "gpt-4", zlimit.WindowDaily, c.now().AddDate(0, 0, -1), 3)}
		for _, q := range []zlimit.UsageQuery{{Entity: "e"}, {Resource: "gpt-4"}, {Entity: "e", Resource: "gpt-4", From: c.now().AddDate(0, 0, -4), To: c.now()}} {
			q.Window = zlimit.WindowDaily
			if diff := gocmp.Diff(want, snapshots(t, l, q)); diff != "" {
				t.Errorf("Snapshots(%+v) (-want +got):\n%s", q, diff)
			}
		}
	})
}

// A short store answers queries with few items at a time, and now and then with none.
type short struct {
	store.Store
	limit int
}

func (s *short) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Limit == 0 || q.Limit > s.limit {
		q.Limit = s.limit
	}
	return s.Store.Query(ctx, q)
}

// TestUsagePages reads snapshots that fit no page, since the pages are short or the snapshots are large.
func TestUsagePages(t *testing.T) {
	forEachIndex(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s)
		start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
		var all []zlimit.Snapshot
		for i := range 8 {
			for _, w := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily} {
				s := usage("e", "gpt-4", w, start.Add(time.Duration(i)*w.End(start).Sub(start)), zlimit.Quantity(i))
				item := usageItemOf(l, s)
				padding := strings.Repeat("x", 150<<10) // 1.2 MB of each length, and a page has 1 MB
				item.Sources = []layout.UsageSource{{Name: "0", Last: padding}}
				recordItem(t, l, &item)
				all = append(all, s)
			}
		}
		queries := []zlimit.UsageQuery{{Entity: "e"}, {Resource: "gpt-4"}, {Entity: "e", Resource: "gpt-4"}}
		expect := func(l *zlimit.RateLimiter, of string) {
			for _, q := range queries {
				for _, q.Window = range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily} {
					if diff := gocmp.Diff(choose(q, all), snapshots(t, l, q)); diff != "" {
						t.Errorf("Snapshots(%+v) of %s (-want +got):\n%s", q, of, diff)
					}
				}
			}
		}
		expect(l, "large items")
		for _, limit := range []int{1, 5} {
			expect(newLimiter(t, zlimit.StoreOn(&short{store.Of(s), limit})), fmt.Sprintf("pages of %d", limit))
		}
	})
}

// TestUsageOfManyEntities reads more snapshots of a window than fit one batch read.
func TestUsageOfManyEntities(t *testing.T) {
	forEachIndex(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s)
		var all []zlimit.Snapshot
		start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
		for i := range 130 {
			for _, w := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily} {
				all = append(all, usage(fmt.Sprint("e", i), "gpt-4", w, start, zlimit.Quantity(i)))
			}
		}
		record(t, l, all...)
		for _, w := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily} {
			q := zlimit.UsageQuery{Resource: "gpt-4", Window: w}
			if diff := gocmp.Diff(choose(q, all), snapshots(t, l, q)); diff != "" {
				t.Errorf("Snapshots(%+v) (-want +got):\n%s", q, diff)
			}
			n := 0
			for range l.Usage.Snapshots(context.Background(), q) {
				if n++; n == 3 {
					break
				}
			}
			if n != 3 {
				t.Errorf("a loop over %s snapshots that breaks at the third went on to number %d", w, n)
			}
		}
	})
}

func TestUsageOutOfOrder(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	record(t, l, usage("e", "gpt-4", zlimit.WindowDaily, time.Now(), 1))
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, q := range []zlimit.UsageQuery{{Entity: "e"}, {Resource: "gpt-4"}, {Entity: "e", Resource: "gpt-4"}} {
		for _, q.Window = range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly} {
			if err := endOf(l.Usage.Snapshots(cancelled, q)); !errors.Is(err, context.Canceled) {
				t.Errorf("Snapshots(%+v) with a cancelled context yields %v", q, err)
			}
		}
	}
	if _, err := l.Usage.Summary(cancelled, zlimit.UsageQuery{Entity: "e", Window: zlimit.WindowDaily}); !errors.Is(err, context.Canceled) {
		t.Errorf("Summary() with a cancelled context = %v", err)
	}
	if _, err := l.Usage.Capacity(cancelled, "gpt-4"); !errors.Is(err, context.Canceled) {
		t.Errorf("Capacity() with a cancelled context = %v", err)
	}
	for want, q := range map[string]zlimit.UsageQuery{
		`zlimit: invalid entity "": must be given, or a resource`:              {Window: zlimit.WindowDaily},
		`zlimit: invalid entity "a#": must hold only ASCII letters, digits`:    {Entity: "a#", Window: zlimit.WindowDaily},
		`zlimit: invalid resource "_default_": is reserved`:                    {Resource: zlimit.DefaultResource, Window: zlimit.WindowDaily},
		`zlimit: invalid window "": must be hourly, daily or monthly`:          {Entity: "e"},
		`zlimit: invalid window "weekly": must be hourly, daily or monthly`:    {Entity: "e", Window: "weekly"},
		`zlimit: invalid limit "-1": must not be negative`:                     {Entity: "e", Window: zlimit.WindowDaily, Limit: -1},
		`zlimit: invalid resource "4 o": must hold only ASCII letters, digits`: {Entity: "e", Resource: "4 o", Window: zlimit.WindowDaily},
	} {
		var invalid *zlimit.ValidationError
		if err := endOf(l.Usage.Snapshots(cancelled, q)); !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Snapshots(%+v) yields %v, want %s", q, err, want)
		}
		if _, err := l.Usage.Summary(cancelled, q); !errors.As(err, &invalid) {
			t.Errorf("Summary(%+v) = %v, want a ValidationError", q, err)
		}
	}
	var invalid *zlimit.ValidationError
	if _, err := l.Usage.Capacity(cancelled, "#"); !errors.As(err, &invalid) {
		t.Errorf("Capacity(#) = %v, want a ValidationError", err)
	}
	if err := endOf(l.Usage.Buckets(cancelled, "#")); !errors.As(err, &invalid) {
		t.Errorf("Buckets(#) yields %v, want a ValidationError", err)
	}
	check.Fatal(t, "Close()", l.Close())
	if err := endOf(l.Usage.Snapshots(cancelled, zlimit.UsageQuery{Entity: "e", Window: zlimit.WindowDaily})); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Snapshots() of a closed limiter yields %v", err)
	}
	if _, err := l.Usage.Capacity(cancelled, "gpt-4"); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Capacity() of a closed limiter = %v", err)
	}
	if err := endOf(l.Usage.Buckets(cancelled, "gpt-4")); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Buckets() of a closed limiter yields %v", err)
	}
}

// TestSummaries compares summaries with sums over all snapshots, window by window.
func TestSummaries(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		resource := fmt.Sprint("r", run)
		start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
		var all []zlimit.Snapshot
		for day := range rapid.IntRange(0, 4).Draw(t, "days") {
			for e := range rapid.IntRange(0, 3).Draw(t, "entities") {
				s := usage(fmt.Sprint("e", e), resource, zlimit.WindowDaily, start.AddDate(0, 0, 2*day), 0)
				s.Events = rapid.Int64Range(1, 100).Draw(t, "events")
				s.Consumed = map[string]zlimit.Quantity{}
				for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"rpm", "tpm", "tpd"}), rapid.ID[string]).Draw(t, "limits") {
					s.Consumed[name] = zlimit.Quantity(rapid.OneOf(rapid.Int64Range(-500, 5000), rapid.Just(int64(7))).Draw(t, "consumed"))
				}
				all = append(all, s)
			}
		}
		record(t, l, all...)

		want := zlimit.Summary{Window: zlimit.WindowDaily, Limits: []zlimit.LimitUsage{}}
		windows := map[time.Time]map[string]zlimit.Quantity{}
		totals := map[string]zlimit.Quantity{}
		for _, s := range all {
			want.Events += s.Events
			if windows[s.Start] == nil {
				windows[s.Start] = map[string]zlimit.Quantity{}
			}
			for name, n := range s.Consumed {
				windows[s.Start][name] += n
				totals[name] += n
			}
		}
		want.Windows = len(windows)
		starts := slices.SortedFunc(maps.Keys(windows), time.Time.Compare)
		if len(starts) > 0 {
			want.From, want.To = starts[0], starts[len(starts)-1].AddDate(0, 0, 1)
		}
		for _, name := range slices.Sorted(maps.Keys(totals)) {
			u := zlimit.LimitUsage{Name: name, Total: totals[name], Average: totals[name] / zlimit.Quantity(len(windows)), Peak: -1 << 60}
			for _, start := range starts {
				if n, ok := windows[start][name]; ok && n > u.Peak {
					u.Peak, u.PeakAt = n, start
				}
			}
			want.Limits = append(want.Limits, u)
		}
		got, err := l.Usage.Summary(context.Background(), zlimit.UsageQuery{Resource: resource, Window: zlimit.WindowDaily})
		check.Fatal(t, "Usage.Summary()", err)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("Summary() (-want +got):\n%s", diff)
		}
		for _, u := range want.Limits {
			if found, ok := got.Limit(u.Name); !ok || found != u {
				t.Fatalf("Limit(%s) = %+v, %t, want %+v", u.Name, found, ok, u)
			}
		}
		if _, ok := got.Limit("other"); ok {
			t.Fatal("Limit(other) is there")
		}
	})
}
