package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A down store answers nothing while it is down.
type down struct {
	store.Around
	is    atomic.Bool
	calls atomic.Int64
	wrote atomic.Int64       // calls that write
	read  chan chan struct{} // if not nil, each read says when the store was asked, and goes on when its channel is closed
}

func (d *down) err(op string) error {
	d.calls.Add(1)
	if op == "write" || op == "transact" {
		d.wrote.Add(1)
	}
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

func newDown(s store.Store) *down {
	d := &down{}
	d.Around = store.Around{Store: s, Call: func(ctx context.Context, c *store.Call, do func(context.Context) error) error {
		if err := d.err(c.Operation); err != nil {
			return err
		}
		err := do(ctx)
		if c.Operation == "read" && d.read != nil {
			goOn := make(chan struct{})
			d.read <- goOn
			<-goOn
		}
		return err
	}}
	return d
}

// TestPolicyOfLevels goes through all failure policies at all levels. That of the request is first, then come the
// entity's for the resource, the entity's, the resource's and the system's. The option is last.
func TestPolicyOfLevels(t *testing.T) {
	ctx := context.Background()
	policies := []zlimit.FailurePolicy{zlimit.PolicyInherit, zlimit.PolicyBlock, zlimit.PolicyAllow}
	for n := range 3 * 3 * 3 * 3 * 3 * 3 {
		var at [6]zlimit.FailurePolicy // in order of precedence
		want := zlimit.PolicyBlock
		for i, rest := 0, n; i < len(at); i, rest = i+1, rest/3 {
			at[i] = policies[rest%3]
		}
		for i := len(at) - 1; i >= 0; i-- {
			if at[i] != zlimit.PolicyInherit {
				want = at[i]
			}
		}
		d := newDown(store.Of(newMemory(t)))
		l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(at[5]))
		limits := []zlimit.Limit{zlimit.PerDay("rpd", 9)}
		err := errors.Join(
			l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits, OnUnavailable: at[4]}),
			setIf(at[3], func(c zlimit.Config) error { return l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, c) }),
			setIf(at[2], func(c zlimit.Config) error {
				return l.Limits.Set(ctx, zlimit.Level{Entity: "key-1"}, c)
			}),
			setIf(at[1], func(c zlimit.Config) error {
				return l.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, c)
			}),
		)
		check.Fatal(t, "Limits.Set() and setIf() and setIf() and setIf()", err)
		acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
		if found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || found.Source != zlimit.SourceSystem {
			t.Fatalf("%v: Resolve() = %+v, %v, want the limits of the system", at, found, err)
		}
		d.is.Store(true)
		r := ask(zlimit.Amounts{"rpd": 1})
		r.OnUnavailable = at[0]
		lease, err := l.Acquire(ctx, r)
		switch {
		case want == zlimit.PolicyAllow && (err != nil || !lease.Degraded()):
			t.Errorf("%v: Acquire() = %v, want a degraded lease", at, err)
		case want != zlimit.PolicyAllow && !errors.As(err, new(*zlimit.UnavailableError)):
			t.Errorf("%v: Acquire() = %v, want an UnavailableError", at, err)
		}
	}
}

// setIf stores a policy without limits, unless it is Inherit.
func setIf(p zlimit.FailurePolicy, set func(zlimit.Config) error) error {
	if p == zlimit.PolicyInherit {
		return nil
	}
	return set(zlimit.Config{OnUnavailable: p})
}

