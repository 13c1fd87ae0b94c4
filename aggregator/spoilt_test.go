package aggregator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// spoil gives an attribute of a snapshot a text that no one can read.
func spoil(t *testing.T, s zlimit.Store, entity, windowKey, attribute string) {
	t.Helper()
	table := beneath(newAggregator(t, s))
	key := layout.UsageKey{NS: "n", Entity: entity, Resource: "r", WindowKey: windowKey}.Key()
	items := check.Call(table.Read(t.Context(), []store.Key{key}, true)).Must(t, "Read()")
	for i := range items[0] {
		if items[0][i].Name == attribute {
			items[0][i].Value = expr.S("?")
			if _, err := table.Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: items[0]}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
			return
		}
	}
	t.Fatalf("%s has no %s: %v", windowKey, attribute, items[0])
}

// expectReports wants as many reports of what cannot be read.
func expectReports(t *testing.T, log *bytes.Buffer, want int) {
	t.Helper()
	if got := strings.Count(log.String(), "cannot be read"); got != want {
		t.Errorf("%d reports, want %d:\n%s", got, want, log)
	}
}

// TestSpoiltHour spoils what an hour of the first page carries: the hours of all others are rolled up.
func TestSpoiltHour(t *testing.T) {
	s := newMemory(t)
	const n = 230
	beginHours(t, s, n)
	spoil(t, s, "e050", "2026-03-31T12:00:00Z", "rollup_carried")
	var log bytes.Buffer
	roll(t, s, after, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if got := rolledUp(t, s, n); got != n-1 {
		t.Errorf("rolled up: %d, want all others, %d", got, n-1)
	}
	if left := dueHours(t, s); len(left) > 0 {
		t.Errorf("there are still %v", left)
	}
	expectReports(t, &log, 1)
}

// TestSpoiltDay spoils which hours a day contains: the month gets the next hour all the same.
func TestSpoiltDay(t *testing.T) {
	s := newMemory(t)
	changes := busy(2)
	mustApply(t, at(t, s, noon), changes[0])
	roll(t, s, after)
	spoil(t, s, "e", "2026-03-31", "hours#31")
	changes[1].At = after
	mustApply(t, at(t, s, after), changes[1])
	var log bytes.Buffer
	roll(t, s, after.Add(time.Hour), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	got := snapshotsOf(t, newAggregator(t, s), "e")
	compare.Equal(t, "day and month", []figures{sum(1), sum(2)}, []figures{got["r#2026-03-31"], got["r#2026-03"]})
	if left := dueHours(t, s); len(left) > 0 {
		t.Errorf("there are still %v", left)
	}
	expectReports(t, &log, 1)
}

// TestSpoiltHourGoesOn spoils the carried amounts of an hour. Later changes are counted in all windows at once.
func TestSpoiltHourGoesOn(t *testing.T) {
	s := newMemory(t)
	changes := busy(4)
	var log bytes.Buffer
	a := at(t, s, noon, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	mustApply(t, a, changes[0])
	spoil(t, s, "e", "2026-03-31T12:00:00Z", "rollup_carried")
	mustApply(t, a, changes[1])
	mustApply(t, a, changes[2:]...)
	expectFigures(t, "spoilt after a change", s, map[string]figures{
		"r#2026-03-31T12:00:00Z": sum(4), "r#2026-03-31": sum(3), "r#2026-03": sum(3),
	})
	expectReports(t, &log, 2)
}
