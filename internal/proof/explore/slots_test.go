package explore

// slotSweeps are those of slots. They are large, since time passes in steps: a test run has a part of the small ones alone.
func slotSweeps(outages []Fate) []*Sweep {
	one := Faults{outages, 1}
	all := []*Sweep{
		{Name: "slots, 2 operations, strict", Operations: 2, Rounds: 20},
		{Name: "slots, 2 operations, an outage, loose", Operations: 2, Rounds: 80, Faults: one, Bounds: Bounds{Loose: true}},
	}
	if *whole {
		all = append(all,
			&Sweep{Name: "slots, 3 operations, loose", Operations: 3, Rounds: 180, Bounds: Bounds{Loose: true}},
			&Sweep{Name: "slots, 3 operations, an outage, loose", Operations: 3, Rounds: 900, Faults: one, Bounds: Bounds{Loose: true}},
		)
	}
	for _, s := range all {
		s.Grammars, s.Bounds.Orders = slotGrammars, 20_000
	}
	return all
}