// TestPolicyReachesOthers lets another process read the policies of a table, without a change of its own.
func TestPolicyReachesOthers(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	l := newLimiter(t, s)
	setSystem(t, l, zlimit.PerDay("rpd", 9))
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Entity: "key-1"}, zlimit.Config{OnUnavailable: zlimit.PolicyAllow}))
	d := newDown(store.Of(s))
	other := newLimiter(t, zlimit.StoreOn(d))
	acquire(t, other, ask(zlimit.Amounts{"rpd": 1}))
	d.is.Store(true)
	if lease, err := other.Acquire(ctx, ask(zlimit.Amounts{"rpd": 1})); err != nil || !lease.Degraded() {
		t.Errorf("Acquire() = %v, want a degraded lease", err)
	}
	r := ask(zlimit.Amounts{"rpd": 1})
	r.Entity = "key-2"
	if _, err := other.Acquire(ctx, r); !errors.As(err, new(*zlimit.UnavailableError)) {
		t.Errorf("Acquire() of another entity = %v, want an UnavailableError", err)
	}
}

func TestLevelConfigs(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		limits, others := []zlimit.Limit{zlimit.PerDay("rpd", 9)}, []zlimit.Limit{zlimit.PerDay("rpd", 8)}
		for _, at := range []zlimit.Level{{Resource: "r"}, {Entity: "e", Resource: "r"}, {Entity: "e"}, {}} {
			expect := func(step string, err error, want zlimit.Config) {
				t.Helper()
				got, getErr := l.Limits.Get(ctx, at)
				if diff := cmp.Diff(want, got); err != nil || getErr != nil || diff != "" {
					t.Errorf("%v: %s = %v, %v (-want +got):\n%s", at, step, err, getErr, diff)
				}
			}
			set := func(limits []zlimit.Limit, p zlimit.FailurePolicy) error {
				return l.Limits.Set(ctx, at, zlimit.Config{Limits: limits, OnUnavailable: p})
			}
			is := func(limits []zlimit.Limit, p zlimit.FailurePolicy) zlimit.Config {
				return zlimit.Config{Limits: limits, OnUnavailable: p}
			}
			none := []zlimit.Limit{}
			expect("nothing", nil, is(none, zlimit.PolicyInherit))
			expect("a policy alone", set(nil, zlimit.PolicyAllow), is(none, zlimit.PolicyAllow))
			beside := l.Limits.Update(ctx, at, func(c *zlimit.Config) error { c.Limits = limits; return nil })
			expect("limits beside it", beside, is(limits, zlimit.PolicyAllow))
			expect("both again", set(others, zlimit.PolicyBlock), is(others, zlimit.PolicyBlock))
			expect("limits alone", set(limits, zlimit.PolicyInherit), is(limits, zlimit.PolicyInherit))
			expect("deletion", l.Limits.Delete(ctx, at), is(none, zlimit.PolicyInherit))

			for _, bad := range []zlimit.Config{{}, is(limits, 9), is([]zlimit.Limit{{Name: "a"}}, zlimit.PolicyAllow)} {
				if err := l.Limits.Set(ctx, at, bad); !errors.As(err, new(*zlimit.ValidationError)) {
					t.Errorf("Set(%v, %+v) = %v, want a ValidationError", at, bad, err)
				}
			}
		}
		last := events(t, l, zlimit.AuditResource("r"), zlimit.AuditQuery{Limit: 1})[0]
		want := map[string]any{"config_version": int64(1), "limits": []any{}, "on_unavailable": "allow"}
		compare.Equal(t, "the first event", want, last.Details)
	})
}

// TestApplyLeavesPolicies declares limits of a resource that has a failure policy.
func TestApplyLeavesPolicies(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	apply := func(n int64) {
		t.Helper()
		if _, err := l.Limits.Apply(ctx, zlimit.Declaration{"r", []zlimit.Limit{zlimit.PerDay("rpd", n)}}); err != nil {
			t.Fatalf("Limits.Apply() = %v", err)
		}
	}
	apply(1)
	declared := check.Call(l.Limits.Get(ctx, zlimit.Level{Resource: "r"})).Must(t, "Limits.Get()")
	declared.OnUnavailable = zlimit.PolicyAllow
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Resource: "r"}, declared))
	check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, zlimit.Level{Resource: "r"}))
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Resource: "r"}, zlimit.Config{OnUnavailable: zlimit.PolicyAllow}))
	applied, err := l.Limits.Apply(ctx, zlimit.Declaration{"r", []zlimit.Limit{zlimit.PerDay("rpd", 2)}})
	if err != nil || len(applied.Set) != 1 { // the operator has set a policy, and no limits
		t.Errorf("Apply() = %+v, %v, want the limits set", applied, err)
	}
	if stored, err := l.Limits.Get(ctx, zlimit.Level{Resource: "r"}); err != nil || stored.OnUnavailable != zlimit.PolicyAllow || len(stored.Limits) != 1 {
		t.Errorf("afterwards the resource is %+v, %v, want the policy and the limits", stored, err)
	}
}

