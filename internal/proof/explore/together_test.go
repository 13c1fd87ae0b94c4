package explore

// togetherSweeps are those of requests that are admitted together. A test run has a part of the smallest one.
func togetherSweeps(outages []Fate) []*Sweep {
	all := []*Sweep{{Name: "together, 2 operations, loose", Operations: 2, Rounds: 80, Bounds: Bounds{Loose: true}}}
	if *whole {
		all = append(all,
			&Sweep{Name: "together, 2 operations, strict", Operations: 2, Rounds: 40},
			&Sweep{
				Name: "together, 2 operations, a fault, loose", Operations: 2, Rounds: 160, Bounds: Bounds{Loose: true},
				Faults: Faults{append([]Fate{Conflict, Lag, HotKey}, outages...), 1},
			},
			&Sweep{
				Name: "together, 2 operations, an outage, allowed, loose", Operations: 2, Rounds: 160, Bounds: Bounds{Loose: true},
				Faults: Faults{[]Fate{LostReply, Throttle}, 1}, Change: func(o *Op) { o.Allow = true },
			},
			&Sweep{
				Name: "together, 2 operations, one cancelled, loose", Operations: 2, Rounds: 160, Bounds: Bounds{Loose: true},
				Faults: Faults{[]Fate{CancelFirst, CancelAfter}, 1}, Change: func(o *Op) { o.Cancel = o.Kind == Take },
			},
			&Sweep{Name: "together, 3 operations, loose", Operations: 3, Rounds: 1800, Bounds: Bounds{Loose: true}},
		)
	}
	return bounded(all, togetherGrammars, 5000, 5000)
}
