package bucket

// Split plans the division of an item in two: the steps of the item, and with Item the new shard. The new shard, number
// s+n of 2n, takes half of what shard s of n has at the moment. Neither has more than its share. Together they have
// exactly what the item had, with the refill up to now. Both get a new stamp, so that plans for the old share fail.
func (p *Plan) Split(s *State, now int64) {
	n := max(s.Shards, 1)
	now = max(now, s.RefilledAt+1)
	p.reset(Advance, s.RefilledAt, now)
	kept := State{Shard: s.Shard, Shards: 2 * n}
	p.Item = State{Limits: p.limitSpace[:0], RefilledAt: now, Shard: s.Shard + n, Shards: 2 * n}
	var d Demand
	for i := range s.Limits {
		l := s.Limits[i]
		if l.Name == WriteUnits {
			p.balance(s, &l, &writeUnits, &d, s.RefilledAt, now)
			l.Tokens, l.Consumed = l.Capacity-oneWrite, oneWrite
		} else {
			l.Tokens, l.Consumed = p.divide(s, &l, &kept, now), 0
		}
		p.Item.Limits = append(p.Item.Limits, l)
	}
	p.step(Resize, "", int64(n), int64(2*n))
	if s.ExpiresAt > 0 {
		p.step(Persist, "")
	}
}

// divide plans what an item keeps of one limit, and returns what the new shard gets.
func (p *Plan) divide(s *State, l *Limit, kept *State, now int64) int64 {
	refill := s.flow(l, s.RefilledAt, now)
	capacity, keeps := s.share(l.Name, l.Capacity), kept.share(l.Name, l.Capacity)
	refilled := add(l.Tokens, refill)
	if refilled >= capacity {
		p.step(Fill, l.Name, sub(capacity, refill), keeps)
		return capacity - keeps
	}
	gets := refilled / 2 // of a debt as well: a debt of one alone would not hold the other back
	room := min(sub(capacity, refill), add(sub(keeps, refill), gets))
	p.step(Credit, l.Name, room, sub(refill, gets))
	if gets > 0 {
		p.step(Cover, l.Name, sub(gets, refill)) // the new shard gets what the item has, and leaves no debt
	}
	return gets
}

// Merge plans that a shard takes over another one, which came from it by a split and is still of the same size. The
// plan has the steps of the first shard. The second is deleted on condition that it is as given. The first then has
// what both have, with the refill up to now.
func (p *Plan) Merge(s, other *State, now int64) {
	now = max(now, s.RefilledAt+1, other.RefilledAt)
	p.reset(Advance, s.RefilledAt, now)
	var d Demand
	for i := range s.Limits {
		l := &s.Limits[i]
		theirs := other.find(l.Name)
		if l.Name == WriteUnits || theirs == nil {
			params := l.params()
			p.balance(s, l, &params, &d, s.RefilledAt, now)
			continue
		}
		refill, capacity := s.flow(l, s.RefilledAt, now), s.share(l.Name, l.Capacity)
		gets := min(add(theirs.Tokens, other.flow(theirs, other.RefilledAt, now)), other.share(l.Name, min(l.Capacity, theirs.Capacity)))
		if add(l.Tokens, refill) >= capacity {
			p.step(Fill, l.Name, sub(capacity, refill), add(capacity, gets))
		} else {
			p.step(Credit, l.Name, sub(capacity, refill), add(refill, gets))
		}
	}
	p.step(Resize, "", int64(s.Shards), int64(s.Shards/2))
}
