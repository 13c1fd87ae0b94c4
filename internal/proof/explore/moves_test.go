package explore

import "github.com/zlimit/zlimit-go/zlimit"

// knownMoves are as known.
var knownMoves = []showing{
	{"a process rejects by the former parent after a move", "rejection", Program{
		Initial: Initial{
			Parents: map[string]string{"p": "", "q": "", "c": "p"},
			Limits:  map[string][]zlimit.Limit{"": limits(zlimit.PerDay("rpm", 10)), "p": limits(zlimit.PerDay("rpm", 3))},
		},
		Actors: []Actor{
			{Process: 0, Ops: []Op{moveTo("c", "q")}},
			{Process: 1, Warm: []Op{take("c", 1)}, Ops: []Op{take("c", 3)}},
		},
	}},
}

// moveSweeps are those of moves. A move makes many calls: a test run has a part of the small ones alone.
func moveSweeps(outages []Fate) []*Sweep {
	all := []*Sweep{
		{Name: "moves, 2 operations, strict", Operations: 2, Rounds: 100},
		{Name: "moves, 3 operations, loose", Operations: 3, Rounds: 1100, Bounds: Bounds{Loose: true}},
	}
	if *whole {
		all = append(all,
			&Sweep{
				Name: "moves, 2 operations, a fault, loose", Operations: 2, Rounds: 40, Faults: Faults{append(outages, Conflict, Lag), 1},
				Bounds: Bounds{Loose: true},
			},
			&Sweep{
				Name: "moves, 3 operations, a fault, loose", Operations: 3, Rounds: 900, Faults: Faults{append(outages, Conflict, Lag), 1},
				Bounds: Bounds{Loose: true},
			},
		)
	}
	return bounded(all, moveGrammars, 20_000, 200)
}
