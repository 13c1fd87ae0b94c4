package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestLevels(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		limitsOf := func(n int64) []zlimit.Limit {
			return []zlimit.Limit{zlimit.PerDay("rpd", n, zlimit.Burst(2*n)), zlimit.PerMinute("rpm", n)}
		}
		expect := func(n int64, source zlimit.Source) {
			t.Helper()
			got, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
			if n == 0 {
				if !errors.Is(err, zlimit.ErrNoLimits) {
					t.Fatalf("Resolve() = %v, %v, want ErrNoLimits", got, err)
				}
				return
			}
			want := zlimit.Resolved{Limits: limitsOf(n), Source: source, OnUnavailable: zlimit.PolicyAllow}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Fatalf("Resolve() = %v (-want +got):\n%s", err, diff)
			}
		}
		expect(0, "")
		if _, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1})); !errors.Is(err, zlimit.ErrNoLimits) {
			t.Errorf("Acquire() = %v, want ErrNoLimits", err)
		}
		empty, err := l.Limits.Get(ctx, zlimit.Level{})
		if diff := cmp.Diff(zlimit.Config{Limits: []zlimit.Limit{}}, empty); err != nil || diff != "" {
			t.Errorf("Get() = %v (-want +got):\n%s", err, diff)
		}
		for n, step := range []struct {
			at     zlimit.Level
			source zlimit.Source
		}{
			{zlimit.Level{}, zlimit.SourceSystem},
			{zlimit.Level{Resource: "gpt-4"}, zlimit.SourceResource},
			{zlimit.Level{Entity: "key-1"}, zlimit.SourceEntityDefault},
			{zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, zlimit.SourceEntity},
		} {
			for _, limits := range [][]zlimit.Limit{limitsOf(9), limitsOf(int64(n + 1))} { // set, and set again
				config := zlimit.Config{Limits: limits}
				if n == 0 {
					config.OnUnavailable = zlimit.PolicyAllow
				}
				if err := l.Limits.Set(ctx, step.at, config); err != nil {
					t.Fatalf("Set(%v) = %v", step.at, err)
				}
			}
			if got, err := l.Limits.Get(ctx, step.at); err != nil || len(got.Limits) != 2 {
				t.Errorf("Get(%v) = %v, %v, want two limits", step.at, got, err)
			}
			expect(int64(n+1), step.source)
		}
		for _, test := range []struct {
			query zlimit.LevelQuery
			want  []string
		}{
			{zlimit.LevelQuery{}, []string{"system", "resource gpt-4", "entity key-1", "entity key-1, resource gpt-4"}},
			{zlimit.LevelQuery{Source: zlimit.SourceSystem}, []string{"system"}},
			{zlimit.LevelQuery{Source: zlimit.SourceResource}, []string{"resource gpt-4"}},
			{zlimit.LevelQuery{Source: zlimit.SourceEntityDefault}, []string{"entity key-1"}},
			{zlimit.LevelQuery{Source: zlimit.SourceEntity}, []string{"entity key-1, resource gpt-4"}},
			{zlimit.LevelQuery{Resource: "gpt-4"}, []string{"resource gpt-4", "entity key-1, resource gpt-4"}},
			{zlimit.LevelQuery{Source: zlimit.SourceEntity, Resource: "gpt-4"}, []string{"entity key-1, resource gpt-4"}},
			{zlimit.LevelQuery{Entity: "key-1"}, []string{"entity key-1", "entity key-1, resource gpt-4"}},
			{zlimit.LevelQuery{Entity: "key-1", Resource: "gpt-4"}, []string{"entity key-1, resource gpt-4"}},
			{zlimit.LevelQuery{Source: zlimit.SourceEntityDefault, Entity: "key-1"}, []string{"entity key-1"}},
			{zlimit.LevelQuery{Source: zlimit.SourceEntity, Entity: "key-1"}, []string{"entity key-1, resource gpt-4"}},
			{zlimit.LevelQuery{Entity: "key-2"}, nil},
			{zlimit.LevelQuery{Resource: "gpt-5"}, nil},
			{zlimit.LevelQuery{Source: zlimit.SourceSystem, Resource: "gpt-4"}, nil},
			{zlimit.LevelQuery{Source: zlimit.SourceResource, Entity: "key-1"}, nil},
			{zlimit.LevelQuery{Source: zlimit.SourceEntityDefault, Resource: "gpt-4"}, nil},
		} {
			checkLevels(t, l, test.query, test.want...)
		}
		for n, remove := range []func() error{
			func() error { return l.Limits.Delete(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}) },
			func() error { return l.Limits.Delete(ctx, zlimit.Level{Entity: "key-1"}) },
			func() error { return l.Limits.Delete(ctx, zlimit.Level{Resource: "gpt-4"}) },
		} {
			check.Error(t, "deleting, and deleting again", errors.Join(remove(), remove()))
			expect(int64(3-n), []zlimit.Source{zlimit.SourceEntityDefault, zlimit.SourceResource, zlimit.SourceSystem}[n])
		}
		check.Error(t, "Delete()", l.Limits.Delete(ctx, zlimit.Level{}))
		expect(0, "")
		checkLevels(t, l, zlimit.LevelQuery{})
		checkLevels(t, l, zlimit.LevelQuery{Resource: "gpt-4"})
	})
}

