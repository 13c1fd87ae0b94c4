package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestManagedLevels(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		clock := newClock()
		l := newLimiter(t, s, zlimit.WithClock(clock.now), zlimit.WithPrincipal("deploy"))
		other := newLimiter(t, s, zlimit.WithClock(clock.now), zlimit.WithPrincipal("olga"))
		limits := func(n int64) []zlimit.Limit {
			return []zlimit.Limit{zlimit.PerMinute("tpm", n), zlimit.PerMinute("rpm", n)}
		}
		lock := check.Call(l.Managed.Lock(ctx, time.Minute)).Must(t, "Managed.Lock()")
		levels := []zlimit.Level{{}, {Resource: "gpt-4"}, {Entity: "acme"}, {Entity: "acme", Resource: "gpt-4"}}
		wants := []zlimit.Stored{
			{Level: levels[0], Config: zlimit.Config{OnUnavailable: zlimit.PolicyAllow, AuditRetention: 30 * zlimit.Day}},
			{Level: levels[1], Config: zlimit.Config{Limits: limits(1)}},
			{Level: levels[2], Config: zlimit.Config{Limits: limits(2)}},
			{Level: levels[3], Config: zlimit.Config{Limits: limits(3)}},
		}
		read := func() []zlimit.Stored {
			t.Helper()
			return check.Call(l.Managed.Read(ctx, levels...)).Must(t, "Managed.Read()")
		}
		for i, before := range read() {
			if before.Version != 0 || before.Managed || !before.Config.IsZero() {
				t.Errorf("before = %+v, want nothing", before)
			}
			after, err := l.Managed.Replace(ctx, lock, before, wants[i])
			if err != nil || after.Version != 1 || !after.Managed {
				t.Errorf("Replace(%v) = %+v, %v, want version 1", levels[i], after, err)
			}
			if _, err := l.Managed.Replace(ctx, lock, before, wants[i]); !errors.Is(err, zlimit.ErrLevelChanged) {
				t.Errorf("Replace(%v) of what was before = %v, want ErrLevelChanged", levels[i], err)
			}
		}
		for i, found := range read() {
			if !found.Config.Same(&wants[i].Config) || found.Version != 1 || !found.Managed {
				t.Errorf("Read(%v) = %+v, want %+v", levels[i], found, wants[i])
			}
		}
		if got, err := l.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"}); err != nil || len(got.Limits) != 2 {
			t.Errorf("Get() = %v, %v", got, err)
		}
		// A change by other means takes the mark away, and a second one that restores the limits does not bring it back.
		for _, n := range []int64{9, 1} {
			setLimits(t, other, zlimit.Level{Resource: "gpt-4"}, limits(n)...)
		}
		if found := read()[1]; !found.Config.Same(&wants[1].Config) || found.Version != 3 || found.Managed {
			t.Errorf("Read() after changes by hand = %+v, want version 3, not managed", found)
		}
		// Deleting, and what is gone already.
		for _, before := range read() {
			gone := zlimit.Stored{Level: before.Level}
			if after, err := l.Managed.Replace(ctx, lock, before, gone); err != nil || after.Version != 0 || after.Managed {
				t.Errorf("Replace(%v) by nothing = %+v, %v", before.Level, after, err)
			}
			if _, err := l.Managed.Replace(ctx, lock, gone, gone); err != nil {
				t.Errorf("Replace(%v) of nothing by nothing = %v", before.Level, err)
			}
		}
		checkLevels(t, l, zlimit.LevelQuery{})
	})
}

