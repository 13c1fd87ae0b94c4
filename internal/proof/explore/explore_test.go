package explore

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

var (
	whole    = flag.Bool("explore.all", false, "explore all programs, and not only the part that every test run has")
	budget   = flag.Duration("explore.budget", 0, "explore no more programs after this time; 0 for no end")
	only     = flag.String("explore.only", "", "explore in those sweeps alone whose name has this in it")
	grammar  = flag.String("explore.grammar", "", "explore those grammars alone whose name has this in it")
	ignored  = flag.String("explore.ignored", "", "rules that may be broken besides those of pending programs, separated by commas")
	mended   = flag.Bool("explore.mended", false, "hold all programs to the rules that pending programs break, too")
	findings = flag.Int("explore.findings", 30, "findings of a sweep to make small and show")
)

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // an order lives for a millisecond
	if !*whole {
		runtime.GOMAXPROCS(1) // of an order one goroutine runs at a time: to wake it elsewhere costs a fifth, and other packages have work
	}
	m.Run()
}

// sweeps are all that is explored. A long test run has the first round of each, and the usual one a sample of it.
func sweeps() []*Sweep {
	outages, late := []Fate{LostReply, LostCall, Late, Throttle}, []Fate{LateReply, Torn, TornBack}
	return append([]*Sweep{
		{Name: "2 operations, strict", Operations: 2, Rounds: 8},
		{Name: "3 operations, strict", Operations: 3, Rounds: 540, Bounds: Bounds{Orders: 20_000}},
		{Name: "4 operations, loose", Operations: 4, Rounds: 9000, Bounds: Bounds{Orders: 20_000, Loose: true}},
		{Name: "2 operations, a conflict or a read that lags", Operations: 2, Rounds: 60, Faults: Faults{[]Fate{Conflict, Lag}, 1}},
		{Name: "2 operations, an outage", Operations: 2, Rounds: 120, Faults: Faults{outages, 1}, Bounds: Bounds{Orders: 20_000}},
		{
			Name: "2 operations, an outage, allowed", Operations: 2, Rounds: 80, Faults: Faults{[]Fate{LostReply, Throttle, HotKey}, 1},
			Change: func(o *Op) { o.Allow = true }, Bounds: Bounds{Orders: 20_000},
		},
		{
			Name: "2 operations, one cancelled", Operations: 2, Rounds: 40, Faults: Faults{[]Fate{CancelFirst, CancelAfter}, 1},
			Change: func(o *Op) { o.Cancel = o.Kind == Take }, Bounds: Bounds{Orders: 20_000},
		},
		{Name: "2 operations, a reply that is late or a read that is torn", Operations: 2, Rounds: 40, Faults: Faults{late, 1}},
		{Name: "2 operations, an item that cannot be decoded", Operations: 2, Rounds: 40, Faults: Faults{[]Fate{Garbled}, 1}},
		{
			Name: "3 operations, a reply that is late or a read that is torn, loose", Operations: 3, Rounds: 2000,
			Faults: Faults{late, 1}, Bounds: Bounds{Orders: 20_000, Loose: true},
		},
		{
			Name: "2 operations, two faults, loose", Operations: 2, Rounds: 800,
			Faults: Faults{append(outages, Conflict, Lag), 2}, Bounds: Bounds{Orders: 20_000, Loose: true},
		},
		{
			Name: "3 operations, a fault, loose", Operations: 3, Rounds: 5000,
			Faults: Faults{append(outages, Conflict, Lag), 1}, Bounds: Bounds{Orders: 20_000, Loose: true},
		},
	}, slices.Concat(slotSweeps(outages), waitSlotSweeps(outages), togetherSweeps(outages), moveSweeps(outages), combinedSweeps(outages), settleSweeps(outages), periodSweeps(outages))...)
}

// bounded gives sweeps their grammars, and the most orders of a program: of all programs, and of the part that a test run has.
func bounded(all []*Sweep, grammars func() []Grammar, orders, usual int) []*Sweep {
	if !*whole {
		orders = usual
	}
	for _, s := range all {
		s.Grammars, s.Bounds.Orders = grammars, orders
	}
	return all
}

// combinedSweeps are those of grammars that combine others. A test run has a part of the smallest one.
func combinedSweeps(outages []Fate) []*Sweep {
	all := []*Sweep{{Name: "combined, 2 operations, strict", Operations: 2, Rounds: 60}}
	if *whole {
		fault := Faults{append([]Fate{Conflict, Lag}, outages...), 1}
		all = append(all,
			&Sweep{Name: "combined, 2 operations, a fault, loose", Operations: 2, Rounds: 60, Faults: fault, Bounds: Bounds{Loose: true}},
			&Sweep{Name: "combined, 3 operations, loose", Operations: 3, Rounds: 900, Bounds: Bounds{Loose: true}},
			&Sweep{Name: "combined, 3 operations, a fault, loose", Operations: 3, Rounds: 900, Faults: fault, Bounds: Bounds{Loose: true}},
		)
	}
	return bounded(all, combinedGrammars, 5000, 100)
}

