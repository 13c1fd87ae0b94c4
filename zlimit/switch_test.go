package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// refuse asks that a request is refused since an operator said so, at once.
func refuse(tb testing.TB, l *zlimit.RateLimiter, r zlimit.Request) {
	tb.Helper()
	_, err := l.Acquire(context.Background(), r)
	var e *zlimit.DisabledError
	if !errors.Is(err, zlimit.ErrDisabled) || !errors.As(err, &e) || e.Resource != r.Resource {
		tb.Fatalf("Acquire() = %v, want ErrDisabled", err)
	}
}

// TestDisable disables an entity, a resource, and an entity for a resource. Another process, whose limits are in memory for a minute,
// refuses the next request, and admits one a second after the level was enabled. A lease from before is settled meanwhile.
func TestDisable(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		for _, at := range []zlimit.Level{{Entity: "key-1"}, {Resource: "gpt-4"}, {Entity: "key-1", Resource: "gpt-4"}} {
			for _, known := range []bool{true, false} {
				ctx := context.Background()
				c := newClock()
				l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
				setSystem(t, l, zlimit.PerMinute("rpm", 60))
				key := keyOfBucket(l)
				write(t, l, store.Write{Kind: store.Delete, Key: key})
				r := ask(zlimit.Amounts{"rpm": 1})
				var lease *zlimit.Lease
				if known {
					lease = acquire(t, other, ask(zlimit.Amounts{"rpm": 2}))
				}
				report, err := l.Limits.Disable(ctx, at, nil)
				if err != nil || known && report.Buckets == 0 || !report.Everywhere.After(c.now()) {
					t.Fatalf("Disable(%v) = %+v, %v", at, report, err)
				}
				refuse(t, l, r)
				refuse(t, other, r)
				refuse(t, other, r)
				if found, err := l.Limits.Resolve(ctx, r.Entity, r.Resource); err != nil || found.DisabledBy != at.Source() {
					t.Errorf("Resolve() = %+v, %v, want it disabled by the level %s", found, err, at.Source())
				}
				for b, err := range l.Entities.Buckets(ctx, r.Entity) {
					if err != nil || !b.Disabled {
						t.Errorf("Buckets() = %+v, %v, want a disabled one", b, err)
					}
				}
				if _, err := other.Available(ctx, zlimit.AvailableQuery{Entity: r.Entity, Resource: r.Resource}); !errors.Is(err, zlimit.ErrDisabled) {
					t.Errorf("Available() = %v", err)
				}
				if known {
					if err := lease.Rollback(ctx); err != nil {
						t.Errorf("a lease from before: %v", err)
					}
					if item, err := layout.ReadState(stored(t, l, key)); err != nil || item.ExpiresAt != 0 || !item.Disabled || item.Limits[0].Consumed != 0 {
						t.Errorf("the item is %+v, %v", item, err)
					}
				}
				c.sleep(48 * time.Hour) // a disabled bucket does not expire
				refuse(t, other, r)
				if _, err := l.Limits.LeaveSwitch(ctx, at, nil); err != nil {
					t.Fatalf("Limits.LeaveSwitch() = %v", err)
				}
				c.sleep(time.Second)
				acquire(t, other, r)
				acquire(t, l, r)
			}
		}
	})
}

