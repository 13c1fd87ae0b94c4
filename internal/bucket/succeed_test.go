package bucket

import "testing"

// TestSuccessor makes successors of items: with a grant, with a session that another program has begun, and of a mixed fleet. A successor has
// what the item has, then and later, and counts nothing. Once it is there, the item has it, until it changes.
func TestSuccessor(t *testing.T) {
	const now, hour = 1_000_000_000, 3_600_000
	limit := func(rare *Rare) Limit {
		return Limit{Name: "a", Tokens: 40_000, Capacity: 100_000, RefillAmount: 1000, RefillPeriod: 60_000, Consumed: 75_000, Life: 7, Rare: rare}
	}
	for name, rare := range map[string]*Rare{
		"plain":    nil,
		"grant":    {Granted: 9000, Until: now + 2*hour, Lacking: 60_000},
		"parts":    {FromChildren: 5000, FromNarrower: 7000},
		"refusals": {Refusals: 3, Shade: 1},
		"rolled":   {Session: 7200, Since: now - 1000, Applied: now - 9_000_000, Rolled: 70_000},
		"noted":    {Known: 72_000},
		"turned":   {Carry: 1000, Carried: 500},
	} {
		for _, mixed := range []bool{false, true} {
			s := State{Limits: []Limit{{Name: WriteUnits, Tokens: 5, Capacity: WriteCapacity, Consumed: 88_000}, limit(rare)}, RefilledAt: now, ValidUntil: now + hour}
			present := State{Limits: []Limit{{Name: WriteUnits, Tokens: 900_000, Consumed: 3000}}, RefilledAt: now - 5, Disabled: true}
			present.Change(func(n *Notes) { n.Generation = now + 9 })
			next := s.Successor(&present, mixed, now)
			if !next.Disabled || next.Generation() != now+10 || next.Limits[0].Consumed != 4000 || next.Limits[0].Tokens != 900_000 {
				t.Errorf("%s: the successor is %+v", name, next)
			}
			l := &next.Limits[1]
			if l.Consumed != 0 || l.FromChildren() != 0 || l.FromNarrower() != 0 || l.Refusals() != 0 || next.HasServed() || !s.HasServed() {
				t.Errorf("%s: the successor counts %+v", name, l)
			}
			config := s.Own()
			config.Mixed = mixed
			for _, at := range []int64{now, now + hour, now + 3*hour} {
				was := config.Statuses(nil, []*State{&s}, &Demand{}, at)
				is := config.Statuses(nil, []*State{&next}, &Demand{}, at)
				if was[0].Available != is[0].Available || was[0].Grant != is[0].Grant {
					t.Errorf("%s, mixed %t: at %d the successor has %d and %+v, want %d and %+v", name, mixed, at, is[0].Available, is[0].Grant, was[0].Available, was[0].Grant)
				}
			}
			if present.Succeeds(&next) || !next.Succeeds(&next) {
				t.Errorf("%s: Succeeds() is wrong", name)
			}
			later := next
			later.Limits = []Limit{next.Limits[0], next.Limits[1]}
			later.Limits[1].Tokens--
			if later.Succeeds(&next) {
				t.Errorf("%s: a changed item succeeds", name)
			}
		}
	}
}
