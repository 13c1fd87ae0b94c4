package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPurgeFindsWhatIsLeft purges an ID again, under which a limiter went on to write. The purge deletes those items,
// and leaves the ID of a namespace alone that has only its name.
func TestPurgeFindsWhatIsLeft(t *testing.T) {
	t.Parallel() // purges wait for the index of an engine
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		scope := newLimiter(t, s, zlimit.WithNamespace("victim"))
		ns := check.Call(l.Namespaces.Delete(ctx, "victim")).Must(t, "Namespaces.Delete()")
		check.Fatal(t, "Purge()", l.Namespaces.Purge(ctx, ns.ID, nil))
		create(t, scope, zlimit.Entity{ID: "late"})
		if len(dump(t, store.Of(s), ns.ID)) == 0 {
			t.Fatal("nothing was written after the purge")
		}
		var told zlimit.PurgeProgress
		if err := l.Namespaces.Purge(ctx, ns.ID, func(p zlimit.PurgeProgress) { told = p }); err != nil || told.Deleted == 0 {
			t.Errorf("Purge() of what came later = %v, %+v", err, told)
		}
		if got := dump(t, store.Of(s), ns.ID); len(got) > 0 {
			t.Errorf("the purge leaves %v", got)
		}
		if err := l.Namespaces.Purge(ctx, ns.ID, nil); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
			t.Errorf("Purge() of nothing = %v, want ErrNamespaceNotFound", err)
		}

		half := layout.Namespace{Key: layout.NamespaceKey{Name: "half"}, ID: "BBBBBBBBBBB", Name: "half", Status: string(zlimit.NamespaceActive)}
		e := layout.Entity{Key: layout.EntityKey{NS: half.ID, Entity: "e"}}
		for _, w := range []store.Write{
			{Kind: store.Put, Key: half.Key.Key(), Item: half.Encode()},
			{Kind: store.Put, Key: e.Key.Key(), Item: e.Encode()},
		} {
			if _, err := store.Of(s).Write(ctx, w); err != nil {
				t.Fatalf("Write() = %v", err)
			}
		}
		if err := l.Namespaces.Purge(ctx, half.ID, nil); !errors.Is(err, zlimit.ErrNamespaceState) {
			t.Errorf("Purge() of a namespace that has only its name = %v, want ErrNamespaceState", err)
		}
		if got := dump(t, store.Of(s), half.ID); len(got) != 1 {
			t.Errorf("it has %v, want the entity", got)
		}
	})
}

// A lagging store is one whose indexes show an item only some time after it was written.
type lagging struct {
	partitioned
	lag     time.Duration
	mu      sync.Mutex
	written map[store.Key]time.Time
}

func newLagging(t *testing.T, lag time.Duration) *lagging {
	t.Helper()
	return &lagging{partitioned: partitioned{store.Of(newMemory(t))}, lag: lag, written: map[store.Key]time.Time{}}
}

func (s *lagging) Write(ctx context.Context, w store.Write) (store.Result, error) {
	r, err := s.Store.Write(ctx, w)
	s.note(w)
	return r, err
}

func (s *lagging) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	r, err := s.Store.Transact(ctx, writes)
	s.note(writes...)
	return r, err
}

func (s *lagging) note(writes ...store.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range writes {
		if _, ok := s.written[writes[i].Key]; !ok && writes[i].Kind != store.Check {
			s.written[writes[i].Key] = time.Now()
		}
	}
}

