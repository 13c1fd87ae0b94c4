package bucket

import (
	"math"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// A Status is where one limit of a bucket stands in view of a demand.
type Status struct {
	Params
	Grant                      // what operators have granted beyond the capacity, of all shards
	Change    *calendar.Change // of the window that holds now; nil without one
	Available int64            // balance after a refill up to now, millitokens; negative in debt
	Requested int64            // of the demand, millitokens
	Short     bool             // the demand is not admitted: it asks for more than is available, or does not wait long enough for the rest
	Kept      int64            // left to others by the demand's priority, millitokens
	Own       int64            // what is left of the part that is guaranteed to the demand's priority, millitokens
	Parted    bool             // the demand has a part of the limit of its own
	Queue     int64            // milliseconds until the debt is paid if nothing else happens; 0 without one
	ResetsAt  int64            // when a quota is full anew, epoch milliseconds; 0 for a limit that refills, and for a session not open
	Term      int64            // of slots, milliseconds, whose number is the capacity; 0 for a limit of tokens
	Foreseen  bool             // of a shadow limit: it would have refused the request
	Refusals  int64            // of a shadow limit: requests that it would have refused so far
	Wait      int64            // milliseconds until that much is available if nothing else happens; 0 for now, Never for never
}

// Never is the wait for more than a limit can hold.
const Never = math.MaxInt64

// Statuses appends the status of each configured limit, in the order of the config. They are those of the shards of a
// bucket as an advance of all of them would leave it. Without shards the bucket does not exist, and is full therefore.
func (c *Config) Statuses(to []Status, shards []*State, d *Demand, now int64) []Status {
	now = led(shards, now)
	d = d.asked()
	for i := range c.Params {
		if IsPart(c.Params[i].Name) {
			continue
		}
		p := c.granted(shards, &c.Params[i], now)
		amount, checked := d.asks(p.Name, p.Mode)
		available := c.available(shards, p, d, now)
		status := Status{Params: c.Params[i].whole(), Grant: p.grant, Available: available, Requested: amount + Of(d.rest().counted, p.Name), Short: checked && d.floor(p, only(shards), now) > available}
		if checked {
			status.Kept = p.Floors.kept(d.Priority, p.rule().capacityAt(now))
		}
		if p.Mode == Shadow {
			status.Refusals = refusals(shards, p.Name)
		}
		if available < 0 && p.Mode == Enforced {
			status.Queue = c.until(shards, p, available, func(int64) int64 { return 0 }, now)
		}
		if at := p.renewsAfter(shards, now); p.isQuota() && at != Never {
			status.ResetsAt = at
		}
		status.Change, _, _ = p.Windows.At(now)
		switch {
		case !checked || d.needs(p, p.rule().capacityAt(now)) <= available:
		case !p.holds(d, now):
			status.Wait = Never
		default:
			status.Wait = c.until(shards, p, available, func(capacity int64) int64 { return d.needs(p, capacity) }, now)
		}
		if p.Whole != (Whole{}) {
			c.combine(&status, shards, p, d, now)
		}
		to = append(to, status)
	}
	return to
}

// refusals returns how many requests a shadow limit would have refused, by its count in shards.
func refusals(shards []*State, limit string) (sum int64) {
	for _, s := range shards {
		if l := s.find(limit); l != nil {
			sum += l.Refusals()
		}
	}
	return sum
}

// Holds returns the most that the limit can have now, in millitokens.
func (s *Status) Holds() int64 { return s.rule().as(s.Change).capacity }

// available returns the balance of a limit in all shards of a bucket, with the held tokens of a demand.
func (c *Config) available(shards []*State, p *Params, d *Demand, now int64) int64 {
	if len(shards) == 0 {
		return nothingTaken.idle(p, now)
	}
	available := c.whole(shards, p, now).available()
	if held := Of(d.rest().held, p.Name); held > 0 {
		return min(add(available, held), max(available, p.capacityAt(now)))
	}
	return available
}

// Covers reports whether the shards of a bucket together have the amounts of a demand.
func (c *Config) Covers(shards []*State, d *Demand, now int64) bool {
	d = d.Through(c, shards, now)
	now = led(shards, now)
	for i := range c.Params {
		p := &c.Params[i]
		if _, checked := d.asks(p.Name, p.Mode); checked && d.floor(c.granted(shards, p, now), only(shards), now) > c.available(shards, p, d, now) {
			return false
		}
	}
	return true
}

// Room returns how many times shards together can admit a demand, by their balances and the inflow of a time in
// milliseconds.
func (c *Config) Room(shards []*State, d *Demand, now, over int64) (times int64) {
	d = d.Through(c, shards, now)
	now = led(shards, now)
	times = math.MaxInt64
	for i := range c.Params {
		p := &c.Params[i]
		amount, checked := d.asks(p.Name, p.Mode)
		if !checked {
			continue
		}
		has := nothingTaken.idle(p, now)
		if len(shards) > 0 {
			has = c.whole(shards, p, now).available()
		}
		has = add(has, signed(p.rule().over(nil, p.Name, now, now+over)))
		has = add(has, sub(amount, d.floor(c.granted(shards, p, now), only(shards), now)))
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

// A standing is where one limit stands, in one shard or in all of them.
type standing struct {
	level   int64 // balance after a refill up to now, at most the capacity
	room    int64 // missing to the capacity
	surplus int64 // refill that did not fit, and belongs to the other shards
}

// available returns the balance when the surplus of some shards flows to the others.
func (s standing) available() int64 { return add(s.level, min(s.surplus, s.room)) }

func (s standing) plus(other standing) standing {
	return standing{add(s.level, other.level), add(s.room, other.room), add(s.surplus, other.surplus)}
}

// whole returns where a limit stands in all shards together. Refill that a full shard could not hold before the latest
// refill stamp is lost. The images do not tell whether the others had room then. From then on nothing was taken, as far
// as the images tell. The unsplit bucket would have kept the refill as long as any shard has room.
func (c *Config) whole(shards []*State, p *Params, now int64) (sum standing) {
	latest, spare := c.latest(shards, now), spareOf(shards, p)
	for _, s := range shards {
		sum = sum.plus(c.standing(s, p, latest, now, spare))
	}
	return sum
}

// spareOf returns the most that shards of a bucket can give one of them: the amount missing in all.
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

// nothingTaken stands for the items of a bucket that does not exist.
var nothingTaken State

// latest returns the time from which on a full shard's refill belongs to the others: the latest refill stamp.
func (c *Config) latest(shards []*State, now int64) int64 {
	latest := int64(math.MinInt64)
	for _, s := range shards {
		latest = max(latest, c.since(s, now))
	}
	return latest
}

// nobody takes, gives back or adds anything.
var nobody = &Demand{}

// standing returns where a limit stands in one shard, when the configured parameters take the place of others. A limit
// that the shard lacks is full.
func (c *Config) standing(s *State, p *Params, latest, now int64, spare uint64) standing {
	l := s.find(p.Name)
	if l == nil {
		level := s.starts(p, now)
		return standing{level: level, room: sub(s.idle(p, now), level)}
	}
	from, changed := c.since(s, now), !l.has(p)
	latest = min(latest, now)
	last := s.chain(l, max(from, latest), now, spare)
	capacity := s.ceiling(last, p, nobody, changed, now)
	if last.anew {
		return standing{level: capacity}
	}
	if c.mixed(s) {
		if others := s.others(l); others > 0 {
			whole := s.chain(l, from, now, 0)
			capacity = min(capacity, sub(whole.ceiling, others))
			level := min(raised(l.Tokens, whole.inflow), capacity)
			return standing{level: level, room: sub(capacity, level)} // no surplus: it may be others' that was taken since
		}
	}
	first := s.chain(l, from, latest, 0)
	held := min(first.of(l.Tokens), s.ceiling(first, p, nobody, changed, latest))
	refilled := raised(held, last.inflow)
	held = min(refilled, capacity)
	level := sub(held, c.owed(s, l, p, from, now))
	return standing{level: level, room: sub(capacity, held), surplus: sub(refilled, held)} // the debt is taken over after what flows in
}

// inflow returns what flows into a limit of all shards from one time to another, at the configured rate. The shares of
// the rate add up to it, but each is rounded down by itself. A fast clock may have set the latest refill stamp. Until
// that stamp, a shard keeps no more than it has room for.
func (c *Config) inflow(shards []*State, p *Params, now, at int64) (sum uint64) {
	if len(shards) == 0 { // of a missing bucket, perhaps cut off by a window a short time ago
		if p.Times == nil {
			return p.rule().over(nil, p.Name, now, at)
		}
		if p.Times.Between(now, at) {
			return uint64(p.rule().most())
		}
		return 0
	}
	more := func(tokens uint64) { sum = plus(sum, tokens) }
	latest := max(now, c.latest(shards, now))
	for _, s := range shards {
		r := p.rule()
		from := max(now, c.since(s, now))
		if from < latest {
			early := r.over(s, p.Name, from, max(from, min(at, latest)))
			more(min(early, uint64(c.standing(s, p, latest, now, 0).room)))
			from = latest
		}
		more(r.over(s, p.Name, from, max(at, from)))
	}
	return sum
}

// until returns the time, in milliseconds, until shards with too little of a limit have enough, if nothing else
// happens. That is a function of the capacity. It goes from window to window, since the end of a window may lower the
// capacity.
func (c *Config) until(shards []*State, p *Params, available int64, needs func(capacity int64) int64, now int64) int64 {
	if p.isQuota() {
		return c.untilAnew(shards, p, needs, now)
	}
	r := p.rule()
	at := now
	for range maxStretches {
		is, _, end := r.at(at)
		tokens, most := needs(is.capacity), add(is.capacity, p.grant.at(at))
		if p.grant.at(at) > 0 {
			end = min(end, p.grant.Until)
		}
		if available = min(available, most); at > now && available >= tokens {
			return at - now
		}
		if tokens <= most {
			wait := timeUntil(func(wait int64) bool {
				return raised(available, c.inflow(shards, p, at, min(add(at, wait), end))) >= tokens
			})
			if wait < sub(end, at) {
				return at - now + wait
			}
		}
		switch {
		case end == Never && tokens <= most && is.refill > 0:
			return Never - 1 // longer than can be told, and not for ever
		case end == Never:
			return Never
		}
		available = min(raised(available, c.inflow(shards, p, at, end)), most)
		at = end
	}
	if !r.mayReach(needs, min(available, r.capacityAt(at))) {
		return Never
	}
	return at - now
}

// untilAnew is until for a quota: nothing flows into it before it is full anew, at the capacity that holds then. While no session is open, a
// session quota is full at whatever capacity holds.
func (c *Config) untilAnew(shards []*State, p *Params, needs func(capacity int64) int64, now int64) int64 {
	at, r, holds, soon := now, p.rule(), false, 2
	r.each(func(r rule) { holds = holds || needs(r.capacity) <= r.capacity })
	for i := range maxStretches {
		next := p.renewsAfter(shards, at)
		if p.Session > 0 {
			_, _, end := r.at(at)
			next = min(next, end)
		}
		if next == Never {
			return Never
		}
		if at = next; c.available(shards, p, &Demand{}, at) >= needs(r.capacityAt(at)) {
			return at - now
		}
		if at < p.grant.Until {
			continue
		}
		if !holds { // it was the grant that could
			return Never
		}
		if i >= soon { // all of these times may be in windows that hold too little
			if p.Times != nil && !r.mayRenew(needs, p.Times) {
				return Never
			}
			soon = maxStretches
		}
	}
	if p.Times != nil && !r.mayRenew(needs, p.Times) {
		return Never
	}
	return at - now
}

// timeUntil returns the smallest positive number for which enough holds, or Never when it holds for none. Where enough
// holds for a number, it holds for all greater ones.
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