// TestMarksBind marks buckets that another process knows. Its plans from the former image fail, a spend and an
// advance alike. The bucket was disabled, enabled again, or is gone.
func TestMarksBind(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	s := newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerMinute("rpm", 60))
	at := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
	for _, later := range []time.Duration{0, 30 * time.Second} { // a spend, an advance
		other := newLimiter(t, s, zlimit.WithClock(c.now))
		check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, at))
		acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
		if _, err := l.Limits.Disable(ctx, at, nil); err != nil {
			t.Fatalf("Limits.Disable() = %v", err)
		}
		first, _ := layout.ReadState(item(t, l))
		if _, err := l.Limits.Enable(ctx, at, nil); err != nil {
			t.Fatalf("Limits.Enable() = %v", err)
		}
		second, _ := layout.ReadState(item(t, l))
		if first.Generation() == 0 || second.Generation() <= first.Generation() || second.Disabled {
			t.Fatalf("generations %d and %d", first.Generation(), second.Generation())
		}
		// The limits change with the mark: the process that has the former ones in memory must not admit by them.
		setLimits(t, l, at, zlimit.PerMinute("rpm", 1))
		if _, err := l.Limits.Enable(ctx, at, nil); err != nil {
			t.Fatalf("Limits.Enable() = %v", err)
		}
		c.sleep(later)
		reject(t, other, ask(zlimit.Amounts{"rpm": 2}))
		if _, err := l.Limits.LeaveSwitch(ctx, at, nil); err != nil {
			t.Fatalf("Limits.LeaveSwitch() = %v", err)
		}
	}
	// A walk does not make items, and a disabled item is not taken from by a stale plan of either kind.
	write(t, l, store.Write{Kind: store.Delete, Key: keyOfBucket(l)})
	if report, err := l.Limits.Enable(ctx, at, nil); err != nil || report.Buckets != 0 || item(t, l) != nil {
		t.Errorf("Enable() of no bucket = %+v, %v", report, err)
	}
}

// TestLimitsLoseNoSwitch changes and deletes the limits of a disabled level, which stays disabled. Another program may
// have disabled the level, or made it, after the level was read.
func TestLimitsLoseNoSwitch(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	at := zlimit.Level{Resource: "gpt-4"}
	key := layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}.Key()
	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, at, limits))
	expect := func(what string, want zlimit.Switch) {
		t.Helper()
		for found, err := range l.Limits.List(ctx, zlimit.LevelQuery{Source: zlimit.SourceResource, Resource: "gpt-4"}) {
			if err != nil || found.Switch != want {
				t.Errorf("%s: %+v, %v, want %q", what, found, err, want)
			}
			return
		}
		t.Errorf("%s: the level is gone", what)
	}
	calls := 0
	during := func(value expr.Value) func(*zlimit.Config) error {
		calls = 0
		return func(c *zlimit.Config) error {
			if calls++; calls == 1 {
				mark(t, l, key, expr.Attribute{Name: "disabled", Value: value})
			}
			c.Limits = append([]zlimit.Limit{}, limits.Limits...)
			return nil
		}
	}
	for _, value := range []expr.Value{expr.Bool(true), expr.Bool(false), expr.Bool(true)} {
		if err := l.Limits.Update(ctx, at, during(value)); err != nil || calls != 2 {
			t.Errorf("Update() beside a switch = %v after %d calls", err, calls)
		}
	}
	expect("update", zlimit.SwitchDisabled)
	check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, at))
	expect("delete", zlimit.SwitchDisabled)
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, at, limits))
	expect("set", zlimit.SwitchDisabled)
	mark(t, l, key, text("disabled", "bypass"))
	put(t, l, key, slices.DeleteFunc(slices.Clone(stored(t, l, key)), func(a expr.Attribute) bool { // as that program makes a level without limits
		return a.Name == "config_version" || strings.HasPrefix(a.Name, "l_")
	}))
	expect("bypass of another program", zlimit.SwitchBypassed)
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, at, limits))
	if v, _ := stored(t, l, key).Lookup("disabled"); v.Text() != "bypass" {
		t.Errorf("the level says %v", v)
	}
	if _, err := l.Limits.Disable(ctx, zlimit.Level{}, nil); !errors.As(err, new(*zlimit.ValidationError)) {
		t.Errorf("Disable() of the system = %v", err)
	}
	if _, err := l.Limits.Disable(ctx, at, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	last := zlimit.AuditEvent{}
	for _, e := range events(t, l, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{Reverse: true, Limit: 1}) {
		last = e
	}
	if last.Details["disabled"] != true || last.Action != zlimit.ActionLimitsSet {
		t.Errorf("the last event is %+v", last)
	}
}

// In TestDisabledParents, a parent is disabled. Requests of its children are refused before anything of them is taken.
func TestDisabledParents(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerMinute("rpm", 60))
	create(t, l, zlimit.Entity{ID: "team"})
	create(t, l, zlimit.Entity{ID: "key-1", ParentID: "team", Cascade: true})
	acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
	if _, err := l.Limits.Disable(ctx, zlimit.Level{Entity: "team"}, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	for range 3 {
		refuse(t, other, ask(zlimit.Amounts{"rpm": 1}))
	}
	if state, err := layout.ReadState(item(t, l)); err != nil || state.Limits[0].Consumed != 1000 {
		t.Errorf("the child's item is %+v, %v", state, err)
	}
}