func (s *lagging) Query(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := s.Store.Query(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Index != "" {
		page.Items = slices.DeleteFunc(slices.Clone(page.Items), func(item expr.Item) bool {
			return time.Since(s.written[store.KeyOf(item)]) < s.lag
		})
	}
	return page, err
}

// TestPurgeWaitsForTheIndex purges a namespace that the index does not show yet.
func TestPurgeWaitsForTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := newLagging(t, 500*time.Millisecond)
		l := newLimiter(t, zlimit.StoreOn(s))
		scope := newLimiter(t, zlimit.StoreOn(s), zlimit.WithNamespace("victim"))
		create(t, scope, zlimit.Entity{ID: "old"})
		time.Sleep(time.Second)
		create(t, scope, zlimit.Entity{ID: "new"})
		ns := check.Call(l.Namespaces.Delete(ctx, "victim")).Must(t, "Namespaces.Delete()")
		check.Fatal(t, "Purge()", l.Namespaces.Purge(ctx, ns.ID, nil))
		if got := dump(t, s.Store, ns.ID); len(got) > 0 {
			t.Errorf("the purge leaves %v", got)
		}
	})
}

// TestParentOrChild deletes a parent and creates its child at the same time, in every order of their calls. Either the
// parent stays, or the child does not come.
func TestParentOrChild(t *testing.T) {
	for _, lag := range []time.Duration{0, time.Minute} {
		for at := 1; at <= 8; at++ {
			s := newLagging(t, lag)
			l := newLimiter(t, zlimit.StoreOn(s))
			create(t, l, zlimit.Entity{ID: "p"})
			var created error
			m := &meddler{Store: s, at: at, do: func() {
				_, created = l.Entities.Create(context.Background(), zlimit.Entity{ID: "c", ParentID: "p"})
			}}
			deleted := newLimiter(t, zlimit.StoreOn(m)).Entities.Delete(context.Background(), "p")
			if m.calls < at {
				break
			}
			if (created == nil) == (deleted == nil) {
				t.Errorf("a child before call %d, with a lag of %v: Create() = %v, Delete() = %v", at, lag, created, deleted)
			}
			if created == nil && !errors.Is(deleted, zlimit.ErrEntityHasChildren) {
				t.Errorf("a child before call %d, with a lag of %v: Delete() = %v, want ErrEntityHasChildren", at, lag, deleted)
			}
		}
	}
}

// TestChildrenBeforeTheIndex deletes a parent of several children, one after another, while the index shows none of
// them. The parent stays until the last one is gone, in whatever order they go.
func TestChildrenBeforeTheIndex(t *testing.T) {
	ctx := context.Background()
	s := newLagging(t, time.Hour)
	l := newLimiter(t, zlimit.StoreOn(s))
	create(t, l, zlimit.Entity{ID: "p"})
	for _, id := range []string{"a", "b", "c"} {
		create(t, l, zlimit.Entity{ID: id, ParentID: "p"})
	}
	for _, id := range []string{"c", "a", "b"} {
		if err := l.Entities.Delete(ctx, "p"); !errors.Is(err, zlimit.ErrEntityHasChildren) {
			t.Errorf("Delete() of the parent = %v before %s is deleted, want ErrEntityHasChildren", err, id)
		}
		check.Fatal(t, "Entities.Delete()", l.Entities.Delete(ctx, id))
	}
	if err := l.Entities.Delete(ctx, "p"); err != nil {
		t.Errorf("Delete() of the parent = %v when all children are gone", err)
	}
	for key := range dump(t, s.Store, l.NS()) {
		if belongsTo(l.NS(), "p")(key) {
			t.Errorf("the deletion leaves %s", key)
		}
	}
}