func TestManagedLock(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		clock := newClock()
		l := newLimiter(t, s, zlimit.WithClock(clock.now), zlimit.WithPrincipal("deploy"))
		other := newLimiter(t, s, zlimit.WithClock(clock.now), zlimit.WithPrincipal("olga"))
		lock := check.Call(l.Managed.Lock(ctx, time.Minute)).Must(t, "Managed.Lock()")
		_, err := other.Managed.Lock(ctx, time.Minute)
		var locked *zlimit.LockedError
		if !errors.As(err, &locked) || !errors.Is(err, zlimit.ErrLocked) || locked.Holder != "deploy" || !locked.ExpiresAt.Equal(lock.ExpiresAt) {
			t.Errorf("Lock() by another = %v, want a LockedError of deploy until %v", err, lock.ExpiresAt)
		}
		clock.sleep(50 * time.Second)
		if lock, err = l.Managed.Renew(ctx, lock, time.Minute); err != nil {
			t.Fatalf("Managed.Renew() = %v", err)
		}
		clock.sleep(50 * time.Second)
		if _, err := other.Managed.Lock(ctx, time.Minute); !errors.Is(err, zlimit.ErrLocked) {
			t.Errorf("Lock() of a lock that was renewed = %v, want ErrLocked", err)
		}
		clock.sleep(10 * time.Second)
		stolen, err := other.Managed.Lock(ctx, time.Minute)
		if err != nil {
			t.Fatalf("Lock() of one that has expired = %v", err)
		}
		want := zlimit.Stored{Level: zlimit.Level{Resource: "gpt-4"}, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1)}}}
		_, err = l.Managed.Replace(ctx, lock, zlimit.Stored{Level: want.Level}, want)
		_, renewed := l.Managed.Renew(ctx, lock, time.Minute)
		for call, err := range map[string]error{"Replace": err, "Renew": renewed, "Record": l.Managed.Record(ctx, lock, zlimit.ManagedSet{})} {
			if !errors.Is(err, zlimit.ErrLockLost) {
				t.Errorf("%s() with a lock that another has taken = %v, want ErrLockLost", call, err)
			}
		}
		if err := l.Managed.Unlock(ctx, lock); err != nil { // and leaves the other's alone
			t.Errorf("Unlock() of a lock that another has taken = %v", err)
		}
		if _, err := other.Managed.Replace(ctx, stolen, zlimit.Stored{Level: want.Level}, want); err != nil {
			t.Errorf("Managed.Replace() = %v", err)
		}
		check.Error(t, "Managed.Unlock()", other.Managed.Unlock(ctx, stolen))
		if _, err := l.Managed.Lock(ctx, time.Minute); err != nil {
			t.Errorf("Lock() after Unlock() = %v", err)
		}
	})
}

// TestManagedRecord reads what another program has written, in its form, and writes it back with its own attributes.
func TestManagedRecord(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		if set, err := l.Managed.Set(ctx); err != nil || len(set.Levels) != 0 || !set.LastApplied.IsZero() {
			t.Fatalf("Set() of none = %+v, %v", set, err)
		}
		foreign := expr.Item{
			{Name: "managed_system", Value: expr.Bool(true)},
			{Name: "managed_resources", Value: expr.List(expr.S("gpt-4"), expr.S("claude"))},
			{Name: "managed_entities", Value: expr.Map(expr.Item{{Name: "acme", Value: expr.List(expr.S("gpt-4"), expr.S(zlimit.DefaultResource))}})},
			{Name: "last_applied", Value: expr.S("2026-02-20T12:00:00Z")},
			{Name: "applied_hash", Value: expr.S("sha256:1")},
			{Name: "tool", Value: expr.S("another")},
		}
		key := layout.ProvisionerKey{NS: l.NS()}.Key()
		put(t, l, key, foreign)
		set, err := l.Managed.Set(ctx)
		want := zlimit.ManagedSet{
			Levels:      []zlimit.Level{{}, {Resource: "claude"}, {Resource: "gpt-4"}, {Entity: "acme"}, {"acme", "gpt-4"}},
			LastApplied: time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC), Hash: "sha256:1",
		}
		if diff := cmp.Diff(want, set); diff != "" || err != nil {
			t.Fatalf("Set() differs: %v (-want +got):\n%s", err, diff)
		}
		lock := check.Call(l.Managed.Lock(ctx, time.Minute)).Must(t, "Managed.Lock()")
		want.Levels = append(want.Levels[1:], zlimit.Level{"zed", "gpt-4"})
		want.Pending = []zlimit.Level{{}, {Resource: "new"}, {"acme", "new"}}
		check.Fatal(t, "Managed.Record()", l.Managed.Record(ctx, lock, want))
		set, err = l.Managed.Set(ctx)
		if diff := cmp.Diff(want, set); diff != "" || err != nil {
			t.Errorf("Set() after Record() differs: %v (-want +got):\n%s", err, diff)
		}
		items, err := l.Table().Read(ctx, key)
		if err != nil || items[0].Get("tool").Text() != "another" {
			t.Errorf("an attribute of another program is lost: %v, %v", items, err)
		}
		for _, n := range []int{1_500, 4_000, 4_001, 10} { // one item is too small, then four parts and eight, then one part changes, then all
			many := zlimit.ManagedSet{LastApplied: want.LastApplied, Hash: want.Hash, Manager: "file:limits.yaml"}
			for i := range n {
				many.Levels = append(many.Levels, zlimit.Level{fmt.Sprintf("%048d", i), "gpt-4"})
			}
			many.Pending = []zlimit.Level{{}, {Resource: "new"}, {"acme", "new"}}
			check.Fatal(t, "Managed.Record()", l.Managed.Record(ctx, lock, many))
			got, err := l.Managed.Set(ctx)
			if diff := cmp.Diff(many, got); diff != "" || err != nil {
				t.Errorf("Set() of %d levels differs: %v (-want +got):\n%s", n, err, diff)
			}
		}
	})
}

