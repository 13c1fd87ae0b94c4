package bucket

// Split plans the split of an item in two: the steps of the item, and the new shard in Item. The new shard, number s+n of 2n, takes half of
// what shard s of n had at its refill stamp. Neither has more than its share. Together they have exactly the balance of the item. Both get
// a new stamp, so that plans for the old share fail. The stamp moves by a millisecond only, and not to the present: refill that a full
// shard cannot hold belongs to the others only from the latest stamp.
func (p *Plan) Split(s *State) {
	n := max(s.Shards, 1)
	at := s.RefilledAt + 1
	p.reset(Advance, s, s.RefilledAt, at)
	p.admit(&Demand{})
	kept := State{Shard: s.Shard, Shards: 2 * n}
	p.ValidUntil = s.Seen()
	p.Item = State{Limits: p.limitSpace[:0], RefilledAt: at, Shard: s.Shard + n, Shards: 2 * n}
	next := s.edgeAfter(at)
	var d Demand
	for i := range s.Limits {
		l, is := s.Limits[i], s.Limits[i]
		if l.Name == WriteUnits {
			p.balance(s, &l, &is, &writeUnits, &d, 0, s.RefilledAt, at)
			is.configure(&writeUnits)
			l.Tokens, l.Consumed = l.Capacity-oneWrite, oneWrite
		} else {
			others := int64(0)
			if s.noted() {
				others = s.others(&l)
			}
			gets, until := p.halve(s, &l, &is, &kept, at)
			next.grants(until)
			l.Tokens, l.Consumed = gets, 0
			l.Change(func(r *Rare) {
				r.FromChildren, r.FromNarrower, r.Refusals = 0, 0, 0
				r.Known = -(others/2 + others%2) // as if half of it had been taken from the new shard
			})
		}
		is.keepSession(s, at)
		l.keepSession(s, at)
		p.differ(&s.Limits[i], &is, false)
		p.Item.Limits = append(p.Item.Limits, l)
		next.cover(l.Times(), l.Windows(), l.Session(), l.Since())
	}
	p.Item.ValidUntil = next.next
	p.Item.Change(func(n *Notes) {
		n.Zone, n.Crossed, n.Generation, n.Bypass = next.zone, s.Crossed(), s.Generation(), s.Bypass()
	})
	p.note(s, next)
	p.step(Resize, "", int64(n), int64(2*n))
	if s.ExpiresAt > 0 {
		p.step(Persist, "")
	}
}

// halve plans the item's half of one limit, and returns the new shard's half. The limit then has the grant of the new shard. The second
// result is when the item's grant ends, 0 for none.
func (p *Plan) halve(s *State, l, is *Limit, kept *State, at int64) (gets, until int64) {
	ch := s.chain(l, s.RefilledAt, at, 0) // of one millisecond
	refill := signed(ch.inflow)
	capacity, keeps := ch.ceiling, ch.ceiling-ch.ceiling/2
	most := kept.capacity(l.Name, l.rule(), at)
	had, refilled := l.Tokens, add(ch.from(l.Tokens), refill)
	if gets = refilled / 2; l.Granted() != 0 || l.Until() != 0 {
		share := p.Item.capacity(l.Name, l.rule(), at)
		keeps = max(keeps, sub(capacity, share+ch.grant.Granted/2)) // both may have an odd millitoken
		has := refilled
		if ch.exact || refilled >= capacity {
			has, gets = capacity, capacity-keeps
		}
		left, given := ch.grant.halved(sub(most, sub(has, gets)), sub(share, gets))
		most = add(most, left.Granted)
		until = is.regrant(left, &Demand{})
		l.Change(func(r *Rare) { r.Granted, r.Until, r.Lacking = given.Granted, given.Until, given.Lacking })
	}
	if ch.ended {
		refilled = min(refilled, capacity)
		p.exactly(l, sub(refilled, refilled/2))
		return refilled / 2, until
	}
	if ch.exact {
		p.exactly(l, keeps)
		return capacity - keeps, until
	}
	if refilled >= capacity {
		p.step(Fill, l.Name, sub(capacity, refill), keeps)
		return capacity - keeps, until
	}
	// The new shard gets half of a debt as well: a debt of only one shard would not stop the other from admitting requests.
	room := min(sub(capacity, refill), add(sub(most, refill), gets))
	if ch.grant.Granted != 0 { // refunds since the image would otherwise outlive the grant
		room = min(room, had)
	}
	p.step(Credit, l.Name, room, sub(refill, gets))
	if gets > 0 {
		p.step(Cover, l.Name, sub(gets, refill)) // the new shard's half comes from the item, and leaves no debt
	}
	return gets, until
}