// TestChildrenThatOthersDelete deletes a parent after another program has deleted its children. That program does not
// know of their items under the parent's key. These items go too, except that of a child that comes back meanwhile.
func TestChildrenThatOthersDelete(t *testing.T) {
	for at := 0; ; at++ { // the call of the deletion before which a child comes back; 0 for none
		ctx := context.Background()
		s := newLagging(t, time.Hour)
		l := newLimiter(t, zlimit.StoreOn(s))
		create(t, l, zlimit.Entity{ID: "p"})
		for i := range 2*zlimit.MaxForgotten + 1 {
			child := create(t, l, zlimit.Entity{ID: fmt.Sprint("c", i), ParentID: "p"})
			check.Fatal(t, "Delete()", s.Delete(ctx, []store.Key{layout.EntityKey{NS: l.NS(), Entity: child.ID}.Key()}))
		}
		var created error
		m := &meddler{Store: s, at: at, do: func() {
			_, created = l.Entities.Create(ctx, zlimit.Entity{ID: "c7", ParentID: "p"})
		}}
		err := newLimiter(t, zlimit.StoreOn(m)).Entities.Delete(ctx, "p")
		if at > m.calls {
			break
		}
		if at > 0 && created == nil {
			if !errors.Is(err, zlimit.ErrEntityHasChildren) {
				t.Errorf("a child before call %d: Delete() = %v, want ErrEntityHasChildren", at, err)
			}
			if err := l.Entities.Delete(ctx, "p"); !errors.Is(err, zlimit.ErrEntityHasChildren) {
				t.Errorf("a child before call %d: Delete() again = %v, want ErrEntityHasChildren", at, err)
			}
			continue
		}
		check.Error(t, "Delete()", err)
		for key := range dump(t, s.Store, l.NS()) {
			if belongsTo(l.NS(), "p")(key) {
				t.Errorf("the deletion leaves %s", key)
			}
		}
	}
}

// A meddler is a store on which something happens before a call of a number, once it is opened.
type meddler struct {
	store.Store
	at, calls int
	do        func()
}

func (m *meddler) next(ofEntity bool) {
	if !ofEntity {
		return
	}
	if m.calls++; m.calls == m.at {
		m.do()
	}
}

func (m *meddler) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	_, opening := layout.ParseVersionKey(keys[0])
	m.next(!opening)
	return m.Store.Read(ctx, keys, consistent)
}

func (m *meddler) Query(ctx context.Context, q store.Query) (store.Page, error) {
	m.next(true)
	return m.Store.Query(ctx, q)
}

func (m *meddler) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	m.next(true)
	return m.Store.Transact(ctx, writes)
}

// TestDeletionBeforeTheIndex deletes an entity whose buckets the index does not show yet. They are found by the
// resources that have limits, and those that the process has seen the entity use, shards included.
func TestDeletionBeforeTheIndex(t *testing.T) {
	ctx := context.Background()
	s := newLagging(t, time.Minute)
	l := newLimiter(t, zlimit.StoreOn(s))
	create(t, l, zlimit.Entity{ID: "e"})
	setLimits(t, l, zlimit.Level{Resource: "listed"}, zlimit.PerMinute("rpm", 100))
	setLimits(t, l, zlimit.Level{Entity: "e", Resource: "own"}, zlimit.PerMinute("rpm", 100))
	other := newLimiter(t, zlimit.StoreOn(s))
	for resource, by := range map[string]*zlimit.RateLimiter{"listed": other, "own": other, "seen": l} {
		r := ask(zlimit.Amounts{"rpm": 1})
		r.Entity, r.Resource = "e", resource
		if resource == "seen" {
			r.Limits = []zlimit.Limit{zlimit.PerMinute("rpm", 100)}
		}
		acquire(t, by, r)
		shard := layout.BucketKey{NS: l.NS(), Entity: "e", Resource: resource}
		items := check.Call(s.Read(ctx, []store.Key{shard.Key()}, true)).Must(t, "Read()")
		state := check.Call(layout.ReadState(items[0])).Must(t, "layout.ReadState()")
		writes := check.Call(shard.Split(&state, nil, layout.Lineage{})).Must(t, "Split()")
		if results, err := s.Transact(ctx, writes); err != nil || !results[1].Applied {
			t.Fatalf("Transact() = %v, %v", results, err)
		}
	}
	check.Fatal(t, "Delete()", l.Entities.Delete(ctx, "e"))
	for key := range dump(t, s.Store, l.NS()) {
		if belongsTo(l.NS(), "e")(key) {
			t.Errorf("the deletion leaves %s", key)
		}
	}
}