func TestManagedInput(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	l := newLimiter(t, s)
	rpm := []zlimit.Limit{zlimit.PerMinute("rpm", 1)}
	gpt := zlimit.Level{Resource: "gpt-4"}
	for want, config := range map[string]zlimit.Stored{
		`invalid resource "4 4": must hold only`:                                 {Level: zlimit.Level{Resource: "4 4"}, Config: zlimit.Config{Limits: rpm}},
		`invalid entity "#": must hold only`:                                     {Level: zlimit.Level{Entity: "#", Resource: "gpt-4"}, Config: zlimit.Config{Limits: rpm}},
		`must be PolicyInherit, PolicyBlock or PolicyAllow`:                      {Level: gpt, Config: zlimit.Config{Limits: rpm, OnUnavailable: zlimit.PolicyAllow + 1}},
		`invalid audit retention "24h0m0s": is for the system`:                   {Level: gpt, Config: zlimit.Config{Limits: rpm, AuditRetention: zlimit.Day}},
		`invalid limits of system[rpm] capacity "0"`:                             {Config: zlimit.Config{Limits: []zlimit.Limit{{Name: "rpm", RefillAmount: 1, RefillPeriod: time.Second}}}},
		`invalid level "resource gpt-4": must be the one before, resource gpt-5`: {Level: gpt, Config: zlimit.Config{Limits: rpm}},
	} {
		before := zlimit.Stored{Level: config.Level}
		if strings.Contains(want, "gpt-5") {
			before.Level.Resource = "gpt-5"
		}
		if _, err := l.Managed.Replace(ctx, zlimit.ManagedLock{}, before, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Replace(%+v) = %v, want %q in it", config, err, want)
		}
	}
	if _, err := l.Managed.Lock(ctx, time.Millisecond); err == nil || !strings.Contains(err.Error(), `invalid lease "1ms"`) {
		t.Errorf("Lock(1ms) = %v", err)
	}
	if _, err := l.Managed.Read(ctx, zlimit.Level{Resource: "4 4"}); err == nil {
		t.Error("Read() of an invalid level = nil")
	}
	check.Fatal(t, "Close()", l.Close())
	_, locked := l.Managed.Lock(ctx, time.Minute)
	_, read := l.Managed.Read(ctx, gpt)
	_, set := l.Managed.Set(ctx)
	for _, err := range []error{locked, read, set, l.Managed.Unlock(ctx, zlimit.ManagedLock{}), l.Managed.Record(ctx, zlimit.ManagedLock{}, zlimit.ManagedSet{})} {
		if !errors.Is(err, zlimit.ErrClosed) {
			t.Errorf("after Close(): %v, want ErrClosed", err)
		}
	}
}

