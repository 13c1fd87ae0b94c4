package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// names returns the names of namespaces.
func names(list []zlimit.Namespace) (names []string) {
	for _, ns := range list {
		names = append(names, ns.Name)
	}
	return names
}

func TestNamespaceLife(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		list := func() []string { return names(collect(t, "List()", l.Namespaces.List(ctx))) }
		orphans := func() []zlimit.Namespace { return collect(t, "Orphans()", l.Namespaces.Orphans(ctx)) }
		registered := check.Call(l.Namespaces.Register(ctx, "eu/production 1")).Must(t, "Register()")
		want := zlimit.Namespace{ID: registered.ID, Name: "eu/production 1", Status: zlimit.NamespaceActive, CreatedAt: c.now()}
		if diff := cmp.Diff(want, registered); diff != "" || len(want.ID) != 11 {
			t.Errorf("Register() (-want +got):\n%s", diff)
		}
		for call, get := range map[string]func() (zlimit.Namespace, error){
			"Register": func() (zlimit.Namespace, error) { return l.Namespaces.Register(ctx, want.Name) },
			"Get":      func() (zlimit.Namespace, error) { return l.Namespaces.Get(ctx, want.Name) },
		} {
			got, err := get()
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s() = %v (-want +got):\n%s", call, err, diff)
			}
		}
		if got := list(); !slices.Equal(got, []string{"default", want.Name}) {
			t.Errorf("List() = %q", got)
		}

		scope := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace(want.Name))
		setSystem(t, scope, zlimit.PerDay("rpm", 10))
		acquire(t, scope, ask(zlimit.Amounts{"rpm": 1}))
		c.sleep(time.Hour)
		deleted, err := l.Namespaces.Delete(ctx, want.Name)
		want.Status, want.DeletedAt = zlimit.NamespaceDeleted, c.now()
		if diff := cmp.Diff(want, deleted); err != nil || diff != "" {
			t.Errorf("Delete() = %v (-want +got):\n%s", err, diff)
		}
		compare.Equal(t, "Orphans()", []zlimit.Namespace{want}, orphans())
		if got := list(); !slices.Equal(got, []string{"default"}) {
			t.Errorf("List() = %q after the deletion", got)
		}
		for call, err := range map[string]error{
			"Get":       func() error { _, err := l.Namespaces.Get(ctx, want.Name); return err }(),
			"Delete":    func() error { _, err := l.Namespaces.Delete(ctx, want.Name); return err }(),
			"Namespace": func() error { _, err := l.Namespace(ctx, want.Name); return err }(),
			"Recover":   func() error { _, err := l.Namespaces.Recover(ctx, "AAAAAAAAAAA"); return err }(),
			"Purge":     l.Namespaces.Purge(ctx, "AAAAAAAAAAA", nil),
		} {
			if !errors.Is(err, zlimit.ErrNamespaceNotFound) {
				t.Errorf("%s() of a deleted or unknown namespace = %v, want ErrNamespaceNotFound", call, err)
			}
		}
		acquire(t, scope, ask(zlimit.Amounts{"rpm": 1})) // an open limiter goes on

		recovered, err := l.Namespaces.Recover(ctx, want.ID)
		want.Status, want.DeletedAt = zlimit.NamespaceActive, time.Time{}
		if diff := cmp.Diff(want, recovered); err != nil || diff != "" {
			t.Errorf("Recover() = %v (-want +got):\n%s", err, diff)
		}
		if got, err := l.Namespaces.Get(ctx, want.Name); err != nil || got != want {
			t.Errorf("Get() after the recovery = %+v, %v, want %+v", got, err, want)
		}
		if got := orphans(); got != nil {
			t.Errorf("Orphans() = %v after the recovery", got)
		}
		if got := available(t, newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace(want.Name)), "rpm"); got != 8 {
			t.Errorf("the bucket has %d after the recovery, want 8", got)
		}

		// The name is taken by another one.
		if _, err := l.Namespaces.Delete(ctx, want.Name); err != nil {
			t.Fatalf("Namespaces.Delete() = %v", err)
		}
		second, err := l.Namespaces.Register(ctx, want.Name)
		if err != nil || second.ID == want.ID {
			t.Errorf("Register() of a deleted name = %+v, %v, want a new namespace", second, err)
		}
		before := dump(t, store.Of(s), zlimit.RegistryNamespace)
		if _, err := l.Namespaces.Recover(ctx, want.ID); !errors.Is(err, zlimit.ErrNamespaceState) || !strings.Contains(err.Error(), "taken") {
			t.Errorf("Recover() of a taken name = %v, want ErrNamespaceState", err)
		}
		compare.Equal(t, "a refused recovery changes", before, dump(t, store.Of(s), zlimit.RegistryNamespace))
		if _, err := l.Namespaces.Delete(ctx, want.Name); err != nil {
			t.Fatalf("Namespaces.Delete() = %v", err)
		}
		if got := names(orphans()); !slices.Equal(got, []string{want.Name, want.Name}) {
			t.Errorf("Orphans() = %q, want both", got)
		}
	})
}

