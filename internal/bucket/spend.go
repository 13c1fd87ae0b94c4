package bucket

import (
	"math"
	"slices"
)

// A spend is a write that leaves the refill stamp alone. Spends that know one stamp commute, so they race with no other one: see
// [Plan.credit] for a stamp that is not fresh.

// spend plans a write that leaves the refill stamp alone: a fresh one, or on credit of what has flowed in since. It returns false when
// the stamp has to move.
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
	placed, short := false, false // whether it changes a limit that was full since the stamp, and one that was not
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
			if d.rest().part != nil { // a transaction returns no image that would show what it took from
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

// required is what a spend requires once, whatever limits it is for.
type required struct{ period, unmoved bool }

// bear plans how a spend takes an amount that is not checked.
func (p *Plan) bear(s *State, c *Config, l *Limit, amount, credit, now int64) bool {
	if l.Mode() == Soft && sub(l.Tokens, amount) != math.MinInt64 {
		p.step(Meter, l.Name, amount, now)
		return true
	}
	return p.owe(s, c, l, amount, credit, now)
}

// giveBack plans how a spend gives a negative amount back. It returns false if the stamp has to move for it.
func (p *Plan) giveBack(s *State, l *Limit, d *Demand, amount, credit, now int64, r *required) bool {
	room := sub(add(s.capacity(l.Name, l.rule(), max(now, s.RefilledAt)), amount), credit)
	if Of(d.rest().counted, l.Name) != 0 || l.Tokens > room || s.Shards == 0 {
		return false
	}
	p.step(Refund, l.Name, amount, room, l.Capacity, int64(s.Shards))
	r.period = p.same(s, l, r.period)
	if (l.Windows() != nil || l.Granted() != 0 || l.Carried() != 0) && !r.unmoved { // others may have the same capacity now
		p.step(Unmoved, "", s.RefilledAt)
		r.unmoved = true
	}
	return true
}

// same asks that a limit has the life and the period of the image, and reports whether the write asks for the period. An
// advance asks for the stamp instead, which a new life, or a new period, has moved.
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

// owe takes an amount that need not be there; it returns false where the stamp has to move, too. An item that expires has to outlast the
// debt, and others may have taken from the item since the image. So the write asks for a balance that leaves no deeper debt than the item
// outlasts: twice the debt of the image or, if the image shows none, the amount. An item that does not last so long must have all of the
// amount. The debt of a quota ends with its period.
func (p *Plan) owe(s *State, c *Config, l *Limit, amount, credit, now int64) bool {
	balance := sub(add(l.Tokens, credit), amount)
	switch {
	case s.Shards == 0: // the write asks for the number of shards, which old items do not have
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

// doubtful returns how deep a debt an amount that need not be there may leave, if the image of an item shows another balance than the item has.
func doubtful(balance, amount int64) int64 {
	if balance < 0 {
		return sub(0, add(balance, balance))
	}
	return max(amount, 0)
}

// SpendUnseen plans a write that leaves the refill stamp alone, from the limits of an old image. The conditions of the
// write find out whether the stamp is fresh by now and the tokens are there. It leaves the plan as it is for an item
// that is not in line or whose limits were changed, and for an unchecked demand.
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