// TestCostsOfManaged measures what the comments of the service state.
func TestCostsOfManaged(t *testing.T) {
	if enginetest.IsMean() {
		t.Skip("it counts every call, and what becomes of it")
	}
	ctx := context.Background()
	s, faults := newTable(t)
	l := newLimiter(t, s, zlimit.WithClock(newClock().now))
	measure := measuring(t, faults)
	var lock zlimit.ManagedLock
	var err error
	gpt := zlimit.Level{Resource: "gpt-4"}
	want := zlimit.Stored{Level: gpt, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}}}
	measure("Lock", 1, 0, 1, 1, func() error { lock, err = l.Managed.Lock(ctx, time.Minute); return err })
	measure("Renew", 1, 0, 1, 0, func() error { _, err = l.Managed.Renew(ctx, lock, time.Minute); return err })
	measure("Replace, new, with the registry and the retention", 3, 4, 6+2, 3, func() error { _, err = l.Managed.Replace(ctx, lock, zlimit.Stored{Level: gpt}, want); return err })
	want.Version = 1
	measure("Replace", 2, 2, 4+2, 1, func() error { _, err = l.Managed.Replace(ctx, lock, want, want); return err })
	measure("Read", 1, 2, 0, 0, func() error { _, err = l.Managed.Read(ctx, zlimit.Level{}, gpt); return err })
	measure("Record", 2, 2, 2+2, 1, func() error { return l.Managed.Record(ctx, lock, zlimit.ManagedSet{Levels: []zlimit.Level{gpt}}) })
	measure("Set", 1, 1, 0, 0, func() error { _, err = l.Managed.Set(ctx); return err })
	measure("Unlock", 1, 0, 1, 1, func() error { return l.Managed.Unlock(ctx, lock) })
}

// In TestManagedPolicies, a file of limits changes and drops the failure policy of a level, which an operator has set, with
// and without the limits.
func TestManagedPolicies(t *testing.T) {
	ctx := context.Background()
	rpm := func(n int64) []zlimit.Limit { return []zlimit.Limit{zlimit.PerMinute("rpm", n)} }
	for _, at := range []zlimit.Level{
		{Resource: "gpt-4"}, {Entity: "acme", Resource: "gpt-4"}, {Entity: "acme"},
	} {
		l := newLimiter(t, newMemory(t))
		check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, at, zlimit.Config{Limits: rpm(1), OnUnavailable: zlimit.PolicyAllow}))
		lock := check.Call(l.Managed.Lock(ctx, time.Minute)).Must(t, "Managed.Lock()")
		for _, want := range []zlimit.Config{
			{Limits: rpm(2), OnUnavailable: zlimit.PolicyBlock}, {Limits: []zlimit.Limit{}, OnUnavailable: zlimit.PolicyAllow}, {Limits: rpm(2)}, {Limits: []zlimit.Limit{}},
		} {
			before := check.Call(l.Managed.Read(ctx, at)).Must(t, "Managed.Read()")
			after := zlimit.Stored{Level: at, Config: want}
			if _, err := l.Managed.Replace(ctx, lock, before[0], after); err != nil {
				t.Fatalf("Managed.Replace() = %v", err)
			}
			got, err := l.Limits.Get(ctx, at)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v: after Replace() there is, %v (-want +got):\n%s", at, err, diff)
			}
		}
	}
}

// TestManagedWritesHoldTheLock lets another program take an expired lock between a run's look at the lock and its
// write.
func TestManagedWritesHoldTheLock(t *testing.T) {
	ctx := context.Background()
	clock := newClock()
	p := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(p), zlimit.WithClock(clock.now))
	other := newLimiter(t, zlimit.StoreOn(p.Store), zlimit.WithClock(clock.now))
	lock := check.Call(l.Managed.Lock(ctx, time.Minute)).Must(t, "Managed.Lock()")
	p.once(func() {
		clock.sleep(2 * time.Minute)
		if _, err := other.Managed.Lock(ctx, time.Minute); err != nil {
			t.Errorf("Managed.Lock() = %v", err)
		}
	})
	before := zlimit.Stored{Level: zlimit.Level{Resource: "gpt-4"}}
	want := zlimit.Stored{Level: before.Level, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1)}}}
	if _, err := l.Managed.Replace(ctx, lock, before, want); !errors.Is(err, zlimit.ErrLockLost) {
		t.Errorf("Replace() = %v, want ErrLockLost", err)
	}
	if got, err := other.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"}); err != nil || len(got.Limits) != 0 {
		t.Errorf("Get() = %v, %v, want nothing", got, err)
	}
}

