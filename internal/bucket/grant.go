package bucket

import (
	"math"
	"slices"
)

// A grant gives tokens beyond the capacity until a time. It raises the balance, and what the limit can hold. The end of the grant is one of
// the edges of the item, so a write that leaves the stamp alone never takes from a grant that has ended.
//
// At the end, the unused part of the grant expires, whatever the limit had when the grant was made. Consumption since then, less refunds,
// uses the grant first. The item stores how far the limit was below its capacity when the grant was made, less the refill since. That gives
// the balance without the grant at any time, see [State.without]; the excess over it is the unused part. It depends on the exact balance,
// so the advance over the end requires that balance.
//
// What the limit lacked is computed from the image that was read for the grant. What others take between that read and the write counts as
// consumption since the grant.
//
// Tokens that a lease returns after the end may belong to the grant. So a lease stores the end of the grant, and how much it took of the
// limit's own tokens: [Life.Kept].
//
// A reset of a quota keeps the unused part of a grant: what the quota still has, up to the grant, since its own tokens are used first. From
// then on, that part is the grant. So a grant is given only once, however many edges pass, and crossing two edges in one write is like
// crossing one. A grant without an end belongs to the present period of a quota, and ends with it.

// A Grant is what a limit may hold beyond its capacity.
type Grant struct {
	Granted int64 // millitokens; 0 for none
	Until   int64 // when it ends, epoch milliseconds; 0 for the end of the period of a quota
	Lacking int64 // how far the limit is below its capacity without the grant, if only the grant is used, millitokens
}

// at returns what the grant adds to the capacity at a time within its period.
func (g Grant) at(t int64) int64 {
	if g.Granted <= 0 || g.Until != 0 && g.Until <= t {
		return 0
	}
	return g.Granted
}

// after returns what is left of a grant when a quota with a balance resets at a time.
func (g Grant) after(edge, balance int64) Grant {
	if g.Until == 0 || g.at(edge) == 0 {
		return Grant{}
	}
	if g.Granted = min(g.Granted, max(balance, 0)); g.Granted == 0 {
		return Grant{}
	}
	g.Lacking = 0
	return g
}

// rest returns the unused part of the grant of a limit, given its balance and the balance without the grant.
func (g Grant) rest(balance, without int64) int64 {
	return max(0, min(sub(balance, without), g.Granted))
}

// ends reports whether a grant has ended by a time, other than with the period of a quota.
func (g Grant) ends(at int64) bool { return g.Granted > 0 && g.Until != 0 && g.Until <= at }

// without returns the most that a limit of the item has at the end of its grant without the grant, if it does not reset before.
func (s *State) without(l *Limit, from, at int64) int64 {
	had := max(0, sub(add(s.share(l.Name, l.rule().capacityAt(s.RefilledAt)), l.Carried()), l.Lacking()))
	return s.lone(l, had).chain(from, at).of(had)
}

// A lone limit is a limit of an item as it would be without its grant.
type lone struct {
	*State
	limit Limit
}

// lone returns a limit without its grant, with a balance.
func (s *State) lone(l *Limit, balance int64) lone {
	alone := *l
	alone.Tokens = balance
	alone.Change(func(r *Rare) { r.Granted, r.Until, r.Lacking = 0, 0, 0 })
	return lone{s, alone}
}

// chain is [State.chain] of the limit, which does not reset.
func (l lone) chain(from, to int64) chain {
	l.limit.Change(func(r *Rare) { r.Times, r.Session = nil, 0 })
	return l.State.chain(&l.limit, from, to, 0)
}

// past returns a limit after the end of its grant, and that end, if the grant ends by a time before which the limit does not reset.
func (s *State) past(l *Limit, from, to int64) (_ *Limit, end int64, ended bool) {
	if l.Rare == nil || !l.grant().ends(to) {
		return l, from, false
	}
	end = max(from, l.Until())
	left := s.lone(l, s.bereft(l, l.grant(), l.Tokens, s.without(l, from, end), from, end))
	return &left.limit, end, true
}

// bereft returns what a limit has after its grant has ended, given its balance at an earlier time, and the most that it would have without
// the grant.
func (s *State) bereft(l *Limit, g Grant, balance, without, from, end int64) int64 {
	lasting := *l
	lasting.Change(func(r *Rare) {
		r.Times, r.Session, r.Granted, r.Until, r.Lacking = nil, 0, g.Granted, math.MaxInt64, 0
	})
	balance = s.chain(&lasting, from, end, 0).of(balance)
	return sub(balance, g.rest(balance, without))
}

// A pot separates the grant of a limit in a shard from the limit's own tokens.
type pot struct {
	own, capacity int64 // without the grant
	rest, granted int64 // the unused part of the grant, and the whole grant
}

// lacks returns [Grant.Lacking].
func (p *pot) lacks() int64 { return max(0, sub(p.capacity, max(p.own, 0))) }

// lack sets what a limit lacks in its pots, in the latest raise of each shard.
func lack(raises [][]raise, pots []pot) {
	for at := range pots {
		raises[at][len(raises[at])-1].lacks = pots[at].lacks()
	}
}