// TestNamespaceStates makes the calls that a status does not allow.
func TestNamespaceStates(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	ns := check.Call(l.Namespaces.Register(ctx, "a")).Must(t, "Namespaces.Register()")
	refused := func(call string, err error) {
		t.Helper()
		if !errors.Is(err, zlimit.ErrNamespaceState) {
			t.Errorf("%s = %v, want ErrNamespaceState", call, err)
		}
	}
	_, err := l.Namespaces.Recover(ctx, ns.ID)
	refused("Recover() of an active namespace", err)
	refused("Purge() of an active namespace", l.Namespaces.Purge(ctx, ns.ID, nil))
	if _, err := l.Namespaces.Delete(ctx, "a"); err != nil {
		t.Fatalf("Namespaces.Delete() = %v", err)
	}
	purging, err := layout.CondemnNamespace(string(zlimit.NamespaceDeleted), string(zlimit.NamespacePurging))
	check.Fatal(t, "layout.CondemnNamespace()", err)
	write(t, l, store.Write{Key: layout.NamespaceIDKey{ID: ns.ID}.Key(), Expr: purging})
	_, err = l.Namespaces.Recover(ctx, ns.ID)
	refused("Recover() of a namespace whose purge has begun", err)
	if got := collect(t, "Orphans()", l.Namespaces.Orphans(ctx)); len(got) != 1 || got[0].Status != zlimit.NamespacePurging {
		t.Errorf("Orphans() = %+v, want the one whose purge has begun", got)
	}

	// A record that another program left without its counterpart.
	forward := layout.Namespace{Key: layout.NamespaceKey{Name: "half"}, ID: "BBBBBBBBBBB", Name: "half", Status: string(zlimit.NamespaceActive)}
	put(t, l, forward.Key.Key(), forward.Encode())
	_, err = l.Namespaces.Delete(ctx, "half")
	refused("Delete() of half a namespace", err)

	for call, err := range map[string]error{
		"Delete of the default one": func() error { _, err := l.Namespaces.Delete(ctx, zlimit.DefaultNamespace); return err }(),
		"Register of the registry":  func() error { _, err := l.Namespaces.Register(ctx, "_"); return err }(),
		"Get of nothing":            func() error { _, err := l.Namespaces.Get(ctx, ""); return err }(),
		"Recover of the registry":   func() error { _, err := l.Namespaces.Recover(ctx, "_"); return err }(),
		"Purge of the registry":     l.Namespaces.Purge(ctx, "_", nil),
		"Purge of nothing":          l.Namespaces.Purge(ctx, "", nil),
		"Purge of a key":            l.Namespaces.Purge(ctx, "a/ENTITY", nil),
		"Namespace of the registry": func() error { _, err := l.Namespace(ctx, "_"); return err }(),
		"Namespace, a bad option": func() error {
			_, err := l.Namespace(ctx, "a", zlimit.WithTuning(zlimit.Tuning{CacheSize: -1}))
			return err
		}(),
	} {
		if !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: %v, want a ValidationError", call, err)
		}
	}
}