// In TestRunKeepsItsLock, a run takes longer than its lock lasts. The run of another program waits for its end.
func TestRunKeepsItsLock(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithPrincipal("ci")), newLimiter(t, s, zlimit.WithClock(c.now))
	ctx, cancel := context.WithCancel(t.Context())
	nothing := func(context.Context, *zlimit.ManagedRun) error { return nil }
	stopped := errors.New("stopped")
	err := l.Managed.Run(ctx, func(ctx context.Context, run *zlimit.ManagedRun) error {
		for i := range 10 {
			c.sleep(25 * time.Second)
			if err := run.Record(ctx, zlimit.ManagedSet{Hash: fmt.Sprint(i)}); err != nil {
				return err
			}
			var locked *zlimit.LockedError
			if err := other.Managed.Run(ctx, nothing); !errors.As(err, &locked) || locked.Holder != "ci" || !locked.ExpiresAt.After(c.now()) {
				t.Errorf("after %d records another program's Run() = %v", i+1, err)
			}
		}
		cancel() // the lock is given back all the same
		return stopped
	})
	if !errors.Is(err, stopped) {
		t.Errorf("Run() = %v, want the error of the function", err)
	}
	check.Error(t, "after the run another program's Run()", other.Managed.Run(t.Context(), nothing))
}

// In TestRunLosesItsLock, a run pauses for longer than its lock lasts, while another program runs. The first run writes
// nothing any more.
func TestRunLosesItsLock(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	level := zlimit.Level{Resource: "gpt-4"}
	want := zlimit.Stored{Level: level, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}}
	for name, write := range map[string]func(context.Context, *zlimit.ManagedRun) error{
		"Replace": func(ctx context.Context, run *zlimit.ManagedRun) error {
			_, err := run.Replace(ctx, zlimit.Stored{Level: level}, want)
			return err
		},
		"Record": func(ctx context.Context, run *zlimit.ManagedRun) error {
			return run.Record(ctx, zlimit.ManagedSet{Hash: "late"})
		},
	} {
		err := l.Managed.Run(t.Context(), func(ctx context.Context, run *zlimit.ManagedRun) error {
			c.sleep(2 * time.Minute)
			return other.Managed.Run(ctx, func(ctx context.Context, _ *zlimit.ManagedRun) error { return write(ctx, run) })
		})
		if !errors.Is(err, zlimit.ErrLockLost) {
			t.Errorf("%s of a run that paused = %v, want ErrLockLost", name, err)
		}
	}
	if err := l.Managed.Run(t.Context(), nil); !errors.As(err, new(*zlimit.ValidationError)) {
		t.Errorf("Run() of no function = %v, want a ValidationError", err)
	}
	if config, err := l.Limits.Get(t.Context(), level); err != nil || !config.IsZero() {
		t.Errorf("the level says %v, %v, want nothing", config, err)
	}
}

// TestManagedSetHas checks a level that a run wrote before it broke off, and one that another writer has changed since.
func TestManagedSetHas(t *testing.T) {
	kept, pending, other := zlimit.Level{Resource: "kept"}, zlimit.Level{Resource: "pending"}, zlimit.Level{Entity: "acme"}
	set := zlimit.ManagedSet{Levels: []zlimit.Level{other, kept}, Pending: []zlimit.Level{pending}}
	slices.SortFunc(set.Levels, zlimit.Level.Compare)
	for _, test := range []struct {
		of   zlimit.Stored
		want bool
	}{
		{zlimit.Stored{Level: kept, Managed: true}, true},
		{zlimit.Stored{Level: kept}, true},
		{zlimit.Stored{Level: other}, true},
		{zlimit.Stored{Level: pending, Managed: true}, true},
		{zlimit.Stored{Level: pending}, false},
		{zlimit.Stored{Level: zlimit.Level{}, Managed: true}, false},
	} {
		if got := set.Has(&test.of); got != test.want {
			t.Errorf("Has(%+v) = %t, want %t", test.of, got, test.want)
		}
	}
}
