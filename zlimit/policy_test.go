package zlimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A down store answers nothing while it is down.
type down struct {
	store.Store
	is    atomic.Bool
	calls atomic.Int64
	read  chan chan struct{} // if not nil, each read says when the store was asked, and goes on when its channel is closed
}

func (d *down) err(op string) error {
	d.calls.Add(1)
	if d.is.Load() {
		return &store.Error{Op: op, Unavailable: true, Err: errors.New("no route")}
	}
	return nil
}

func (d *down) Setup(ctx context.Context) error {
	if err := d.err("setup"); err != nil {
		return err
	}
	return d.Store.Setup(ctx)
}

func (d *down) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if err := d.err("read"); err != nil {
		return nil, err
	}
	items, err := d.Store.Read(ctx, keys, consistent)
	if d.read != nil {
		goOn := make(chan struct{})
		d.read <- goOn
		<-goOn
	}
	return items, err
}

func (d *down) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := d.err("query"); err != nil {
		return store.Page{}, err
	}
	return d.Store.Query(ctx, q)
}

func (d *down) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := d.err("write"); err != nil {
		return store.Result{}, err
	}
	return d.Store.Write(ctx, w)
}

func (d *down) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	if err := d.err("transact"); err != nil {
		return nil, err
	}
	return d.Store.Transact(ctx, writes)
}

// TestPolicyOfLevels goes through all failure policies at all levels: that of the request is first, then the entity's for
// the resource, the entity's, the resource's, the system's, and the option is last.
func TestPolicyOfLevels(t *testing.T) {
	ctx := context.Background()
	policies := []FailurePolicy{Inherit, Block, Allow}
	for n := range 3 * 3 * 3 * 3 * 3 * 3 {
		var at [6]FailurePolicy // in order of precedence
		want := Block
		for i, rest := 0, n; i < len(at); i, rest = i+1, rest/3 {
			at[i] = policies[rest%3]
		}
		for i := len(at) - 1; i >= 0; i-- {
			if at[i] != Inherit {
				want = at[i]
			}
		}
		d := &down{Store: newMemory(t).impl}
		l := newLimiter(t, Store{impl: d}, WithFailurePolicy(at[5]))
		limits := []Limit{PerDay("rpd", 9)}
		err := errors.Join(
			l.Limits.SetSystem(ctx, SystemConfig{Limits: limits, OnUnavailable: at[4]}),
			setIf(at[3], func(c LevelConfig) error { return l.Limits.SetResourceConfig(ctx, "gpt-4", c) }),
			setIf(at[2], func(c LevelConfig) error { return l.Limits.SetEntityConfig(ctx, "key-1", DefaultResource, c) }),
			setIf(at[1], func(c LevelConfig) error { return l.Limits.SetEntityConfig(ctx, "key-1", "gpt-4", c) }),
		)
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, l, ask(Amounts{"rpd": 1}))
		if found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || found.Source != SourceSystem {
			t.Fatalf("%v: Resolve() = %+v, %v, want the limits of the system", at, found, err)
		}
		d.is.Store(true)
		r := ask(Amounts{"rpd": 1})
		r.OnUnavailable = at[0]
		lease, err := l.Acquire(ctx, r)
		var outage *UnavailableError
		switch {
		case want == Allow && (err != nil || !lease.Degraded()):
			t.Errorf("%v: Acquire() = %v, want a degraded lease", at, err)
		case want != Allow && !errors.As(err, &outage):
			t.Errorf("%v: Acquire() = %v, want an UnavailableError", at, err)
		}
	}
}

// setIf stores a policy without limits, unless it is Inherit.
func setIf(p FailurePolicy, set func(LevelConfig) error) error {
	if p == Inherit {
		return nil
	}
	return set(LevelConfig{OnUnavailable: p})
}

