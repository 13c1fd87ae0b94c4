package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestEntities(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		c.sleep(1500 * time.Millisecond)
		acme := create(t, l, zlimit.Entity{ID: "acme", Name: "Acme Ltd. 🐎", Metadata: map[string]string{"plan": "gold", "b_rpm_tk": "", "a.b-c": "ž\n"}})
		alice := create(t, l, zlimit.Entity{ID: "alice", ParentID: "acme", Cascade: true})
		bob := create(t, l, zlimit.Entity{ID: "bob", ParentID: "acme"})
		want := zlimit.Entity{
			ID: "alice", Name: "alice", ParentID: "acme", Cascade: true, CreatedAt: time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC),
		}
		compare.Equal(t, "Create()", want, alice)
		for _, e := range []zlimit.Entity{acme, alice, bob} {
			got, err := l.Entities.Get(ctx, e.ID)
			if diff := cmp.Diff(e, got); err != nil || diff != "" {
				t.Errorf("Get(%s) = %v (-want +got):\n%s", e.ID, err, diff)
			}
		}
		compare.Equal(t, "Children(acme)", []zlimit.Entity{alice, bob}, collect(t, "Children()", l.Entities.Children(ctx, "acme")))
		for _, id := range []string{"alice", "nobody", "acm"} {
			if got := collect(t, "Children()", l.Entities.Children(ctx, id)); got != nil {
				t.Errorf("Children(%s) = %v, want none", id, got)
			}
		}

		if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "alice"}); !errors.Is(err, zlimit.ErrEntityExists) || !strings.Contains(err.Error(), "alice") {
			t.Errorf("Create() again = %v, want ErrEntityExists", err)
		}
		_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "carol", ParentID: "nobody"})
		if !errors.Is(err, zlimit.ErrEntityNotFound) || !strings.Contains(err.Error(), `"nobody"`) {
			t.Errorf("Create() below a missing parent = %v, want ErrEntityNotFound of the parent", err)
		}
		for _, id := range []string{"carol", "nobody"} {
			if _, err := l.Entities.Get(ctx, id); !errors.Is(err, zlimit.ErrEntityNotFound) {
				t.Errorf("Get(%s) = %v, want ErrEntityNotFound", id, err)
			}
		}
		if got, err := l.Entities.Get(ctx, "alice"); err != nil || !got.Cascade {
			t.Errorf("Get() after a refused creation = %+v, %v", got, err)
		}

		if err := l.Entities.Delete(ctx, "acme"); !errors.Is(err, zlimit.ErrEntityHasChildren) {
			t.Errorf("Delete() of a parent = %v, want ErrEntityHasChildren", err)
		}
		for _, id := range []string{"alice", "bob", "acme"} {
			if err := l.Entities.Delete(ctx, id); err != nil {
				t.Errorf("Delete(%s) = %v", id, err)
			}
			if err := l.Entities.Delete(ctx, id); !errors.Is(err, zlimit.ErrEntityNotFound) {
				t.Errorf("Delete(%s) again = %v, want ErrEntityNotFound", id, err)
			}
		}
		create(t, l, zlimit.Entity{ID: "alice"})
		if got := actions(t, l, "alice"); !slices.Equal(got, []zlimit.AuditAction{zlimit.ActionEntityCreated, zlimit.ActionEntityDeleted, zlimit.ActionEntityCreated}) {
			t.Errorf("events of alice: %v", got)
		}
	})
}