// checkLevels checks which levels a list yields, and that each is what Get returns; a list of names has neither config
// nor version.
func checkLevels(t *testing.T, l *zlimit.RateLimiter, q zlimit.LevelQuery, want ...string) {
	t.Helper()
	enginetest.CatchUp()
	for _, q.NamesOnly = range []bool{false, true} {
		var got []string
		for stored, err := range l.Limits.List(context.Background(), q) {
			if err != nil {
				t.Errorf("List(%+v) yields %v", q, err)
				return
			}
			got = append(got, stored.Level.String())
			config, err := l.Limits.Get(context.Background(), stored.Level)
			if q.NamesOnly {
				config = zlimit.Config{}
			}
			if diff := cmp.Diff(config, stored.Config); err != nil || diff != "" || (stored.Version > 0) == q.NamesOnly {
				t.Errorf("List(%+v) has version %d of %v, %v (-want +got):\n%s", q, stored.Version, stored.Level, err, diff)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("List(%+v) = %q, want %q", q, got, want)
		}
	}
}

// TestManyEntitiesWithLimits pages through an index.
func TestManyEntitiesWithLimits(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	var want []string
	for i := range 300 {
		entity := fmt.Sprintf("key-%03d", i)
		want = append(want, "entity "+entity+", resource gpt-4")
		setLimits(t, l, zlimit.Level{Entity: entity, Resource: "gpt-4"}, zlimit.PerDay("rpd", 1))
	}
	checkLevels(t, l, zlimit.LevelQuery{Resource: "gpt-4"}, want...)
	for stored := range l.Limits.List(context.Background(), zlimit.LevelQuery{Resource: "gpt-4"}) {
		if stored.Level.Entity != "key-000" {
			t.Errorf("the loop went on to %v", stored.Level)
		}
		break
	}
}

func TestLimitsValidation(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	for name, err := range map[string]error{
		"no limits for a resource":        l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: nil}),
		"no limits for an entity":         l.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, zlimit.Config{Limits: nil}),
		"a period of milliseconds":        l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{{Name: "rpm", Capacity: 1, RefillAmount: 1, RefillPeriod: 1500 * time.Millisecond}}}),
		"a capacity of nothing":           l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1, zlimit.Burst(0))}}),
		"a rate of nothing":               l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 0)}}),
		"a capacity that overflows":       l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", zlimit.MaxTokens+1)}}),
		"the reserved limit":              l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("wcu", 1)}}),
		"a limit named like an attribute": l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("window", 1)}}),
		"a limit twice":                   l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1), zlimit.PerDay("rpm", 1)}}),
		"too many limits":                 l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: make([]zlimit.Limit, zlimit.MaxLimits+1)}),
		"a policy that does not exist":    l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{OnUnavailable: 7}),
		"a bad resource":                  l.Limits.Delete(ctx, zlimit.Level{Resource: "#"}),
		"a bad entity":                    l.Limits.Delete(ctx, zlimit.Level{Entity: "#", Resource: "gpt-4"}),
		"the resource of entity defaults": l.Limits.Delete(ctx, zlimit.Level{Entity: "key-1", Resource: zlimit.DefaultResource}),
	} {
		if !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: %v, want a ValidationError", name, err)
		}
	}
	if c, err := l.Limits.Get(ctx, zlimit.Level{}); err != nil || len(c.Limits) > 0 {
		t.Errorf("Get() = %+v, %v after refusals, want none", c, err)
	}
}