// TestMarksMeetSplits splits a bucket after it was listed and before its first shard is marked, twice. Each shard is marked.
func TestMarksMeetSplits(t *testing.T) {
	ctx := context.Background()
	for _, at := range []zlimit.Level{{Entity: "key-1"}, {Resource: "gpt-4"}} {
		before := hookBuckets(store.Of(newMemory(t)))
		l, other := newLimiter(t, zlimit.StoreOn(before)), newLimiter(t, zlimit.StoreOn(before.Store))
		setSystem(t, l, zlimit.PerDay("rpd", 1000))
		acquire(t, other, ask(zlimit.Amounts{"rpd": 1}))
		before.once(func() {
			for range 2 {
				for _, s := range storedShards(t, other, "key-1") {
					if done, err := splitAt(ctx, other, "key-1", s); !done || err != nil {
						t.Errorf("shard %d is not split: %v", s.Shard, err)
					}
				}
			}
		})
		report, err := l.Limits.Disable(ctx, at, nil)
		if err != nil || report.Buckets != 4 {
			t.Errorf("Disable(%v) = %+v, %v, want 4 items", at, report, err)
		}
		for _, s := range storedShards(t, l, "key-1") {
			if !s.Disabled {
				t.Errorf("%v: shard %d of %d is served", at, s.Shard, s.Shards)
			}
		}
	}
}

// TestMarkedLimitsBind lowers the limits of a bucket that another process knows, and marks the bucket. The item still has
// the former limits, and so has the memory of the other process. Its next request follows what is stored all the same.
func TestMarkedLimitsBind(t *testing.T) {
	ctx := context.Background()
	at := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
	for _, later := range []time.Duration{0, 30 * time.Second} { // a spend, an advance
		c := newClock()
		s := newMemory(t)
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", 60))
		acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
		setLimits(t, l, at, zlimit.PerMinute("rpm", 1))
		if _, err := l.Limits.Enable(ctx, at, nil); err != nil {
			t.Fatalf("Limits.Enable() = %v", err)
		}
		c.sleep(later)
		reject(t, other, ask(zlimit.Amounts{"rpm": 2}))
	}
}

// In TestDeletionAsksForTheSwitch, another program disables a level just before the level would be deleted. A level
// without a switch of its own keeps the word of that program. A level left to wider levels by an operator goes, and its
// event has its last switch.
func TestDeletionAsksForTheSwitch(t *testing.T) {
	ctx := context.Background()
	at := zlimit.Level{Resource: "gpt-4"}
	m := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(m))
	key := layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}.Key()
	disable := func() { mark(t, l, key, expr.Attribute{Name: "disabled", Value: expr.Bool(true)}) }
	setLimits(t, l, at, zlimit.PerMinute("rpm", 60))
	m.once(disable)
	check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, at))
	if v, _ := stored(t, l, key).Lookup("disabled"); !v.True() {
		t.Errorf("the level that another program has disabled says %v", v)
	}
	if _, err := l.Limits.Enable(ctx, at, nil); err != nil {
		t.Fatalf("Limits.Enable() = %v", err)
	}
	m.once(disable)
	if _, err := l.Limits.LeaveSwitch(ctx, at, nil); err != nil {
		t.Fatalf("Limits.LeaveSwitch() = %v", err)
	}
	list := events(t, l, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{})
	if last := list[len(list)-1]; last.Action != zlimit.ActionLimitsDeleted || last.Details["disabled"] != true {
		t.Errorf("the last event is %+v, want the deletion of a disabled level", last)
	}
}