func TestEntityValidation(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	create(t, l, zlimit.Entity{ID: "p"})
	before := dump(t, l.Calls(), l.NS())
	for name, e := range map[string]zlimit.Entity{
		"no ID":                   {},
		"a separator":             {ID: "a#b"},
		"a space":                 {ID: "a b"},
		"a long ID":               {ID: strings.Repeat("x", 257)},
		"an audit ID":             {ID: zlimit.AuditSystem},
		"a bad parent":            {ID: "e", ParentID: "#"},
		"itself as parent":        {ID: "e", ParentID: "e"},
		"a cascade to nobody":     {ID: "e", Cascade: true},
		"a long name":             {ID: "e", Name: strings.Repeat("x", 257)},
		"a control character":     {ID: "e", Name: "a\x00"},
		"a name that is no UTF-8": {ID: "e", Name: "\xff"},
		"metadata without name":   {ID: "e", Metadata: map[string]string{"": "x"}},
		"metadata, no UTF-8":      {ID: "e", Metadata: map[string]string{"x": "\xff"}},
		"metadata, name no UTF-8": {ID: "e", Metadata: map[string]string{"\xff": "x"}},
		"too much metadata":       {ID: "e", Metadata: map[string]string{"x": strings.Repeat("x", zlimit.MaxMetadata)}},
	} {
		if _, err := l.Entities.Create(ctx, e); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: Create() = %v, want a ValidationError", name, err)
		}
	}
	for name, err := range map[string]error{
		"Get":      func() error { _, err := l.Entities.Get(ctx, "#"); return err }(),
		"Delete":   l.Entities.Delete(ctx, ""),
		"Children": endOf(l.Entities.Children(ctx, "a#")),
		"Buckets":  endOf(l.Entities.Buckets(ctx, "a#")),
	} {
		if !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s() of a bad ID = %v, want a ValidationError", name, err)
		}
	}
	compare.Equal(t, "items after refusals", before, dump(t, l.Calls(), l.NS()))
	create(t, l, zlimit.Entity{ID: "e", Name: strings.Repeat("x", 256), ParentID: "p", Metadata: map[string]string{"x": strings.Repeat("x", zlimit.MaxMetadata-1)}})
}

// TestChains builds chains up to their bound, and tries to close a circle.
func TestChains(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	var invalid *zlimit.ValidationError
	for i := range protocol.MaxDepth {
		e := zlimit.Entity{ID: fmt.Sprint("e", i)}
		if i > 0 {
			e.ParentID = fmt.Sprint("e", i-1)
		}
		create(t, l, e)
	}
	if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e8", ParentID: "e7"}); !errors.As(err, &invalid) || invalid.Field != "parent" {
		t.Errorf("Create() of a chain of 9 = %v, want a ValidationError of the parent", err)
	}
	create(t, l, zlimit.Entity{ID: "other", ParentID: "e6"})

	// Nothing above an entity can come below it while it is there.
	for _, parent := range []string{"e0", "e1", "e7"} {
		if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e0", ParentID: parent}); !errors.Is(err, zlimit.ErrEntityExists) && !errors.As(err, &invalid) {
			t.Errorf("Create() of e0 below %s = %v, want a refusal", parent, err)
		}
	}
	// Another program deletes a record under its children.
	check.Fatal(t, "Delete()", l.Calls().Delete(ctx, []store.Key{layout.EntityKey{NS: l.NS(), Entity: "e0"}.Key()}))
	for _, parent := range []string{"e1", "e2", "e5"} {
		if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e0", ParentID: parent}); !errors.As(err, &invalid) || invalid.Field != "parent" {
			t.Errorf("Create() of a circle through %s = %v, want a ValidationError of the parent", parent, err)
		}
	}
	create(t, l, zlimit.Entity{ID: "e0"})
}

func TestConcurrentEntities(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		create(t, l, zlimit.Entity{ID: "p"})
		compete := func(call string, lost error, do func(i int) error) {
			t.Helper()
			var won atomic.Int64
			var group sync.WaitGroup
			for i := range 12 {
				group.Go(func() {
					switch err := do(i); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, lost):
						t.Errorf("%s = %v, want %v", call, err, lost)
					}
				})
			}
			group.Wait()
			if won.Load() != 1 {
				t.Errorf("%s succeeded %d times of 12 at once, want 1", call, won.Load())
			}
		}
		compete("Create", zlimit.ErrEntityExists, func(i int) error {
			_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e", Name: fmt.Sprint("number ", i), ParentID: "p"})
			return err
		})
		compete("Delete", zlimit.ErrEntityNotFound, func(int) error { return l.Entities.Delete(ctx, "e") })
		if got := actions(t, l, "e"); !slices.Equal(got, []zlimit.AuditAction{zlimit.ActionEntityCreated, zlimit.ActionEntityDeleted}) {
			t.Errorf("events: %v, want one of each", got)
		}
	})
}

