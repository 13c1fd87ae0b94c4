package bucket

import "slices"

// An operator may fill limits of a bucket manually, whatever their balance or debt. One transaction fills all shards. Requests that took
// tokens before may return some later. Those tokens are already part of the full balance, so they are only counted. The life of a limit
// shows that: a reset adds oneReset to its number, and a limit starts with a number below oneReset.

// oneReset is the addition of a manual reset to a [Limit.Life].
const oneReset = 1 << 33

// A ManualChange is an operator's change of a bucket.
type ManualChange struct {
	Full  []string // limits to fill, as if nothing was ever taken from them
	Gifts []Amount // tokens to add to other limits
	// Until is when gifts beyond the capacity end, epoch milliseconds. If it is 0, gifts to a quota end with its period, and a
	// limit that refills gets at most its capacity.
	Until int64
}

// A BalanceChange is the change of a limit of a bucket in a manual write.
type BalanceChange struct {
	Limit         string
	Before, After int64 // of all shards, millitokens; Before as the images show it
	Until         int64 // when the grant ends, epoch milliseconds; 0 if there is none, or if it ends with the period of a quota
}

// reports reports whether the result of a change includes a limit: one that changes, or a share of one.
func (by *ManualChange) reports(limit string) bool {
	return slices.Contains(by.Full, limit) || Of(by.Gifts, LimitOf(limit)) > 0
}

// restarts reports whether the write fills a limit manually.
func (d *Demand) restarts(limit string) bool {
	part := d.rest().part
	return part != nil && slices.Contains(part.full, limit)
}

// gift returns the tokens that an operator adds to a limit.
func (d *Demand) gift(limit string) uint64 {
	if part := d.rest().part; part != nil {
		return uint64(max(Of(part.gifts, limit), 0))
	}
	return 0
}

// Change plans an operator's change of a bucket at a time, as one transaction of all its shards. It also refills the limits that the
// operator does not change. With even, it divides these limits, and limits with gifts, evenly over the shards. Refill that full shards
// cannot hold then goes to the others, on condition that the balances are as seen. Without even, that refill is lost. New limits of a shard
// get the given life.
//
// A limit that another program started has no life, so a refund could not detect the reset. Its item then gets a new generation, which
// every write requires.
//
// It returns an [*EndError] for a gift that cannot have the requested end, and an [*OverflowError] if a sum overflows. It returns no parts
// and no error if an item would have too many limits.
func (c *Config) Change(shards []*State, by *ManualChange, even bool, life, now int64) (parts []Part, changes []BalanceChange, err error) {
	if c.HasSessions() || anyGrants(shards) { // sessions and grants must end in all shards, or in none
		now = together(shards, now, c.restamp)
	}
	v := view{c, shards, now}
	latest, sessions := v.latest(), c.begins(shards, c.prepaid(by), now)
	balances, gifts, raises := make([][]Amount, len(shards)), make([][]Amount, len(shards)), make([][]raise, len(shards))
	for i := range c.Params {
		p := &c.Params[i]
		full, gift := slices.Contains(by.Full, p.Name), Of(by.Gifts, p.Name)
		raised := gift > 0 && (by.Until != 0 || p.isQuota())
		if raised {
			if err := v.raises(p, gift, by.Until); err != nil {
				return nil, nil, err
			}
		}
		shares, rooms, sum, spare := make([]int64, len(shards)), make([]int64, len(shards)), standing{}, spareOf(shards, p)
		most, room := int64(0), int64(0)
		pots := make([]pot, len(shards))
		for at, s := range shards {
			stamp := c.restamp(s, now)
			one := c.standing(s, p, latest, stamp, spare)
			shares[at] = s.capacityOf(one, p, stamp)
			switch rooms[at] = max(0, sub(shares[at], one.balance)); { // below the present capacity, whatever the item is configured with
			case full:
				shares[at] = s.idle(p, stamp)
			case raised:
				more := Share(gift, s.Shard, s.Shards)
				shares[at], rooms[at] = add(shares[at], more), more
				raises[at] = append(raises[at], raise{limit: p.Name, tokens: more, until: by.Until})
				pots[at] = c.potOf(s, p, one.balance, stamp)
				pots[at].granted = add(pots[at].granted, more)
			}
			sum, most, room = sum.plus(one), add(most, shares[at]), add(room, rooms[at])
		}
		if !even {
			sum.surplus = 0
		}
		after := sum.available()
		switch {
		case full:
			after = most
		case gift > 0:
			after = max(after, min(add(after, gift), most))
		}
		evenly := even && len(shards) > 1 && !full
		if evenly {
			shares = levelsOf(shares, pots, after, raised, sum.available())
		}
		change := BalanceChange{Limit: p.Name, Before: sum.available(), After: after}
		if raised {
			change.Until = by.Until
			lack(raises, pots)
		}
		if by.reports(p.Name) {
			changes = append(changes, change)
		}
		switch {
		case full, evenly:
		default:
			for at, part := range intoRooms(rooms, 0, min(gift, room)) {
				gifts[at] = append(gifts[at], Amount{Limit: p.Name, Tokens: part})
			}
			continue
		}
		for at := range shards {
			balances[at] = append(balances[at], Amount{Limit: p.Name, Tokens: shares[at]})
		}
	}
	unborn, generation := by.marks(shards, now)
	for at, s := range shards {
		one := Part{At: at}
		d := Demand{Settles: true, Life: life, beside: &beside{part: &part{balances: balances[at], full: by.Full, gifts: gifts[at], raises: raises[at], sessions: sessions}}}
		one.Plan.advance(s, c, &d, c.restamp(s, now))
		if !one.Plan.Writes() {
			return nil, nil, nil
		}
		if unborn {
			one.Plan.put(Generation, "", s.Generation(), generation)
		}
		parts = append(parts, one)
	}
	return parts, changes, nil
}

