package zlimit

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestPurgeFindsWhatIsLeft purges an ID again, under which a limiter went on to write: what is there goes, and the ID of a
// namespace that has its name alone is left in peace.
func TestPurgeFindsWhatIsLeft(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		scope := newLimiter(t, s, WithNamespace("victim"))
		ns, err := l.Namespaces.Delete(ctx, "victim")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Namespaces.Purge(ctx, ns.ID, nil); err != nil {
			t.Fatalf("Purge() = %v", err)
		}
		create(t, scope, Entity{ID: "late"})
		if len(dump(t, s.impl, ns.ID)) == 0 {
			t.Fatal("nothing was written after the purge")
		}
		var told PurgeProgress
		if err := l.Namespaces.Purge(ctx, ns.ID, func(p PurgeProgress) { told = p }); err != nil || told.Deleted == 0 {
			t.Errorf("Purge() of what came later = %v, %+v", err, told)
		}
		if got := dump(t, s.impl, ns.ID); len(got) > 0 {
			t.Errorf("the purge leaves %v", got)
		}
		if err := l.Namespaces.Purge(ctx, ns.ID, nil); !errors.Is(err, ErrNamespaceNotFound) {
			t.Errorf("Purge() of nothing = %v, want ErrNamespaceNotFound", err)
		}

		half := layout.Namespace{Key: layout.NamespaceKey{Name: "half"}, ID: "BBBBBBBBBBB", Name: "half", Status: string(NamespaceActive)}
		e := layout.Entity{Key: layout.EntityKey{NS: half.ID, Entity: "e"}}
		for _, w := range []store.Write{
			{Kind: store.Put, Key: half.Key.Key(), Item: half.Encode()},
			{Kind: store.Put, Key: e.Key.Key(), Item: e.Encode()},
		} {
			if _, err := s.impl.Write(ctx, w); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Namespaces.Purge(ctx, half.ID, nil); !errors.Is(err, ErrNamespaceState) {
			t.Errorf("Purge() of a namespace that has only its name = %v, want ErrNamespaceState", err)
		}
		if got := dump(t, s.impl, half.ID); len(got) != 1 {
			t.Errorf("it has %v, want the entity", got)
		}
	})
}

// A lagging store is one whose indexes show an item only some time after it was written.
type lagging struct {
	partitioned
	lag     time.Duration
	written map[store.Key]time.Time
}

func newLagging(t *testing.T, lag time.Duration) *lagging {
	t.Helper()
	return &lagging{partitioned{newMemory(t).impl}, lag, map[store.Key]time.Time{}}
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
	for i := range writes {
		if _, ok := s.written[writes[i].Key]; !ok && writes[i].Kind != store.Check {
			s.written[writes[i].Key] = time.Now()
		}
	}
}

func (s *lagging) Query(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := s.Store.Query(ctx, q)
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
		l := newLimiter(t, Store{impl: s})
		scope := newLimiter(t, Store{impl: s}, WithNamespace("victim"))
		create(t, scope, Entity{ID: "old"})
		time.Sleep(time.Second)
		create(t, scope, Entity{ID: "new"})
		ns, err := l.Namespaces.Delete(ctx, "victim")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Namespaces.Purge(ctx, ns.ID, nil); err != nil {
			t.Fatalf("Purge() = %v", err)
		}
		if got := dump(t, s.Store, ns.ID); len(got) > 0 {
			t.Errorf("the purge leaves %v", got)
		}
	})
}
