package aggregator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// beginHours begins the hours of n entities.
func beginHours(t *testing.T, s zlimit.Store, n int) {
	t.Helper()
	var changes []store.Change
	for i := range n {
		b := layout.BucketKey{NS: "n", Entity: fmt.Sprintf("e%03d", i), Resource: "r"}
		changes = append(changes, store.Change{Key: keyOf(b), Sequence: sequence(i + 1), At: noon, New: item(b, map[string]int64{"rpm": 1000})})
	}
	mustApply(t, at(t, s, noon), changes...)
	enginetest.CatchUp()
}

// rolledUp returns how many entities of beginHours have a day.
func rolledUp(t *testing.T, s zlimit.Store, n int) (days int) {
	t.Helper()
	for i := range n {
		got := snapshotsOf(t, newAggregator(t, s), fmt.Sprintf("e%03d", i))
		switch day, hour := got["r#2026-03-31"], got["r#2026-03-31T12:00:00Z"]; {
		case day == nil:
		case day["rpm"] != "1" || day["total_events"] != "1" || hour["rpm"] != "1":
			t.Errorf("entity %d has a day of %v", i, day)
		default:
			days++
		}
	}
	return days
}

// TestPagesOfHours rolls up more hours than a page has. When the claim of an ended roller is over, another one goes on
// from its last finished page.
func TestPagesOfHours(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		const n = 230
		beginHours(t, s, n)
		a := at(t, s, after)
		inject(a, func(n int) (bool, error) {
			if n > 1+300+1+60 { // a claim, a page, its note, and some of the next page
				return false, errDown
			}
			return false, nil
		})
		a.roller.rollDue(t.Context(), t.Context())
		if got := rolledUp(t, s, n); got < rollUpPage || got > rollUpPage+60 {
			t.Errorf("the first one has rolled up %d, want a page and some", got)
		}
		before := rolledUp(t, s, n)
		roll(t, s, after.Add(claimTerm-time.Second))
		if got := rolledUp(t, s, n); got != before {
			t.Errorf("another one has rolled up %d while the first one has the hour", got-before)
		}
		b := at(t, s, after.Add(claimTerm+time.Second))
		f := inject(b, nil)
		b.roller.rollDue(t.Context(), t.Context())
		if got := rolledUp(t, s, n); got != n {
			t.Errorf("rolled up in the end: %d, want %d", got, n)
		}
		if f.writes < 3*(n-rollUpPage-60) || f.writes > 3*(n-rollUpPage)+10 {
			t.Errorf("the second one made %d writes, want those of the rest", f.writes)
		}
		if left := dueHours(t, s); len(left) > 0 {
			t.Errorf("there are still %v", left)
		}
	})
}

// TestTimeToRollUp ends the time to work after a page: another one may go on immediately.
func TestTimeToRollUp(t *testing.T) {
	s := newMemory(t)
	const n = 150
	beginHours(t, s, n)
	working, stop := context.WithCancel(t.Context())
	a := at(t, s, after)
	inject(a, func(n int) (bool, error) {
		if n == 20 {
			stop()
		}
		return false, nil
	})
	a.roller.rollDue(t.Context(), working)
	if got := rolledUp(t, s, n); got != rollUpPage {
		t.Errorf("rolled up when the time is over: %d, want a page", got)
	}
	roll(t, s, after)
	if got := rolledUp(t, s, n); got != n {
		t.Errorf("rolled up in the end: %d, want %d", got, n)
	}
}

// stopping is a store that calls a function at one of its writes. From then on its writes may hang.
type stopping struct {
	store.Store
	writes, at int
	stop       func()
	hangs      bool
}

func (s *stopping) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if s.writes++; s.writes == s.at {
		s.stop()
	}
	if s.hangs && s.writes >= s.at {
		<-ctx.Done()
		return store.Result{}, ctx.Err()
	}
	return s.Store.Write(ctx, w)
}

