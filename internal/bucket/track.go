package bucket

import (
	"math"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// A track is a limit, or the part of it that is guaranteed to a priority, as a [search] follows it. The time of its view is the one that the
// search has come to.
type track struct {
	view
	p      *Params
	limit  int                        // number of its limit
	needs  func(capacity int64) int64 // the balance that is enough
	began  int64                      // time of the view when nothing was waited
	has    int64
	held   int64 // part of it that is not in the shards
	grant  Grant
	latest int64 // stamp of the shards
	mark   int64 // up to which one of the shards has crossed edges
	alone  bool  // the demand has no other limit
	looks  int   // at the shards

	is     rule  // in the present stretch
	end    int64 // of the stretch
	resets int64 // of a quota with times: the next time
	open   bool  // a session is
	fixed  bool  // the capacity makes no difference to what is enough
	spent  bool  // a reset has brought nothing, and the next one brings no more

	exact   bool  // a cycle brings the same inflow whenever it begins
	marked  int64 // balance when the cycle began
	growth  int64 // in the cycle before; -1 if it is unknown
	room    int64 // least one in the cycle
	changes int64 // of windows in the cycle
	slack   int64 // what rounding may add in a cycle
}

// trackOf returns the track of a limit, given its balance at the time of the view, and the time waited.
func (v view) trackOf(p *Params, has, waited int64, needs func(capacity int64) int64) track {
	t := track{view: v, p: p, needs: needs, began: sub(v.now, waited), has: has, grant: p.grant, latest: v.latest()}
	t.fixed, t.mark = needs(0) == needs(math.MaxInt64/2), math.MinInt64
	for _, s := range v.shards {
		t.mark = max(t.mark, s.mark())
	}
	t.begin()
	if t.refills() && (t.p.Windows != nil || t.grant.ends(Never)) {
		t.held = max(0, sub(has, v.balance(p)))
	}
	return t
}

func (t *track) refills() bool { return !t.p.isQuota() }

// isOpen reports whether a session is open in one of the shards.
func (p *Params) isOpen(shards []*State, now int64) bool {
	for _, s := range shards {
		if l := s.find(p.Name); p.Session > 0 && l != nil && !l.isOver(p, now) {
			return true
		}
	}
	return false
}

// begin finds the stretch of the present time.
func (t *track) begin() {
	t.is, _, t.end = t.p.rule().at(t.now)
	t.open = t.p.isOpen(t.shards, t.now)
	if t.alone && t.fixed && (t.p.Times != nil || t.open) { // windows give a quota nothing before it resets
		t.end = Never
	}
	switch {
	case t.p.Times != nil:
		t.resets = t.p.Times.Next(t.now)
		t.end = min(t.end, t.resets)
	case t.open:
		t.end = min(t.end, t.p.renewsAfter(t.shards, t.now))
	}
	if t.grant.ends(Never) {
		t.end = min(t.end, t.grant.Until)
	}
}

// most returns what the limit can have in the present stretch.
func (t *track) most() int64 { return add(t.is.capacity, t.grant.at(t.now)) }

// inflow returns the refill until a time of the present stretch.
func (t *track) inflow(at int64) (sum uint64) {
	if !t.refills() {
		return 0
	}
	if t.now < t.latest && len(t.shards) > 0 {
		return t.view.inflow(t.p, at)
	}
	if len(t.shards) == 0 {
		return flow(t.now, at, t.is.refill, t.is.period)
	}
	for _, s := range t.shards {
		sum = plus(sum, flow(t.now, at, s.share(t.p.Name, t.is.refill), t.is.period))
	}
	return sum
}

// isStuck reports whether the limit has too little, and never has more.
func (t *track) isStuck() bool {
	switch {
	case !t.fixed || t.has >= t.needs(0):
		return false
	case t.p.Session >= Endless:
		return t.open && !t.grant.ends(Never)
	default:
		return t.spent
	}
}

// lacks returns what is missing just before a stretch ends, at a time waited; 0 or less if the limit has enough.
func (t *track) lacks(end int64) int64 {
	tokens := t.needs(t.is.capacity)
	switch {
	case tokens <= t.has:
		return 0
	case tokens > t.most() || !t.refills() || t.is.refill <= 0:
		if t.refills() {
			return Never
		}
		return sub(tokens, t.has)
	case end == Never:
		return 0
	default:
		return sub(tokens, raised(t.has, t.inflow(add(t.began, end)-1)))
	}
}

// first returns the first time waited before the end of a stretch at which the limit has enough, or Never.
func (t *track) first(end int64) int64 {
	waited := sub(t.now, t.began)
	tokens := t.needs(t.is.capacity)
	if t.has >= tokens {
		return waited
	}
	if t.lacks(end) > 0 {
		return Never
	}
	until := int64(Never)
	if end != Never {
		until = add(t.began, end)
	}
	wait := timeUntil(func(wait int64) bool { return raised(t.has, t.inflow(min(add(t.now, wait), until))) >= tokens })
	return min(add(waited, wait), Never-1) // longer than can be expressed, and not forever
}

// follow goes on to a time, at the end of the present stretch or before it. It returns how many steps the looks at the shards count as.
func (t *track) follow(at int64) (steps int) {
	looks, most := t.looks, t.most()
	if t.refills() {
		t.has = raised(t.has, t.inflow(at))
		t.room = min(t.room, max(0, sub(most, t.has)))
		t.has = min(t.has, most)
	}
	if t.now = at; at < t.end {
		return 0
	}
	was, resets := t.grant, t.p.Times != nil && at == t.resets
	if was.ends(at) || resets && was.Until == 0 {
		t.grant = Grant{}
	}
	t.changes++
	t.begin()
	switch {
	case t.refills():
		if t.has = min(t.has, t.most()); was.ends(at) {
			t.has = min(t.has, t.truth())
		}
	case was.ends(Never), resets && (t.p.Carry > 0 || at <= t.mark), t.open && len(t.shards) > 1:
		had := t.has
		t.has = t.truth()
		t.spent = resets && at > t.mark && t.has <= had && was == (Grant{}) && t.p.Windows == nil
	case resets, t.p.Session > 0 && !t.open:
		t.has = t.is.capacity
		t.spent = resets && t.p.Windows == nil
	case t.p.Windows != nil:
		t.has = min(t.has, t.most())
	}
	return (t.looks - looks) * stepsOfALook
}

// truth returns the balance as the shards have it at the present time, with what is held beside them.
func (t *track) truth() int64 {
	t.looks++
	return add(t.balance(t.p), t.held)
}

// cycle returns the cycle that the limit is in, by the time waited.
func (t *track) cycle() calendar.Cycle {
	c := t.p.Windows.Cycle(t.now).And(t.p.Times.Cycle(t.now))
	if t.grant.ends(Never) {
		c.Until = min(c.Until, t.grant.Until)
	}
	if t.open {
		c.Until = min(c.Until, t.p.renewsAfter(t.shards, t.now))
	}
	if c.From != math.MinInt64 {
		c.From = sub(c.From, t.began)
	}
	if c.Until != Never {
		c.Until = sub(c.Until, t.began)
	}
	return c
}

// settled returns the time waited when the session and the grant are over that the limit has at the present time, and it is full.
func (t *track) settled() (waited int64) {
	if end := t.p.renewsAfter(t.shards, t.now); t.open && end != Never {
		waited = sub(end, t.began)
	}
	if t.grant.ends(Never) {
		waited = max(waited, sub(t.grant.Until, t.began))
	}
	if t.refills() {
		waited = add(waited, t.p.rule().slowest(sub(t.p.rule().most(), min(t.has, 0))))
	}
	return waited
}

// repeat prepares cycles of a length.
func (t *track) repeat(length int64) {
	t.growth, t.exact, t.slack = -1, true, 0
	if !t.refills() {
		return
	}
	t.p.rule().each(func(r rule) {
		for i := range max(1, len(t.shards)) {
			refill := r.refill
			if len(t.shards) > 0 {
				refill = t.shards[i].share(t.p.Name, refill)
			}
			t.exact = t.exact && remainder(length, refill, r.period) == 0
		}
	})
	if !t.exact {
		t.slack = math.MaxInt64 / 4 // until a cycle shows how often the window changes
	}
}

// beginCycle notes what the limit has when a cycle begins.
func (t *track) beginCycle() { t.marked, t.room, t.changes = t.has, math.MaxInt64, 0 }

// endCycle notes what a cycle has brought.
func (t *track) endCycle() {
	t.growth = sub(t.has, t.marked)
	if !t.exact {
		t.slack = 2 * (t.changes + 2) * int64(max(1, len(t.shards)))
	}
}

// holds reports whether the limit has the same balances in each cycle, except for rounding.
func (t *track) holds() bool {
	if t.exact {
		return t.has == t.marked
	}
	return t.room == 0 && t.slack >= max(t.has-t.marked, t.marked-t.has)
}

// isSteady reports whether the limit has grown as in the cycle before, except for rounding.
func (t *track) isSteady() bool {
	growth := sub(t.has, t.marked)
	return t.growth >= 0 && growth >= 0 && max(growth-t.growth, t.growth-growth) <= t.slack && (growth == 0 || t.refills())
}

// cycles returns for how many further cycles the limit stays short, given what it lacks.
func (t *track) cycles(lacks int64) int64 {
	if rate := add(max(t.growth, 0), t.slack); rate > 0 && lacks != Never {
		return max(0, sub(lacks-1, t.slack)) / rate
	}
	return Never
}

// roomFor returns for how many further cycles of the same growth the limit does not become full.
func (t *track) roomFor() int64 {
	if t.growth == 0 && t.exact {
		return Never
	}
	return max(0, sub(t.room, t.slack)) / add(t.growth, t.slack)
}

// leaveOut skips a number of cycles, given their length.
func (t *track) leaveOut(times, length int64) {
	at := add(t.now, times*length)
	if t.refills() && t.p.Windows == nil {
		t.has = min(raised(t.has, t.inflow(at)), t.most())
	} else if t.refills() {
		t.has = add(t.has, times*t.growth)
	}
	if t.now = at; !t.exact && t.p.Windows != nil {
		t.has = min(t.truth(), t.most())
	}
	t.begin()
	t.growth = max(t.growth, 0)
}
