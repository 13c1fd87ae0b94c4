package bucket

import "slices"

// A mixed fleet also has clients of another program. Such a client takes tokens without a refill as long as the balance covers them,
// however old the refill stamp is. The item does not show when it took them. So a refill might include a time in which the bucket was still
// full.
//
// Each refill of this program stores the consumption counted so far, [Limit.Known]. At the next refill, any further consumption was taken
// in between. The refill assumes that it was taken just now, the latest possible time, and that the bucket was full until then. So it
// raises the balance to at most the capacity less that consumption. Every write of this program is such a refill, so its own takes are
// never mistaken for those by others.

// longestStale is the greatest age of a refill stamp, in milliseconds, for a write of this program that leaves the
// stamp alone. The age is measured in a stream of changes. That is [maxFreshness], plus 5 seconds for differing
// clocks, plus room for streams with times in seconds.
const longestStale = 10_000

// TakenBy reports whether a client of another program changed an item into the next one, at a time in epoch milliseconds. Such a change
// took tokens and left the refill stamp alone, although this program would have refilled the item.
func (s *State) TakenBy(next *State, at int64) bool {
	if s.Count() != next.Count() || s.RefilledAt != next.RefilledAt || sub(at, s.RefilledAt) < longestStale {
		return false
	}
	return slices.ContainsFunc(next.Limits, func(l Limit) bool {
		before := s.find(l.Name)
		return before != nil && l.Name != WriteUnits && l.Consumed > before.Consumed
	})
}

// mixed reports whether a mixed fleet writes an item: by the config, or by the notes that a program with such a config has left.
func (c *Config) mixed(s *State) bool { return c.Mixed || s.noted() }

// noted reports whether an item stores the counted consumption.
func (s *State) noted() bool {
	if s.Shape != nil && s.Shape.plain {
		return false
	}
	for i := range s.Limits {
		if s.Limits[i].Known() != 0 {
			return true
		}
	}
	return false
}

// others returns what other clients took of a limit since the last refill of this program, in millitokens. It is at
// most the amount missing to the capacity. An item without notes counts as if that much was taken.
func (s *State) others(l *Limit) int64 {
	if l.Name == WriteUnits {
		return 0
	}
	return max(0, min(l.Consumed-l.Known(), sub(s.capacity(l.Name, l.rule(), s.RefilledAt), l.Tokens)))
}

// taken reports whether other clients have taken from an item since the last refill of this program.
func (s *State) taken() bool {
	for i := range s.Limits {
		if l := &s.Limits[i]; s.others(l) > 0 {
			return true
		}
	}
	return false
}

// settled is [Plan.balance] for an item that a mixed fleet writes. Its steps require the exact balance of the image, since other clients
// take tokens and leave the stamp alone.
func (p *Plan) settled(s *State, l, is *Limit, params *Params, d *Demand, _, from, now int64) (balance int64, ok bool) {
	amount, checked := d.asks(l.Name, params.Mode)
	ch := s.chainTo(l, params, from, now, 0)
	spent := amount
	if ch.ended {
		amount = d.afterGrant(l.Name, amount)
	}
	capacity, gift := s.ceiling(ch, params, d, !l.has(params), now), d.gift(l.Name)
	ceiling, inflow, renewed := capacity, plus(ch.inflow, gift), ch.renewed
	if !renewed { // others took before the quota reset
		ceiling = min(capacity, raised(sub(ch.ceiling, s.others(l)), gift))
	}
	balance, given := d.balance(l.Name)
	if !given {
		balance = min(raised(ch.from(l.Tokens), inflow), ceiling)
		if checked && balance < d.required(params, s, now) {
			return 0, false
		}
		balance = sub(balance, amount)
		if amount < 0 && balance > capacity {
			balance = capacity
			p.Overflows = !renewed
		}
	}
	counted := l.Consumed + d.counts(l.Name, spent)
	switch difference := sub(balance, l.Tokens); {
	case add(l.Tokens, difference) != balance: // out of a debt too deep for a difference
		p.step(Fill, l.Name, l.Tokens, balance)
	case difference != 0 || counted != l.Known():
		p.step(Credit, l.Name, l.Tokens, difference)
		p.step(Cover, l.Name, l.Tokens)
	default:
	}
	p.count(l.Name, d)
	if counted != l.Known() {
		is.SetKnown(counted)
	}
	return balance, true
}