// TestTransactionsInTheWay makes transactions conflict, and lose their replies: each change is made once, with one
// event.
func TestTransactionsInTheWay(t *testing.T) {
	t.Parallel()
	if enginetest.IsMean() {
		t.Skip("it counts every call, and what becomes of it")
	}
	ctx := context.Background()
	for _, fault := range []enginetest.Kind{enginetest.Conflict, enginetest.Throttled, enginetest.LostReply, enginetest.LostRequest} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel() // it waits for what is tried again
			s, faults := newTable(t)
			l := newLimiter(t, s)
			limits := []zlimit.Limit{zlimit.PerMinute("rpm", 10)}
			for i, do := range []func() error{
				func() error { _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "p"}); return err },
				func() error { _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e", ParentID: "p"}); return err },
				func() error {
					return l.Limits.Set(ctx, zlimit.Level{Entity: "e", Resource: "gpt-4"}, zlimit.Config{Limits: limits})
				},
				func() error {
					return l.Limits.Set(ctx, zlimit.Level{Entity: "e", Resource: "gpt-4"}, zlimit.Config{Limits: limits})
				},
				func() error { return l.Limits.Delete(ctx, zlimit.Level{Entity: "e", Resource: "gpt-4"}) },
				func() error { return l.Entities.Delete(ctx, "e") },
				func() error { return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}) },
				func() error { return l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}) },
				func() error { return l.Limits.Delete(ctx, zlimit.Level{Resource: "gpt-4"}) },
				func() error { return l.Limits.Delete(ctx, zlimit.Level{}) },
				func() error { _, err := l.Namespaces.Register(ctx, "other"); return err },
				func() error { _, err := l.Namespaces.Delete(ctx, "other"); return err },
			} {
				faults.Inject(enginetest.Fault{Kind: fault, Operation: "TransactWriteItems", Times: 2})
				if err := do(); err != nil {
					t.Errorf("change %d = %v", i, err)
				}
				if got := faults.Injected(fault); got != 2*(i+1) {
					t.Fatalf("change %d met %d faults, want %d", i, got, 2*(i+1))
				}
				faults.Clear()
			}
			for entity, want := range map[string][]zlimit.AuditAction{
				"p":                           {zlimit.ActionEntityCreated},
				"e":                           {zlimit.ActionEntityCreated, zlimit.ActionLimitsSet, zlimit.ActionLimitsSet, zlimit.ActionLimitsDeleted, zlimit.ActionEntityDeleted},
				zlimit.AuditSystem:            {zlimit.ActionLimitsSet, zlimit.ActionLimitsDeleted},
				zlimit.AuditResource("gpt-4"): {zlimit.ActionLimitsSet, zlimit.ActionLimitsDeleted},
			} {
				if got := actions(t, l, entity); !slices.Equal(got, want) {
					t.Errorf("events of %s: %v, want %v", entity, got, want)
				}
			}
			checkLevels(t, l, zlimit.LevelQuery{})
		})
	}
}

// TestChangesWithoutAnAnswer lose every reply: the caller hears that the outcome is unknown.
func TestChangesWithoutAnAnswer(t *testing.T) {
	ctx := context.Background()
	s, faults := newTable(t)
	l := newLimiter(t, s)
	faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Operation: "TransactWriteItems"})
	_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e"})
	var outage *zlimit.UnavailableError
	if !errors.As(err, &outage) || !outage.Unknown {
		t.Errorf("Create() = %v, want an UnavailableError with an unknown outcome", err)
	}
	faults.Clear()
	if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e"}); !errors.Is(err, zlimit.ErrEntityExists) {
		t.Errorf("Create() again = %v, want ErrEntityExists: the first one was carried out", err)
	}
	if got := actions(t, l, "e"); len(got) != 1 {
		t.Errorf("events: %v, want one", got)
	}
}

// TestCreationIsKnownAtOnce charges a parent right after its child was created by this process, though the child had been
// in use without a record.
func TestCreationIsKnownAtOnce(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("rpm", 10))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	create(t, l, zlimit.Entity{ID: "p"})
	create(t, l, zlimit.Entity{ID: "key-1", ParentID: "p", Cascade: true})
	acquire(t, l, ask(zlimit.Amounts{"rpm": 2}))
	left := func() int64 {
		statuses := check.Call(l.Available(ctx, zlimit.AvailableQuery{Entity: "p", Resource: "gpt-4"})).Must(t, "Available()")
		s, _ := statuses.Limit("rpm")
		return s.Available
	}
	if got := left(); got != 8 {
		t.Errorf("the parent has %d left, want 8", got)
	}
	check.Fatal(t, "Entities.Delete()", l.Entities.Delete(ctx, "key-1"))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 3}))
	if got := left(); got != 8 {
		t.Errorf("the parent has %d left after its child was deleted, want 8", got)
	}
}

// belongsTo returns a function that reports whether a key is deleted with an entity.
func belongsTo(ns, entity string) func(key string) bool {
	return func(key string) bool {
		return strings.HasPrefix(key, ns+"/ENTITY#"+entity+" ") || strings.HasPrefix(key, ns+"/BUCKET#"+entity+"#")
	}
}

