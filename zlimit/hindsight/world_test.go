package hindsight_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A world is a store with a budget t of acme for pay, and a clock.
type world struct {
	t    *testing.T
	path string
	now  time.Time
	l    *zlimit.RateLimiter
}

func newWorld(t *testing.T, now time.Time) *world {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "limits.db"), now: now}
	s := w.open()
	l, err := zlimit.New(t.Context(), s, zlimit.WithSetup(), zlimit.WithClock(w.clock), zlimit.WithPrincipal("x"))
	check.Fatal(t, "New()", err)
	t.Cleanup(func() { _, _ = l.Close(), s.Close() })
	w.l = l
	return w
}

func (w *world) clock() time.Time { return w.now }

// open opens the store, whose changes have times of the clock.
func (w *world) open() zlimit.Store {
	raw, err := sqlite.Open(w.path, layout.Table, sqlite.Clock(w.clock))
	check.Fatal(w.t, "sqlite.Open()", err)
	check.Fatal(w.t, "Setup()", raw.Setup(w.t.Context()))
	return store.NewHandle(raw, true)
}

// count runs an aggregator for a while. The first one turns the log of changes on.
func (w *world) count() {
	at := w.open()
	a, err := aggregator.New(at, aggregator.WithClock(w.clock), aggregator.WithPoll(5*time.Millisecond), aggregator.WithName("one"))
	check.Fatal(w.t, "aggregator.New()", err)
	ctx, stop := context.WithTimeout(w.t.Context(), 300*time.Millisecond)
	defer stop()
	check.Fatal(w.t, "Run()", a.Run(ctx))
	check.Fatal(w.t, "Close()", at.Close())
}

// countTo runs aggregators until they have counted an amount.
func (w *world) countTo(n int64) {
	for w.counted() != n {
		w.count()
	}
}

// counted returns what usage has.
func (w *world) counted() (sum int64) {
	q := zlimit.UsageQuery{Entity: "acme", Resource: "pay", Window: zlimit.WindowHourly, From: w.now.Add(-24 * time.Hour), To: w.now.Add(24 * time.Hour)}
	for s, err := range w.l.Usage.Snapshots(w.t.Context(), q) {
		check.Fatal(w.t, "Snapshots()", err)
		sum += s.Consumed["t"].Tokens()
	}
	return sum
}

func (w *world) set(limit zlimit.Limit) {
	at := zlimit.Level{Entity: "acme", Resource: "pay"}
	check.Fatal(w.t, "Set()", w.l.Limits.Set(w.t.Context(), at, zlimit.Config{Limits: []zlimit.Limit{limit}}))
}

func (w *world) use(n int64) {
	_, err := w.l.Acquire(w.t.Context(), zlimit.Request{Entity: "acme", Resource: "pay", Consume: zlimit.Amounts{"t": n}})
	check.Fatal(w.t, "Acquire()", err)
}

func (w *world) status() *zlimit.Status {
	statuses, err := w.l.Available(w.t.Context(), zlimit.AvailableQuery{Entity: "acme", Resource: "pay"})
	check.Fatal(w.t, "Available()", err)
	return &statuses[0]
}