// potOf returns the pot of a limit in a shard with a balance at a time, when it is in line.
func (c *Config) potOf(s *State, p *Params, balance, at int64) pot {
	is := pot{own: balance, capacity: s.share(p.Name, p.rule().capacityAt(at))}
	if l := s.find(p.Name); l != nil && (l.Granted() != 0 || l.Carried() != 0 || p.Carry != 0) {
		ch := s.chainTo(l, p, c.since(s, at), at, 0)
		is.capacity = add(is.capacity, ch.carriedAs(p))
		g := ch.grant.under(s, l, p, at)
		is.granted, is.rest = g.Granted, g.rest(balance, sub(is.capacity, g.Lacking))
		is.own = sub(balance, is.rest)
	}
	return is
}

// levelsOf returns the balances of shards that are left with the same part of a limit. With a raise, the shards also have the same part of
// the grant, and of their own tokens.
func levelsOf(shares []int64, pots []pot, after int64, raised bool, before int64) []int64 {
	for i := range pots {
		before = sub(before, pots[i].rest)
	}
	own := max(before, 0)
	if !raised || after < own {
		for i := range pots {
			pots[i].own = 0
		}
		return evenly(shares, after)
	}
	capacities, granted := make([]int64, len(pots)), make([]int64, len(pots))
	for i := range pots {
		capacities[i], granted[i] = pots[i].capacity, pots[i].granted
	}
	owns, rests := inProportion(capacities, own), inProportion(granted, sub(after, own))
	balances := make([]int64, len(pots))
	for i := range pots {
		pots[i].own, balances[i] = owns[i], add(owns[i], rests[i])
	}
	return balances
}

// lacks returns what a limit of the item with so much at most without its grant lacks to its capacity, and to what was carried, at a time.
func (s *State) lacks(name string, r rule, carried, without, at int64) int64 {
	return max(0, sub(add(s.share(name, r.capacityAt(at)), carried), max(without, 0)))
}

// left returns the grant, or none if it has ended by a time.
func (g Grant) left(t int64) Grant {
	if g.at(t) == 0 {
		return Grant{}
	}
	return g
}

// under returns what is left of the grant of a limit at a time, when the limit gets new parameters.
func (g Grant) under(s *State, l *Limit, p *Params, at int64) Grant {
	switch {
	case g.Lacking == 0 && p.Capacity <= l.Capacity || l.has(p):
	case s.renews(l, p, at):
		g.Lacking = 0
	default:
		had := sub(add(s.share(l.Name, l.rule().capacityAt(at)), l.Carried()), g.Lacking)
		g.Lacking = s.lacks(l.Name, p.rule(), chain{carried: l.Carried()}.carriedAs(p), had, at)
	}
	return g
}

// isGrantOf reports whether the grants of a limit in two items end at the same time.
func (l *Limit) isGrantOf(theirs *Limit) bool {
	return theirs == nil || l.Granted() == 0 || theirs.Granted() == 0 || l.Until() == theirs.Until()
}

// halved returns the part of a grant that each of two shards gets. Each shard lacks what it is below its share. At the end of the grant,
// both together keep as much as the unsplit limit would.
func (g Grant) halved(firstLacks, secondLacks int64) (left, given Grant) {
	half := g.Granted / 2
	if left = (Grant{g.Granted - half, g.Until, 0}); left.Granted == 0 {
		return Grant{}, Grant{}
	}
	rest := sub(g.Lacking, add(firstLacks, secondLacks)) // of the grant; negative if more is used than what was granted
	least, most := secondLacks, secondLacks              // that the second shard lacks without its part; it keeps what it has if it has none
	switch {
	case half == 0:
	case rest <= 0:
		least = sub(g.Lacking, firstLacks)
	case rest >= g.Granted:
		least, most = add(secondLacks, half), sub(g.Lacking, add(firstLacks, left.Granted))
	default:
		least = max(secondLacks, sub(g.Lacking, add(firstLacks, left.Granted)))
		most = min(add(secondLacks, half), sub(g.Lacking, firstLacks))
	}
	lacks := min(max(g.Lacking/2, least), most)
	left.Lacking = max(0, sub(g.Lacking, lacks))
	if half > 0 {
		given = Grant{half, g.Until, max(0, lacks)}
	}
	return left, given
}

// plus returns the sum of two grants, which end at the same time unless one of them is none.
func (g Grant) plus(other Grant) Grant {
	return Grant{add(g.Granted, other.Granted), max(g.Until, other.Until), add(g.Lacking, other.Lacking)}
}

// beside returns the grant of a shard that is merged with a shard that has a grant. If the shard has no grant, its whole balance is its
// own.
func (g Grant) beside(other Grant, s *State, l *Limit, balance, at int64) Grant {
	if g.Granted == 0 && other.Granted != 0 {
		g.Lacking = s.lacks(l.Name, l.rule(), l.Carried(), balance, at)
	}
	return g
}

// grant returns what a limit may hold beyond its capacity. One without an end is of a quota.
func (l *Limit) grant() Grant {
	r := l.rare()
	if r.Granted == 0 || r.Until == 0 && !l.isQuota() {
		return Grant{}
	}
	return Grant{r.Granted, r.Until, r.Lacking}
}