// audits returns a function that reports whether a key is one of an audit event or of the registry of configs.
func audits(ns string) func(key string) bool {
	return func(key string) bool {
		return strings.HasPrefix(key, ns+"/AUDIT#") || key == ns+"/SYSTEM# #ENTITY_CONFIG_RESOURCES"
	}
}

// neighbours sets up a limiter with an entity to delete, key-1, and others that look much like it.
func neighbours(tb testing.TB, s store.Store) *zlimit.RateLimiter {
	tb.Helper()
	c := newClock()
	l := newLimiter(tb, zlimit.StoreOn(s), zlimit.WithClock(c.now))
	other := newLimiter(tb, zlimit.StoreOn(s), zlimit.WithClock(c.now), zlimit.WithNamespace("other"))
	for _, l := range []*zlimit.RateLimiter{l, other} {
		create(tb, l, zlimit.Entity{ID: "p"})
		for _, id := range []string{"key-1", "key-10", "key"} {
			create(tb, l, zlimit.Entity{ID: id, ParentID: "p", Cascade: true})
			populate(tb, l, id)
		}
	}
	return l
}

// checkDeleted checks that key-1 is gone, with all that belongs to it, and nothing else.
func checkDeleted(t *testing.T, l *zlimit.RateLimiter, before map[string]string, other string) {
	t.Helper()
	after := dump(t, l.Calls(), l.NS(), other)
	listed := layout.ChildKey{NS: l.NS(), Entity: "p", Child: "key-1"}.Key()
	gone := func(key string) bool { return belongsTo(l.NS(), "key-1")(key) || key == listed.PK+" "+listed.SK }
	compare.Equal(t, "items after the deletion", without(without(before, gone), audits(l.NS())), without(after, audits(l.NS())))
	for key := range before {
		if _, ok := after[key]; !ok && audits(l.NS())(key) {
			t.Errorf("the deletion took %s", key)
		}
	}
	events := actions(t, l, "key-1")
	if len(events) != 1+4+4+1 || events[0] != zlimit.ActionEntityCreated || events[9] != zlimit.ActionEntityDeleted || count(events, zlimit.ActionLimitsDeleted) != 4 {
		t.Errorf("events: %v, want a deletion of 4 configs, and of the entity as the last one", events)
	}
	registry, err := layout.DecodeEntityConfigRegistry(stored(t, l, layout.EntityConfigRegistryKey{NS: l.NS()}.Key()))
	want := []layout.ResourceCount{
		{Name: zlimit.DefaultResource, Entities: 2}, {Name: "gpt-4", Entities: 2}, {Name: "gpt-5", Entities: 2}, {Name: "o3", Entities: 2},
	}
	if diff := cmp.Diff(want, registry.Resources); err != nil || diff != "" {
		t.Errorf("registry: %v (-want +got):\n%s", err, diff)
	}
}

func TestEntityDeletion(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := neighbours(t, store.Of(s))
		other := check.Call(l.Namespaces.Get(ctx, "other")).Must(t, "Namespaces.Get()")
		before := dump(t, store.Of(s), l.NS(), other.ID)
		check.Fatal(t, "Delete()", l.Entities.Delete(ctx, "key-1"))
		checkDeleted(t, l, before, other.ID)
		if limits, err := l.Limits.Get(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}); err != nil || limits.Limits == nil || len(limits.Limits) > 0 {
			t.Errorf("limits of a deleted entity = %v, %v, want an empty list", limits, err)
		}
	})
}

// TestEntityDeletionSurvivesCrashes kills the process at every call of a deletion, in each way, and deletes again.
func TestEntityDeletionSurvivesCrashes(t *testing.T) {
	ctx := context.Background()
	for _, how := range []faulttest.Crash{faulttest.Before, faulttest.Amid, faulttest.After} {
		for at := 1; ; at++ {
			m := faulttest.NewMortal(store.Of(newMemory(t)))
			l := neighbours(t, m)
			other := check.Call(l.Namespaces.Get(ctx, "other")).Must(t, "Namespaces.Get()")
			before := dump(t, m, l.NS(), other.ID)
			m.Kill(at, how)
			err := l.Entities.Delete(ctx, "key-1")
			if !m.Died() {
				if err != nil || at < 15 {
					t.Errorf("Delete() of %d calls = %v", at-1, err)
				}
				break
			}
			if !errors.Is(err, faulttest.ErrKilled) {
				t.Errorf("killed %s %d: Delete() = %v", how, at, err)
			}
			m.Kill(0, "")
			later := newClock()
			later.sleep(time.Second)
			again := newLimiter(t, zlimit.StoreOn(m), zlimit.WithClock(later.now))
			err = again.Entities.Delete(ctx, "key-1")
			if err != nil && (!errors.Is(err, zlimit.ErrEntityNotFound) || how != faulttest.After) {
				t.Errorf("killed %s %d: Delete() again = %v", how, at, err)
			}
			checkDeleted(t, again, before, other.ID)
			if t.Failed() {
				t.Fatalf("killed %s call %d", how, at)
			}
		}
	}
}