// Merge plans the merge of a shard with one that split off from it and still has the same size. The plan has the steps of the remaining
// shard. The other shard is deleted, on condition that it is unchanged.
//
// They become one at the later of their refill stamps, and not now, since the refill of all shards counts from that time. If the remaining
// shard has the later stamp, it gets a stamp one millisecond later, so that plans for its former size fail.
//
// Takes on credit may have left the stamps alone until maxCredit after the later one. So each shard keeps no more than it has room for by
// then, or by now if that is earlier. The remaining shard gets the balance that [Config.Statuses] reports for both, less the refill of both
// since the stamp.
func (p *Plan) Merge(s, other *State, now int64) {
	at := max(other.RefilledAt, s.RefilledAt+1)
	apart := max(at, min(now, add(max(s.RefilledAt, other.RefilledAt), maxCredit)))
	p.reset(Advance, s, s.RefilledAt, at)
	p.admit(&Demand{})
	p.ValidUntil = s.Seen()
	next := edge{after: max(at, s.mark(), other.mark()), stamp: at}
	var d Demand
	for i := range s.Limits {
		l := &s.Limits[i]
		theirs := other.find(l.Name)
		if theirs != nil && theirs.Refusals() != 0 {
			p.step(Foresee, l.Name, theirs.Refusals())
		}
		is := *l
		is.keepSession(s, next.after)
		next.cover(l.Times(), l.Windows(), l.Session(), is.Since())
		if l.isQuota() {
			next.grants(p.mergeQuota(s, other, l, &is, at, next.after))
			p.differ(l, &is, false)
			continue
		}
		if l.Name == WriteUnits || theirs == nil {
			params := l.params()
			p.balance(s, l, &is, &params, &d, 0, s.RefilledAt, at)
			next.grants(is.regrant(s.chain(l, s.RefilledAt, at, 0).grant, &d))
			p.differ(l, &is, false)
			continue
		}
		ch := s.chain(l, s.RefilledAt, at, 0)
		mine, its := ch.grant, other.chain(theirs, other.RefilledAt, at, 0)
		asks := mine.Granted == 0 && its.grant.Granted != 0
		mine, its.grant = mine.beside(its.grant, s, l, ch.of(l.Tokens), at), its.grant.beside(mine, other, theirs, its.of(theirs.Tokens), at)
		next.grants(is.regrant(mine.plus(its.grant), &d))
		p.differ(l, &is, false)
		then := apart
		if l.Granted() != 0 || theirs.Granted() != 0 { // shards with a grant use no credit
			then = at
		}
		theirs, since, _ := other.past(theirs, other.RefilledAt, then)
		gets := min(other.chain(theirs, since, then, 0).of(theirs.Tokens), other.capacity(l.Name, l.rule(), then))
		if then > at {
			ch = s.chain(l, s.RefilledAt, then, 0)
			both := State{Shard: s.Shard, Shards: s.Shards / 2}
			gets = sub(gets, signed(l.rule().over(&both, l.Name, at, then)))
		}
		refill, most := signed(ch.inflow), ch.ceiling
		full := add(most, gets)
		switch {
		case ch.ended || asks:
			p.exactly(l, min(add(ch.of(l.Tokens), gets), full))
		case add(l.Tokens, refill) >= most:
			p.step(Fill, l.Name, sub(most, refill), full)
		default:
			p.step(Credit, l.Name, sub(most, refill), add(refill, gets))
		}
	}
	if next.quotas && next.after > at {
		p.put(Crossed, "", s.Crossed(), next.after)
	}
	p.note(s, next)
	p.step(Resize, "", int64(s.Shards), int64(s.Shards/2))
}

// mergeQuota merges the quota of another shard into a quota. The other shard has none if its item is lost. Both cross the edges up to a
// time, so that they are in the same period. It returns when the grants of both end, 0 for none.
func (p *Plan) mergeQuota(s, other *State, l, is *Limit, at, mark int64) (until int64) {
	gets, theirs := int64(0), Grant{}
	balance, left := s.crossed(l, at, mark)
	asks := false
	if of := other.find(l.Name); of != nil {
		gets, theirs = other.crossed(of, at, mark)
		asks = left.Granted == 0 && theirs.Granted != 0
		left, theirs = left.beside(theirs, s, l, balance, mark), theirs.beside(left, other, of, gets, mark)
	}
	ch := s.chain(l, s.RefilledAt, at, 0)
	most := ch.ceiling
	switch {
	case s.renews(l, nil, mark) && l.grant().Until != 0: // the remainder of the grant depends on the balance
		p.exactly(l, add(balance, gets))
	case ch.ended || asks && !s.renews(l, nil, mark):
		p.exactly(l, add(balance, gets))
	case s.renews(l, nil, mark):
		p.step(Renew, l.Name, add(balance, gets))
	case (l.Windows() != nil || l.Granted() != 0) && l.Tokens > most: // a window clamped it, or a grant has ended
		p.step(Fill, l.Name, most, add(most, gets))
	case gets != 0:
		p.step(Credit, l.Name, most, gets)
	}
	return is.regrant(left.plus(theirs), &Demand{})
}
