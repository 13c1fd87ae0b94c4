package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestUpdateOfAnEntity(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		create(t, l, zlimit.Entity{ID: "acme"})
		e := create(t, l, zlimit.Entity{ID: "alice", ParentID: "acme", Cascade: true, Metadata: map[string]string{"plan": "gold"}})
		c.sleep(time.Minute)

		e.Name, e.Metadata = "Alice", map[string]string{"plan": "silver", "seats": "5"}
		first, err := l.Entities.Update(ctx, e)
		want := e
		want.Version = 1
		if diff := cmp.Diff(want, first); err != nil || diff != "" {
			t.Fatalf("Update() = %v (-want +got):\n%s", err, diff)
		}
		if _, err := l.Entities.Update(ctx, e); !errors.Is(err, zlimit.ErrEntityChanged) || !strings.Contains(err.Error(), `"alice"`) {
			t.Errorf("Update() of the version before = %v, want ErrEntityChanged of alice", err)
		}
		first.Name, first.Metadata = "", nil
		second, err := l.Entities.Update(ctx, first)
		want = zlimit.Entity{ID: "alice", Name: "alice", ParentID: "acme", Cascade: true, CreatedAt: e.CreatedAt, Version: 2}
		if diff := cmp.Diff(want, second); err != nil || diff != "" {
			t.Errorf("Update() again = %v (-want +got):\n%s", err, diff)
		}
		got, err := l.Entities.Get(ctx, "alice")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("Get() = %v (-want +got):\n%s", err, diff)
		}
		compare.Equal(t, "Children()", []zlimit.Entity{want}, collect(t, "Children()", l.Entities.Children(ctx, "acme")))
		// Nothing to change is no change.
		if same, err := l.Entities.Update(ctx, second); err != nil || same.Version != 2 {
			t.Errorf("Update() to the same = %+v, %v", same, err)
		}

		list := events(t, l, "alice", zlimit.AuditQuery{})
		details := []map[string]any{
			{"name": "alice", "parent_id": "acme", "cascade": true, "metadata": map[string]any{"plan": "gold"}},
			{"name": "Alice", "parent_id": "acme", "cascade": true, "metadata": map[string]any{"plan": "silver", "seats": "5"}},
			{"name": "alice", "parent_id": "acme", "cascade": true, "metadata": map[string]any{}},
		}
		for i := range details[1:] {
			details[i+1]["before"] = maps.Clone(details[i])
			delete(details[i+1]["before"].(map[string]any), "before")
		}
		for i, action := range []zlimit.AuditAction{zlimit.ActionEntityCreated, zlimit.ActionEntityUpdated, zlimit.ActionEntityUpdated} {
			if len(list) != 3 || list[i].Action != action || !cmp.Equal(list[i].Details, details[i]) {
				t.Fatalf("events = %+v, want %v with %v", list, action, details[i])
			}
		}
	})
}

func TestUpdateRefuses(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	create(t, l, zlimit.Entity{ID: "p"})
	e := create(t, l, zlimit.Entity{ID: "e", ParentID: "p", Cascade: true})
	before := dump(t, l.Calls(), l.NS())
	for name, change := range map[string]func(*zlimit.Entity){
		"parent":   func(e *zlimit.Entity) { e.ParentID = "q" },
		"cascade":  func(e *zlimit.Entity) { e.Cascade = false },
		"version":  func(e *zlimit.Entity) { e.Version = -1 },
		"name":     func(e *zlimit.Entity) { e.Name = "\x00" },
		"metadata": func(e *zlimit.Entity) { e.Metadata = map[string]string{"x": strings.Repeat("x", zlimit.MaxMetadata)} },
		"entity":   func(e *zlimit.Entity) { e.ID = "a#b" },
	} {
		bad := e
		change(&bad)
		if _, err := l.Entities.Update(ctx, bad); invalid(err).Field != name {
			t.Errorf("Update() with a bad %s = %v, want a ValidationError of it", name, err)
		}
	}
	for name, want := range map[string]error{"nobody": zlimit.ErrEntityNotFound, "e": zlimit.ErrEntityChanged} {
		if _, err := l.Entities.Update(ctx, zlimit.Entity{ID: name, ParentID: "p", Cascade: true, Name: "x", Version: 7}); !errors.Is(err, want) {
			t.Errorf("Update(%s) = %v, want %v", name, err, want)
		}
	}
	former := e
	former.Name, former.CreatedAt = "x", e.CreatedAt.Add(-time.Hour)
	if _, err := l.Entities.Update(ctx, former); !errors.Is(err, zlimit.ErrEntityChanged) {
		t.Errorf("Update() of a former entity of that ID = %v, want ErrEntityChanged", err)
	}
	compare.Equal(t, "items after refusals", before, dump(t, l.Calls(), l.NS()))
}

