package bucket

// A quota may carry what is left of a period into the next one, up to a bound. A reset then sets the balance to the whole amount plus what
// was left, up to the bound. Like every reset, it forgives a debt. If nothing is taken in a period, its whole amount is left. The item
// stores what was carried into the present period, [Rare.Carried]: until the next edge, the limit may hold that much beyond its capacity.
//
// What is carried depends on the exact balance, so the advance over the edge requires that balance. If several edges pass without a write,
// one write crosses them together.
//
//   - A change of the limit: the former amount and bound apply to periods that have already ended. What the last of them left is carried,
//     up to the new bound. A limit that was of another kind carries nothing. Within a period, a lower bound reduces what was carried into
//     it.
//   - A grant without an end belongs to the period, and its unused part is carried with the rest of the period. A grant that ends after the
//     edge remains a grant, see [Grant.after], and only what is left besides it is carried. So each token is carried once.
//   - A bucket that does not exist has nothing to carry. So an item with such a quota does not expire.
//   - Shards cannot each carry what they have left: one may be in debt that another one should have paid, or one may have more left than
//     its part of the bound while others have less. So a bucket with such a quota is not split. If it was split before, it carries nothing
//     until it is merged.

// MaxCarry is the most that a quota can carry, as a multiple of its amount.
const MaxCarry = 100

// carry returns the most that a limit of the item carries when it resets, given the parameters that the write sets, nil for its own.
func (s *State) carry(l *Limit, p *Params) int64 {
	switch {
	case s.sharded() || l.Times() == nil:
		return 0
	case p == nil:
		return l.Carry()
	case p.Times == nil:
		return 0
	default:
		return p.Carry
	}
}

// carries returns what a quota carries into the period of a time, after all resets until then, and whether that depends on its balance. The
// parameters are those that the write sets, nil for its own.
func (s *State) carries(l *Limit, p *Params, to int64) (carried int64, depends bool) {
	most := s.carry(l, p)
	if most <= 0 {
		return 0, false
	}
	amount := l.rule().capacityAt(s.mark())
	full := add(amount, max(l.Carry(), 0))
	edge, idle := l.Times().Next(s.mark()), int64(0) // what the periods since the first edge add to what was left at that edge
	if edge > to {                                   // the quota resets by its new times
		edge = to
	}
	for next := l.Times().Next(edge); next <= to && idle < most && idle < full; next = l.Times().Next(next) {
		idle = add(idle, amount)
	}
	after := func(left int64) int64 {
		if idle > 0 {
			left = min(add(left, idle), full)
		}
		return min(left, most)
	}
	return after(s.left(l, edge)), after(0) != after(most)
}

// left returns what a quota of the item has left at its first edge, without a grant that ends later.
func (s *State) left(l *Limit, edge int64) int64 {
	left := max(l.Tokens, 0)
	switch g := l.grant(); {
	case g.Until == 0:
		return left
	case g.ends(edge):
		return max(0, sub(l.Tokens, g.rest(l.Tokens, s.without(l, s.RefilledAt, edge))))
	default:
		return left - min(left, g.Granted)
	}
}

// carriedAs returns what is carried into the period in which a chain ends, given the parameters of the limit then, nil for its own.
func (c chain) carriedAs(p *Params) int64 {
	switch {
	case p == nil:
		return c.carried
	case p.Times == nil:
		return 0
	default:
		return min(c.carried, p.Carry)
	}
}

// carry notes what a write that moves the stamp from one time to another carries into the present period.
func (l *Limit) carry(s *State, was *Limit, p *Params, d *Demand, from, to int64) {
	carried := s.chainTo(was, p, from, to, 0).carriedAs(p)
	if d.restarts(l.Name) { // a manual reset carries nothing
		carried = 0
	}
	if carried != l.Carried() {
		l.SetCarried(carried)
	}
}

// Carries reports whether one of the limits of an item carries what is left of a period. Such a bucket is not split.
func (s *State) Carries() bool {
	for i := range s.Limits {
		if r := s.Limits[i].Rare; r != nil && r.Carry > 0 {
			return true
		}
	}
	return false
}
