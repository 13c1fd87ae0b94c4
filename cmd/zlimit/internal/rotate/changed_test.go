package rotate

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/zlimit"
)

func inMemory(t *testing.T) *world {
	t.Helper()
	s := check.Call(memory.New(layout.Table)).Must(t, "memory.New()")
	return &world{t, s, zlimit.DefaultNamespace, noon, nil}
}

func (w *world) left(entity, resource string) map[string]int64 {
	w.t.Helper()
	l := w.limiter(w.s)
	defer l.Close()
	statuses, err := l.Available(w.t.Context(), zlimit.AvailableQuery{Entity: entity, Resource: resource})
	if !errors.Is(err, zlimit.ErrNoLimits) {
		check.Fatal(w.t, "Available()", err)
	}
	left := map[string]int64{}
	for _, s := range statuses {
		if s.Resource == resource {
			left[s.Limit.Name] = s.Available
		}
	}
	return left
}

// TestRotateChangedLimits changes a limit in use before a rotation, and at each step of it. The new entity has what a twin has that is not
// rotated. No request comes between the change and the rotation.
func TestRotateChangedLimits(t *testing.T) {
	steps := []string{"", stageCopying, stageJoining, stageOpening, "carrying over pay"}
	for _, kind := range []string{"d", "day@UTC", "week@Europe/Berlin", "month@UTC", "month@UTC carry 50", "session:5h", "never", "month@UTC soft", "day@UTC shadow"} {
		for _, to := range []int64{2000, 500, 1000} {
			for _, used := range []int64{0, 100, 900, 1000} {
				for _, step := range steps {
					name := fmt.Sprintf("%s to %d, used %d, at %q", kind, to, used, step)
					w := inMemory(t)
					l := w.limiter(w.s)
					set := func(entity, resource string, limits ...string) {
						check.Fatal(t, name, l.Limits.Set(t.Context(), at(entity, resource), parsed(t, limits...)))
					}
					both := func(do func(entity string)) { do("acme"); do("twin") }
					both(func(e string) { set(e, "pay", "t=1000/"+kind, "rpm=60/min") })
					both(func(e string) {
						if used > 0 {
							_, err := l.Acquire(t.Context(), zlimit.Request{Entity: e, Resource: "pay", Consume: zlimit.Amounts{"t": used}})
							check.Fatal(t, name, err)
						}
					})
					change := func() { both(func(e string) { set(e, "pay", fmt.Sprintf("t=%d/%s", to, kind), "rpm=60/min") }) }
					if step == "" {
						change()
					}
					check.Call(rotate(t.Context(), w.limiter(w.s), "acme", "acme-2", func(now string) {
						if now == step {
							change()
						}
					})).Must(t, name)
					if diff := cmp.Diff(w.left("twin", "pay"), w.left("acme-2", "pay")); diff != "" {
						t.Errorf("%s (-without a rotation +with it):\n%s", name, diff)
					}
					check.Fatal(t, "Close()", l.Close())
				}
			}
		}
	}
}

// TestRotateRemovedLimits removes limits in use from a level, before a rotation and during one. It comes to its end, carries the others over,
// and says which it leaves out. So does its plan.
func TestRotateRemovedLimits(t *testing.T) {
	for _, gone := range []string{"usd=10/month@UTC", "t=10/day@UTC carry 5", "t=10/session:1h", "t=10/never", "t=10/h soft", `t=10/h when "* 9-17 * * *" x2`} {
		for _, step := range []string{"", stageCopying, stageJoining, stageOpening} {
			w := inMemory(t)
			l := w.limiter(w.s)
			limits := parsed(t, gone, "tpd=1000/day@UTC", "rpm=60/min")
			check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", "pay"), limits))
			name := limits.Limits[0].Name
			check.Call(l.Acquire(t.Context(), zlimit.Request{
				Entity: "acme", Resource: "pay", Consume: zlimit.Amounts{name: 4, "tpd": 400, "rpm": 6},
			})).Must(t, "Acquire()")
			remove := func() {
				check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", "pay"), parsed(t, "tpd=1000/day@UTC")))
			}
			note := "limit " + name + " of pay is not stored any more: acme-2 gets nothing of it"
			if step == "" {
				remove()
				plan := check.Call(Plan(t.Context(), w.limiter(w.s), "acme", "acme-2", func() time.Time { return w.now })).Must(t, "Plan()")
				if !slices.Contains(plan.Notes, note) || plan.Charges[0].Used[name] != 0 {
					t.Errorf("%s: the plan notes %q and charges %v, want %q", gone, plan.Notes, plan.Charges, note)
				}
			}
			done := check.Call(rotate(t.Context(), w.limiter(w.s), "acme", "acme-2", func(now string) {
				if now == step {
					remove()
				}
			})).Must(t, gone+": Run()")
			if !slices.Contains(done.Notes, note) {
				t.Errorf("%s, removed at %q: the notes are %q", gone, step, done.Notes)
			}
			compare.Equal(t, fmt.Sprintf("%s, removed at %q: left", gone, step), map[string]int64{"tpd": 600}, w.left("acme-2", "pay"))
			check.Fatal(t, "Close()", l.Close())
		}
	}
}