func TestScopedLimiters(t *testing.T) {
	ctx := context.Background()
	l, err := zlimit.Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "zlimit.db"), zlimit.WithClock(newClock().now))
	check.Fatal(t, "zlimit.Open()", err)
	if _, err := l.Namespace(ctx, "a"); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
		t.Errorf("Namespace() of a name that is not registered = %v, want ErrNamespaceNotFound", err)
	}
	open := func(name string, opts ...zlimit.Option) *zlimit.RateLimiter {
		t.Helper()
		scope, err := l.Namespace(ctx, name, opts...)
		if err != nil {
			t.Fatalf("Namespace(%s) = %v", name, err)
		}
		return scope
	}
	a, b := open("a", zlimit.WithSetup()), open("b", zlimit.WithSetup(), zlimit.WithNamespace("ignored"))
	again, exact := open("a"), open("a", zlimit.WithFreshness(0))
	if a.NS() == b.NS() || a.NS() != again.NS() || a.NS() == l.NS() || a.NamespaceName() != "a" || b.NamespaceName() != "b" {
		t.Fatalf("namespaces %q %q %q of %q %q", a.NS(), again.NS(), b.NS(), l.NS(), b.NamespaceName())
	}
	if exact.Freshness() != 0 || a.Freshness() != zlimit.DefaultFreshness || again.SetsUp() {
		t.Errorf("freshness %v and %v, again set up: %t", exact.Freshness(), a.Freshness(), again.SetsUp())
	}
	if got := a.Now(); !got.Equal(l.Now()) {
		t.Errorf("a scoped limiter's time is %v, want its origin's", got)
	}
	for i, scope := range []*zlimit.RateLimiter{l, a, b} {
		setSystem(t, scope, zlimit.PerDay("rpm", int64(i+1)))
		create(t, scope, zlimit.Entity{ID: "key-1", Name: fmt.Sprint(i)})
	}
	for i, scope := range []*zlimit.RateLimiter{l, a, b} {
		if got := burst(t, scope, 5); got != i+1 {
			t.Errorf("scope %d admits %d, want %d", i, got, i+1)
		}
		if e, err := scope.Entities.Get(ctx, "key-1"); err != nil || e.Name != fmt.Sprint(i) {
			t.Errorf("scope %d has entity %+v, %v", i, e, err)
		}
		if got := actions(t, scope, "key-1"); len(got) != 1 {
			t.Errorf("scope %d has events %v", i, got)
		}
	}
	// A change through one is known to the other immediately, and to no third one.
	if _, err := again.Limits.Resolve(ctx, "key-2", "gpt-4"); err != nil {
		t.Fatalf("Limits.Resolve() = %v", err)
	}
	setSystem(t, a, zlimit.PerDay("rpm", 7))
	for scope, want := range map[*zlimit.RateLimiter]int64{again: 7, exact: 7, b: 3, l: 1} {
		if got, err := scope.Limits.Resolve(ctx, "key-2", "gpt-4"); err != nil || got.Limits[0].Capacity != want {
			t.Errorf("Resolve() in %s = %v, %v, want %d", scope.NamespaceName(), got, err, want)
		}
	}

	check.Error(t, "Close() of a scoped limiter", errors.Join(a.Close(), a.Close()))
	for call, err := range map[string]error{
		"Acquire":   func() error { _, err := a.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1})); return err }(),
		"Namespace": func() error { _, err := a.Namespace(ctx, "b"); return err }(),
		"Create":    func() error { _, err := a.Entities.Create(ctx, zlimit.Entity{ID: "e"}); return err }(),
		"Get":       func() error { _, err := a.Entities.Get(ctx, "e"); return err }(),
		"Delete":    a.Entities.Delete(ctx, "e"),
		"Children":  endOf(a.Entities.Children(ctx, "e")),
		"Buckets":   endOf(a.Entities.Buckets(ctx, "e")),
		"Register":  func() error { _, err := a.Namespaces.Register(ctx, "x"); return err }(),
		"Recover":   func() error { _, err := a.Namespaces.Recover(ctx, "x"); return err }(),
		"Purge":     a.Namespaces.Purge(ctx, "x", nil),
		"List":      endOf(a.Namespaces.List(ctx)),
		"Orphans":   endOf(a.Namespaces.Orphans(ctx)),
		"Events":    endOf(a.Audit.Events(ctx, "e", zlimit.AuditQuery{})),
		"Setup":     a.Setup(ctx),
	} {
		if !errors.Is(err, zlimit.ErrClosed) {
			t.Errorf("%s() of a closed limiter = %v, want ErrClosed", call, err)
		}
	}
	if _, err := again.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"}); err != nil { // the store is open
		t.Errorf("Available() after another scope was closed = %v", err)
	}
	check.Error(t, "Close()", l.Close())
	if _, err := again.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1})); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Acquire() after the store was closed = %v, want ErrClosed", err)
	}
	check.Error(t, "Close() after the store was closed", errors.Join(again.Close(), b.Close(), exact.Close()))
}

