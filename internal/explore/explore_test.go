package explore

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	whole    = flag.Bool("explore.all", false, "explore all programs, and not only the part that every test run has")
	budget   = flag.Duration("explore.budget", 0, "explore no more programs after this time; 0 for no end")
	only     = flag.String("explore.only", "", "explore in those sweeps alone whose name has this in it")
	grammar  = flag.String("explore.grammar", "", "explore those grammars alone whose name has this in it")
	ignored  = flag.String("explore.ignored", strings.Join(open, ","), "rules that may be broken, separated by commas")
	findings = flag.Int("explore.findings", 30, "findings of a sweep to make small and show")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // an order lives for a millisecond
	m.Run()
}

// sweeps are all that is explored. Every test run has the first round of each.
func sweeps() []*Sweep {
	outages := []Fate{LostReply, LostCall, Late, Throttle}
	return []*Sweep{
		{Name: "2 operations, strict", Operations: 2, Rounds: 2},
		{Name: "3 operations, strict", Operations: 3, Rounds: 60, Bounds: Bounds{Orders: 20_000}},
		{Name: "4 operations, loose", Operations: 4, Rounds: 1000, Bounds: Bounds{Orders: 20_000, Loose: true}},
		{Name: "2 operations, a conflict or a read that lags", Operations: 2, Rounds: 5, Faults: Faults{[]Fate{Conflict, Lag}, 1}},
		{Name: "2 operations, an outage", Operations: 2, Rounds: 20, Faults: Faults{outages, 1}, Bounds: Bounds{Orders: 20_000}},
		{
			Name: "2 operations, an outage, allowed", Operations: 2, Rounds: 20, Faults: Faults{[]Fate{LostReply, Throttle}, 1},
			Change: func(o *Op) { o.Allow = true }, Bounds: Bounds{Orders: 20_000},
		},
		{
			Name: "2 operations, one cancelled", Operations: 2, Rounds: 10, Faults: Faults{[]Fate{CancelFirst, CancelAfter}, 1},
			Change: func(o *Op) { o.Cancel = o.Kind == Take }, Bounds: Bounds{Orders: 20_000},
		},
		{
			Name: "2 operations, two faults, loose", Operations: 2, Rounds: 200,
			Faults: Faults{append(outages, Conflict, Lag), 2}, Bounds: Bounds{Orders: 20_000, Loose: true},
		},
		{
			Name: "3 operations, a fault, loose", Operations: 3, Rounds: 1000,
			Faults: Faults{append(outages, Conflict, Lag), 1}, Bounds: Bounds{Orders: 20_000, Loose: true},
		},
	}
}

// A task is one round of a sweep.
type task struct {
	sweep *Sweep
	round int
}

// tasks returns the rounds of all sweeps: the first ones of all, then the second ones, and so on.
func tasks(all []*Sweep, rounds int) (list []task) {
	for round := range rounds {
		for _, s := range all {
			if round < s.Rounds && strings.Contains(s.Name, *only) {
				list = append(list, task{s, round})
			}
			if testing.Short() {
				return list
			}
		}
	}
	return list
}

func TestGrammars(t *testing.T) {
	all := sweeps()
	rounds := 1
	if *whole {
		rounds = math.MaxInt16
	}
	began := time.Now()
	stop := func() bool { return *budget > 0 && time.Since(began) > *budget }
	var mu sync.Mutex
	queue := tasks(all, rounds)
	next := func() (task, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(queue) == 0 || stop() {
			return task{}, false
		}
		first := queue[0]
		queue = queue[1:]
		return first, true
	}
	for _, s := range all {
		s.Findings, s.Grammar = *findings, *grammar
		s.Bounds.Ignored = strings.Split(*ignored, ",")
	}
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				t.Parallel()
				for work, ok := next(); ok; work, ok = next() {
					work.sweep.Round(t, work.round, stop)
				}
			})
		}
	})
	orders := 0
	for _, s := range all {
		if s.Programs == 0 {
			continue
		}
		orders += s.Orders
		if len(s.Broken) > 0 {
			t.Error(s)
		} else {
			t.Log(s)
		}
	}
	t.Logf("%d orders in %v, %.0f per second", orders, time.Since(began).Round(time.Second), float64(orders)/time.Since(began).Seconds())
}