// TestDeletionWithoutRecord deletes what belongs to an entity that was never created.
func TestDeletionWithoutRecord(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	populate(t, l, "key-1")
	check.Error(t, "Delete()", l.Entities.Delete(ctx, "key-1"))
	if got := without(dump(t, l.Calls(), l.NS()), audits(l.NS())); len(got) != 0 {
		t.Errorf("items left: %v", got)
	}
	if got := actions(t, l, "key-1"); count(got, zlimit.ActionEntityDeleted) != 0 || count(got, zlimit.ActionLimitsDeleted) != 4 {
		t.Errorf("events: %v", got)
	}
	if err := l.Entities.Delete(ctx, "key-1"); !errors.Is(err, zlimit.ErrEntityNotFound) {
		t.Errorf("Delete() again = %v, want ErrEntityNotFound", err)
	}
}

// TestChildrenPageByPage pages through an index.
func TestChildrenPageByPage(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		create(t, l, zlimit.Entity{ID: "p"})
		var want []zlimit.Entity
		for i := range soak.Pick(140, 250) { // two pages, or three
			want = append(want, create(t, l, zlimit.Entity{ID: fmt.Sprintf("key-%03d", i), ParentID: "p", Metadata: map[string]string{"x": strings.Repeat("x", 8_000)}}))
		}
		compare.Equal(t, "Children()", want, collect(t, "Children()", l.Entities.Children(ctx, "p")))
		n := 0
		for _, err := range l.Entities.Children(ctx, "p") {
			if n++; n == 3 || err != nil {
				break
			}
		}
		if n != 3 {
			t.Errorf("a loop over children that breaks at the third went on to number %d", n)
		}
	})
}

// TestBuckets lists buckets, one of them in shards, more than fit one read.
func TestBuckets(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", 60), zlimit.PerDay("tpd", 1000))
		var want []string
		for i := range 120 {
			resource := fmt.Sprintf("model-%03d", i)
			acquire(t, l, zlimit.Request{Entity: "key-1", Resource: resource, Consume: zlimit.Amounts{"rpm": int64(i%5) + 10}})
			want = append(want, fmt.Sprintf("%s 1 [rpm=%d tpd=1000]", resource, 52-i%5))
		}
		for _, id := range []string{"key", "key-10"} {
			acquire(t, l, zlimit.Request{Entity: id, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
		}
		// Half a token in each of 8 items of 16.
		for shard := range 8 {
			item := layout.Bucket{
				Key: layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "sharded", Shard: shard}, RefilledAt: c.now().UnixMilli(), ShardCount: 16,
				Limits: []bucket.Limit{
					{Name: "rpm", Tokens: 500, Capacity: 160_000, RefillAmount: 1, RefillPeriod: 1 << 40},
					{Name: bucket.WriteUnits, Tokens: 1000, Capacity: 1000_000, RefillAmount: 1000_000, RefillPeriod: 1000},
				},
			}
			if shard == 7 {
				item.ShardCount = 8 // it does not know the split
			}
			put(t, l, item.Key.Key(), item.Encode())
		}
		want = append(want, "sharded 16 [rpm=4]")
		c.sleep(2 * time.Second) // two tokens of rpm flow in

		list := func() (got []string) {
			for _, b := range collect(t, "Buckets()", l.Entities.Buckets(ctx, "key-1")) {
				var limits []string
				for _, s := range b.Statuses {
					limits = append(limits, fmt.Sprintf("%s=%d", s.Limit.Name, s.Available))
					if s.Entity != "key-1" || s.Resource != b.Resource || s.Limit.RefillPeriod <= 0 || s.Exceeded || s.Requested != 0 {
						t.Errorf("status %+v of %s", s, b.Resource)
					}
				}
				got = append(got, fmt.Sprintf("%s %d %v", b.Resource, b.Shards, limits))
			}
			return got
		}
		compare.Equal(t, "Buckets()", want, list())
		if got := collect(t, "Buckets()", l.Entities.Buckets(ctx, "nobody")); got != nil {
			t.Errorf("Buckets(nobody) = %v, want none", got)
		}
		for b := range l.Entities.Buckets(ctx, "key-1") {
			if b.Resource != "model-000" {
				t.Errorf("the loop went on to %s", b.Resource)
			}
			break
		}
	})
}

