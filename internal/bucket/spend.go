package bucket

import (
	"math"
	"slices"
)

// A spend is a write that leaves the refill stamp alone. Spends on the same stamp commute, so they do not race with each other; see
// [Plan.credit] for a stamp that is not fresh.

// spend plans a write that leaves the refill stamp alone: a fresh stamp, or an older one with the refill since as credit. It returns false
// if the stamp must move.
func (p *Plan) spend(s *State, c *Config, d *Demand, now int64, onCredit bool) bool {
	p.reset(Spend, s, sub(now, c.Freshness), now)
	p.At = s.validAt(now)
	p.admit(d)
	p.pass(c, d, now)
	if s.Changed || s.isPast(now) || !d.isVouched(s, c, now) || d.isFloored() && s.Shards == 0 || d.prolongs(s, now) {
		return false
	}
	if onCredit {
		p.RefilledAt, p.OnCredit = s.RefilledAt, true
		p.step(Unmoved, "", s.RefilledAt)
	}
	requires := required{unmoved: onCredit}
	placed, short := false, false // whether it changes a limit that has been full since the stamp, and one that has not
	for i := range s.Limits {
		l := &s.Limits[i]
		amount, checked := d.asks(l.Name, l.Mode())
		credit, fits := p.credit(s, l, amount, now)
		if !fits {
			if !p.place(s, l, c, d, amount, checked, now) {
				return false
			}
			p.ascribe(l.Name, d)
			placed = true
			continue
		}
		switch {
		case amount == 0:
			p.regard(l, d, credit, now)
		case amount < 0:
			if !p.giveBack(s, l, d, amount, credit, now, &requires) {
				if !p.place(s, l, c, d, amount, checked, now) {
					return false
				}
				placed, amount = true, 0
			}
		case checked:
			if l.Tokens < p.take(s, l, c, d, amount, credit, now) {
				return false
			}
			if d.rest().part != nil { // a transaction returns no image
				requires.period = p.same(s, l, requires.period)
			}
		case l.Name == WriteUnits:
			p.step(Charge, l.Name, amount)
			continue
		case !p.bear(s, c, l, amount, credit, now):
			return false
		}
		short = short || amount != 0
		p.ascribe(l.Name, d)
	}
	p.Places = placed
	return (!placed || short || p.race.outlasts(c)) && (s.ExpiresAt == 0 || s.ExpiresAt > seconds(p.Now))
}

// required notes the conditions that a spend has only once, for all of its limits.
type required struct{ period, unmoved bool }

// bear plans how a spend takes an unchecked amount.
func (p *Plan) bear(s *State, c *Config, l *Limit, amount, credit, now int64) bool {
	if l.Mode() == Soft && sub(l.Tokens, amount) != math.MinInt64 {
		p.step(Meter, l.Name, amount, now)
		return true
	}
	return p.owe(s, c, l, amount, credit, now)
}

// giveBack plans how a spend returns an amount (negative). It returns false if the stamp must move.
func (p *Plan) giveBack(s *State, l *Limit, d *Demand, amount, credit, now int64, r *required) bool {
	room := sub(add(s.capacity(l.Name, l.rule(), max(now, s.RefilledAt)), amount), credit)
	if Of(d.rest().counted, l.Name) != 0 || l.Tokens > room || s.Shards == 0 {
		return false
	}
	p.step(Refund, l.Name, amount, room, l.Capacity, int64(s.Shards))
	r.period = p.same(s, l, r.period)
	if (l.Windows() != nil || l.Granted() != 0 || l.Carried() != 0) && !r.unmoved { // another ceiling may have the same capacity
		p.step(Unmoved, "", s.RefilledAt)
		r.unmoved = true
	}
	return true
}

// same plans to require the life and the period of the image, and reports whether the write requires the period. An advance requires the
// stamp instead, which moves with a new life or period.
func (p *Plan) same(s *State, l *Limit, period bool) bool {
	if l.Life != 0 {
		p.step(Same, l.Name, l.Life)
	}
	if l.isQuota() && !period {
		p.step(Period, "", s.ValidUntil)
		period = true
	}
	return period
}

// owe takes an unchecked amount, and returns false if the stamp must move. An item that expires must outlive the debt, and others may have
// taken tokens since the image. So the write requires a balance that leaves no deeper debt than the item outlives: twice the debt of the
// image or, if the image shows none, the amount. If the item does not live that long, it must have the whole amount. The debt of a quota
// ends with its period.
func (p *Plan) owe(s *State, c *Config, l *Limit, amount, credit, now int64) bool {
	balance := sub(add(l.Tokens, credit), amount)
	switch {
	case s.Shards == 0: // the write requires the number of shards, which old items lack
		return false
	case balance == math.MinInt64: // the deepest debt saturates
		return false
	case c.ExpiryFactor > 0 && !s.sharded() && !l.isQuota():
		deepest := doubtful(balance, amount)
		if balance >= 0 && s.ExpiresAt <= seconds(l.rule().paid(deepest, now)) {
			deepest = 0
		}
		p.step(Borrow, l.Name, amount, sub(sub(amount, deepest), credit), int64(s.Shards))
		if deepest > 0 || p.OnCredit {
			p.outlast(l.rule(), deepest, now)
		}
	default:
		p.step(Owe, l.Name, amount, int64(s.Shards))
	}
	return true
}

// doubtful returns how deep a debt an unchecked amount may leave if the image of the item is stale.
func doubtful(balance, amount int64) int64 {
	if balance < 0 {
		return sub(0, add(balance, balance))
	}
	return max(amount, 0)
}

// SpendUnseen plans a write that leaves the refill stamp alone, from the limits of an old image. The conditions of the write check that the
// stamp is fresh and the tokens are available. It leaves the plan unchanged for an item that is not in line or whose limits were changed,
// and for an unchecked demand.
func (p *Plan) SpendUnseen(s *State, c *Config, d *Demand, now int64) {
	now = s.effectiveNow(now)
	returned := func(a Amount) bool { return a.Tokens < 0 }
	if !c.InLine(s, now) || s.Changed || s.isPast(now) || d.Unchecked || len(d.balances()) > 0 || c.mixed(s) || slices.ContainsFunc(d.Amounts, returned) {
		return
	}
	if d.isFloored() && s.Shards == 0 || d.prolongs(s, now) || !d.isVouched(s, c, now) {
		return
	}
	p.reset(Spend, s, sub(now, c.Freshness), now)
	p.At = s.validAt(now)
	p.admit(d)
	p.pass(c, d, now)
	p.holdSlots(s, d, now)
	for i := range s.Limits {
		l := &s.Limits[i]
		amount, checked := d.asks(l.Name, l.Mode())
		switch {
		case checked:
			p.take(s, l, c, d, amount, 0, now)
		case amount == 0:
			p.regard(l, d, 0, now)
		case l.Name == WriteUnits:
			p.step(Charge, l.Name, amount)
		default:
			p.step(Meter, l.Name, amount, now)
		}
		p.ascribe(s.Limits[i].Name, d)
	}
}