// TestConcurrentRegistrations registers, deletes and recovers from several goroutines: each succeeds once.
func TestConcurrentRegistrations(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		compete := func(do func() (zlimit.Namespace, error), lost error) (won []zlimit.Namespace) {
			t.Helper()
			var mu sync.Mutex
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					ns, err := do()
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won = append(won, ns)
					} else if lost == nil || !errors.Is(err, lost) {
						t.Errorf("%v, want %v", err, lost)
					}
				})
			}
			group.Wait()
			return won
		}
		won := compete(func() (zlimit.Namespace, error) { return l.Namespaces.Register(ctx, "a") }, nil)
		if len(won) != 8 || slices.ContainsFunc(won, func(ns zlimit.Namespace) bool { return ns.ID != won[0].ID }) {
			t.Errorf("Register() at once yields %v, want one namespace", won)
		}
		if got := compete(func() (zlimit.Namespace, error) { return l.Namespaces.Delete(ctx, "a") }, zlimit.ErrNamespaceNotFound); len(got) != 1 {
			t.Errorf("Delete() at once succeeds %d times", len(got))
		}
		if got := compete(func() (zlimit.Namespace, error) { return l.Namespaces.Recover(ctx, won[0].ID) }, zlimit.ErrNamespaceState); len(got) != 1 {
			t.Errorf("Recover() at once succeeds %d times", len(got))
		}
		if _, err := l.Namespaces.Delete(ctx, "a"); err != nil {
			t.Fatalf("Namespaces.Delete() = %v", err)
		}
		// Either it is recovered, or it is purged.
		var turns, recovered atomic.Int64
		compete(func() (zlimit.Namespace, error) {
			var err error
			if turns.Add(1)%2 == 0 {
				err = l.Namespaces.Purge(ctx, won[0].ID, nil)
			} else if _, err = l.Namespaces.Recover(ctx, won[0].ID); err == nil {
				recovered.Add(1)
			}
			if errors.Is(err, zlimit.ErrNamespaceNotFound) { // purged to the end
				err = zlimit.ErrNamespaceState
			}
			return won[0], err
		}, zlimit.ErrNamespaceState)
		_, err := l.Namespaces.Get(ctx, "a")
		if orphans := collect(t, "Orphans()", l.Namespaces.Orphans(ctx)); (err == nil) != (recovered.Load() == 1) || len(orphans) > 0 {
			t.Errorf("Get() = %v after %d recoveries, orphans %v", err, recovered.Load(), orphans)
		}
	})
}

// crowd sets up a limiter and a namespace to purge, deleted, between others that look much like it.
func crowd(tb testing.TB, s store.Store) (l *zlimit.RateLimiter, victim zlimit.Namespace, others []string) {
	tb.Helper()
	ctx := context.Background()
	l = newLimiter(tb, zlimit.StoreOn(s))
	others = []string{zlimit.RegistryNamespace, l.NS()}
	for _, name := range []string{"victim", "other", "victims", zlimit.DefaultNamespace} {
		scope := newLimiter(tb, zlimit.StoreOn(s), zlimit.WithNamespace(name))
		setSystem(tb, scope, zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 1000))
		setLimits(tb, scope, zlimit.Level{Resource: "gpt-4"}, zlimit.PerMinute("rpm", 10))
		create(tb, scope, zlimit.Entity{ID: "p"})
		create(tb, scope, zlimit.Entity{ID: "key-1", ParentID: "p"})
		populate(tb, scope, "key-1")
		acquire(tb, scope, zlimit.Request{ID: "job-1", Entity: "key-1", Resource: "gpt-5", Consume: zlimit.Amounts{"rpm": 1}})
		if name != "victim" {
			others = append(others, scope.NS())
		}
	}
	victim = check.Call(l.Namespaces.Delete(ctx, "victim")).Must(tb, "Namespaces.Delete()")
	return l, victim, others
}

// checkPurged checks that a namespace is gone with its record, and nothing else.
func checkPurged(t *testing.T, l *zlimit.RateLimiter, id string, others []string, before map[string]string) {
	t.Helper()
	if got := dump(t, l.Calls(), id); len(got) > 0 {
		t.Errorf("%d items left: %v", len(got), got)
	}
	record := layout.NamespaceIDKey{ID: id}.Key()
	want := without(before, func(key string) bool { return key == record.PK+" "+record.SK })
	compare.Equal(t, "items of others", want, dump(t, l.Calls(), others...))
	if orphans := collect(t, "Orphans()", l.Namespaces.Orphans(context.Background())); orphans != nil {
		t.Errorf("Orphans() = %v", orphans)
	}
}

