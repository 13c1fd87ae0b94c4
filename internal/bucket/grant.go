package bucket

// An operator may grant tokens beyond the capacity, until a time. The balance rises by them, and so does what the limit can hold.
// When the grant ends, what is above the capacity is gone, as where a window closes. The item notes that time among its edges. A
// write that leaves the stamp alone therefore takes nothing of a past grant.
//
// When a quota resets, the rest of a grant is kept: what the quota still has, at most the grant, as its own tokens are used
// first. From then on the grant is that rest. So a grant is handed out once, however many edges it sees, and crossing two edges together
// is like crossing one. A grant without an end is for the present period of a quota, and ends with it.

// A Grant is what a limit may hold beyond its capacity.
type Grant struct {
	Granted int64 // millitokens; 0 for none
	Until   int64 // when it ends, epoch milliseconds; 0 for the end of the period of a quota
}

// at returns what the grant adds to the capacity at a time of the period in which it was made, or was carried to.
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
	return g
}

// left returns the grant, or none where it is over at a time.
func (g Grant) left(t int64) Grant {
	if g.at(t) == 0 {
		return Grant{}
	}
	return g
}

// isGrantOf reports whether the grants of a limit in two items end at one time.
func (l *Limit) isGrantOf(theirs *Limit) bool {
	return theirs == nil || l.Granted() == 0 || theirs.Granted() == 0 || l.Until() == theirs.Until()
}

// halved returns the part of a grant that each of two shards has, the first one's first.
func (g Grant) halved() (left, given Grant) {
	half := g.Granted / 2
	if left = (Grant{g.Granted - half, g.Until}); left.Granted == 0 {
		left = Grant{}
	}
	if half > 0 {
		given = Grant{half, g.Until}
	}
	return left, given
}

// plus returns two grants together, which end at one time unless one of them is none.
func (g Grant) plus(other Grant) Grant {
	return Grant{add(g.Granted, other.Granted), max(g.Until, other.Until)}
}

// grant returns what a limit may hold beyond its capacity. One without an end is of a quota.
func (l *Limit) grant() Grant {
	r := l.rare()
	if r.Granted == 0 || r.Until == 0 && !l.isQuota() {
		return Grant{}
	}
	return Grant{r.Granted, r.Until}
}

// grantAt returns what a limit of the item may hold beyond its share of the capacity at a time. It does not count a limit that
// resets by then.
func (s *State) grantAt(name string, at int64) int64 {
	for i := range s.Limits {
		if l := &s.Limits[i]; l.Rare != nil && l.Name == name {
			return l.grant().at(at)
		}
	}
	return 0
}

// grants returns what the whole limit may hold beyond its capacity at a time: as one shard has it, or as [view.granted] has found it
// where that is nil.
func (p *Params) grants(s *State, at int64) (sum int64) {
	if s == nil {
		return p.grant.at(at)
	}
	part := s.grantAt(p.Name, at)
	for range s.Count() {
		sum = add(sum, part)
	}
	return sum
}

// capacityAt returns what the whole limit can hold at a time, with the grants of its shards where [view.granted] has found them.
func (p *Params) capacityAt(t int64) int64 { return add(p.rule().capacityAt(t), p.grant.at(t)) }

// anew returns when a quota last reset, up to a time. That is the time itself while no session is
// open, and where it is so by the parameters that a write at the time gives it.
func (s *State) anew(l *Limit, to int64) int64 {
	if l.Session() > 0 || l.Times() == nil {
		return to
	}
	if last, ok := l.Times().Last(to); ok && last > s.mark() {
		return last
	}
	return to
}

// A raise is what an operator grants to one limit of a shard: so much more until a time.
type raise struct {
	limit  string
	tokens int64 // millitokens
	until  int64
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
func (s *State) crossed(l *Limit, at, mark int64) (level int64, left Grant) {
	ch := s.chain(l, s.RefilledAt, at, 0)
	if !s.renews(l, nil, mark) || ch.anew && (l.Session() > 0 || !l.Times().Between(at, mark)) {
		return ch.of(l.Tokens), ch.grant
	}
	left = l.grant().after(s.anew(l, mark), l.Tokens).left(mark)
	return add(s.share(l.Name, l.rule().capacityAt(at)), left.Granted), left
}

// holds returns what a limit of the item can hold, given how it stands at a time. A quota that resets then has the rest of
// its grant.
func (s *State) holds(one standing, p *Params, at int64) int64 {
	if l := s.find(p.Name); l != nil && l.Granted() != 0 && l.isQuota() && (l.has(p) || s.renews(l, p, at)) {
		return add(one.level, one.room)
	}
	return s.capacity(p.Name, p.rule(), at)
}

// regrant has a limit have the grant of which a time has left a part, and what a demand grants. It returns when that ends, 0 for none.
func (l *Limit) regrant(left Grant, d *Demand) (until int64) {
	if d.restarts(l.Name) {
		left = Grant{}
	}
	if r, ok := d.raise(l.Name); ok {
		if left.Until != r.until { // it is over in another shard by now
			left = Grant{}
		}
		left = Grant{add(left.Granted, r.tokens), r.until}
	}
	if until = left.Until; left.Granted == 0 {
		left = Grant{}
	}
	if left != (Grant{l.Granted(), l.Until()}) {
		l.Change(func(r *Rare) { r.Granted, r.Until = left.Granted, left.Until })
	}
	return until
}

// grants takes the end of a grant into account, 0 for none.
func (e *edge) grants(until int64) {
	if until > 0 {
		e.until(until)
	}
}

// grants takes the end of a grant into account, 0 for none: an item that is created again has none.
func (life *lifetime) grants(until int64) {
	if life.config.Lifetime > 0 {
		life.until = max(life.until, until)
	}
}

// An EndError says that a grant cannot end when it is to.
type EndError struct {
	Limit   string
	Present int64 // when the grant ends that the limit has, epoch milliseconds; 0 for the end of the period
	Missing bool  // the limit has no grant, and no period by whose end one could end
	Over    bool  // that is past by now
}

func (e *EndError) Error() string { return e.Limit + ": a limit has one grant at a time" }
