package hindsight_test

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
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
			start := time.Date(2026, 3, 5, 10, 0, 0, 0, time.UTC)
			w := newWorld(t, start)
			if c.counted {
				w.count() // turns the log of changes on
			}
			step := func(set, use int64) {
				w.set(zlimit.Monthly("t", set, "UTC"))
				if w.now = w.now.Add(time.Minute); use > 0 {
					w.use(use)
				}
				w.now = w.now.Add(time.Hour)
			}
			if c.before > 0 {
				w.now = start.AddDate(0, -1, 0)
				step(c.first, c.before)
				w.now = start
			}
			step(c.first, c.used)
			step(c.then, c.used2)
			if c.counted {
				w.countTo(c.used + c.used2)
			}
			s := w.status()
			r, ok, err := hindsight.Raised(t.Context(), w.l, s, w.now)
			want := hindsight.Raise{Least: c.want, Most: max(c.want, c.most)}
			if err != nil || ok != (c.want > 0) || ok && r != want || r.Known() != (c.most == 0) {
				t.Errorf("Raised() = %+v, %t, %v, want %+v of %d with %d left", r, ok, err, want, c.then, s.Available)
			}
			w.now = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
			if _, ok, err := hindsight.Raised(t.Context(), w.l, s, w.now); ok || err != nil {
				t.Errorf("in the next period, Raised() = %t, %v", ok, err)
			}
		})
	}
}
