package bucket

// The refill since the refill stamp is credit. A balance with a stamp is equivalent to a later stamp and the balance plus the refill in
// between, unless the limit was full in between. So a take leaves the stamp alone if it can, and requires:
//
//   - the stamp that it knows, which implies the same limits and the same refill ([Unmoved]);
//   - a balance that covers the amount together with the refill ([Borrow]). The balance itself may be below zero;
//   - that no limit it takes from has been full since the stamp ([Below]), since a full limit could not have held the refill.
//
// Takes that know the same stamp then do not conflict. If the condition of a take fails although the stamp is unchanged, the limit falls
// short at the time at which the take was decided.
//
// Proof. Let V be the latest time at which a take from a limit was decided, in the order of the writes. The item then has what an ideal
// bucket has at V:
//
//   - A take at v >= V. The ideal bucket was not full between V and v, by the third condition. It has the amount, by the second one.
//   - A take at v < V. The refill until v is less than the refill until V, so the second condition is stricter than necessary. The third
//     condition held at V when the take at V was written, and balances have only decreased since.
//   - An advance at v < V. It clamps no balance, since the balance was below the capacity at V.
//
// Between two writes a balance only rises, so a check before each take misses no time at which the limit was full. Each limit has a V of
// its own: a take that does not use a limit does not check it.

// maxCredit is the greatest age of a stamp that is left alone on credit, in milliseconds. Other processes learn the time from a
// stamp, and distinguish this program from others by it; see [longestStale].
const maxCredit = 1000

// givesCredit reports whether a demand may leave a stamp alone that is not fresh. Waiting callers of an unsplit bucket may do so at any age
// of the stamp, as long as their debt without the refill is no deeper than their wait allows.
func (s *State) givesCredit(d *Demand, now int64) bool {
	if now < s.RefilledAt || d.rest().part != nil || len(d.Amounts) == 0 && len(d.rest().counted) == 0 {
		return false
	}
	return s.Shards > 0 && sub(now, s.RefilledAt) <= maxCredit || d.Waits() && !s.sharded()
}

// credit returns the refill of a limit since the stamp, for a plan on credit that takes an amount from the limit. The plan
// requires that the limit was not full since. It returns false if the image shows that it was.
func (p *Plan) credit(s *State, l *Limit, amount, now int64) (credit int64, fits bool) {
	if !p.OnCredit || l.Name == WriteUnits {
		return 0, true
	}
	if s.sharded() && l.Granted() != 0 {
		return 0, false
	}
	ch := s.chain(l, s.RefilledAt, now, 0)
	credit = signed(ch.inflow)
	if amount > 0 {
		ceiling := p.brink(s, l, ch, now)
		if sub(l.Tokens, p.race.takes(amount)) > ceiling {
			return 0, false
		}
		p.step(Below, l.Name, ceiling)
	}
	if sub(now, s.RefilledAt) > maxCredit {
		credit = 0
	}
	return credit, true
}

// place plans how a spend on credit takes an amount from a limit that has been full since the stamp, or gives back an amount that fills it.
// Refill and tokens that did not fit are lost, as if the stamp had moved. The write requires that the limit has been full by its clock
// reading. A second write by the same or an earlier reading does not meet that condition, since the first one lowered the balance. It
// returns false for a limit whose overflow must move the stamp.
//
// So a full limit does not move the stamp if another limit is used up. If all limits of a demand have been full, the stamp moves:
// it is then fresh, and the next writes need no guess.
func (p *Plan) place(s *State, l *Limit, c *Config, d *Demand, amount int64, checked bool, now int64) bool {
	if !p.OnCredit || l.Rare != nil || sub(now, s.RefilledAt) > maxCredit || Of(d.rest().counted, l.Name) != 0 {
		return false
	}
	if amount < 0 && s.sharded() { // what does not fit belongs to other shards
		return false
	}
	ch := s.chain(l, s.RefilledAt, now, 0)
	brink := p.brink(s, l, ch, now)
	brink = sub(brink, p.race.slack(s, l, c, amount, now))
	lowest := add(brink, min(amount, 0))
	if l.Tokens < lowest || checked && p.least(s, l, c, d, amount, now) > ch.ceiling {
		return false
	}
	if debt := sub(amount, ch.ceiling); debt > 0 && c.ExpiryFactor > 0 && !s.sharded() {
		p.outlast(l.rule(), debt, now)
	}
	p.step(Place, l.Name, lowest, sub(brink, max(amount, 0)), amount)
	return true
}

// least returns the lowest balance together with the refill at a time from which a demand may take a checked amount.
func (p *Plan) least(s *State, l *Limit, c *Config, d *Demand, amount, now int64) int64 {
	if l.Rare == nil && d.rest().part == nil && !d.isFloored() && amount <= l.Capacity {
		return amount
	}
	params := l.params()
	if d.isFloored() {
		params.Floors = c.of(l.Name).Floors
	}
	return d.required(&params, s, max(now, s.RefilledAt))
}

// take plans how a spend takes a checked amount from a balance together with credit. It returns the lowest balance that suffices.
// A waiting caller borrows missing tokens. The item must then last until the deepest debt that the caller may leave is paid and
// the limit is full.
func (p *Plan) take(s *State, l *Limit, c *Config, d *Demand, amount, credit, now int64) (least int64) {
	required := p.least(s, l, c, d, amount, now)
	if required == amount && !p.OnCredit {
		p.step(Take, l.Name, amount)
		return amount
	}
	least = sub(required, credit)
	p.step(Borrow, l.Name, amount, least, int64(s.Shards))
	if least < amount && c.ExpiryFactor > 0 && !s.sharded() {
		p.outlast(l.rule(), depth(amount, required, true), now)
	}
	return least
}