// TestLimitChangesReachBuckets changes limits through one limiter and looks through another, within and past its config
// TTL (I8).
func TestLimitChangesReachBuckets(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("rpm", 100))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 10}))
		acquire(t, other, ask(zlimit.Amounts{"rpm": 10}))
		if got := item(t, l).Get("ttl"); got.Kind() != expr.KindN {
			t.Error("a bucket with default limits has no time of expiry")
		}

		setSystem(t, other, zlimit.PerDay("rpm", 50), zlimit.PerDay("tpm", 1000))
		acquire(t, other, ask(zlimit.Amounts{"rpm": 1, "tpm": 100})) // at once where it was changed
		if got := limit(t, l, "rpm"); got.Tokens != 49_000 || got.Capacity != 50_000 || got.Consumed != 21_000 {
			t.Errorf("rpm = %+v, want 49000 of 50000, 21000 consumed", got)
		}
		if got := limit(t, l, "tpm"); got.Tokens != 900_000 || got.Consumed != 100_000 {
			t.Errorf("tpm = %+v, want 900000", got)
		}

		c.sleep(time.Minute)
		acquire(t, l, ask(zlimit.Amounts{"tpm": 100})) // the other one has seen it by now
		if got := limit(t, l, "tpm"); got.Consumed != 200_000 {
			t.Errorf("tpm = %+v, want 200000 consumed", got)
		}

		setLimits(t, other, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, zlimit.PerDay("tpm", 2000))
		acquire(t, other, ask(zlimit.Amounts{"tpm": 1}))
		if got := item(t, l); got.Get("b_rpm_tk").Kind() != expr.KindNone || got.Get("ttl").Kind() != expr.KindNone {
			t.Errorf("the item %v still has rpm, or expires", got)
		}
		if _, err := other.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1})); err == nil {
			t.Error("a limit that was removed is still there")
		}
	})
}

// TestOldMemoryDoesNotTurnAChangeBack lets a process with old limits meet an item that has new ones.
func TestOldMemoryDoesNotTurnAChangeBack(t *testing.T) {
	s := newMemory(t)
	c := newClock()
	l, old := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpm", 100))
	acquire(t, old, ask(zlimit.Amounts{"rpm": 1}))
	c.sleep(2 * time.Second)
	setSystem(t, l, zlimit.PerDay("rpm", 10))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	acquire(t, old, ask(zlimit.Amounts{"rpm": 1}))
	if got := limit(t, l, "rpm"); got.Capacity != 10_000 || got.Tokens != 8_000 {
		t.Errorf("rpm = %+v, want 8000 of 10000", got)
	}
}

func TestConfigCache(t *testing.T) {
	s, faults := newTable(t)
	c := newClock()
	l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithConfigTTL(10*time.Second))
	setSystem(t, l, zlimit.PerDay("rpm", 1000))
	enginetest.CatchUp()
	l.Limits.InvalidateAll()

	faults.Reset()
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() { acquire(t, l, ask(zlimit.Amounts{"rpm": 1})) })
	}
	group.Wait()
	if got := faults.Calls("BatchGetItem"); got != 1 {
		t.Errorf("32 concurrent misses made %d reads, want 1", got)
	}

	reads := func(elapsed time.Duration) int {
		c.sleep(elapsed)
		faults.Reset()
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); { // a refresh is in the background
			if elapsed < 8*time.Second || l.LimitsReadAt("key-1", "gpt-4").Equal(c.now()) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		return faults.Calls("BatchGetItem")
	}
	for _, test := range []struct {
		elapsed time.Duration
		want    int
	}{{7 * time.Second, 0}, {9 * time.Second, 1}, {8 * time.Second, 1}, {time.Second, 0}, {time.Hour, 1}} {
		if got := reads(test.elapsed); got != test.want {
			t.Errorf("%v later %d reads, want %d", test.elapsed, got, test.want)
		}
	}
	if stats := l.Limits.CacheStats(); stats.Hits == 0 || stats.Misses == 0 || stats.Entries != 5 {
		t.Errorf("CacheStats() = %+v", stats)
	}

	off := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithConfigTTL(0))
	acquire(t, off, ask(zlimit.Amounts{"rpm": 1}))
	setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, zlimit.PerDay("rpm", 5))
	acquire(t, off, ask(zlimit.Amounts{"rpm": 1}))
	if got := limit(t, l, "rpm").Capacity; got != 5000 {
		t.Errorf("without a cache the capacity is %d after the change, want 5000", got)
	}
}

