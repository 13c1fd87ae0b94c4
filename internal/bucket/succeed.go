package bucket

import "slices"

// A bucket may succeed the bucket of another entity: its limits then get the balances, grants, sessions and carried amounts of that bucket.
// Later changes of its limits have the same effect as they would have had on the other bucket. Its counts begin at zero, since the
// consumption so far belongs to the other entity. Slots and waiting callers stay with the other bucket.

// Successor returns the item that succeeds an item, which may belong to another bucket. It replaces the present item of the same shard, nil
// for none, and rejects requests. Mixed is true in a mixed fleet, whose items store the counted consumption. The time of the change is in
// epoch milliseconds.
func (s *State) Successor(present *State, mixed bool, now int64) State {
	next := State{RefilledAt: s.RefilledAt, ValidUntil: s.ValidUntil, Shard: s.Shard, Shards: s.Count(), Disabled: true}
	if s.Changed {
		next.ValidUntil = closed // the next write must move the stamp, as for the other item
	}
	writes := Limit{Name: WriteUnits, Tokens: WriteCapacity - oneWrite, Consumed: oneWrite}
	writes.configure(&writeUnits)
	generation := int64(0)
	if present != nil {
		generation = present.Generation() + 1
		if l := present.find(WriteUnits); l != nil {
			writes = *l
			writes.Consumed += oneWrite
		}
	}
	next.Limits = append(next.Limits, writes)
	for i := range s.Limits {
		if l := s.Limits[i]; l.Name != WriteUnits {
			next.Limits = append(next.Limits, s.uncounted(l, mixed || s.noted()))
		}
	}
	next.Change(func(n *Notes) {
		n.Zone, n.Crossed, n.Generation = s.Zone(), s.Crossed(), max(now, generation)
	})
	return next
}

// uncounted returns a limit of the item with counts that begin at zero. Counts that are relative to others keep their distance.
func (s *State) uncounted(l Limit, noted bool) Limit {
	counted, rolled := l.Consumed, s.isRolled(&l)
	l.Consumed = 0
	if l.Rare == nil && !noted {
		return l
	}
	l.Change(func(r *Rare) {
		if r.FromChildren, r.FromNarrower, r.Refusals = 0, 0, 0; noted {
			r.Known -= counted
		}
		if rolled {
			r.Rolled -= counted
		}
	})
	return l
}

// Succeeds reports whether an item already has the content of the given successor.
func (s *State) Succeeds(next *State) bool {
	same := s.RefilledAt == next.RefilledAt && s.ValidUntil == next.ValidUntil && s.Count() == next.Count() && s.Disabled == next.Disabled &&
		s.Zone() == next.Zone() && s.Crossed() == next.Crossed() && len(s.Limits) == len(next.Limits)
	return same && !slices.ContainsFunc(next.Limits, func(l Limit) bool {
		is := s.find(l.Name)
		return is == nil || l.Name != WriteUnits && !is.equal(&l)
	})
}

// equal reports whether two limits have the same parameters and the same state.
func (l *Limit) equal(other *Limit) bool {
	is, was := *l.rare(), *other.rare()
	if !is.Times.Equal(was.Times) || !is.Windows.Equal(was.Windows) {
		return false
	}
	is.Times, is.Windows, was.Times, was.Windows = nil, nil, nil, nil
	return is == was && l.Tokens == other.Tokens && l.Capacity == other.Capacity && l.RefillAmount == other.RefillAmount &&
		l.RefillPeriod == other.RefillPeriod && l.Consumed == other.Consumed && l.Life == other.Life
}

// HasServed reports whether requests have taken from a limit of the item.
func (s *State) HasServed() bool {
	return slices.ContainsFunc(s.Limits, func(l Limit) bool { return l.Name != WriteUnits && l.Consumed != 0 })
}

// Succession returns the limits whose balances change when a bucket succeeds another one. A limit that the other one lacks becomes full.
func (c *Config) Succession(shards []*State, of *Config, others []*State, now int64) (changes []BalanceChange) {
	v, other := viewOf(c, shards, now), viewOf(of, others, now)
	for i := range c.Params {
		p := &c.Params[i]
		change := BalanceChange{Limit: p.Name, Before: v.balance(p), After: nothingTaken.idle(p, now)}
		if at := slices.IndexFunc(of.Params, func(q Params) bool { return q.Name == p.Name }); at >= 0 && len(others) > 0 {
			change.After = other.balance(&of.Params[at])
		}
		if change.Before != change.After {
			changes = append(changes, change)
		}
	}
	return Rejoined(changes)
}
