package aggregator

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestObserver counts what becomes of a batch with everything in it, when it works and when it does not.
func TestObserver(t *testing.T) {
	var got []Batch
	now := noon
	a := newAggregator(t, newMemory(t), WithArchive(Directory(t.TempDir())), WithConcurrency(1),
		WithClock(func() time.Time { now = now.Add(time.Hour); return now }), WithObserver(func(b Batch) { got = append(got, b) }))
	changes := slices.Concat(busy(3), []store.Change{
		expiry(4, "A", "2026-01-01T00:00:00Z"),
		{Key: store.Key{PK: "n/ENTITY#e", SK: "#META"}, Sequence: sequence(5), At: noon, New: expr.Item{}},
	})
	changes[2].New.Set("b_rpm_tc", expr.S("many"))
	mustApply(t, a, changes...)
	mustApply(t, a, changes...)
	inject(a, func(int) (bool, error) { return false, errDown })
	a.apply(context.Background(), changes)
	want := Batch{Changes: 5, Counted: 2, Unreadable: 1, Writes: 3, Archived: 1, Took: 2 * time.Hour}
	failed := want
	failed.Failed, failed.Took = 2, time.Hour // without tending
	compare.Equal(t, "batches", []Batch{want, want, failed}, got)
}