func TestPurge(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l, victim, others := crowd(t, store.Of(s))
		// An item of another namespace whose index entry is wrong.
		stray := layout.EntityKey{NS: others[2], Entity: "stray"}.Key()
		if _, err := store.Of(s).Write(ctx, store.Write{Kind: store.Put, Key: stray, Item: expr.Item{
			{Name: "GSI4PK", Value: expr.S(victim.ID)}, {Name: "GSI4SK", Value: expr.S(stray.PK)},
		}}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		before, size := dump(t, store.Of(s), others...), len(dump(t, store.Of(s), victim.ID))-1
		if size <= 50 || size > 75 {
			t.Fatalf("the namespace has %d items, which are not three batches", size)
		}
		var progress []int
		if err := l.Namespaces.Purge(ctx, victim.ID, func(p zlimit.PurgeProgress) { progress = append(progress, p.Deleted) }); err != nil {
			t.Fatalf("Purge() = %v", err)
		}
		if want := []int{25, 50, size}; !slices.Equal(progress, want) {
			t.Errorf("progress %v, want %v", progress, want)
		}
		items, err := store.Of(s).Read(ctx, []store.Key{stray}, true)
		if err != nil || items[0] == nil {
			t.Errorf("the purge took an item of another namespace: %v", err)
		}
		check.Fatal(t, "Delete()", store.Of(s).Delete(ctx, []store.Key{stray}))
		checkPurged(t, l, victim.ID, others, before)
		if err := l.Namespaces.Purge(ctx, victim.ID, nil); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
			t.Errorf("Purge() again = %v, want ErrNamespaceNotFound", err)
		}
	})
}

// TestPurgeSurvivesCrashes kills the process at every call of a purge, in each way, and purges again.
func TestPurgeSurvivesCrashes(t *testing.T) {
	const calls = 7 // mark, query, three batches, query, unmark
	ctx := context.Background()
	for _, how := range []faulttest.Crash{faulttest.Before, faulttest.Amid, faulttest.After} {
		for at := 1; ; at++ {
			m := faulttest.NewMortal(store.Of(newMemory(t)))
			l, victim, others := crowd(t, m)
			before := dump(t, m, others...)
			m.Kill(at, how)
			err := l.Namespaces.Purge(ctx, victim.ID, nil)
			if !m.Died() {
				if err != nil || at != calls+1 {
					t.Errorf("Purge() of %d calls = %v, want %d calls", at-1, err, calls)
				}
				break
			}
			if !errors.Is(err, faulttest.ErrKilled) {
				t.Errorf("killed %s %d: Purge() = %v", how, at, err)
			}
			m.Kill(0, "")
			again := newLimiter(t, zlimit.StoreOn(m))
			last := at == calls && how == faulttest.After
			if !last {
				if got := collect(t, "Orphans()", again.Namespaces.Orphans(ctx)); len(got) != 1 || got[0].ID != victim.ID {
					t.Errorf("Orphans() = %v, want the namespace", got)
				}
			}
			err = again.Namespaces.Purge(ctx, victim.ID, nil)
			if (err != nil) != last || last && !errors.Is(err, zlimit.ErrNamespaceNotFound) {
				t.Errorf("Purge() again = %v", err)
			}
			checkPurged(t, again, victim.ID, others, before)
			if t.Failed() {
				t.Fatalf("killed %s call %d", how, at)
			}
		}
	}
}

