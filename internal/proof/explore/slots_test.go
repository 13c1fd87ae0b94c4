package explore

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
)

// slotSweeps are those of slots. They are large, since time passes in steps: a test run has a part of the small ones alone.
func slotSweeps(outages []Fate) []*Sweep {
	one := Faults{outages, 1}
	all := []*Sweep{
		{Name: "slots, 2 operations, strict", Operations: 2, Rounds: 20},
		{Name: "slots, 2 operations, an outage, loose", Operations: 2, Rounds: 80, Faults: one, Bounds: Bounds{Loose: true}},
	}
	if *whole {
		all = append(all,
			&Sweep{
				Name: "slots, 2 operations, a conflict, a read that lags or is torn, a hot key, loose", Operations: 2, Rounds: 80,
				Faults: Faults{[]Fate{Conflict, Lag, Torn, TornBack, HotKey}, 1}, Bounds: Bounds{Loose: true},
			},
			&Sweep{Name: "slots, 3 operations, loose", Operations: 3, Rounds: 180, Bounds: Bounds{Loose: true}},
			&Sweep{Name: "slots, 3 operations, an outage, loose", Operations: 3, Rounds: 900, Faults: one, Bounds: Bounds{Loose: true}},
		)
	}
	return bounded(all, slotGrammars, 20_000, 20_000)
}

// waitSlotSweeps are those of requests that wait for slots. A test run has a part of them.
func waitSlotSweeps(outages []Fate) []*Sweep {
	one := Faults{outages, 1}
	all := []*Sweep{
		{Name: "waits for slots, 2 operations, strict", Operations: 2, Rounds: 1},
		{Name: "waits for slots, 2 operations, an outage, loose", Operations: 2, Rounds: 4, Faults: one, Bounds: Bounds{Loose: true}},
	}
	if *whole {
		all = append(all,
			&Sweep{Name: "waits for slots, 3 operations, loose", Operations: 3, Rounds: 20, Bounds: Bounds{Loose: true}},
			&Sweep{Name: "waits for slots, 3 operations, an outage, loose", Operations: 3, Rounds: 90, Faults: one, Bounds: Bounds{Loose: true}},
		)
	}
	for _, s := range bounded(all, waitSlotGrammars, 5000, 100) {
		if s.Faults.Most > 0 { // a fault of a shared read meets several callers
			s.Grammars = func() []Grammar { return waitSlotGrammars()[:2] }
		}
	}
	return all
}

// A step of an order lets calls of a process happen, up to one whose text has a part, and that one with a fate. Calls that come late are of
// no process.
type step struct {
	process int
	text    string
	fate    Fate
}

// inOrder runs a program in the one order of some steps, and returns what it breaks, and its log.
func inOrder(t *testing.T, p *Program, steps []step) *Finding {
	t.Helper()
	o := newOrder(p, prepare(t, p))
	o.run(t, func(calls []*call) (option, bool) {
		if len(steps) == 0 {
			return option{}, true
		}
		for i, c := range calls {
			s := steps[0]
			process := c.port.process
			if c.orphan {
				process = late
			}
			if process != s.process {
				continue
			}
			if !strings.Contains(c.text, s.text) {
				return option{call: i}, true
			}
			steps = steps[1:]
			return option{i, s.fate}, true
		}
		return option{}, true
	})
	if len(steps) > 0 {
		t.Errorf("no call of process %d comes that %s", steps[0].process, steps[0].text)
	}
	if o.witness.wrong == nil {
		return nil
	}
	return &Finding{*o.witness.wrong, nil, o.log, 1}
}

const late = -1

// In TestLateRelease, a release comes when its slot has become free by itself, and is held by another process. It does nothing.
func TestLateRelease(t *testing.T) {
	p := &Program{
		Name: "a late release", Initial: Initial{Limits: map[string][]zlimit.Limit{"c": {slotsOf(2)}}}, Faults: Faults{[]Fate{Late}, 1},
		Actors: []Actor{
			{Process: 0, Warm: []Op{hold("c", 1)}, Ops: []Op{{Kind: Rollback}, passing(2*term, 2)}},
			{Process: 1, Ops: []Op{hold("c", 2)}},
			{Process: 2, Ops: []Op{hold("c", 1)}},
		},
	}
	found := inOrder(t, p, []step{
		{0, "updates", Late}, {0, "rests", Done}, {0, "rests", Done}, {1, "updates", Done}, {1, "updates", Done}, {late, "updates", Done}, {2, "glances", Done},
	})
	if found != nil {
		t.Error(found.in(p))
	}
}

// TestWaitsForSlots runs all programs of two operations in which requests wait for slots, each in the first orders. The slots pass within a
// process and between two.
func TestWaitsForSlots(t *testing.T) {
	s := &Sweep{Name: "waits for slots", Operations: 2, Rounds: 1, Grammars: waitSlotGrammars, Bounds: Bounds{Orders: 20}, Findings: 3}
	s.Round(t, 0, func() bool { return false })
	if s.Programs == 0 || len(s.Broken) > 0 {
		t.Error(s)
	}
	t.Log(s)
}

// TestSlotsAreHandedOn runs programs in the order in which the holder gives its slots back once all others wait.
func TestSlotsAreHandedOn(t *testing.T) {
	for _, p := range handedOn() {
		holder := len(p.Actors) - 1
		o := newOrder(&p, prepare(t, &p))
		o.run(t, func(calls []*call) (option, bool) {
			at := slices.IndexFunc(calls, func(c *call) bool { return c.op == nil || c.op.actor != holder })
			return option{call: max(at, 0)}, true
		})
		if wrong := o.witness.wrong; wrong != nil {
			t.Error((&Finding{*wrong, nil, o.log, 1}).in(&p))
		}
	}
}