func TestDefaultLimits(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	c := newClock()
	l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 3), zlimit.PerMinute("rpm", 2)))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "rpm": 2}))
	reject(t, l, ask(zlimit.Amounts{"rpm": 1}))
	found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
	want := zlimit.Resolved{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 3), zlimit.PerMinute("rpm", 2)}, Source: zlimit.SourceDefault}
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Errorf("Resolve() = %v (-want +got):\n%s", err, diff)
	}
	if shards := shardsOf(t, l); shards[0].ExpiresAt == 0 {
		t.Errorf("the bucket is %+v, want it to expire, since the limits are not its own", shards[0])
	}
	setSystem(t, l, zlimit.PerDay("rpd", 50)) // any stored limits come first, as a whole
	if found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || found.Source != zlimit.SourceSystem || len(found.Limits) != 1 {
		t.Errorf("Resolve() = %+v, %v, want the limits of the system", found, err)
	}
	check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, zlimit.Level{}))
	create(t, l, zlimit.Entity{ID: "p"})
	create(t, l, zlimit.Entity{ID: "e", ParentID: "p", Cascade: true})
	acquire(t, l, zlimit.Request{Entity: "e", Resource: "r", Consume: zlimit.Amounts{"rpd": 2}})
	if all, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "e", Resource: "r", Parents: true}); err != nil || len(all) != 4 || all[2].Entity != "p" || all[2].Available != 1 {
		t.Errorf("Available() = %+v, %v, want the parent charged by the default limits", all, err)
	}
	for _, bad := range [][]zlimit.Limit{{{Name: "a"}}, {zlimit.PerDay("a", 1), zlimit.PerDay("a", 2)}, {zlimit.PerDay("wcu", 1)}} {
		if _, err := zlimit.New(ctx, s, zlimit.WithDefaultLimits(bad...)); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("New() with default limits %v = %v, want a ValidationError", bad, err)
		}
	}
}

