package zlimit

import (
	"context"
	"testing"
)

func TestZZCosts(t *testing.T) {
	ctx := context.Background()
	s, faults := newTable(t)
	c := newClock()
	l := newLimiter(t, s, WithClock(c.now))
	m := func(name string, f func() error) {
		faults.Reset()
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		u := faults.Capacity("")
		t.Logf("%-40s calls %d table %+v indexes %v", name, faults.Calls(""), u.Table, u.Indexes)
	}
	m("setup", func() error { return l.Setup(ctx) })
	m("new", func() error { _, err := New(ctx, s); return err })
	m("register", func() error { _, err := l.Namespaces.Register(ctx, "x"); return err })
	m("delete ns", func() error { _, err := l.Namespaces.Delete(ctx, "x"); return err })
	var id string
	for ns, err := range l.Namespaces.Orphans(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		id = ns.ID
	}
	m("recover ns", func() error { _, err := l.Namespaces.Recover(ctx, id); return err })
	m("create first", func() error { _, err := l.Entities.Create(ctx, Entity{ID: "p"}); return err })
	m("create", func() error { _, err := l.Entities.Create(ctx, Entity{ID: "p2"}); return err })
	m("create child", func() error { _, err := l.Entities.Create(ctx, Entity{ID: "c", ParentID: "p"}); return err })
	m("create grandchild", func() error { _, err := l.Entities.Create(ctx, Entity{ID: "g", ParentID: "c"}); return err })
	m("set system new", func() error { return l.Limits.SetSystem(ctx, SystemConfig{Limits: []Limit{PerMinute("rpm", 1), PerMinute("tpm", 1)}}) })
	m("set system", func() error { return l.Limits.SetSystem(ctx, SystemConfig{Limits: []Limit{PerMinute("rpm", 1), PerMinute("tpm", 1)}}) })
	m("set resource new", func() error { return l.Limits.SetResource(ctx, "r", []Limit{PerMinute("rpm", 1)}) })
	m("set resource", func() error { return l.Limits.SetResource(ctx, "r", []Limit{PerMinute("rpm", 1)}) })
	m("set resource", func() error { return l.Limits.SetResource(ctx, "r", []Limit{PerMinute("rpm", 1)}) })
	m("set entity new", func() error { return l.Limits.SetEntity(ctx, "p", "r", []Limit{PerMinute("rpm", 1)}) })
	m("set entity", func() error { return l.Limits.SetEntity(ctx, "p", "r", []Limit{PerMinute("rpm", 1)}) })
	m("delete entity limits", func() error { return l.Limits.DeleteEntity(ctx, "p", "r") })
	m("delete resource", func() error { return l.Limits.DeleteResource(ctx, "r") })
	m("delete system", func() error { return l.Limits.DeleteSystem(ctx) })
	m("delete entity", func() error { return l.Entities.Delete(ctx, "g") })
	populate(t, l, "g")
	m("delete populated", func() error { return l.Entities.Delete(ctx, "g") })
	m("events", func() error { return endOf(l.Audit.Events(ctx, "g", AuditQuery{})) })
	m("ns scope", func() error { _, err := l.Namespace(ctx, "x"); return err })
}
