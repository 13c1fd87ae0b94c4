package zlimit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// measuring returns a function that checks the calls and the capacity units of a call, of indexes apart.
func measuring(t *testing.T, faults *enginetest.Faults) func(name string, calls int, read, write, index float64, do func() error) {
	return func(name string, calls int, read, write, index float64, do func() error) {
		t.Helper()
		faults.Reset()
		check.Error(t, name, do())
		used := faults.Capacity("")
		indexed := used.Write - used.Table.Write
		if faults.Calls("") != calls || used.Read != read || used.Table.Write != write || indexed != index {
			t.Errorf("%s costs %d calls, %v read units, %v write units and %v of indexes, want %d, %v, %v and %v",
				name, faults.Calls(""), used.Read, used.Table.Write, indexed, calls, read, write, index)
		}
	}
}

// TestCostsOfManagement measures the calls and capacity units that the comments of the services state.
func TestCostsOfManagement(t *testing.T) {
	if enginetest.IsMean() {
		t.Skip("it counts every call, and what becomes of it")
	}
	ctx := context.Background()
	s, faults := newTable(t)
	l := newLimiter(t, s, zlimit.WithClock(newClock().now))
	measure := measuring(t, faults)
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000)}
	limiter := func(_ *zlimit.RateLimiter, err error) error { return err }
	entity := func(_ zlimit.Entity, err error) error { return err }
	namespace := func(_ zlimit.Namespace, err error) error { return err }

	measure("New", 1, 1, 0, 0, func() error { return limiter(zlimit.New(ctx, s)) })
	measure("Namespace", 1, 2, 0, 0, func() error { return limiter(l.Namespace(ctx, zlimit.DefaultNamespace)) })
	measure("Setup again", 3, 2, 0, 0, func() error { return l.Setup(ctx) })

	measure("Create, the first change of a process", 3, 2, 4, 2, func() error { return entity(l.Entities.Create(ctx, zlimit.Entity{ID: "p"})) })
	measure("Create", 1, 0, 4, 2, func() error { return entity(l.Entities.Create(ctx, zlimit.Entity{ID: "q"})) })
	measure("Create, with a parent", 2, 1, 8, 4, func() error { return entity(l.Entities.Create(ctx, zlimit.Entity{ID: "c", ParentID: "p"})) })
	measure("Create, with a grandparent", 3, 2, 8, 4+1, func() error { return entity(l.Entities.Create(ctx, zlimit.Entity{ID: "g", ParentID: "c"})) })
	measure("Get", 1, 1, 0, 0, func() error { return entity(l.Entities.Get(ctx, "p")) })
	measure("Update", 2, 1, 4, 1, func() error { return entity(l.Entities.Update(ctx, zlimit.Entity{ID: "p", Name: "P"})) })
	measure("Update of a child", 2, 1, 4, 1+1, func() error { return entity(l.Entities.Update(ctx, zlimit.Entity{ID: "c", ParentID: "p", Name: "C"})) })
	measure("Update to the same", 1, 1, 0, 0, func() error { return entity(l.Entities.Update(ctx, zlimit.Entity{ID: "p", Name: "P", Version: 1})) })
	measure("Ensure", 1, 1, 0, 0, func() error { return entity(l.Entities.Ensure(ctx, zlimit.Entity{ID: "p"})) })
	measure("List", 2, 0.5+4*0.5, 0, 0, func() error { return endOf(l.Entities.List(ctx, zlimit.EntityQuery{})) })
	measure("Children", 1, 0.5, 0, 0, func() error { return endOf(l.Entities.Children(ctx, "p")) })
	measure("Buckets of none", 1, 0.5, 0, 0, func() error { return endOf(l.Entities.Buckets(ctx, "p")) })

	measure("Set of the system, new", 2, 1, 4, 2, func() error { return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}) })
	measure("Set of the system, with what the last one forgot", 3, 2, 4, 1, func() error { return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}) })
	measure("Set of a resource, new, with the registry", 3, 3, 6, 3, func() error { return l.Limits.Set(ctx, zlimit.Level{Resource: "a"}, zlimit.Config{Limits: limits}) })
	measure("Set of a resource, new", 2, 1, 6, 2, func() error { return l.Limits.Set(ctx, zlimit.Level{Resource: "b"}, zlimit.Config{Limits: limits}) })
	measure("Set of a resource", 2, 1, 4, 1, func() error { return l.Limits.Set(ctx, zlimit.Level{Resource: "b"}, zlimit.Config{Limits: limits}) })
	windows := []zlimit.Limit{zlimit.PerMinute("rpm", 10).When("* 9-17 * * *", "x2")}
	measure("Set with windows, the first one of a process", 4, 2, 4+1, 1, func() error {
		return l.Limits.Set(ctx, zlimit.Level{Resource: "a"}, zlimit.Config{Limits: windows})
	})
	measure("Set with windows", 2, 1, 4, 1, func() error { return l.Limits.Set(ctx, zlimit.Level{Resource: "a"}, zlimit.Config{Limits: windows}) })
	moved := func(_ zlimit.SwitchReport, err error) error { return err }
	measure("SetParent, with a child, the first one of a process", 9, 1+2+1.5+1+0.5, 10+1, 5, func() error { return moved(l.Entities.SetParent(ctx, "c", "q")) })
	measure("SetParent to the same", 2, 1+0.5, 0, 0, func() error { return moved(l.Entities.SetParent(ctx, "c", "q")) })
	measure("SetParent back", 7, 2+1.5+1+0.5, 10, 5, func() error { return moved(l.Entities.SetParent(ctx, "c", "p")) })
	applied := func(declared ...zlimit.Declaration) func() error {
		return func() error {
			_, err := l.Limits.Apply(ctx, declared...)
			return err
		}
	}
	measure("Apply, one of two is new", 3, 2+1, 6, 2, applied(zlimit.Declaration{"b", limits}, zlimit.Declaration{"d", limits}))
	measure("Apply, one of two has changed", 3, 2+1, 4, 1, applied(zlimit.Declaration{"b", limits}, zlimit.Declaration{"d", limits[:1]}))
	measure("Apply of what is there", 1, 2, 0, 0, applied(zlimit.Declaration{"b", limits}, zlimit.Declaration{"d", limits[:1]}))
	measure("Set of an entity, new, with the registry", 2, 1, 6, 4, func() error {
		return l.Limits.Set(ctx, zlimit.Level{Entity: "p", Resource: "a"}, zlimit.Config{Limits: limits})
	})
	measure("Set of an entity, new", 2, 1, 6, 3, func() error {
		return l.Limits.Set(ctx, zlimit.Level{Entity: "p", Resource: "b"}, zlimit.Config{Limits: limits})
	})
	measure("Set of an entity", 2, 1, 4, 1, func() error {
		return l.Limits.Set(ctx, zlimit.Level{Entity: "p", Resource: "b"}, zlimit.Config{Limits: limits})
	})
	of := zlimit.Level{Entity: "q", Resource: "b"}
	measure("Patch of an entity and a resource, without limits", 3, 1+3, 6, 3, func() error { return l.Limits.Patch(ctx, of, limits[0]) })
	measure("Exclude", 2, 1, 4, 1, func() error { return l.Limits.Exclude(ctx, of, "tpm") })
	measure("Inherit, all of it", 3, 1+3, 6, 3, func() error { return l.Limits.Inherit(ctx, of, "tpm", "rpm") })
	measure("DeleteEntity", 2, 1, 6, 3, func() error { return l.Limits.Delete(ctx, zlimit.Level{Entity: "p", Resource: "b"}) })
	measure("DeleteEntity of nothing", 1, 1, 0, 0, func() error { return l.Limits.Delete(ctx, zlimit.Level{Entity: "p", Resource: "b"}) })
	measure("DeleteResource", 2, 1, 6, 2, func() error { return l.Limits.Delete(ctx, zlimit.Level{Resource: "b"}) })
	measure("Events", 1, 1, 0, 0, func() error { return endOf(l.Audit.Events(ctx, "p", zlimit.AuditQuery{})) })

	// A record, its event, and looks at the children under the key and twice in the index. Also looks at all that is under
	// the key, and at the buckets. Those are of the two resources that the registry has, and what the index shows.
	measure("Delete of an entity alone", 8, 1+1+1+0.5+1+2+0.5+0.5, 4, 2, func() error { return l.Entities.Delete(ctx, "q") })

	measure("SetAuditRetention, new", 2, 1, 1, 1, func() error { return l.SetAuditRetention(ctx, 30*zlimit.Day) })
	measure("SetAuditRetention", 2, 1, 1, 0, func() error { return l.SetAuditRetention(ctx, 60*zlimit.Day) })
	measure("SetAuditRetention to the same", 1, 1, 0, 0, func() error { return l.SetAuditRetention(ctx, 60*zlimit.Day) })

	measure("Register", 2, 1, 4, 2, func() error { return namespace(l.Namespaces.Register(ctx, "x")) })
	measure("Register again", 1, 1, 0, 0, func() error { return namespace(l.Namespaces.Register(ctx, "x")) })
	scope := check.Call(l.Namespace(ctx, "x")).Must(t, "Namespace()")
	setSystem(t, scope, limits...)
	for i := range 30 {
		r := ask(zlimit.Amounts{"rpm": 1})
		r.Entity = fmt.Sprint("key-", i)
		acquire(t, scope, r)
		enterIndex(t, scope, shardKey(scope, r.Entity, 0))
	}
	var id string
	measure("Delete of a namespace", 2, 1, 4, 1, func() error {
		ns, err := l.Namespaces.Delete(ctx, "x")
		id = ns.ID
		return err
	})
	measure("Recover", 2, 1, 4, 1, func() error { return namespace(l.Namespaces.Recover(ctx, id)) })
	if _, err := l.Namespaces.Delete(ctx, "x"); err != nil {
		t.Fatalf("Namespaces.Delete() = %v", err)
	}
	// 30 buckets in two indexes each, the system config and its event in one: three batches. Two sweeps read the index, and a
	// scan the table; the record is marked, and deleted with its index entry.
	measure("Purge of 32 items", 8, 0.5+0.5+3, 30+2+2, 60+2+1, func() error { return l.Namespaces.Purge(ctx, id, nil) })
	check.Error(t, "Close()", scope.Close())
}
