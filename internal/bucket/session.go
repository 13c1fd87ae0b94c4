package bucket

import "math"

// A session quota does not refill. Its session begins with the first request that takes from it, and ends a fixed time later. While no
// session is open, the quota is full, whatever its balance. [State.ValidUntil] is then a time in the past, so that each write moves the
// stamp. The first write that takes tokens opens the session.
//
// The shards of a bucket open a session together, in one transaction, with the same beginning. Each of them ends it with its own next
// write.

// closed is the [State.ValidUntil] of an item with a session quota that has no open session. It is in the past for every clock.
const closed = 1

// Endless is the length of the only session of a prepaid limit, in seconds. It never ends. For other programs it is the longest session.
const Endless = 1_000_000_000

// sessionEnd returns when a session ends, given its beginning and its length in seconds: Never for a prepaid limit, and 0 if it is not
// open.
func sessionEnd(since, session int64) int64 {
	if session <= 0 || since <= 0 {
		return 0
	}
	if session >= Endless {
		return Never
	}
	return add(since, session*1000)
}

// ends returns when the session of a limit ends, 0 if none is open.
func (l *Limit) ends() int64 { return sessionEnd(l.Since(), l.Session()) }

// isClosed reports whether a session quota has no open session at a time.
func (l *Limit) isClosed(at int64) bool { return l.Session() > 0 && l.ends() <= at }

// isRolled reports whether another program has begun the session on another shard. The balance then follows from the
// count since.
func (s *State) isRolled(l *Limit) bool {
	applied := l.Applied()
	if applied == 0 {
		applied = s.RefilledAt
	}
	return l.Session() > 0 && l.Since() > applied
}

// isOver reports whether a limit that gets new parameters has no open session at a time. A session that has ended by its former length is
// over. A limit that becomes a session quota has no session, unless it becomes prepaid: then it continues with its balance.
func (l *Limit) isOver(p *Params, at int64) bool {
	return l.isClosed(at) || p.Session > 0 && !l.becomesPrepaid(p) && sessionEnd(l.Since(), p.Session) <= at
}

// becomesPrepaid reports whether new parameters make a limit prepaid that was no session quota. Its session begins with the write that sets
// them.
func (l *Limit) becomesPrepaid(p *Params) bool { return p.Session >= Endless && l.Session() == 0 }

// isQuota reports whether a limit resets at times, and does not refill in between.
func (p *Params) isQuota() bool { return p.Times != nil || p.Session > 0 }

// isOtherKind reports whether new parameters change the kind of a limit: a limit that refills, a quota, or a session quota.
func (l *Limit) isOtherKind(p *Params) bool {
	return (l.Times() != nil) != (p.Times != nil) || (l.Session() > 0) != (p.Session > 0)
}

// isQuota is [Params.isQuota].
func (l *Limit) isQuota() bool { return l.Times() != nil || l.Session() > 0 }

// renewsAfter returns when a quota of shards first resets after a time, or Never. A session that is not open has no such time.
func (p *Params) renewsAfter(shards []*State, at int64) int64 {
	if p.Times != nil {
		return p.Times.Next(at)
	}
	next := int64(Never)
	for _, s := range shards {
		if l := s.find(p.Name); l != nil {
			if !l.isOver(p, at) {
				next = min(next, sessionEnd(l.Since(), p.Session))
			}
		}
	}
	return next
}

// Opens reports whether a demand takes from a session quota that has no open session in one of the shards.
func (c *Config) Opens(shards []*State, d *Demand, now int64) bool {
	now = effectiveNow(shards, now)
	for i := range c.Params {
		p := &c.Params[i]
		if amount, _ := d.of(p.Name); p.Session <= 0 || amount <= 0 {
			continue
		}
		for _, s := range shards {
			if l := s.find(p.Name); l == nil || l.becomesPrepaid(p) || l.isOver(p, c.stamp(s, now)) {
				return true
			}
		}
	}
	return false
}

