package bucket

import (
	"math"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// A Status is the state of one limit of a bucket, for a demand.
type Status struct {
	Params
	Grant                      // the grants of operators beyond the capacity, of all shards
	Lasting   int64            // of a quota whose grant ends: balance after the end if nothing else happens, millitokens
	Carried   int64            // what a quota has carried into its period beyond the capacity, millitokens
	Change    *calendar.Change // of the present window; nil for none
	Available int64            // balance after a refill up to now, millitokens; negative in debt
	Requested int64            // of the demand, millitokens
	Short     bool             // the demand is not admitted: too little is available, even within its wait
	Kept      int64            // left to others by the demand's priority, millitokens
	Own       int64            // balance of the share that is guaranteed to the demand's priority, millitokens
	Parted    bool             // the demand's priority has a guaranteed share of the limit
	Queue     int64            // milliseconds until the debt is paid if nothing else happens; 0 without one
	ResetsAt  int64            // when a quota resets, epoch milliseconds; 0 for a limit that refills, and for a session not open
	Term      int64            // of slots, milliseconds, whose number is the capacity; 0 for a limit of tokens
	Foreseen  bool             // of a shadow limit: it would have rejected the request
	Refusals  int64            // of a shadow limit: requests that it would have rejected so far
	Wait      int64            // milliseconds until that much is available if nothing else happens; 0 for now, Never for never
}

// Never is the wait for more than a limit can hold.
const Never = math.MaxInt64

// Statuses appends the status of each configured limit, in the order of the config. They are the statuses of the shards of a bucket after
// an advance of all of them. Without shards the bucket does not exist, and is therefore full.
func (c *Config) Statuses(to []Status, shards []*State, d *Demand, now int64) []Status {
	v := viewOf(c, shards, now)
	d, now = d.asked(), v.now
	for i := range c.Params {
		if IsPart(c.Params[i].Name) {
			continue
		}
		p := v.granted(&c.Params[i])
		amount, checked := d.asks(p.Name, p.Mode)
		available := v.available(p, d)
		status := Status{Params: c.Params[i].whole(), Grant: p.grant, Carried: p.carried, Available: available, Requested: amount + Of(d.rest().counted, p.Name), Short: checked && d.required(p, only(shards), now) > available}
		if checked {
			status.Kept = p.Floors.kept(d.Priority, p.rule().capacityAt(now))
		}
		if p.Mode == Shadow {
			status.Refusals = refusals(shards, p.Name)
		}
		if available < 0 && p.Mode == Enforced {
			status.Queue = v.until(p, available, func(int64) int64 { return 0 })
		}
		if at := p.renewsAfter(shards, now); p.isQuota() && at != Never {
			status.ResetsAt = at
		}
		if ends := p.grant.Until; p.isQuota() && p.grant.Granted > 0 && ends > now {
			then := v
			then.now = ends
			status.Lasting = then.balance(p)
		}
		status.Change, _, _ = p.Windows.At(now)
		switch {
		case !checked || d.needs(p, p.rule().capacityAt(now)) <= available:
		case !p.mayAdmit(d, now):
			status.Wait = Never
		default:
			status.Wait = v.untilAdmits(p, available, d)
		}
		if p.Whole != (Whole{}) {
			v.combine(&status, p, d)
		}
		to = append(to, status)
	}
	return to
}

// refusals returns how many requests a shadow limit would have rejected, by its count in shards.
func refusals(shards []*State, limit string) (sum int64) {
	for _, s := range shards {
		if l := s.find(limit); l != nil {
			sum += l.Refusals()
		}
	}
	return sum
}

// CapacityNow returns the most that the limit can have now, in millitokens.
func (s *Status) CapacityNow() int64 { return s.rule().as(s.Change).capacity }

// Covers reports whether the shards of a bucket together have the amounts of a demand.
func (c *Config) Covers(shards []*State, d *Demand, now int64) bool {
	d = d.Through(c, shards, now)
	v := viewOf(c, shards, now)
	for i := range c.Params {
		p := &c.Params[i]
		if _, checked := d.asks(p.Name, p.Mode); checked && v.required(p, d) > v.available(p, d) {
			return false
		}
	}
	return true
}

// Room returns how many times shards together can admit a demand, by their balances and the inflow of a time in
// milliseconds.
func (c *Config) Room(shards []*State, d *Demand, now, over int64) (times int64) {
	d = d.Through(c, shards, now)
	v := viewOf(c, shards, now)
	times = math.MaxInt64
	for i := range c.Params {
		p := &c.Params[i]
		amount, checked := d.asks(p.Name, p.Mode)
		if !checked {
			continue
		}
		has := add(v.balance(p), signed(p.rule().over(nil, p.Name, v.now, v.now+over)))
		has = add(has, sub(amount, v.required(p, d)))
		times = min(times, max(has, 0)/amount)
	}
	return times
}

// IsSmall reports whether a demand is at most an eighth of one shard's capacity, for each limit.
func (c *Config) IsSmall(s *State, d *Demand) bool {
	for i := range c.Params {
		p := &c.Params[i]
		if amount, checked := d.asks(p.Name, p.Mode); checked && amount > s.share(p.Name, p.rule().least())/8 {
			return false
		}
	}
	return true
}

// A standing is the state of one limit, in one shard or in all of them.
type standing struct {
	balance int64 // balance after a refill up to now, at most the capacity
	room    int64 // missing to the capacity
	surplus int64 // refill that did not fit, and belongs to the other shards
}

// available returns the balance when the surplus of some shards flows to the others.
func (s standing) available() int64 { return add(s.balance, min(s.surplus, s.room)) }

func (s standing) plus(other standing) standing {
	return standing{add(s.balance, other.balance), add(s.room, other.room), add(s.surplus, other.surplus)}
}

// spareOf returns the most surplus that shards of a bucket can use: the sum of their room.
func spareOf(shards []*State, p *Params) (spare uint64) {
	if p.Windows == nil { // no chain has to be cut short
		return 0
	}
	spare = uint64(p.rule().most())
	for _, s := range shards {
		if l := s.find(p.Name); l != nil {
			spare = plus(spare, uint64(max(l.Granted(), 0)))
			if l.Tokens < 0 {
				spare = plus(spare, -uint64(l.Tokens))
			}
		}
	}
	return spare
}

// nothingTaken is the state of a bucket that does not exist.
var nothingTaken State

// no one takes, gives back or adds anything.
var nobody = &Demand{}

// standing returns the state of a limit in one shard, after it gets the configured parameters. A limit that the shard lacks is full.
func (c *Config) standing(s *State, p *Params, latest, now int64, spare uint64) standing {
	l := s.find(p.Name)
	if l == nil {
		balance := s.starts(p, now)
		return standing{balance: balance, room: sub(s.idle(p, now), balance)}
	}
	from, changed := c.since(s, now), !l.has(p)
	latest = min(latest, now)
	most := int64(math.MaxInt64) // where a grant has ended: a window before that may have cut off what all shards have
	if !s.renews(l, p, now) {
		past, end, ended := s.past(l, from, now)
		if ended {
			most = s.lone(l, 0).chain(max(from, latest), now).ceiling
		}
		l, from = past, end
	}
	last := s.chainTo(l, p, max(from, latest), now, spare)
	capacity := min(s.ceiling(last, p, nobody, changed, now), most)
	if last.renewed {
		return standing{balance: capacity}
	}
	if c.mixed(s) {
		if others := s.others(l); others > 0 {
			whole := s.chainTo(l, p, from, now, 0)
			capacity = min(capacity, sub(whole.ceiling, others))
			balance := min(raised(l.Tokens, whole.inflow), capacity)
			return standing{balance: balance, room: sub(capacity, balance)} // no surplus: it may be others' that was taken since
		}
	}
	first := s.chainTo(l, p, from, latest, 0)
	held := min(first.of(l.Tokens), s.ceiling(first, p, nobody, changed, latest))
	refilled := raised(held, last.inflow)
	held = min(refilled, capacity)
	balance := sub(held, c.owed(s, l, p, from, now))
	return standing{balance: balance, room: sub(capacity, held), surplus: sub(refilled, held)} // the debt is taken over after what flows in
}

// timeUntil returns the smallest positive number for which enough is true, or Never if it is true for none. If enough is true for a number,
// it must be true for all greater ones.
func timeUntil(enough func(int64) bool) int64 {
	most := int64(1)
	for !enough(most) {
		if most > math.MaxInt64/2 {
			return Never
		}
		most *= 2
	}
	least := most / 2 // not enough, or 0
	for most-least > 1 {
		if middle := least + (most-least)/2; enough(middle) {
			most = middle
		} else {
			least = middle
		}
	}
	return most
}
