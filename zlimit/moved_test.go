package zlimit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestMovedFromADisabledParent disables a parent whose children another process knows, and moves the children, or what lies between, to another
// parent. The process refuses the children at first, and serves them a second later: with limits of their own and without, and a child
// of a child. It looks once a second while it refuses, and no more often.
func TestMovedFromADisabledParent(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		for _, own := range []bool{true, false} {
			for _, moved := range []string{"child", "between"} {
				t.Run(fmt.Sprintf("own limits %t, %s moves", own, moved), func(t *testing.T) {
					c := newClock()
					name := fmt.Sprint("moves-", own, moved)
					l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace(name), zlimit.WithSetup())
					counted := hook(s)
					other := newLimiter(t, store.NewHandle(counted, false), zlimit.WithClock(c.now), zlimit.WithNamespace(name))
					for _, e := range []zlimit.Entity{
						{ID: "old"}, {ID: "new"}, {ID: "between", ParentID: "old", Cascade: true}, {ID: "child", ParentID: "between", Cascade: true},
					} {
						check.Call(l.Entities.Create(t.Context(), e)).Must(t, "Create()")
					}
					for _, id := range []string{"old", "new"} {
						setLimits(t, l, zlimit.Level{Entity: id}, zlimit.PerDay("rpd", 100))
					}
					if own {
						setLimits(t, l, zlimit.Level{Entity: "child"}, zlimit.PerDay("rpd", 50))
					}
					r := zlimit.Request{Entity: "child", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1}}
					acquire(t, other, r)
					check.Call(l.Limits.Disable(t.Context(), zlimit.Level{Entity: "old"}, nil)).Must(t, "Disable()")
					refused := func() {
						t.Helper()
						if _, err := other.Acquire(t.Context(), r); !errors.Is(err, zlimit.ErrDisabled) {
							t.Fatalf("Acquire() = %v, want ErrDisabled", err)
						}
					}
					refused()
					c.sleep(time.Second)
					refused()
					before := counted.reads.Load()
					for range 20 {
						refused()
					}
					if reads := counted.reads.Load() - before; reads > 0 {
						t.Errorf("20 refusals in a moment took %d reads", reads)
					}
					check.Call(l.Entities.SetParent(t.Context(), moved, "new")).Must(t, "SetParent()")
					c.sleep(time.Second)
					acquire(t, other, r)
					statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "new", Resource: "gpt-4"})
					check.Fatal(t, "Available()", err)
					if left := statuses[0].Available; left != 99 {
						t.Errorf("the new parent has %d left, want 99", left)
					}
				})
			}
		}
	})
}
