package bucket

import "math"

// A session quota does not refill. Its session begins with the first request that takes of it, and ends a fixed time
// later. While no session is open, the quota is full, at any balance. The item notes a time in the past then,
// [State.ValidUntil], so that each write moves the stamp. The first one that takes opens the session.
//
// The shards of a bucket open a session together, in one transaction, and it begins on all of them at one time. Each of them ends it
// with its own next write.

// closed is the [State.ValidUntil] of an item of which a session is not open: it is past for every clock.
const closed = 1

// Endless is the length of the one session of a prepaid limit, in seconds: it never ends. To other programs it is the longest one.
const Endless = 1_000_000_000

// sessionEnd returns when a session of a length in seconds ends, Never for that of a prepaid limit, and 0 for one that is not open.
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

// isClosed reports whether a session quota has no session that is open at a time.
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

// isOver reports whether a limit that is to have parameters has no session then that is open at a time. A session that has ended by its
// former length is over. A limit that becomes a session quota has none, unless it becomes a prepaid one: that goes on with its balance.
func (l *Limit) isOver(p *Params, at int64) bool {
	return l.isClosed(at) || p.Session > 0 && !l.becomesPrepaid(p) && sessionEnd(l.Since(), p.Session) <= at
}

// becomesPrepaid reports whether a limit that is to have parameters becomes a prepaid one, and was no session quota. Its session begins with the
// write that makes it so.
func (l *Limit) becomesPrepaid(p *Params) bool { return p.Session >= Endless && l.Session() == 0 }

// isQuota reports whether a limit resets at times, and does not refill in between.
func (p *Params) isQuota() bool { return p.Times != nil || p.Session > 0 }

// isOtherKind reports whether a limit that is to have parameters becomes one of another kind: one that refills, a quota, or a session quota.
func (l *Limit) isOtherKind(p *Params) bool {
	return (l.Times() != nil) != (p.Times != nil) || (l.Session() > 0) != (p.Session > 0)
}

// isQuota is [Params.isQuota].
func (l *Limit) isQuota() bool { return l.Times() != nil || l.Session() > 0 }

// renewsAfter returns when a quota of shards resets for the first time after another time, or Never. A session
// that is not open has no such time.
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

// Opens reports whether a demand takes of a session quota that is not open in one of the shards.
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

// HasSessions reports whether one of the limits is a session quota.
func (c *Config) HasSessions() bool {
	for i := range c.Params {
		if c.Params[i].Session > 0 {
			return true
		}
	}
	return false
}

// together returns the time at which shards with session quotas change in one transaction: the latest of their stamps.
// With stamps of their own, a slow clock would open again a session that has ended elsewhere. A stamp that is too far
// ahead for the time may not be so for a later one.
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

// begins returns the beginnings of the sessions that a transaction of shards at a time opens, for the limits of a
// demand. A session open in one of them is that of the others, too.
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

// session puts a limit into the session in which an advance leaves it, given the limit as it was, nil for one missing in the item. It
// returns when the session began that is open then, 0 for none.
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

// begins returns when a session begins that the demand opens at a time, 0 where it opens none.
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

// keepSession leaves the session of a limit as a write at a time without an amount leaves it.
func (l *Limit) keepSession(s *State, at int64) {
	switch {
	case l.Session() <= 0 || l.Since() <= 0:
	case l.isClosed(at):
		l.begin(0)
	case s.isRolled(l):
		l.begin(l.Since())
	}
}

// isSessionOf reports whether a session quota is in the same session in two items, as their images show it. The open sessions of a prepaid limit
// are one, which shards may have begun one by one when the limit became prepaid.
func (s *State) isSessionOf(l *Limit, other *State, theirs *Limit) bool {
	if l.Session() <= 0 || theirs == nil {
		return true
	}
	same := l.Since() == theirs.Since() || l.Session() >= Endless && l.Since() > 0 && theirs.Since() > 0
	return same && !s.isRolled(l) && !other.isRolled(theirs)
}
