package hindsight_test

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPeriodWithinAnHour cuts and raises budgets in periods that begin within an hour, in which the period before was used, too. Usage by hours does not
// say which of both it is of, so that there are a least and a most.
func TestPeriodWithinAnHour(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, c := range map[string]struct {
		limit  func(n int64) zlimit.Limit
		begin  time.Time
		unsure int64 // used in the hour of the beginning
	}{
		"at the full hour": {func(n int64) zlimit.Limit { return zlimit.Daily("t", n, "UTC") }, time.Date(2026, 3, 6, 0, 0, 0, 0, time.UTC), 0},
		"at half an hour":  {func(n int64) zlimit.Limit { return zlimit.Daily("t", n, "Asia/Kolkata") }, time.Date(2026, 3, 5, 18, 30, 0, 0, time.UTC), 110},
		"a session":        {func(n int64) zlimit.Limit { return zlimit.Session("t", n, 2*time.Hour) }, time.Date(2026, 3, 5, 19, 45, 0, 0, time.UTC), 110},
	} {
		t.Run(name, func(t *testing.T) {
			// in the period uses 100 before it begins, 10 when it begins, and 1 after its budget was changed
			begun := func() *world {
				w := newWorld(t, c.begin.Add(-2*time.Hour-10*time.Minute))
				w.count()
				w.set(c.limit(200))
				w.use(1)
				w.now = c.begin.Add(-15 * time.Minute)
				w.use(100)
				w.now = c.begin
				w.use(10)
				w.now = c.begin.Add(70 * time.Minute)
				return w
			}
			before := max(c.unsure-10, 0)

			w := begun()
			w.set(c.limit(60))
			w.use(1)
			w.now = c.begin.Add(80 * time.Minute)
			w.set(c.limit(200))
			w.now = c.begin.Add(90 * time.Minute)
			w.countTo(112)
			cut, is, err := hindsight.CutOf(t.Context(), w.l, w.status(), w.now)
			if err != nil || !is || cut.Used != 11+before || cut.Unsure != c.unsure || cut.Missing != 130-before {
				t.Errorf("CutOf() = %+v, %t, %v, want 11 to %d used, of which %d are unsure", cut, is, err, 11+before, c.unsure)
			}

			w = begun()
			w.set(c.limit(300))
			w.use(1)
			w.countTo(112)
			want := hindsight.Raise{Least: 200, Most: 200 + before} // as if the 100 were of this period
			if r, is, err := hindsight.Raised(t.Context(), w.l, w.status(), w.now); err != nil || !is || r != want {
				t.Errorf("Raised() = %+v, %t, %v, want %+v", r, is, err, want)
			}
		})
	}
}
