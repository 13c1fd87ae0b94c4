package explore

import (
	"flag"
	"runtime/debug"
	"testing"
	"time"
)

var (
	budget     = flag.Duration("explore.budget", 0, "how long to explore programs; 0 for the part that every test run has")
	operations = flag.Int("explore.operations", 3, "explore programs of up to so many operations")
	faults     = flag.Int("explore.faults", 0, "faults in an order at most")
	only       = flag.String("explore.grammar", "", "explore this grammar alone")
	loose      = flag.Bool("explore.loose", false, "do not tell orders of the replies of one process apart")
	every      = flag.Int("explore.every", 1, "explore one of so many programs")
	limit      = flag.Int("explore.orders", 5000, "orders of a program at most; 0 for all")
	findings   = flag.Int("explore.findings", 40, "findings to make small and show")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // orders live for a millisecond
	m.Run()
}

func TestGrammars(t *testing.T) {
	s := Sweep{Bounds: Bounds{Orders: *limit, Loose: *loose}, Every: *every, Findings: *findings}
	if *faults > 0 {
		s.Faults = Faults{[]Fate{LostReply, LostCall, Late, Throttle, Conflict, Lag}, *faults}
	}
	began := time.Now()
	if *budget > 0 {
		s.Until = func() bool { return time.Since(began) > *budget }
	}
	for n := 2; n <= *operations; n++ {
		for _, g := range Grammars() {
			if *only != "" && g.Name != *only {
				continue
			}
			whole := s.Run(t, &g, n)
			t.Logf("%s, %d operations: whole %v; so far %d programs, %d orders, %v", g.Name, n, whole, s.Programs, s.Ran, time.Since(began).Round(time.Second))
		}
	}
	t.Log(s.String())
	t.Logf("%.0f orders per second", float64(s.Ran)/time.Since(began).Seconds())
}