// TestTablesOfOthers reads items of other implementations of the layout. They have burst limits, and attributes
// unknown to zlimit, which survive its writes.
func TestTablesOfOthers(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		write := func(w store.Write) {
			t.Helper()
			write(t, l, w)
		}
		config := layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}
		number := func(name string, n int64) expr.Attribute { return expr.Attribute{Name: name, Value: expr.N(n)} }
		write(store.Write{Kind: store.Put, Key: config.Key(), Item: expr.Item{
			{Name: "resource", Value: expr.S("gpt-4")},
			number("l_my_limit_cp", 100), number("l_my_limit_bx", 150),
			number("l_my_limit_ra", 100), number("l_my_limit_rp", 60), number("config_version", 7),
			{Name: "note", Value: expr.S("keep me")},
		}})
		want := []zlimit.Limit{zlimit.PerMinute("my_limit", 100, zlimit.Burst(150))}
		if got, err := l.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"}); err != nil || !cmp.Equal(got.Limits, want) {
			t.Errorf("Get() = %v, %v, want %v", got, err, want)
		}
		setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, want...)
		if got := stored(t, l, config.Key()); got.Get("note").Text() != "keep me" || got.Get("l_my_limit_bx").Kind() != expr.KindNone ||
			!got.Get("config_version").Equal(expr.N(8)) || !got.Get("l_my_limit_cp").Equal(expr.N(150)) {
			t.Errorf("the config is now %v", got)
		}

		r := ask(zlimit.Amounts{"my_limit": 1})
		acquire(t, l, r)
		update := item(t, l).Clone()
		update.Set("note", expr.S("keep me"))
		update.Remove(store.PK)
		update.Remove(store.SK)
		write(store.Write{Kind: store.Put, Key: layout.BucketKey{NS: l.NS(), Entity: r.Entity, Resource: r.Resource}.Key(), Item: update})
		acquire(t, newLimiter(t, s, zlimit.WithFreshness(0)), r)
		if got := item(t, l); got.Get("note").Text() != "keep me" || !got.Get("b_my_limit_tc").Equal(expr.N(2000)) {
			t.Errorf("the bucket is now %v", got)
		}
	})
}

// TestExpiredBucketsGo creates buckets that are not used again: what a store without an expiry of its own keeps of them
// is bounded.
func TestExpiredBucketsGo(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithTuning(zlimit.Tuning{BucketTTL: 1}))
	setSystem(t, l, zlimit.PerSecond("rpm", 1))
	var keys []store.Key
	for i := range 300 {
		r := zlimit.Request{Entity: fmt.Sprintf("key-%d", i), Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}
		acquire(t, l, r)
		keys = append(keys, layout.BucketKey{NS: l.NS(), Entity: r.Entity, Resource: r.Resource}.Key())
		c.sleep(100 * time.Millisecond)
	}
	kept := 0
	for page := range slices.Chunk(keys, 100) {
		items := check.Call(l.Calls().Read(ctx, page, true)).Must(t, "Read()")
		for _, item := range items {
			if item != nil {
				kept++
			}
		}
	}
	if kept < 10 || kept > 100 { // those of the last seconds are not expired
		t.Errorf("%d of 300 buckets are kept, want those of the last seconds and few more", kept)
	}
}
