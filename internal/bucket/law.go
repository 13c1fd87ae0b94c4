package bucket

import (
	"math"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// A limit may have other parameters in windows of time. The time between two instants consists of stretches, each with its parameters. In
// one stretch a balance x becomes min(x + inflow, capacity), and a chain of such steps has the form of one step. A limit without windows
// has a chain of one stretch. Windows depend only on the time, so a repeated step does no harm.
//
// At one instant the window changes first, and then a quota resets.

// A rule has the parameters of a limit in a stretch, or its own parameters with the windows in which others apply.
type rule struct {
	capacity, refill, period int64
	windows                  *calendar.Windows
}

func (l *Limit) rule() rule { return rule{l.Capacity, l.RefillAmount, l.RefillPeriod, l.Windows()} }

func (p *Params) rule() rule { return rule{p.Capacity, p.RefillAmount, p.RefillPeriod, p.Windows} }

// at returns the parameters that apply at a time, and the beginning and the end of their stretch.
func (r rule) at(t int64) (now rule, from, to int64) {
	if r.windows == nil {
		return r, math.MinInt64, calendar.Never
	}
	change, from, to := r.windows.At(t)
	return r.as(change), from, to
}

func (r rule) as(change *calendar.Change) rule {
	r.windows = nil
	if change != nil {
		r.capacity, r.refill, r.period = change.Of(r.capacity, r.refill, r.period)
	}
	return r
}

// each calls a function with the parameters outside of windows, and with the parameters of each window. It skips parameters that never
// apply.
func (r rule) each(f func(rule)) {
	if r.windows == nil {
		f(r)
		return
	}
	changes := r.windows.Changes()
	for window := -1; window < len(changes); window++ {
		if r.windows.Holds(window) {
			f(r.in(window))
		}
	}
}

// in returns the parameters in a window; with -1, the parameters outside of all windows.
func (r rule) in(window int) rule {
	if window < 0 {
		return r.as(nil)
	}
	return r.as(&r.windows.Changes()[window])
}

// least returns the smallest capacity at any time.
func (r rule) least() int64 {
	least := int64(math.MaxInt64)
	r.each(func(r rule) { least = min(least, r.capacity) })
	return least
}

// most returns the largest capacity at any time.
func (r rule) most() (most int64) {
	r.each(func(r rule) { most = max(most, r.capacity) })
	return most
}

// mayAdmit reports whether a limit can ever hold enough to admit a demand, by its capacity or by a grant from now on.
func (p *Params) mayAdmit(d *Demand, now int64) (holds bool) {
	p.rule().each(func(r rule) { holds = holds || d.needs(p, r.capacity) <= add(p.beyond(r.capacity), p.grant.at(now)) })
	return holds
}

// beyond returns the most that a limit may have without a grant, given its capacity: with what it carries, or has carried, into a period.
func (p *Params) beyond(capacity int64) int64 {
	if p.divided {
		return capacity
	}
	return add(capacity, max(p.Carry, p.carried))
}

// slowest returns the longest time in which that many millitokens are refilled, in milliseconds.
func (r rule) slowest(tokens int64) (longest int64) {
	r.each(func(r rule) { longest = max(longest, timeToRefill(0, uint64(max(tokens, 0)), r.refill, r.period)) })
	return longest
}

// capacityAt returns the capacity of the whole bucket at a time.
func (r rule) capacityAt(t int64) int64 {
	now, _, _ := r.at(t)
	return now.capacity
}

// over returns the inflow from one time to another, whatever the capacity: of a shard, or of the whole bucket if the shard is nil.
func (r rule) over(s *State, name string, from, to int64) (sum uint64) {
	for from < to {
		now, _, end := r.at(from)
		if s != nil {
			now.refill = s.share(name, now.refill)
		}
		sum = plus(sum, flow(from, min(end, to), now.refill, now.period))
		from = min(end, to)
	}
	return sum
}

// within returns the least inflow during a wait that begins at a time: in each stretch, the least inflow for its length.
func (r rule) within(s *State, name string, from, wait int64) (sum uint64) {
	for until := add(from, wait); from < until; {
		now, _, end := r.at(from)
		if s != nil {
			now.refill = s.share(name, now.refill)
		}
		end = min(end, until)
		sum = plus(sum, flow(0, end-from, now.refill, now.period))
		from = end
	}
	return sum
}

// maxStretches bounds how far ahead the payment of a debt is computed.
const maxStretches = 1000

// after returns the time by which that many millitokens have been refilled in a shard since another time.
func (r rule) after(s *State, name string, from int64, missing uint64) int64 {
	for range maxStretches {
		now, _, end := r.at(from)
		now.refill = s.share(name, now.refill)
		inflow := flow(from, end, now.refill, now.period)
		if inflow >= missing || end == calendar.Never {
			return add(from, timeToRefill(from, missing, now.refill, now.period))
		}
		missing -= inflow
		from = end
	}
	return from
}

func plus(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// A chain is the effect of time on a balance: the balance plus the inflow, at most the ceiling.
type chain struct {
	inflow  uint64
	ceiling int64
	renewed bool  // a quota was reset: the balance is the ceiling, whatever it was before
	spent   int64 // taken since in a session that another program began; the ceiling is lower by this
	grant   Grant // what is left of a grant at the end
	carried int64 // into the period of a quota, beyond the capacity
	exact   bool  // a quota that carries was reset, or the grant ended: the new balance depends on the exact former one
	ended   bool  // a grant ended: the chain begins at its end
	start   int64 // the balance at that end, which replaces the one before
}

// of returns the balance after the chain, for a balance before it.
func (c chain) of(balance int64) int64 { return min(raised(c.from(balance), c.inflow), c.ceiling) }

// from returns the balance at the beginning of the chain, for a balance before it.
func (c chain) from(balance int64) int64 {
	if c.ended {
		return c.start
	}
	return balance
}

// behind puts a stretch before the chain.
func (c chain) behind(inflow uint64, capacity int64) chain {
	c.inflow, c.ceiling = plus(c.inflow, inflow), min(raised(capacity, c.inflow), c.ceiling)
	return c
}

// fills reports whether the chain brings every balance from the given one up to its ceiling, and overflows by at least spare. Earlier times
// then do not matter. The balance counts as no more than the least capacity, since an earlier window may have clamped it.
func (c chain) fills(balance, least int64, spare uint64) bool {
	missing := uint64(c.ceiling) - uint64(min(balance, least)) // no underflow: the ceiling is no lower
	return c.inflow >= plus(missing, spare)
}

// chain is chainTo for a limit that keeps its parameters.
func (s *State) chain(l *Limit, from, to int64, spare uint64) chain {
	return s.chainTo(l, nil, from, to, spare)
}

// chainTo returns the effect of the time between two instants on a limit of the item, at the item's parameters. It goes back from the later
// instant as far as that matters. For shards, it goes back further, since they may give each other spare. If the limit gets new parameters,
// it may reset by these.
func (s *State) chainTo(l *Limit, p *Params, from, to int64, spare uint64) chain {
	c, without := chain{ceiling: math.MaxInt64}, int64(-1)
	if l.Rare != nil {
		c.grant, c.carried = l.grant(), l.Carried()
	}
	if (l.Rare != nil || p != nil && p.isQuota()) && s.renews(l, p, to) {
		from, without = c.reset(s, l, p, from, to)
	} else if c.grant.ends(to) {
		l, from, c.ended = s.past(l, from, to)
		c.start, c.exact, c.grant = l.Tokens, true, Grant{}
	}
	to = max(from, to)
	r := l.rule()
	lowest := c.lowest(s, l, r, to)
	for at, end := to, to; ; {
		now, begin, _ := r.at(at)
		begin = max(begin, from)
		capacity := s.share(l.Name, now.capacity)
		if c.grant.Granted != 0 {
			capacity = add(capacity, c.grant.at(at))
		}
		capacity = add(capacity, c.carried)
		c = c.behind(flow(begin, end, s.share(l.Name, now.refill), now.period), capacity)
		if begin <= from || c.ceiling <= lowest || !c.renewed && c.fills(l.Tokens, s.share(l.Name, r.least()), spare) {
			break
		}
		at, end = begin-1, begin
	}
	if c.renewed {
		if end := c.grant.Until; without >= 0 && c.grant.ends(to) && l.Windows() != nil {
			left := s.bereft(l, c.grant, add(without, c.grant.Granted), s.lone(l, without).chain(from, end).of(without), from, end)
			c.ceiling = s.lone(l, left).chain(end, to).of(left)
		}
		c.inflow = math.MaxUint64
		c.ceiling = sub(c.ceiling, c.spent)
	}
	if c.grant = c.grant.left(to); c.grant.Until != 0 && (l.Windows() != nil || c.grant.Lacking != 0) {
		var has int64
		if without >= 0 {
			has = s.lone(l, without).chain(from, to).of(without)
		} else {
			has = s.without(l, from, to)
		}
		c.grant.Lacking = s.lacks(l.Name, r, c.carried, has, to)
	}
	if p != nil && c.grant.Until == 0 && !p.isQuota() { // it was one for a period
		c.grant = Grant{}
	}
	return c
}

// lowest returns the lowest ceiling in the time until the chain, for a limit without inflow.
func (c *chain) lowest(s *State, l *Limit, r rule, to int64) int64 {
	if l.RefillAmount > 0 || r.windows == nil {
		return math.MinInt64
	}
	return add(add(s.share(l.Name, r.least()), c.carried), c.grant.at(to))
}

// reset begins the chain at the latest reset of a quota up to a time. It returns when the chain begins, and the quota's balance without the
// grant at that time, -1 if no grant carries over.
func (c *chain) reset(s *State, l *Limit, p *Params, from, to int64) (begins, without int64) {
	c.renewed, begins, without = true, to, -1
	if l.Windows() != nil || c.grant.Granted != 0 {
		begins = s.lastReset(l, to)
	}
	c.carried, c.exact = s.carries(l, p, to)
	if c.grant.Until != 0 && c.grant.at(begins) > 0 {
		c.exact = true
		balance := l.Tokens
		if !l.isQuota() {
			balance = s.chain(l, from, begins, 0).of(balance)
		}
		c.grant = c.grant.after(begins, balance)
		without = add(s.share(l.Name, l.rule().capacityAt(begins)), c.carried)
	} else {
		c.grant = Grant{}
	}
	if s.isRolled(l) && !l.isClosed(to) && (p == nil || p.Session > 0 && !l.isOver(p, to)) {
		c.spent = max(0, l.Consumed-l.Rolled())
	}
	return begins, without
}

// starts returns the initial balance of a limit that an item lacks. It is full, except for a share of a limit that the item has: that limit
// has the tokens of the share so far.
func (s *State) starts(p *Params, at int64) int64 {
	if IsPart(p.Name) && s.find(LimitOf(p.Name)) != nil {
		return 0
	}
	return s.idle(p, at)
}

// idle returns the balance of a limit of the item at a time, if nothing was ever taken from it. That is the capacity, unless a window has
// changed it recently. So a bucket that is created again after its expiry has the balance that the old one would have had.
func (s *State) idle(p *Params, at int64) int64 {
	r := p.rule()
	if r.windows == nil || p.Times == nil && p.RefillAmount <= 0 {
		return s.share(p.Name, r.capacityAt(at))
	}
	idle := State{Shard: s.Shard, Shards: s.Shards}
	from := int64(math.MinInt64)
	if p.Times != nil {
		from = at
		if last, ok := p.Times.Last(at); ok {
			from = last
		}
	}
	l := Limit{Name: p.Name, Tokens: math.MaxInt64, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod, Rare: &Rare{Windows: p.Windows}}
	return idle.chain(&l, from, at, 0).ceiling
}

// capacity returns what a limit of the item can hold at a time, unless it resets by then.
func (s *State) capacity(name string, r rule, at int64) int64 {
	return add(s.share(name, r.capacityAt(at)), s.grantAt(name, at))
}