// settleSweeps are those of fast limits of four shards. A test run has a part of the smallest one.
func settleSweeps(outages []Fate) []*Sweep {
	all := []*Sweep{{Name: "settles, 2 operations, strict", Operations: 2, Rounds: 20}}
	if *whole {
		fault := Faults{append([]Fate{Conflict, Lag, HotKey}, outages...), 1}
		all = append(all,
			&Sweep{Name: "settles, 2 operations, a fault, loose", Operations: 2, Rounds: 20, Faults: fault, Bounds: Bounds{Loose: true}},
			&Sweep{Name: "settles, 3 operations, loose", Operations: 3, Rounds: 100, Bounds: Bounds{Loose: true}},
		)
	}
	return bounded(all, settleGrammars, 1000, 100)
}

// periodSweeps are those of quotas that carry, and of several session quotas. A test run has a part of the smallest one.
func periodSweeps(outages []Fate) []*Sweep {
	all := []*Sweep{{Name: "periods, 2 operations, strict", Operations: 2, Rounds: 60}}
	if *whole {
		fault := Faults{append([]Fate{Conflict, Lag}, outages...), 1}
		all = append(all,
			&Sweep{Name: "periods, 2 operations, a fault, loose", Operations: 2, Rounds: 60, Faults: fault, Bounds: Bounds{Loose: true}},
			&Sweep{Name: "periods, 3 operations, loose", Operations: 3, Rounds: 300, Bounds: Bounds{Loose: true}},
		)
	}
	return bounded(all, periodGrammars, 5000, 100)
}

// reportTime is the time after which a long run says how far it is, also within a round of all sweeps.
const reportTime = 30 * time.Second

// A task is one round of a sweep.
type task struct {
	sweep *Sweep
	round int
}

// tasks returns the rounds of all sweeps. The first programs of each sweep come first, and then the rest of the sweeps of
// two operations with at most one fault. The second ones of the others follow, and so on.
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
	slices.SortStableFunc(list, func(a, b task) int { return a.stage() - b.stage() })
	return list
}

// stage returns 0 for a round of every test run, 1 for one that completes a small sweep, and 2 for the
// rest.
func (w task) stage() int {
	switch {
	case w.round == 0:
		return 0
	case w.sweep.Operations == 2 && w.sweep.Faults.Most <= 1:
		return 1
	default:
		return 2
	}
}

// progress returns what all sweeps together have come to.
func progress(all []*Sweep, since time.Time) string {
	programs, complete, orders := 0, 0, 0
	for _, s := range all {
		s.mu.Lock()
		programs, complete, orders = programs+s.Programs, complete+s.Whole, orders+s.Orders
		s.mu.Unlock()
	}
	took := time.Since(since)
	return fmt.Sprintf("%d programs, %d of them in every order; %d orders, %.0f per second; %v",
		programs, complete, orders, float64(orders)/took.Seconds(), took.Round(time.Second))
}

func TestGrammars(t *testing.T) {
	all := sweeps()
	rounds := 1
	if testing.Short() {
		all[0].Rounds *= 4
	}
	switch {
	case *whole:
		rounds = math.MaxInt16
	case !soak.Runs():
		for _, s := range all {
			s.thin()
		}
	}
	began := time.Now()
	stop := func() bool { return *budget > 0 && time.Since(began) > *budget }
	var mu sync.Mutex
	queue := tasks(all, rounds)
	last, said := task{}, began
	next := func() (task, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(queue) == 0 || stop() {
			return task{}, false
		}
		first := queue[0]
		queue = queue[1:]
		if last.sweep != nil && (first.round != last.round || time.Since(said) > reportTime) {
			t.Logf("next is round %d of %q, %d to go: %s", first.round+1, first.sweep.Name, len(queue)+1, progress(all, began))
			said = time.Now()
		}
		last = first
		return first, true
	}
	for _, s := range all {
		s.Findings, s.Grammar = *findings, *grammar
		s.Bounds.Ignored = strings.Split(*ignored, ",")
		if !*mended {
			s.Bounds.Ignored = append(s.Bounds.Ignored, tolerated(s.Faults)...)
		}
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
	for _, s := range all {
		switch {
		case s.Programs == 0:
		case len(s.Broken) > 0:
			t.Error(s)
		default:
			t.Log(s)
		}
	}
	t.Logf("%d rounds left; %s", len(queue), progress(all, began))
}

// In TestCancelBesideBackground, a caller gives up while its process writes in the background. The write ends as a step of its own, since two
// goroutines that go on at the same time may come to one of several states.
func TestCancelBesideBackground(t *testing.T) {
	gone := waitFor("c", 1, 3*time.Second)
	gone.Cancel = true
	p := &Program{
		Name: "a caller gives up", Initial: Initial{Limits: map[string][]zlimit.Limit{"c": {zlimit.PerSecond("rpm", 2, zlimit.Burst(2))}}},
		Faults: Faults{[]Fate{CancelAfter}, 1},
		Actors: []Actor{{Process: 0, Warm: []Op{take("c", 2)}, Ops: []Op{waitFor("c", 2, 3*time.Second)}}, {Process: 1, Ops: []Op{gone}}},
	}
	found := inOrder(t, p, []step{{0, "updates", Done}, {1, "updates", Done}, {1, "updates", CancelAfter}, {1, "to its end", Done}})
	if found != nil {
		t.Error(found.in(p))
	}
}