// prepaid returns a demand on the prepaid limits that an operator grants to. It begins their sessions, so that the grants have a period.
func (c *Config) prepaid(by *ManualChange) *Demand {
	d := new(Demand)
	for i := range c.Params {
		if p := &c.Params[i]; p.Session >= Endless && Of(by.Gifts, p.Name) > 0 {
			d.Amounts = append(d.Amounts, Amount{Limit: p.Name, Tokens: 1})
		}
	}
	return d
}

// marks reports whether a limit that becomes full has no life, and returns the next generation of the items.
func (by *ManualChange) marks(shards []*State, now int64) (unborn bool, generation int64) {
	generation = now
	for _, s := range shards {
		generation = max(generation, s.Generation()+1)
		unborn = unborn || slices.ContainsFunc(s.Limits, func(l Limit) bool { return l.Life == 0 && slices.Contains(by.Full, l.Name) })
	}
	return unborn, generation
}

// restamp returns the new stamp of a manual write, with which plans for the former figures fail.
func (c *Config) restamp(s *State, now int64) int64 {
	if c.Leads(s, now) {
		return now
	}
	return max(now, s.RefilledAt+1)
}

// evenly divides tokens, or a debt, among shards so that each has the same part of its share, to the millitoken.
func evenly(shares []int64, tokens int64) []int64 {
	if tokens >= 0 {
		return inProportion(shares, tokens)
	}
	parts := inProportion(shares, sub(0, tokens))
	for i := range parts {
		parts[i] = -parts[i]
		tokens = sub(tokens, parts[i])
	}
	parts[0] = add(parts[0], tokens)
	return parts
}

// Found plans the creation of a bucket with the grants of an operator. It returns no plan if there is nothing to store, since a missing
// bucket is full. Its errors are as in [Config.Change].
func (c *Config) Found(by *ManualChange, life, now int64) (plan *Plan, changes []BalanceChange, err error) {
	part := part{sessions: c.begins(nil, c.prepaid(by), now)}
	d := Demand{Settles: true, Life: life, beside: &beside{part: &part}}
	for i := range c.Params {
		p := &c.Params[i]
		gift, full := Of(by.Gifts, p.Name), nothingTaken.idle(p, now)
		if !by.reports(p.Name) {
			continue
		}
		change := BalanceChange{Limit: p.Name, Before: full, After: full}
		if gift > 0 && (by.Until != 0 || p.isQuota()) {
			if err := (view{c, nil, now}).raises(p, gift, by.Until); err != nil {
				return nil, nil, err
			}
			part.raises = append(part.raises, raise{p.Name, gift, by.Until, max(0, sub(p.rule().capacityAt(now), full))})
			change.After, change.Until = add(full, gift), by.Until
		}
		changes = append(changes, change)
	}
	if len(part.raises) == 0 {
		return nil, changes, nil
	}
	plan = new(Plan)
	plan.Create(c, &d, 0, 1, now)
	return plan, changes, nil
}
