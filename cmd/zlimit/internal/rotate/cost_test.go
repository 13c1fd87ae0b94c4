package rotate

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// A metered store adds up the units of its calls.
type metered struct {
	store.Store
	mu    sync.Mutex
	units store.Units
}

func measure[T any](ctx context.Context, m *metered, do func(context.Context) (T, error)) (T, error) {
	var u store.Units
	result, err := do(store.CountUnits(ctx, &u))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.units.Read += u.Read
	m.units.Write += u.Write
	return result, err
}

func (m *metered) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	return measure(ctx, m, func(ctx context.Context) ([]expr.Item, error) { return m.Store.Read(ctx, keys, consistent) })
}

func (m *metered) Write(ctx context.Context, w store.Write) (store.Result, error) {
	return measure(ctx, m, func(ctx context.Context) (store.Result, error) { return m.Store.Write(ctx, w) })
}

func (m *metered) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	return measure(ctx, m, func(ctx context.Context) ([]store.Result, error) { return m.Store.Transact(ctx, writes) })
}

func (m *metered) Query(ctx context.Context, q store.Query) (store.Page, error) {
	return measure(ctx, m, func(ctx context.Context) (store.Page, error) { return m.Store.Query(ctx, q) })
}

// TestRotateCosts measures the units of rotations, and compares them with the page: of an entity with a parent and default limits, and what each level, each
// resource in use and each child adds.
func TestRotateCosts(t *testing.T) {
	engine := enginetest.Start(t)
	table := store.Of(dynamo.New(engine.Client(), engine.Table(t)))
	n := 0
	cost := func(levels, used, children int) store.Units {
		n++
		w := &world{t, table, fmt.Sprint("cost-", n), noon, nil}
		l := w.limiter(table)
		check.Call(l.Entities.Create(t.Context(), zlimit.Entity{ID: "org"})).Must(t, "Create()")
		check.Call(l.Entities.Create(t.Context(), zlimit.Entity{ID: "acme", ParentID: "org", Cascade: true})).Must(t, "Create()")
		check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", ""), parsed(t, "tpd=1000/day@UTC")))
		for i := range levels {
			check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", fmt.Sprint("level-", i)), parsed(t, "tpd=1000/day@UTC")))
		}
		for i := range used {
			_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: fmt.Sprint("used-", i), Consume: zlimit.Amounts{"tpd": 5}})
			check.Fatal(t, "Acquire()", err)
		}
		for i := range children {
			_, err := l.Entities.Create(t.Context(), zlimit.Entity{ID: fmt.Sprint("key-", i), ParentID: "acme", Cascade: true})
			check.Fatal(t, "Create()", err)
		}
		check.Fatal(t, "Close()", l.Close())
		m := &metered{Store: table}
		l = w.limiter(m)
		m.units = store.Units{}
		check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(t, "Run()")
		return m.units
	}
	base := cost(0, 0, 0)
	each := func(levels, used, children int) string {
		u := cost(4*levels, 4*used, 4*children)
		return fmt.Sprintf("%v and %v", math.Round((u.Write-base.Write)/4), math.Round((u.Read-base.Read)/4))
	}
	want := fmt.Sprintf("About %v write units and %v read units, plus %s for each level of limits, %s for each used resource, and %s for each child.",
		math.Round(base.Write), math.Round(base.Read), each(1, 0, 0), each(0, 1, 0), each(0, 0, 1))
	page := check.Call(os.ReadFile("../../../../docs/copy.md")).Must(t, "ReadFile()")
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/copy.md should have: %s", want)
	}
}