// In TestUpdateAsksForWhatItRead, an entity changes between the read and the write of an update.
func TestUpdateAsksForWhatItRead(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	m := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(m), zlimit.WithClock(c.now))
	other := newLimiter(t, zlimit.StoreOn(m.Store), zlimit.WithClock(c.now))
	key := layout.EntityKey{NS: l.NS(), Entity: "e"}.Key()
	update := func() {
		e, err := other.Entities.Get(ctx, "e")
		if err == nil {
			e.Name += "x"
			_, err = other.Entities.Update(ctx, e)
		}
		check.Error(t, "Entities.Get()", err)
	}
	recreate := func() {
		c.sleep(time.Second)
		check.Error(t, "Entities.Delete()", other.Entities.Delete(ctx, "e"))
		create(t, other, zlimit.Entity{ID: "e", Name: "new"})
	}
	remove := func() { check.Error(t, "Delete()", other.Calls().Delete(ctx, []store.Key{key})) }
	bare := func() { // as no program writes it
		w := store.Write{Kind: store.Put, Key: key, Item: expr.Item{{Name: "name", Value: expr.S("bare")}}}
		if _, err := other.Calls().Write(ctx, w); err != nil {
			t.Errorf("Write() = %v", err)
		}
	}
	for _, test := range []struct {
		name      string
		before    []func()
		meanwhile func()
		want      error
		left      string // name
	}{
		{"first, while another updates", nil, update, zlimit.ErrEntityChanged, "ex"},
		{"later, while another updates", []func(){update}, update, zlimit.ErrEntityChanged, "exx"},
		{"first, while it is created again", nil, recreate, zlimit.ErrEntityChanged, "new"},
		{"first, while it is deleted", nil, remove, zlimit.ErrEntityNotFound, ""},
		{"first of a bare record, while it is deleted", []func(){bare}, remove, zlimit.ErrEntityNotFound, ""},
	} {
		create(t, other, zlimit.Entity{ID: "e"})
		for _, do := range test.before {
			do()
		}
		e := check.Call(l.Entities.Get(ctx, "e")).Must(t, "Entities.Get()")
		e.Name = "mine"
		m.once(test.meanwhile)
		if _, err := l.Entities.Update(ctx, e); !errors.Is(err, test.want) {
			t.Errorf("%s: Update() = %v, want %v", test.name, err, test.want)
		}
		left, err := l.Entities.Get(ctx, "e")
		if left.Name != test.left || test.left == "" && !errors.Is(err, zlimit.ErrEntityNotFound) {
			t.Errorf("%s: left is %+v, %v, want the name %q", test.name, left, err, test.left)
		}
		remove()
	}
}

// TestUpdateAndChildren updates a parent while children come: both are counted, and nothing is lost.
func TestUpdateAndChildren(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		create(t, l, zlimit.Entity{ID: "p"})
		const n = 8
		var group sync.WaitGroup
		group.Go(func() {
			for i := range n {
				if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: fmt.Sprint("c", i), ParentID: "p"}); err != nil {
					t.Errorf("Entities.Create() = %v", err)
				}
			}
		})
		for i := range n {
			e, err := l.Entities.Get(ctx, "p")
			if err == nil {
				e.Metadata = map[string]string{"round": fmt.Sprint(i)}
				_, err = l.Entities.Update(ctx, e)
			}
			check.Error(t, "Entities.Get()", err)
		}
		group.Wait()
		items := check.Call(l.Table().Read(ctx, layout.EntityKey{NS: l.NS(), Entity: "p"}.Key())).Must(t, "Read()")
		record, err := layout.DecodeEntity(items[0])
		if err != nil || record.ChildrenAdded != n || record.Version != n {
			t.Errorf("the record is %+v, %v, want %d children and version %d", record, err, n, n)
		}
		if err := l.Entities.Delete(ctx, "p"); !errors.Is(err, zlimit.ErrEntityHasChildren) {
			t.Errorf("Delete() = %v, want ErrEntityHasChildren", err)
		}
	})
}