// HasSessions reports whether any limit is a session quota.
func (c *Config) HasSessions() bool {
	for i := range c.Params {
		if c.Params[i].Session > 0 {
			return true
		}
	}
	return false
}

// together returns the time at which shards with session quotas change in one transaction: the latest of their stamps. With separate
// stamps, a slow clock would reopen a session that has ended on another shard. A stamp that is too far ahead of the time may not be too far
// ahead of a later one.
func together(shards []*State, now int64, stamp func(*State, int64) int64) int64 {
	for {
		latest := int64(math.MinInt64)
		for _, s := range shards {
			latest = max(latest, stamp(s, now))
		}
		if latest <= now {
			return latest
		}
		now = latest
	}
}

// opening returns the stamp of a write that may open a session: a new one if it does, see [Plan.sets].
func (c *Config) opening(opens bool) func(*State, int64) int64 {
	if opens {
		return c.restamp
	}
	return c.stamp
}

// begins returns the beginnings of the sessions that a transaction of shards opens, for the limits of a demand. If a session is open in one
// shard, the others join it.
func (c *Config) begins(shards []*State, d *Demand, now int64) (sessions []Amount) {
	for i := range c.Params {
		p := &c.Params[i]
		if amount, _ := d.of(p.Name); p.Session <= 0 || amount <= 0 {
			continue
		}
		since := int64(0)
		for _, s := range shards {
			if l := s.find(p.Name); l != nil && !l.isOver(p, now) {
				since = max(since, l.Since())
			}
		}
		if since == 0 {
			since = now
		}
		sessions = append(sessions, Amount{Limit: p.Name, Tokens: since})
	}
	return sessions
}

// session sets the session of a limit as an advance leaves it, given the former limit, nil if the item lacked it. It returns when the open
// session began, 0 for none.
func (p *Plan) session(_ *State, l, is *Limit, params *Params, d *Demand) (since int64) {
	if params.Session <= 0 {
		return 0
	}
	if l != nil && !l.isOver(params, p.Now) && !d.restarts(l.Name) {
		since = l.Since()
	}
	if since == 0 {
		since = d.begins(params.Name, p.Now)
	}
	if since == 0 && l != nil && l.becomesPrepaid(params) && !d.restarts(l.Name) {
		since = p.Now
	}
	is.begin(since)
	return since
}

// begin opens a session that began at a time, or closes the session at 0.
func (l *Limit) begin(since int64) {
	if l.Since() != since || l.Applied() != since {
		l.Change(func(r *Rare) {
			if r.Since, r.Applied = since, since; since == 0 {
				r.Rolled = 0
			}
		})
	}
}

// begins returns the beginning of the session that the demand opens at a time, 0 if it opens none.
func (d *Demand) begins(limit string, now int64) int64 {
	if part := d.rest().part; part != nil {
		if since := Of(part.sessions, limit); since > 0 {
			return since
		}
	}
	if amount, _ := d.of(limit); amount > 0 {
		return now
	}
	return 0
}

// keepSession sets the session of a limit as a write without an amount leaves it.
func (l *Limit) keepSession(s *State, at int64) {
	switch {
	case l.Session() <= 0 || l.Since() <= 0:
	case l.isClosed(at):
		l.begin(0)
	case s.isRolled(l):
		l.begin(l.Since())
	}
}

// isSessionOf reports whether a session quota is in the same session in two items, as their images show it. All open sessions of a prepaid
// limit count as the same one, since shards may have begun them one by one when the limit became prepaid.
func (s *State) isSessionOf(l *Limit, other *State, theirs *Limit) bool {
	if l.Session() <= 0 || theirs == nil {
		return true
	}
	same := l.Since() == theirs.Since() || l.Session() >= Endless && l.Since() > 0 && theirs.Since() > 0
	return same && !s.isRolled(l) && !other.isRolled(theirs)
}