// TestPolicyReachesOthers has another process read the policies of a table, without a change of its own.
func TestPolicyReachesOthers(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	l := newLimiter(t, s)
	setSystem(t, l, PerDay("rpd", 9))
	if err := l.Limits.SetEntityConfig(ctx, "key-1", DefaultResource, LevelConfig{OnUnavailable: Allow}); err != nil {
		t.Fatal(err)
	}
	d := &down{Store: s.impl}
	other := newLimiter(t, Store{impl: d})
	acquire(t, other, ask(Amounts{"rpd": 1}))
	d.is.Store(true)
	if lease, err := other.Acquire(ctx, ask(Amounts{"rpd": 1})); err != nil || !lease.Degraded() {
		t.Errorf("Acquire() = %v, want a degraded lease", err)
	}
	r := ask(Amounts{"rpd": 1})
	r.Entity = "key-2"
	if _, err := other.Acquire(ctx, r); !errors.As(err, new(*UnavailableError)) {
		t.Errorf("Acquire() of another entity = %v, want an UnavailableError", err)
	}
}

func TestLevelConfigs(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		limits, others := []Limit{PerDay("rpd", 9)}, []Limit{PerDay("rpd", 8)}
		for name, at := range map[string]struct {
			set       func(LevelConfig) error
			get       func() (LevelConfig, error)
			setLimits func([]Limit) error
			remove    func() error
		}{
			"resource": {
				func(c LevelConfig) error { return l.Limits.SetResourceConfig(ctx, "r", c) },
				func() (LevelConfig, error) { return l.Limits.ResourceConfig(ctx, "r") },
				func(limits []Limit) error { return l.Limits.SetResource(ctx, "r", limits) },
				func() error { return l.Limits.DeleteResource(ctx, "r") },
			},
			"entity": {
				func(c LevelConfig) error { return l.Limits.SetEntityConfig(ctx, "e", "r", c) },
				func() (LevelConfig, error) { return l.Limits.EntityConfig(ctx, "e", "r") },
				func(limits []Limit) error { return l.Limits.SetEntity(ctx, "e", "r", limits) },
				func() error { return l.Limits.DeleteEntity(ctx, "e", "r") },
			},
			"entity, every resource": {
				func(c LevelConfig) error { return l.Limits.SetEntityConfig(ctx, "e", DefaultResource, c) },
				func() (LevelConfig, error) { return l.Limits.EntityConfig(ctx, "e", DefaultResource) },
				func(limits []Limit) error { return l.Limits.SetEntity(ctx, "e", DefaultResource, limits) },
				func() error { return l.Limits.DeleteEntity(ctx, "e", DefaultResource) },
			},
		} {
			check := func(step string, err error, want LevelConfig) {
				t.Helper()
				got, getErr := at.get()
				if diff := cmp.Diff(want, got); err != nil || getErr != nil || diff != "" {
					t.Errorf("%s: %s = %v, %v (-want +got):\n%s", name, step, err, getErr, diff)
				}
			}
			check("nothing", nil, LevelConfig{Limits: []Limit{}})
			check("a policy alone", at.set(LevelConfig{OnUnavailable: Allow}), LevelConfig{[]Limit{}, Allow})
			check("limits beside it", at.setLimits(limits), LevelConfig{limits, Allow})
			check("both anew", at.set(LevelConfig{others, Block}), LevelConfig{others, Block})
			check("limits alone", at.set(LevelConfig{Limits: limits}), LevelConfig{limits, Inherit})
			check("deletion", at.remove(), LevelConfig{Limits: []Limit{}})

			for _, bad := range []LevelConfig{{}, {limits, 9}, {[]Limit{{Name: "a"}}, Allow}} {
				var invalid *ValidationError
				if err := at.set(bad); !errors.As(err, &invalid) {
					t.Errorf("%s: set %+v = %v, want a ValidationError", name, bad, err)
				}
			}
		}
		last := events(t, l, AuditResource("r"), AuditQuery{Limit: 1})[0]
		want := map[string]any{"config_version": int64(1), "limits": []any{}, "on_unavailable": "allow"}
		if diff := cmp.Diff(want, last.Details); diff != "" {
			t.Errorf("the first event (-want +got):\n%s", diff)
		}
	})
}

