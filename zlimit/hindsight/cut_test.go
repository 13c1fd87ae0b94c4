package hindsight_test

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// TestPeriodWithinAnHour cuts and raises budgets in periods that begin within an hour, in which the period before was used, too. Usage by hours does not
// say which of both it is of, so that there are a least and a most.
func TestPeriodWithinAnHour(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, c := range map[string]struct {
		limit  func(n int64) zlimit.Limit
		begin  time.Time
		unsure int64 // used in the hour of the beginning
		pause  bool  // nothing was used before
	}{
		"at the full hour": {func(n int64) zlimit.Limit { return zlimit.Daily("t", n, "UTC") }, time.Date(2026, 3, 6, 0, 0, 0, 0, time.UTC), 0, false},
		"at half an hour":  {func(n int64) zlimit.Limit { return zlimit.Daily("t", n, "Asia/Kolkata") }, time.Date(2026, 3, 5, 18, 30, 0, 0, time.UTC), 110, false},
		"a session":        {func(n int64) zlimit.Limit { return zlimit.Session("t", n, 2*time.Hour) }, time.Date(2026, 3, 5, 19, 45, 0, 0, time.UTC), 110, false},
		"a first session":  {func(n int64) zlimit.Limit { return zlimit.Session("t", n, 2*time.Hour) }, time.Date(2026, 3, 5, 19, 45, 0, 0, time.UTC), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			// in the period uses 100 before it begins, 10 when it begins, and 1 after its budget was changed
			begun := func() *world {
				w := newWorld(t, c.begin.Add(-2*time.Hour-10*time.Minute))
				w.count()
				w.set(c.limit(200))
				if !c.pause {
					w.use(1)
					w.now = c.begin.Add(-15 * time.Minute)
					w.use(100)
				}
				w.now = c.begin
				w.use(10)
				w.now = c.begin.Add(70 * time.Minute)
				return w
			}
			before, all := max(c.unsure-10, 0), int64(112)
			if c.pause {
				all = 11
			}

			w := begun()
			w.set(c.limit(60))
			w.use(1)
			w.now = c.begin.Add(80 * time.Minute)
			w.set(c.limit(200))
			w.now = c.begin.Add(90 * time.Minute)
			w.countTo(all)
			cut, is, err := hindsight.CutOf(t.Context(), w.l, w.status(), w.now)
			if err != nil || !is || cut.Used != 11+before || cut.Unsure != c.unsure || cut.Missing != 130-before {
				t.Errorf("CutOf() = %+v, %t, %v, want 11 to %d used, of which %d are unsure", cut, is, err, 11+before, c.unsure)
			}

			w = begun()
			w.set(c.limit(300))
			w.use(1)
			w.countTo(all)
			want := hindsight.Raise{Least: 200, Most: 200 + before} // as if the 100 were of this period
			if r, is, err := hindsight.Raised(t.Context(), w.l, w.status(), w.now); err != nil || !is || r != want {
				t.Errorf("Raised() = %+v, %t, %v, want %+v", r, is, err, want)
			}
		})
	}
}

// TestCutAndTopUps lowers a budget once or twice, with top-ups and resets before, between and after.
func TestCutAndTopUps(t *testing.T) {
	t.Parallel() // it mostly waits
	type step struct {
		do string // set, use, top or reset
		n  int64
	}
	cut := func(to, use int64) []step { return []step{{"set", to}, {"use", use}, {"set", 200}} }
	for name, c := range map[string]struct {
		steps   [][]step
		missing int64
	}{
		"nothing added":            {[][]step{{{"use", 50}}, cut(60, 10)}, 90},
		"added before":             {[][]step{{{"use", 50}, {"top", 30}}, cut(60, 10)}, 90}, // of which the cut leaves 30
		"reset before":             {[][]step{{{"use", 50}, {"reset", 0}}, cut(60, 10)}, 140},
		"a part added afterwards":  {[][]step{{{"use", 50}}, cut(60, 10), {{"top", 20}}}, 70},
		"all added in between":     {[][]step{{{"use", 50}}, cut(60, 10), {{"top", 90}}, cut(100, 5)}, 0},
		"reset in between":         {[][]step{{{"use", 50}}, cut(60, 10), {{"reset", 0}}, cut(100, 5)}, 40}, // at least
		"reset ends what is added": {[][]step{{{"use", 50}, {"top", 30}}, cut(60, 10), {{"set", 55}, {"use", 5}, {"reset", 0}, {"set", 200}}}, 90},
		"twice, the second deeper": {[][]step{{{"use", 50}}, cut(100, 10), cut(60, 10)}, 80},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, time.Date(2026, 3, 5, 10, 0, 0, 0, time.UTC))
			w.count()
			set := func(n int64) { w.set(zlimit.Monthly("t", n, "UTC")) }
			set(200)
			used := int64(0)
			for _, steps := range c.steps {
				for _, s := range steps {
					w.now = w.now.Add(time.Minute)
					switch s.do {
					case "set":
						set(s.n)
					case "use":
						w.use(s.n)
						used += s.n
					case "top":
						amounts := zlimit.Amounts{"t": s.n}
						_, err := w.l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{Entity: "acme", Resource: "pay", Amounts: amounts})
						check.Fatal(t, "TopUp()", err)
					case "reset":
						_, err := w.l.Limits.Reset(t.Context(), zlimit.ResetRequest{Entity: "acme", Resource: "pay"})
						check.Fatal(t, "Reset()", err)
					}
				}
			}
			w.now = w.now.Add(time.Minute)
			w.countTo(used)
			got, is, err := hindsight.CutOf(t.Context(), w.l, w.status(), w.now)
			if err != nil || is != (c.missing > 0) || is && got.Missing != c.missing {
				t.Errorf("CutOf() = %+v, %t, %v, want %d missing", got, is, err, c.missing)
			}
		})
	}
}