// hasGrants reports whether any limit has a grant.
func (s *State) hasGrants() bool {
	return slices.ContainsFunc(s.Limits, func(l Limit) bool { return l.Rare != nil && l.Rare.Granted != 0 })
}

// anyGrants reports whether any of several shards has a grant.
func anyGrants(shards []*State) bool { return slices.ContainsFunc(shards, (*State).hasGrants) }

// grantAt returns what a limit of the item may hold beyond its share of the capacity at a time, by grants and by what was carried into its
// period. It does not count a limit that resets by then.
func (s *State) grantAt(name string, at int64) int64 {
	for i := range s.Limits {
		if l := &s.Limits[i]; l.Rare != nil && l.Name == name {
			return add(l.grant().at(at), l.Carried())
		}
	}
	return 0
}

// grants returns what the whole limit may hold beyond its capacity at a time: as one shard has it, or as [view.granted] has found it
// where that is nil.
func (p *Params) grants(s *State, at int64) (sum int64) {
	if s == nil {
		return add(p.grant.at(at), p.carried)
	}
	part := s.grantAt(p.Name, at)
	for range s.Count() {
		sum = add(sum, part)
	}
	return sum
}

// capacityAt returns what the whole limit can hold at a time of its period, with what was carried and with the grants of its shards where
// [view.granted] has found them.
func (p *Params) capacityAt(t int64) int64 {
	return add(add(p.rule().capacityAt(t), p.carried), p.grant.at(t))
}

// lastReset returns when a quota last reset, up to a time. That is the time itself while no session is
// open, and where it is so by the parameters that a write at the time gives it.
func (s *State) lastReset(l *Limit, to int64) int64 {
	if l.Session() > 0 || l.Times() == nil {
		return to
	}
	if last, ok := l.Times().Last(to); ok && last > s.mark() {
		return last
	}
	return to
}

// A raise is what an operator grants to one limit of a shard until a time.
type raise struct {
	limit  string
	tokens int64 // millitokens
	until  int64
	lacks  int64 // the new [Grant.Lacking]
}

// raise returns what an operator grants to a limit.
func (d *Demand) raise(limit string) (r raise, ok bool) {
	if part := d.rest().part; part != nil {
		for _, r := range part.raises {
			if r.limit == limit {
				return r, true
			}
		}
	}
	return r, false
}

// crossed returns what a limit has at a time when it has crossed the edges up to a mark, which may be later, and what is left of its grant.
func (s *State) crossed(l *Limit, at, mark int64) (balance int64, left Grant) {
	ch := s.chain(l, s.RefilledAt, at, 0)
	if !s.renews(l, nil, mark) || ch.renewed && (l.Session() > 0 || !l.Times().Between(at, mark)) {
		return ch.of(l.Tokens), ch.grant
	}
	left = l.grant().after(s.lastReset(l, mark), l.Tokens).left(mark)
	return add(s.share(l.Name, l.rule().capacityAt(at)), left.Granted), left
}

// capacityOf returns what a limit of the item can hold at a time, given its state then. A quota that resets then has the unused part of its
// grant.
func (s *State) capacityOf(one standing, p *Params, at int64) int64 {
	if l := s.find(p.Name); l != nil && (l.Granted() != 0 || l.Carried() != 0 || p.Carry != 0) && l.isQuota() && (l.has(p) || s.renews(l, p, at)) {
		return add(one.balance, one.room)
	}
	return s.capacity(p.Name, p.rule(), at)
}

// regrant sets the grant of a limit to what is left of it, and what a demand grants. It returns when the grant ends, 0 for none.
func (l *Limit) regrant(left Grant, d *Demand) (until int64) {
	if d.restarts(l.Name) {
		left = Grant{}
	}
	if r, ok := d.raise(l.Name); ok {
		if left.Until != r.until { // it has already ended in another shard
			left = Grant{}
		}
		left = Grant{add(left.Granted, r.tokens), r.until, r.lacks}
	}
	if until = left.Until; left.Granted == 0 {
		left = Grant{}
	}
	if left.Until == 0 {
		left.Lacking = 0
	}
	if left != (Grant{l.Granted(), l.Until(), l.Lacking()}) {
		l.Change(func(r *Rare) { r.Granted, r.Until, r.Lacking = left.Granted, left.Until, left.Lacking })
	}
	return until
}

// grants includes the end of a grant, 0 for none.
func (e *edge) grants(until int64) {
	if until > 0 {
		e.until(until)
	}
}

// grants includes the end of a grant, 0 for none: an item that is created again has no grant.
func (expiry *itemExpiry) grants(until int64) {
	if expiry.config.ExpiryFactor > 0 {
		expiry.until = max(expiry.until, until)
	}
}

// An EndError reports that a grant cannot have the requested end.
type EndError struct {
	Limit   string
	Present int64 // when the present grant of the limit ends, epoch milliseconds; 0 for the end of the period
	Missing bool  // the limit has neither a grant, nor a period with which a new one could end
	Over    bool  // that time has passed
}

func (e *EndError) Error() string { return e.Limit + ": a limit has one grant at a time" }