// TestUpdateKeepsValuesOfOthers changes the name alone of an entity with metadata that are no strings.
func TestUpdateKeepsValuesOfOthers(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	key := layout.EntityKey{NS: l.NS(), Entity: "e"}.Key()
	metadata := expr.Map(expr.Item{{Name: "seats", Value: expr.N(5)}})
	write(t, l, store.Write{Kind: store.Put, Key: key, Item: expr.Item{
		{Name: "metadata", Value: metadata}, {Name: "created_at", Value: expr.S("2026-02-03T04:05:06.789012+01:00")}, {Name: "note", Value: expr.S("kept")},
	}})
	e := check.Call(l.Entities.Get(ctx, "e")).Must(t, "Entities.Get()")
	e.Name = "E"
	if _, err := l.Entities.Update(ctx, e); err != nil {
		t.Fatalf("Entities.Update() = %v", err)
	}
	items := check.Call(l.Table().Read(ctx, key)).Must(t, "Read()")
	if m := items[0].Get("metadata"); !m.Equal(metadata) {
		t.Errorf("metadata = %v, want %v", m, metadata)
	}
	if note := items[0].Get("note"); note.Text() != "kept" {
		t.Errorf("note = %v, want it kept", note)
	}
}

func TestEnsure(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		create(t, l, zlimit.Entity{ID: "acme"})
		want := zlimit.Entity{ID: "alice", Name: "Alice", ParentID: "acme", Cascade: true}
		first, err := l.Entities.Ensure(ctx, want)
		want.CreatedAt = first.CreatedAt
		if diff := cmp.Diff(want, first); err != nil || diff != "" || first.CreatedAt.IsZero() {
			t.Errorf("Ensure() = %v (-want +got):\n%s", err, diff)
		}
		again, err := l.Entities.Ensure(ctx, zlimit.Entity{ID: "alice", Name: "other", ParentID: "acme", Cascade: true})
		if diff := cmp.Diff(want, again); err != nil || diff != "" {
			t.Errorf("Ensure() again = %v (-want +got):\n%s", err, diff)
		}
		for _, e := range []zlimit.Entity{{ID: "alice"}, {ID: "alice", ParentID: "acme"}} {
			if _, err := l.Entities.Ensure(ctx, e); !errors.Is(err, zlimit.ErrEntityExists) {
				t.Errorf("Ensure(%+v) = %v, want ErrEntityExists", e, err)
			}
		}
		if _, err := l.Entities.Ensure(ctx, zlimit.Entity{ID: "bob", ParentID: "nobody"}); !errors.Is(err, zlimit.ErrEntityNotFound) {
			t.Errorf("Ensure() below a missing parent = %v, want ErrEntityNotFound", err)
		}
		if _, err := l.Entities.Ensure(ctx, zlimit.Entity{ID: "#"}); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("Ensure() of a bad ID = %v, want a ValidationError", err)
		}
		if got := actions(t, l, "alice"); len(got) != 1 {
			t.Errorf("events of alice: %v, want the creation alone", got)
		}
	})
}

// TestEnsureMeanwhile creates the entity between the read and the write of Ensure.
func TestEnsureMeanwhile(t *testing.T) {
	m := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(m))
	other := newLimiter(t, zlimit.StoreOn(m.Store))
	m.once(func() { create(t, other, zlimit.Entity{ID: "e", Name: "other"}) })
	if e, err := l.Entities.Ensure(context.Background(), zlimit.Entity{ID: "e", Name: "mine"}); err != nil || e.Name != "other" {
		t.Errorf("Ensure() = %+v, %v, want what was created meanwhile", e, err)
	}
}