// TestRotateRestoredLimit puts a limit in use back that was removed before a rotation, while the rotation is under way.
func TestRotateRestoredLimit(t *testing.T) {
	w := inMemory(t)
	l := w.limiter(w.s)
	defer l.Close()
	set := func(limits ...string) {
		check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", "pay"), parsed(t, limits...)))
	}
	set("usd=10/month@UTC", "tpd=1000/day@UTC")
	_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: "pay", Consume: zlimit.Amounts{"usd": 4_000_000_000, "tpd": 400}})
	check.Fatal(t, "Acquire()", err)
	set("tpd=1000/day@UTC")
	check.Call(rotate(t.Context(), w.limiter(w.s), "acme", "acme-2", func(now string) {
		if now == stageOpening {
			set("usd=10/month@UTC", "tpd=1000/day@UTC")
		}
	})).Must(t, "Run()")
	compare.Equal(t, "left", map[string]int64{"usd": 6_000_000_000, "tpd": 600}, w.left("acme-2", "pay"))
}

// TestRotateDeletedLevel deletes a level, and sets another one, while a rotation is interrupted. The new entity has the levels of the old one.
func TestRotateDeletedLevel(t *testing.T) {
	w := inMemory(t)
	l := w.limiter(w.s)
	defer l.Close()
	check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", "pay"), parsed(t, "t=1000/day@UTC")))
	check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", "gpt"), parsed(t, "t=1000/day@UTC")))
	check.Call(rotate(t.Context(), w.limiter(w.s), "acme", "acme-2", func(now string) {
		if now == stageOpening {
			check.Fatal(t, "Delete()", l.Limits.Delete(t.Context(), at("acme", "gpt")))
			check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", ""), parsed(t, "rpm=7/min")))
		}
	})).Must(t, "Run()")
	levels := map[string][]zlimit.Limit{}
	for stored, err := range l.Limits.List(t.Context(), zlimit.LevelQuery{Entity: "acme-2"}) {
		check.Fatal(t, "List()", err)
		levels[stored.Level.Resource] = stored.Config.Limits
	}
	if diff := cmp.Diff(map[string][]zlimit.Limit{"pay": parsed(t, "t=1000/day@UTC").Limits, "": parsed(t, "rpm=7/min").Limits}, levels); diff != "" {
		t.Errorf("the levels of the new entity (-want +got):\n%s", diff)
	}
}

// consumed returns what the buckets of an entity count as consumption: usage is made of its changes. A mixed fleet notes what it has counted.
func (w *world) consumed(entity string, mixed bool) map[string]int64 {
	w.t.Helper()
	l := w.limiter(w.s)
	defer l.Close()
	counts := map[string]int64{}
	for b, err := range l.Entities.Buckets(w.t.Context(), entity) {
		check.Fatal(w.t, "Buckets()", err)
		key := layout.BucketKey{NS: w.id(l), Entity: entity, Resource: b.Resource}.Key()
		items := check.Call(w.s.Read(w.t.Context(), []store.Key{key}, true)).Must(w.t, "Read()")
		_, state, err := layout.ReadBucket(items[0])
		check.Fatal(w.t, "ReadBucket()", err)
		for i := range state.Limits {
			if c := &state.Limits[i]; c.Name != "wcu" && (c.Consumed != 0 || c.FromChildren() != 0 || c.FromNarrower() != 0) {
				counts[b.Resource+" "+c.Name] = c.Consumed
				if mixed && c.Known() != c.Consumed {
					w.t.Errorf("%s of %s has noted a consumption of %d, want the %d of its count", c.Name, b.Resource, c.Known(), c.Consumed)
				}
			}
		}
	}
	return counts
}

// id returns the ID of the namespace.
func (w *world) id(l *zlimit.RateLimiter) string {
	w.t.Helper()
	for ns, err := range l.Namespaces.List(w.t.Context()) {
		check.Fatal(w.t, "List()", err)
		if ns.Name == w.namespace {
			return ns.ID
		}
	}
	w.t.Fatalf("no namespace %s", w.namespace)
	return ""
}

// TestRotatedUsage counts what the buckets of both entities show as consumption after a rotation: the new one consumed nothing. The kinds of
// charges are those of a stored limit, of a limit that requests give, of a narrower resource, and of a debt.
func TestRotatedUsage(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		w := inMemory(t)
		w.fill()
		if mixed {
			w.options = []zlimit.Option{zlimit.WithMixedFleet()}
		}
		l := w.limiter(w.s)
		before := w.consumed("acme", false)
		check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(t, "Run()")
		if diff := cmp.Diff(before, w.consumed("acme", false)); diff != "" || len(before) < 7 {
			t.Errorf("consumption of the old entity (-before +after):\n%s", diff)
		}
		if got := w.consumed("acme-2", mixed); len(got) > 0 {
			t.Errorf("mixed %t: the new entity has consumed %v, want nothing", mixed, got)
		}
		_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "acme-2", Resource: "gpt", Consume: zlimit.Amounts{"tpd": 7}})
		check.Fatal(t, "Acquire()", err)
		compare.Equal(t, "consumption after a request", map[string]int64{"gpt tpd": 7000, "models tpd": 7000}, w.consumed("acme-2", mixed))
		if left := w.left("acme-2", "gpt")["tpd"]; left != 153 {
			t.Errorf("the new entity has %d left, want 153", left)
		}
		check.Fatal(t, "Close()", l.Close())
	}
}