// TestApplyLeavesPolicies declares limits of a resource that has a failure policy.
func TestApplyLeavesPolicies(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	apply := func(n int64) {
		t.Helper()
		if _, err := l.Limits.Apply(ctx, Declaration{"r", []Limit{PerDay("rpd", n)}}); err != nil {
			t.Fatal(err)
		}
	}
	apply(1)
	declared, err := l.Limits.ResourceConfig(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	declared.OnUnavailable = Allow
	if err := l.Limits.SetResourceConfig(ctx, "r", declared); err != nil {
		t.Fatal(err)
	}
	if err := l.Limits.DeleteResource(ctx, "r"); err != nil {
		t.Fatal(err)
	}
	if err := l.Limits.SetResourceConfig(ctx, "r", LevelConfig{OnUnavailable: Allow}); err != nil {
		t.Fatal(err)
	}
	applied, err := l.Limits.Apply(ctx, Declaration{"r", []Limit{PerDay("rpd", 2)}})
	if err != nil || len(applied.Kept) != 1 { // somebody else has set what is there
		t.Errorf("Apply() = %+v, %v, want it kept", applied, err)
	}
}

func TestDefaultLimits(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	c := newClock()
	l := newLimiter(t, s, WithClock(c.now), WithDefaultLimits(PerDay("rpd", 3), PerMinute("rpm", 2)))
	acquire(t, l, ask(Amounts{"rpd": 1, "rpm": 2}))
	reject(t, l, ask(Amounts{"rpm": 1}))
	found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
	want := Resolved{Limits: []Limit{PerDay("rpd", 3), PerMinute("rpm", 2)}, Source: SourceDefault}
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Errorf("Resolve() = %v (-want +got):\n%s", err, diff)
	}
	if shards := shardsOf(t, l); shards[0].ExpiresAt == 0 {
		t.Errorf("the bucket is %+v, want it to expire, since the limits are not its own", shards[0])
	}
	setSystem(t, l, PerDay("rpd", 50)) // any stored limits come first, as a whole
	if found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || found.Source != SourceSystem || len(found.Limits) != 1 {
		t.Errorf("Resolve() = %+v, %v, want the limits of the system", found, err)
	}
	if err := l.Limits.DeleteSystem(ctx); err != nil {
		t.Fatal(err)
	}
	create(t, l, Entity{ID: "p"})
	create(t, l, Entity{ID: "e", ParentID: "p", Cascade: true})
	acquire(t, l, Request{Entity: "e", Resource: "r", Consume: Amounts{"rpd": 2}})
	if all, err := l.AvailableWithParents(ctx, "e", "r"); err != nil || len(all) != 4 || all[2].Entity != "p" || all[2].Available != 1 {
		t.Errorf("AvailableWithParents() = %+v, %v, want the parent charged by the default limits", all, err)
	}
	for _, bad := range [][]Limit{{{Name: "a"}}, {PerDay("a", 1), PerDay("a", 2)}, {PerDay("wcu", 1)}} {
		var invalid *ValidationError
		if _, err := New(ctx, s, WithDefaultLimits(bad...)); !errors.As(err, &invalid) {
			t.Errorf("New() with default limits %v = %v, want a ValidationError", bad, err)
		}
	}
}

func TestAvailableWithParents(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		ctx := context.Background()
		l := newLimiter(t, s, WithClock(newClock().now))
		create(t, l, Entity{ID: "org"})
		create(t, l, Entity{ID: "team", ParentID: "org", Cascade: true})
		create(t, l, Entity{ID: "key", ParentID: "team", Cascade: true})
		create(t, l, Entity{ID: "loose", ParentID: "team"})
		for i, e := range []string{"org", "team", "key", "loose"} {
			if err := l.Limits.SetEntity(ctx, e, "r", []Limit{PerDay("rpd", int64(100-10*i))}); err != nil {
				t.Fatal(err)
			}
		}
		acquire(t, l, Request{Entity: "key", Resource: "r", Consume: Amounts{"rpd": 7}})
		fresh := newLimiter(t, s, WithClock(newClock().now))
		for entity, want := range map[string][]string{
			"key": {"key 73", "team 83", "org 93"}, "team": {"team 83", "org 93"}, "org": {"org 93"}, "loose": {"loose 70"},
		} {
			all, err := fresh.AvailableWithParents(ctx, entity, "r")
			var got []string
			for _, s := range all {
				got = append(got, fmt.Sprint(s.Entity, " ", s.Available))
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("AvailableWithParents(%s) = %v (-want +got):\n%s", entity, err, diff)
			}
		}
		var invalid *ValidationError
		if _, err := l.AvailableWithParents(ctx, "#", "r"); !errors.As(err, &invalid) {
			t.Errorf("AvailableWithParents() of a bad name = %v, want a ValidationError", err)
		}
		if _, err := l.AvailableWithParents(ctx, "key", "other"); !errors.Is(err, ErrNoLimits) {
			t.Errorf("AvailableWithParents() without limits = %v, want ErrNoLimits", err)
		}
	})
}

