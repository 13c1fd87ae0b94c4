package bucket

import "math"

// A Status is where one limit of a bucket stands in view of a demand.
type Status struct {
	Params
	Available int64 // balance after a refill up to now, millitokens; negative in debt
	Requested int64 // what the demand asks, millitokens
	Short     bool  // the demand is not admitted: it asks for more than is available, or does not wait long enough for the rest
	Queue     int64 // milliseconds until the debt is paid if nothing else happens; 0 without one
	ResetsAt  int64 // when a quota is full anew, epoch milliseconds; 0 for a limit that refills
	Wait      int64 // milliseconds until that much is available if nothing else happens; 0 for now, Never for never
}

// Never is the wait for more than a limit can hold.
const Never = math.MaxInt64

// Statuses appends the status of each configured limit, in the order of the config. They are those of the shards of a
// bucket as an advance of all of them would leave it. Without shards the bucket does not exist, and is full therefore.
func (c *Config) Statuses(to []Status, shards []*State, d *Demand, now int64) []Status {
	for i := range c.Params {
		p := &c.Params[i]
		amount, checked := d.of(p.Name)
		available := c.available(shards, p, d, now)
		status := Status{Params: *p, Available: available, Requested: amount, Short: checked && d.floor(p, c.inflowRate(shards, p)) > available}
		until := func(tokens int64) int64 {
			return timeUntil(func(wait int64) bool { return raised(available, c.inflow(shards, p, now, add(now, wait))) >= tokens })
		}
		if available < 0 {
			status.Queue = until(0)
		}
		if p.Times != nil {
			status.ResetsAt = p.Times.Next(now)
		}
		switch {
		case !checked || amount <= available:
		case amount > p.Capacity:
			status.Wait = Never
		default:
			status.Wait = until(amount)
		}
		to = append(to, status)
	}
	return to
}

// available returns what the shards of a bucket together have of a limit, and what a demand says is held.
func (c *Config) available(shards []*State, p *Params, d *Demand, now int64) int64 {
	if len(shards) == 0 {
		return p.Capacity
	}
	available := c.whole(shards, p, now).available()
	if held := Of(d.Held, p.Name); held > 0 {
		return min(add(available, held), max(available, p.Capacity))
	}
	return available
}

// Covers reports whether the shards of a bucket together have what a demand takes.
func (c *Config) Covers(shards []*State, d *Demand, now int64) bool {
	for i := range c.Params {
		p := &c.Params[i]
		if _, checked := d.of(p.Name); checked && d.floor(p, c.inflowRate(shards, p)) > c.available(shards, p, d, now) {
			return false
		}
	}
	return true
}

// Room returns how many times shards together can admit a demand: by what they have now, and what flows in over a time in
// milliseconds.
func (c *Config) Room(shards []*State, d *Demand, now, over int64) (times int64) {
	times = math.MaxInt64
	for i := range c.Params {
		p := &c.Params[i]
		amount, checked := d.of(p.Name)
		if !checked {
			continue
		}
		has := p.Capacity
		if len(shards) > 0 {
			has = c.whole(shards, p, now).available()
		}
		has = add(has, Refill(now, now+over, p.RefillAmount, p.RefillPeriod))
		has = add(has, depth(amount, d.floor(p, c.inflowRate(shards, p)), checked))
		times = min(times, max(has, 0)/amount)
	}
	return times
}

// IsSmall reports whether a demand is at most an eighth of what one shard can hold of each limit.
func (c *Config) IsSmall(s *State, d *Demand) bool {
	for i := range c.Params {
		p := &c.Params[i]
		if amount, checked := d.of(p.Name); checked && amount > s.share(p.Name, p.Capacity)/8 {
			return false
		}
	}
	return true
}

// A standing is where one limit stands, in one shard or in all of them.
type standing struct {
	level   int64 // balance after a refill up to now, at most the capacity
	room    int64 // what is missing to the capacity
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
	latest := c.latest(shards, now)
	for _, s := range shards {
		sum = sum.plus(c.standing(s, p, latest, now))
	}
	return sum
}

// latest returns the time from which on a full shard's refill belongs to the others: the latest refill stamp.
func (c *Config) latest(shards []*State, now int64) int64 {
	latest := int64(math.MinInt64)
	for _, s := range shards {
		latest = max(latest, c.since(s, now))
	}
	return latest
}

// standing returns where a limit stands in one shard, when the configured parameters take the place of others. A limit
// that the shard lacks is full.
func (c *Config) standing(s *State, p *Params, latest, now int64) standing {
	capacity := s.share(p.Name, p.Capacity)
	l := s.find(p.Name)
	if l == nil {
		return standing{level: capacity}
	}
	if l.Times != nil && s.renews(l, now) {
		return standing{level: capacity}
	}
	capacity = min(capacity, s.share(p.Name, l.Capacity)) // what flowed in so far did so below the old one
	from := c.since(s, now)
	if c.mixed(s) {
		if others := s.others(l); others > 0 {
			capacity = min(capacity, sub(s.share(p.Name, l.Capacity), others))
			level := min(raised(l.Tokens, s.flow(l, from, now)), capacity)
			return standing{level: level, room: sub(capacity, level)} // no surplus: it may be others' that was taken since
		}
	}
	latest = min(latest, now)
	held := min(raised(l.Tokens, s.flow(l, from, latest)), capacity)
	refilled := raised(held, s.flow(l, max(from, latest), now))
	level := min(refilled, capacity)
	return standing{level: level, room: sub(capacity, level), surplus: sub(refilled, level)}
}

// inflow returns what flows into a limit of all shards from one time to another, at the configured rate. The shares of the
// rate add up to it, but each is rounded down by itself. Until the latest refill stamp, which a clock that is ahead may have
// set, a shard keeps no more than it has room for.
func (c *Config) inflow(shards []*State, p *Params, now, at int64) (sum uint64) {
	more := func(tokens uint64) {
		if sum += tokens; sum < tokens {
			sum = math.MaxUint64
		}
	}
	latest := max(now, c.latest(shards, now))
	for _, s := range shards {
		if p.Times != nil {
			if p.Times.Between(max(now, s.mark()), at) {
				more(uint64(c.standing(s, p, latest, now).room))
			}
			continue
		}
		rate := s.share(p.Name, p.RefillAmount)
		from := max(now, c.since(s, now))
		if from < latest {
			early := flow(from, max(from, min(at, latest)), rate, p.RefillPeriod)
			more(min(early, uint64(c.standing(s, p, latest, now).room)))
			from = latest
		}
		more(flow(from, max(at, from), rate, p.RefillPeriod))
	}
	return sum
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