func TestAvailable(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		create(t, l, zlimit.Entity{ID: "org"})
		create(t, l, zlimit.Entity{ID: "team", ParentID: "org", Cascade: true})
		create(t, l, zlimit.Entity{ID: "key", ParentID: "team", Cascade: true})
		create(t, l, zlimit.Entity{ID: "loose", ParentID: "team"})
		for i, e := range []string{"org", "team", "key", "loose"} {
			setLimits(t, l, zlimit.Level{Entity: e, Resource: "r"}, zlimit.PerDay("rpd", int64(100-10*i)))
		}
		acquire(t, l, zlimit.Request{Entity: "key", Resource: "r", Consume: zlimit.Amounts{"rpd": 7}})
		enginetest.CatchUp() // what another process has just stored takes effect within the time of WithConfigTTL
		fresh := newLimiter(t, s, zlimit.WithClock(newClock().now))
		for entity, want := range map[string][]string{
			"key": {"key 73", "team 83", "org 93"}, "team": {"team 83", "org 93"}, "org": {"org 93"}, "loose": {"loose 70"},
		} {
			all, err := fresh.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: "r", Parents: true})
			var got []string
			for _, s := range all {
				got = append(got, fmt.Sprint(s.Entity, " ", s.Available))
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("Available(%s) = %v (-want +got):\n%s", entity, err, diff)
			}
		}
		own := zlimit.AvailableQuery{Entity: "key", Resource: "r", Limits: []zlimit.Limit{zlimit.PerDay("rpd", 20)}}
		if all, err := fresh.Available(ctx, own); err != nil || len(all) != 1 || all[0].Limit != own.Limits[0] || all[0].Available > 20 {
			t.Errorf("Available(%+v) = %+v, %v, want the limit of the query", own, all, err)
		}
		own.Resource = "whisper" // for which none are stored
		if all, err := fresh.Available(ctx, own); err != nil || len(all) != 1 || all[0].Available != 20 {
			t.Errorf("Available(%+v) = %+v, %v, want 20", own, all, err)
		}
		var invalid *zlimit.ValidationError
		own.Limits = []zlimit.Limit{{Name: "rpd"}}
		if _, err := fresh.Available(ctx, own); !errors.As(err, &invalid) {
			t.Errorf("Available(%+v) = %v, want a ValidationError", own, err)
		}
		if _, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "#", Resource: "r", Parents: true}); !errors.As(err, &invalid) {
			t.Errorf("Available() of a bad name = %v, want a ValidationError", err)
		}
		if _, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key", Resource: "other", Parents: true}); !errors.Is(err, zlimit.ErrNoLimits) {
			t.Errorf("Available() without limits = %v, want ErrNoLimits", err)
		}
	})
}

// TestInvalidateOne forgets the limits of one bucket, and those of others stay in memory.
func TestInvalidateOne(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	d := newDown(store.Of(s))
	l, other := newLimiter(t, zlimit.StoreOn(d)), newLimiter(t, s)
	set := func(n int64) {
		t.Helper()
		for _, e := range []string{"a", "b"} {
			setLimits(t, other, zlimit.Level{Entity: e, Resource: "r"}, zlimit.PerDay("rpd", n))
		}
	}
	capacity := func(entity string) int64 {
		t.Helper()
		found := check.Call(l.Limits.Resolve(ctx, entity, "r")).Must(t, "Limits.Resolve()")
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
	for name, forget := range map[string]func(*zlimit.RateLimiter){
		"one": func(l *zlimit.RateLimiter) { l.Limits.Invalidate("key-1", "gpt-4") },
		"all": func(l *zlimit.RateLimiter) { l.Limits.InvalidateAll() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := newMemory(t)
			d := newDown(store.Of(s))
			l, other := newLimiter(t, zlimit.StoreOn(d)), newLimiter(t, s)
			setSystem(t, other, zlimit.PerDay("rpd", 1))
			d.read = make(chan chan struct{})
			old := make(chan error, 1)
			go func() {
				_, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
				old <- err
			}()
			first := <-d.read
			setSystem(t, other, zlimit.PerDay("rpd", 2))
			forget(l)
			found := make(chan zlimit.Resolved, 1)
			go func() {
				r, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
				check.Error(t, "Limits.Resolve()", err)
				found <- r
			}()
			select {
			case second := <-d.read: // it is read again
				close(first)
				check.Error(t, "Limits.Resolve()", <-old) // and what was read first has been remembered, or not
				close(second)
			case <-time.After(10 * time.Second):
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
	d := newDown(store.Of(newMemory(t)))
	l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithTuning(zlimit.Tuning{CacheSize: buckets}))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	use := func() {
		for i := range buckets {
			if _, err := l.Limits.Resolve(ctx, fmt.Sprint("e", i), fmt.Sprint("r", i)); err != nil {
				t.Fatalf("Limits.Resolve() = %v", err)
			}
		}
	}
	use()
	l.ForgetLimits() // as a change of other limits does: what is in memory is put together again
	calls := d.calls.Load()
	use()
	if got := d.calls.Load() - calls; got != 0 {
		t.Errorf("%d reads for %d buckets that are remembered, want none", got, buckets)
	}
}