// TestPurgeOfManyItems purges 50,000 items, is killed amid them, and goes on.
func TestPurgeOfManyItems(t *testing.T) {
	const size = 50_000
	ctx := context.Background()
	m := faulttest.NewMortal(store.Of(newMemory(t)))
	l, victim, others := crowd(t, m)
	some := len(dump(t, m, victim.ID))
	for i := some; i < size; i += 100 {
		var writes []store.Write
		for j := i; j < min(i+100, size); j++ {
			item := layout.Bucket{Key: layout.BucketKey{NS: victim.ID, Entity: fmt.Sprint("key-", j), Resource: "gpt-4"}, ShardCount: 1}
			writes = append(writes, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode()})
		}
		if _, err := m.Transact(ctx, writes); err != nil {
			t.Fatalf("Transact() = %v", err)
		}
	}
	before := dump(t, m, others...)
	deleted, told := 0, 0
	tell := func(p zlimit.PurgeProgress) {
		if p.Deleted <= deleted || p.Deleted > deleted+store.MaxDelete {
			t.Errorf("progress from %d to %d", deleted, p.Deleted)
		}
		deleted, told = p.Deleted, told+1
	}
	m.Kill(700, faulttest.Amid)
	if err := l.Namespaces.Purge(ctx, victim.ID, tell); !errors.Is(err, faulttest.ErrKilled) {
		t.Fatalf("Purge() = %v, want it to be killed", err)
	}
	m.Kill(0, "")
	if first := deleted; first < 10_000 || first > 20_000 {
		t.Errorf("killed after %d items", first)
	} else {
		deleted = 0
		check.Fatal(t, "Purge() again", l.Namespaces.Purge(ctx, victim.ID, tell))
		if total := first + deleted; total != size-store.MaxDelete/2 { // half of the last batch was done, and not counted
			t.Errorf("progress adds up to %d of %d", total, size)
		}
	}
	if told < size/store.MaxDelete-1 {
		t.Errorf("told %d times", told)
	}
	checkPurged(t, l, victim.ID, others, before)
}

// TestPurgeOfANamespaceInUse lets a limiter write for as long as the purge goes on.
func TestPurgeOfANamespaceInUse(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	scope := check.Call(l.Namespace(ctx, "a", zlimit.WithSetup())).Must(t, "Namespace()")
	setSystem(t, scope, zlimit.PerMinute("rpm", 1000))
	ns := check.Call(l.Namespaces.Delete(ctx, "a")).Must(t, "Namespaces.Delete()")
	err := l.Namespaces.Purge(ctx, ns.ID, func(zlimit.PurgeProgress) { acquire(t, scope, ask(zlimit.Amounts{"rpm": 1})) })
	if !errors.Is(err, zlimit.ErrNamespaceState) || !strings.Contains(err.Error(), "written to") {
		t.Errorf("Purge() of a namespace in use = %v, want ErrNamespaceState", err)
	}
	check.Error(t, "Purge() after it was left", errors.Join(scope.Close(), l.Namespaces.Purge(ctx, ns.ID, nil)))
	if got := dump(t, l.Calls(), ns.ID); len(got) > 0 {
		t.Errorf("items left: %v", got)
	}
}

// TestPurgeInAStorm throttles deletions and fails queries: the purge waits. Denied permission ends it immediately.
func TestPurgeInAStorm(t *testing.T) {
	ctx := context.Background()
	s, faults := newTable(t)
	l, victim, others := crowd(t, store.Of(s))
	before := dump(t, store.Of(s), others...)
	faults.Inject(enginetest.Fault{Kind: enginetest.AccessDenied, Operation: "BatchWriteItem"})
	faults.Reset()
	err := l.Namespaces.Purge(ctx, victim.ID, nil)
	if err == nil || errors.As(err, new(*zlimit.UnavailableError)) || faults.Calls("BatchWriteItem") != 1 {
		t.Errorf("Purge() without permission = %v after %d calls, want the refusal of the first", err, faults.Calls("BatchWriteItem"))
	}
	faults.Clear()
	for _, fault := range []enginetest.Fault{
		{Kind: enginetest.InternalError, Operation: "UpdateItem", Times: 1},
		{Kind: enginetest.Throttled, Operation: "BatchWriteItem", Times: 4},
		{Kind: enginetest.LostReply, Operation: "BatchWriteItem", Times: 4, Skip: 1},
		{Kind: enginetest.InternalError, Operation: "Query", Times: 4},
		{Kind: enginetest.LostReply, Operation: "DeleteItem", Times: 1},
	} {
		faults.Inject(fault)
	}
	check.Error(t, "Purge()", l.Namespaces.Purge(ctx, victim.ID, nil))
	faults.Clear()
	checkPurged(t, l, victim.ID, others, before)
}

// TestPurgeEndsWithItsContext waits for nothing more once the context has ended.
func TestPurgeEndsWithItsContext(t *testing.T) {
	s, faults := newTable(t)
	l, victim, _ := crowd(t, store.Of(s))
	faults.Inject(enginetest.Fault{Kind: enginetest.Throttled, Operation: "BatchWriteItem"})
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := l.Namespaces.Purge(ctx, victim.ID, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Purge() = %v, want context.DeadlineExceeded", err)
	}
}