func TestListOfEntities(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s, zlimit.WithNamespace("list"), zlimit.WithSetup())
		ids := func(q zlimit.EntityQuery) (ids []string) {
			for _, e := range collect(t, "List()", l.Entities.List(ctx, q)) {
				ids = append(ids, e.ID)
			}
			return ids
		}
		if got := ids(zlimit.EntityQuery{}); got != nil {
			t.Errorf("List() = %v, want none", got)
		}
		limits := []zlimit.Limit{zlimit.PerDay("rpd", 5)}
		var want []string
		for i := range zlimit.LeastListPage + 20 {
			id := fmt.Sprintf("e%03d", i)
			create(t, l, zlimit.Entity{ID: id, Metadata: map[string]string{"n": fmt.Sprint(i)}})
			want = append(want, id)
			if i%40 == 0 { // what stands beside records in the index
				setLimits(t, l, zlimit.Level{Entity: id, Resource: "gpt-4"}, limits...)
				acquire(t, l, zlimit.Request{Entity: id, Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1}})
			}
		}
		setLimits(t, l, zlimit.Level{Entity: "without-record", Resource: "gpt-4"}, limits...)
		compare.Equal(t, "List()", want, ids(zlimit.EntityQuery{}))
		for _, test := range []struct {
			q    zlimit.EntityQuery
			want []string
		}{
			{zlimit.EntityQuery{Prefix: "e01"}, want[10:20]},
			{zlimit.EntityQuery{After: "e115"}, want[116:]},
			{zlimit.EntityQuery{After: "e0155"}, want[16:]},
			{zlimit.EntityQuery{Prefix: "e01", After: "e007"}, want[10:20]},
			{zlimit.EntityQuery{Prefix: "e01", After: "e017"}, want[18:20]},
			{zlimit.EntityQuery{Prefix: "e01", After: "e02"}, nil},
			{zlimit.EntityQuery{Limit: 3}, want[:3]},
			{zlimit.EntityQuery{After: "e050", Limit: zlimit.LeastListPage}, want[51:]},
			{zlimit.EntityQuery{Limit: zlimit.LeastListPage + 1}, want[:zlimit.LeastListPage+1]},
			{zlimit.EntityQuery{Prefix: "f"}, nil},
		} {
			compare.Equal(t, fmt.Sprintf("List(%+v)", test.q), test.want, ids(test.q))
		}
		if e := collect(t, "List()", l.Entities.List(ctx, zlimit.EntityQuery{Limit: 1}))[0]; e.Metadata["n"] != "0" || e.CreatedAt.IsZero() {
			t.Errorf("List() yields %+v, want the whole entity", e)
		}
	})
}

func TestListRefuses(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	ctx := context.Background()
	for _, q := range []zlimit.EntityQuery{{Prefix: "#"}, {After: "a#"}, {Limit: -1}} {
		if err := endOf(l.Entities.List(ctx, q)); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("List(%+v) = %v, want a ValidationError", q, err)
		}
	}
	check.Fatal(t, "Close()", l.Close())
	_, update := l.Entities.Update(ctx, zlimit.Entity{ID: "e"})
	_, ensure := l.Entities.Ensure(ctx, zlimit.Entity{ID: "e"})
	for _, err := range []error{endOf(l.Entities.List(ctx, zlimit.EntityQuery{})), update, ensure} {
		if !errors.Is(err, zlimit.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	}
}

func TestEntityAsJSON(t *testing.T) {
	e := zlimit.Entity{
		ID: "alice", Name: "Alice", ParentID: "acme", Cascade: true, Metadata: map[string]string{"plan": "gold"},
		CreatedAt: time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC), Version: 2,
	}
	got, err := json.Marshal(e)
	want := `{"id":"alice","name":"Alice","parent_id":"acme","cascade":true,"metadata":{"plan":"gold"},"created_at":"2026-03-01T12:00:01Z","version":2}`
	if err != nil || string(got) != want {
		t.Errorf("Marshal() = %s, %v, want %s", got, err, want)
	}
}

// TestDeletionOfAnEntityAsksForIt deletes an entity that another process deletes between the read and the write.
func TestDeletionOfAnEntityAsksForIt(t *testing.T) {
	ctx := context.Background()
	m := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(m))
	other := newLimiter(t, zlimit.StoreOn(m.Store))
	create(t, other, zlimit.Entity{ID: "e"})
	record := layout.EntityKey{NS: l.NS(), Entity: "e"}.Key()
	m.counts = func(key store.Key) bool { return key == record }
	m.once(func() {
		check.Error(t, "Entities.Delete()", other.Entities.Delete(ctx, "e"))
	})
	if err := l.Entities.Delete(ctx, "e"); !errors.Is(err, zlimit.ErrEntityNotFound) {
		t.Errorf("Delete() = %v, want ErrEntityNotFound", err)
	}
	if got := actions(t, l, "e"); !slices.Equal(got, []zlimit.AuditAction{zlimit.ActionEntityCreated, zlimit.ActionEntityDeleted}) {
		t.Errorf("events: %v, want one of each", got)
	}
}