// TestInvalidateOne forgets the limits of one bucket, and those of others stay in memory.
func TestInvalidateOne(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	d := &down{Store: s.impl}
	l, other := newLimiter(t, Store{impl: d}), newLimiter(t, s)
	set := func(n int64) {
		t.Helper()
		for _, e := range []string{"a", "b"} {
			if err := other.Limits.SetEntity(ctx, e, "r", []Limit{PerDay("rpd", n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	capacity := func(entity string) int64 {
		t.Helper()
		found, err := l.Limits.Resolve(ctx, entity, "r")
		if err != nil {
			t.Fatal(err)
		}
		return found.Limits[0].Capacity
	}
	set(1)
	if a, b := capacity("a"), capacity("b"); a != 1 || b != 1 {
		t.Fatalf("capacities %d and %d, want 1", a, b)
	}
	set(2)
	l.Limits.Invalidate("a", "r")
	calls := d.calls.Load()
	if a, b := capacity("a"), capacity("b"); a != 2 || b != 1 {
		t.Errorf("capacities %d and %d, want 2 of the one that was forgotten, and 1", a, b)
	}
	if got := d.calls.Load() - calls; got != 1 {
		t.Errorf("%d reads, want 1", got)
	}
	l.Limits.InvalidateAll()
	if a, b := capacity("a"), capacity("b"); a != 2 || b != 2 {
		t.Errorf("capacities %d and %d, want 2", a, b)
	}
}

// TestInvalidateDuringARead forgets limits while they are read: what was read before is not what holds afterwards.
func TestInvalidateDuringARead(t *testing.T) {
	for name, forget := range map[string]func(*RateLimiter){
		"one": func(l *RateLimiter) { l.Limits.Invalidate("key-1", "gpt-4") },
		"all": func(l *RateLimiter) { l.Limits.InvalidateAll() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := newMemory(t)
			d := &down{Store: s.impl}
			l, other := newLimiter(t, Store{impl: d}), newLimiter(t, s)
			setSystem(t, other, PerDay("rpd", 1))
			d.read = make(chan chan struct{})
			old := make(chan error, 1)
			go func() {
				_, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
				old <- err
			}()
			first := <-d.read
			setSystem(t, other, PerDay("rpd", 2))
			forget(l)
			found := make(chan Resolved, 1)
			go func() {
				r, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
				if err != nil {
					t.Error(err)
				}
				found <- r
			}()
			select {
			case second := <-d.read: // it is read again
				close(first)
				if err := <-old; err != nil { // and what was read first has been remembered, or not
					t.Error(err)
				}
				close(second)
			case <-time.After(100 * time.Millisecond):
				close(first)
				t.Error("Resolve() waits for a read that began before the limits were forgotten")
			}
			if r := <-found; r.Limits[0].Capacity != 2 {
				t.Errorf("Resolve() = %v, want what was stored when the limits were forgotten", r.Limits)
			}
			d.read = nil
			if r, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || r.Limits[0].Capacity != 2 {
				t.Errorf("Resolve() = %v, %v, want what was stored when the limits were forgotten", r.Limits, err)
			}
		})
	}
}

// TestCacheSizeCountsBuckets remembers as many buckets as the option says, with everything that was read for them.
func TestCacheSizeCountsBuckets(t *testing.T) {
	const buckets = 64
	ctx := context.Background()
	d := &down{Store: newMemory(t).impl}
	l := newLimiter(t, Store{impl: d}, WithCacheSize(buckets))
	setSystem(t, l, PerDay("rpd", 100))
	use := func() {
		for i := range buckets {
			if _, err := l.Limits.Resolve(ctx, fmt.Sprint("e", i), fmt.Sprint("r", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	use()
	l.generation.Add(1) // as a change of other limits does: what is in memory is put together again
	calls := d.calls.Load()
	use()
	if got := d.calls.Load() - calls; got != 0 {
		t.Errorf("%d reads for %d buckets that are remembered, want none", got, buckets)
	}
}