// TestRunEndsInAPage ends Run in the middle of a page. Run does the rest of it, and another aggregator goes on immediately. A
// store that hangs does not keep Run.
func TestRunEndsInAPage(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(t)
			startStream(t, s)
			const n = 150
			beginHours(t, s, n)
			a := at(t, s, after)
			ctx, stop := context.WithCancel(t.Context())
			var stopped time.Time
			a.table = a.tableOf(&stopping{Store: beneath(a), at: 20, hangs: hangs, stop: func() {
				stopped = time.Now()
				stop()
			}})
			if err := a.Run(ctx); err != nil {
				t.Errorf("hangs %t: Run() = %v", hangs, err)
			}
			want, took := rollUpPage, time.Duration(0)
			if hangs {
				want, took = 0, pageTime // hours are closed first
			}
			if got := time.Since(stopped); got != took {
				t.Errorf("hangs %t: Run ends after %v, want %v", hangs, got, took)
			}
			if got := rolledUp(t, s, n); got != want {
				t.Errorf("hangs %t: rolled up when Run ends: %d, want %d", hangs, got, want)
			}
			later := after
			if hangs {
				later = after.Add(claimTerm)
			}
			roll(t, s, later)
			if got := rolledUp(t, s, n); got != n {
				t.Errorf("hangs %t: rolled up in the end: %d, want %d", hangs, got, n)
			}
		})
	}
}

// In TestTwoRollers, a roller comes to an hour that another one works on.
func TestTwoRollers(t *testing.T) {
	const n = 150
	everything := func(s zlimit.Store) { roll(t, s, after.Add(2*claimTerm)) }
	for _, r := range []struct {
		name  string
		write int // of the first one, before which the other comes
		other func(s zlimit.Store)
		pages int // of the first one
		left  int // records, when the first one ends
	}{
		{"the other one has done it before the claim", 1, everything, 0, 0},
		{"the other one has claimed it, and ends", 1, func(s zlimit.Store) {
			other := at(t, s, after)
			inject(other, func(n int) (bool, error) {
				if n > 1 {
					return false, errDown
				}
				return false, nil
			})
			other.roller.rollDue(t.Context(), t.Context())
		}, 0, 1},
		{"the other one takes over in the middle of a page", 50, everything, 1, 0},
		{"the other one takes over in the middle of the last page", 350, everything, 2, 0},
	} {
		s := newMemory(t)
		beginHours(t, s, n)
		pages := 0
		a := at(t, s, after, WithObserver(func(Batch) { pages++ }))
		inject(a, func(n int) (bool, error) {
			if n == r.write {
				r.other(s)
			}
			return false, nil
		})
		a.roller.rollDue(t.Context(), t.Context())
		if pages != r.pages {
			t.Errorf("%s: the first one does %d pages, want %d", r.name, pages, r.pages)
		}
		if left := dueHours(t, s); len(left) != r.left {
			t.Errorf("%s: there are still %v, want %d", r.name, left, r.left)
		}
		everything(s)
		if got := rolledUp(t, s, n); got != n {
			t.Errorf("%s: rolled up in the end: %d, want %d", r.name, got, n)
		}
	}
}

// TestNotedMeanwhile begins another hour before each write of a roller, which may not see it: the roller leaves the record.
func TestNotedMeanwhile(t *testing.T) {
	const last = 6 // a claim, three for the hour, its position, and the end
	for write := 1; write <= last; write++ {
		s := newMemory(t)
		beginHours(t, s, 1)
		a := at(t, s, after)
		f := inject(a, nil)
		f.fault = func(n int) (bool, error) {
			if n == write {
				beginHours(t, s, 2)
			}
			return false, nil
		}
		a.roller.rollDue(t.Context(), t.Context())
		if write == last && f.writes != last {
			t.Errorf("the roller makes %d writes, want %d", f.writes, last)
		}
		roll(t, s, after)
		if got := rolledUp(t, s, 2); got != 2 {
			t.Errorf("begun before write %d: rolled up: %d, want 2", write, got)
		}
		if left := dueHours(t, s); len(left) > 0 {
			t.Errorf("begun before write %d: there are still %v", write, left)
		}
	}
}