// A stale store has an index of children that still shows some that are gone.
type stale struct {
	store.Store
	gone []store.Key
}

func (s *stale) Query(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := s.Store.Query(ctx, q)
	if q.Index == "GSI1" {
		for _, k := range s.gone {
			page.Items = append(page.Items, k.Join(nil))
		}
	}
	return page, err
}

// TestStaleIndex deletes a parent right after its last child, which the index does not know.
func TestStaleIndex(t *testing.T) {
	ctx := context.Background()
	s := &stale{Store: store.Of(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(s))
	s.gone = []store.Key{layout.EntityKey{NS: l.NS(), Entity: "gone"}.Key()}
	create(t, l, zlimit.Entity{ID: "p"})
	create(t, l, zlimit.Entity{ID: "e", ParentID: "p"})
	if err := l.Entities.Delete(ctx, "p"); !errors.Is(err, zlimit.ErrEntityHasChildren) {
		t.Errorf("Delete() = %v, want ErrEntityHasChildren", err)
	}
	check.Error(t, "Delete() of the child, and of the parent", errors.Join(l.Entities.Delete(ctx, "e"), l.Entities.Delete(ctx, "p")))
}

// TestRecordsOfOthers reads entities as other programs may write them.
func TestRecordsOfOthers(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	key := layout.EntityKey{NS: l.NS(), Entity: "e"}.Key()
	write(t, l, store.Write{Kind: store.Put, Key: key, Item: expr.Item{
		{Name: "entity_id", Value: expr.S("e")},
		{Name: "parent_id", Value: expr.Null()},
		{Name: "metadata", Value: expr.Map(expr.Item{{Name: "seats", Value: expr.N(5)}, {Name: "plan", Value: expr.S("gold")}})},
		{Name: "created_at", Value: expr.S("2026-02-03T04:05:06.789012+01:00")},
		{Name: "note", Value: expr.S("kept")},
	}})
	want := zlimit.Entity{
		ID: "e", Name: "e", Metadata: map[string]string{"seats": "5", "plan": "gold"},
		CreatedAt: time.Date(2026, 2, 3, 3, 5, 6, 789012000, time.UTC),
	}
	got, err := l.Entities.Get(ctx, "e")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Get() = %v (-want +got):\n%s", err, diff)
	}
}

// TestFamiliesChangeMeanwhile deletes a parent, or creates a child, after it was looked for.
func TestFamiliesChangeMeanwhile(t *testing.T) {
	ctx := context.Background()
	m := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(m))
	other := newLimiter(t, zlimit.StoreOn(m.Store))
	create(t, l, zlimit.Entity{ID: "p"})
	m.once(func() {
		check.Error(t, "Delete()", other.Entities.Delete(ctx, "p"))
	})
	if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e", ParentID: "p"}); !errors.Is(err, zlimit.ErrEntityNotFound) || !strings.Contains(err.Error(), `"p"`) {
		t.Errorf("Create() below a parent that goes = %v, want ErrEntityNotFound of the parent", err)
	}
	if _, err := l.Entities.Get(ctx, "e"); !errors.Is(err, zlimit.ErrEntityNotFound) {
		t.Errorf("Get() = %v, want ErrEntityNotFound", err)
	}

	create(t, l, zlimit.Entity{ID: "p"})
	setLimits(t, l, zlimit.Level{Entity: "p", Resource: "gpt-4"}, zlimit.PerDay("rpd", 1))
	m.once(func() { create(t, other, zlimit.Entity{ID: "e", ParentID: "p"}) })
	if err := l.Entities.Delete(ctx, "p"); !errors.Is(err, zlimit.ErrEntityHasChildren) {
		t.Errorf("Delete() of an entity that gets a child = %v, want ErrEntityHasChildren", err)
	}
	if _, err := l.Entities.Get(ctx, "p"); err != nil {
		t.Errorf("Get() = %v, want the parent", err)
	}
}