// TestDisableOfSome disables an entity, and then a resource, among buckets of others. It marks and counts those of the level alone.
func TestDisableOfSome(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace("some"), zlimit.WithSetup())
		setSystem(t, l, zlimit.PerMinute("rpm", 60))
		for _, entity := range []string{"a", "b", "c"} {
			for _, resource := range []string{"x", "y"} {
				acquire(t, l, zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"rpm": 1}})
			}
		}
		for _, test := range []struct {
			at   zlimit.Level
			want int
		}{{zlimit.Level{Entity: "a"}, 2}, {zlimit.Level{Resource: "x"}, 3}} {
			report, err := l.Limits.Disable(t.Context(), test.at, nil)
			if err != nil || report.Buckets != test.want {
				t.Errorf("Disable(%v) = %+v, %v, want %d buckets", test.at, report, err, test.want)
			}
			refuse(t, l, zlimit.Request{Entity: "a", Resource: "x", Consume: zlimit.Amounts{"rpm": 1}})
			acquire(t, l, zlimit.Request{Entity: "b", Resource: "y", Consume: zlimit.Amounts{"rpm": 1}})
		}
	})
}

// late is a store whose scans show what the one before should have shown, unless they are consistent.
type late struct {
	partitioned
	store.Scanner
	seen map[string]store.Page
}

func (s late) Scan(ctx context.Context, q store.Scan) (store.Page, error) {
	page, err := s.Scanner.Scan(ctx, q)
	was, found := s.seen[q.Prefix]
	if s.seen[q.Prefix] = page; found && !q.Consistent {
		return was, nil
	}
	return page, err
}

// TestEndOfASwitchHoldsAtOnce ends a switch by a process that knows the bucket only from requests that were rejected. Its clock stands
// still. Its next request is served.
func TestEndOfASwitchHoldsAtOnce(t *testing.T) {
	pair := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
	for _, at := range []zlimit.Level{pair, {Entity: pair.Entity}, {Resource: pair.Resource}} {
		for name, end := range map[string]func(context.Context, *zlimit.RateLimiter) error{
			"enable": func(ctx context.Context, l *zlimit.RateLimiter) error {
				_, err := l.Limits.Enable(ctx, at, nil)
				return err
			},
			"bypass": func(ctx context.Context, l *zlimit.RateLimiter) error {
				_, err := l.Limits.Bypass(ctx, at, nil)
				return err
			},
		} {
			t.Run(name+" "+at.String(), func(t *testing.T) {
				forEachStore(t, func(t *testing.T, s zlimit.Store) {
					ctx, c := t.Context(), newClock()
					l := newLimiter(t, s, zlimit.WithClock(c.now))
					setSystem(t, l, zlimit.PerMinute("rpm", 100))
					acquire(t, newLimiter(t, s, zlimit.WithClock(c.now)), ask(zlimit.Amounts{"rpm": 1}))
					if _, err := l.Limits.Disable(ctx, at, nil); err != nil {
						t.Fatalf("Limits.Disable() = %v", err)
					}
					for range 2 {
						if _, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1})); !errors.Is(err, zlimit.ErrDisabled) {
							t.Fatalf("Acquire() of what is disabled = %v", err)
						}
					}
					check.Fatal(t, "end()", end(ctx, l))
					acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
				})
			})
		}
	}
}

// TestDisabledAgain disables a resource, serves it again, and disables it at once, when a scan may still show the buckets as they were at
// first. None is left open.
func TestDisabledAgain(t *testing.T) {
	memory := store.Of(newMemory(t))
	s := late{partitioned{memory}, memory.(store.Scanner), map[string]store.Page{}}
	l, other := newLimiter(t, zlimit.StoreOn(s)), newLimiter(t, zlimit.StoreOn(s))
	setSystem(t, l, zlimit.PerMinute("rpm", 100))
	acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
	at := zlimit.Level{Resource: "gpt-4"}
	turn := func(turn func(context.Context, zlimit.Level, func(zlimit.SwitchReport)) (zlimit.SwitchReport, error)) {
		t.Helper()
		if report, err := turn(t.Context(), at, nil); err != nil || report.Buckets != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	turn(l.Limits.Disable)
	turn(l.Limits.Enable)
	acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
	turn(l.Limits.Disable)
	if _, err := other.Acquire(t.Context(), ask(zlimit.Amounts{"rpm": 1})); !errors.Is(err, zlimit.ErrDisabled) {
		t.Errorf("Acquire() of a disabled resource = %v", err)
	}
}
