package hindsight_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestRaised raises budgets in their periods: in use, before the first use, by a wider level, for a lower one, and by more than was used at the
// time. With usage, a period that began after the raise is distinguished from one before.
func TestRaised(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, c := range map[string]struct {
		first, used, then, used2 int64
		before                   int64 // what was used in the period before
		counted                  bool  // by an aggregator
		want, most               int64
	}{
		"in use":                      {first: 200, used: 150, then: 1000, want: 200},
		"in use, counted":             {first: 200, used: 150, then: 1000, counted: true, want: 200},
		"used after it, too":          {first: 200, used: 150, then: 1000, used2: 20, counted: true, want: 200},
		"before the first use":        {first: 200, then: 1000, used2: 100},
		"known by the count":          {first: 200, used: 150, then: 250, used2: 20, want: 200},
		"either":                      {first: 200, then: 250, used2: 90, want: 200, most: 250},
		"in use, and before":          {before: 2000, first: 2000, used: 1500, then: 2200, want: 2000, most: 2200},
		"in use, and before, counted": {before: 2000, first: 2000, used: 1500, then: 2200, counted: true, want: 2000},
		"before it, used up, counted": {first: 200, then: 1000, used2: 950, counted: true},
		"lowered":                     {first: 200, used: 150, then: 100},
		"the same":                    {first: 200, used: 150, then: 200},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 3, 5, 10, 0, 0, 0, time.UTC)
			clock := func() time.Time { return now }
			path := filepath.Join(t.TempDir(), "limits.db")
			open := func() zlimit.Store { // whose changes have times of the clock
				raw := check.Call(sqlite.Open(path, layout.Table, sqlite.Clock(clock))).Must(t, "sqlite.Open()")
				check.Fatal(t, "Setup()", raw.Setup(t.Context()))
				return store.NewHandle(raw, true)
			}
			s := open()
			defer s.Close()
			l, err := zlimit.New(t.Context(), s, zlimit.WithSetup(), zlimit.WithClock(clock), zlimit.WithPrincipal("x"))
			check.Fatal(t, "New()", err)
			defer l.Close()
			count := func() {
				at := open()
				a, err := aggregator.New(at, aggregator.WithClock(clock), aggregator.WithPoll(5*time.Millisecond), aggregator.WithName("one"))
				check.Fatal(t, "aggregator.New()", err)
				ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer stop()
				check.Fatal(t, "Run()", a.Run(ctx))
				check.Fatal(t, "Close()", at.Close())
			}
			if c.counted {
				count() // turns the log of changes on
			}
			step := func(set, use int64) {
				at := zlimit.Level{Entity: "acme", Resource: "pay"}
				check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("t", set, "UTC")}}))
				now = now.Add(time.Minute)
				if use > 0 {
					_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: "pay", Consume: zlimit.Amounts{"t": use}})
					check.Fatal(t, "Acquire()", err)
				}
				now = now.Add(time.Hour)
			}
			if c.before > 0 {
				now = now.AddDate(0, -1, 0)
				step(c.first, c.before)
				now = time.Date(2026, 3, 5, 10, 0, 0, 0, time.UTC)
			}
			step(c.first, c.used)
			step(c.then, c.used2)
			if c.counted {
				for counted(t, l, now) != c.used+c.used2 {
					count()
				}
			}
			statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: "acme", Resource: "pay"})).Must(t, "Available()")
			r, ok, err := hindsight.Raised(t.Context(), l, &statuses[0], now)
			want := hindsight.Raise{Least: c.want, Most: max(c.want, c.most)}
			if err != nil || ok != (c.want > 0) || ok && r != want || r.Known() != (c.most == 0) {
				t.Errorf("Raised() = %+v, %t, %v, want %+v of %d with %d left", r, ok, err, want, c.then, statuses[0].Available)
			}
			now = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
			if _, ok, err := hindsight.Raised(t.Context(), l, &statuses[0], now); ok || err != nil {
				t.Errorf("in the next period, Raised() = %t, %v", ok, err)
			}
		})
	}
}

// counted returns what usage has.
func counted(t *testing.T, l *zlimit.RateLimiter, now time.Time) (sum int64) {
	t.Helper()
	q := zlimit.UsageQuery{Entity: "acme", Resource: "pay", Window: zlimit.WindowHourly, From: now.Add(-24 * time.Hour), To: now.Add(24 * time.Hour)}
	for s, err := range l.Usage.Snapshots(t.Context(), q) {
		check.Fatal(t, "Snapshots()", err)
		sum += s.Consumed["t"].Tokens()
	}
	return sum
}
