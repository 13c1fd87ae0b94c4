package bucket

import (
	"math"
	"math/bits"
	"slices"
)

// A Part is one shard's part of a demand, with its write.
type Part struct {
	At      int // index of the shard
	Amounts []Amount
	Plan    Plan
}

// Gather plans how several shards cover a demand together, in one transaction. Each shard gives the tokens above a balance that is
// the same part of every share.
//
// Refill that full shards could not hold belongs to the shards with room. Gather moves it to them if even is true, or if the
// shards cover the demand only together with such refill. All shards then have the same part of the limit left.
//
// Gather returns false if the shards fall short, or if there are none.
func (c *Config) Gather(shards []*State, d *Demand, even bool, now int64) (parts []Part, ok bool) {
	if len(shards) == 0 || !c.Covers(shards, d, now) {
		return nil, false
	}
	opens := c.Opens(shards, d, now)
	now = effectiveNow(shards, now)
	var sessions []Amount
	if c.HasSessions() {
		now = together(shards, now, c.opening(opens))
		sessions = c.begins(shards, d, now)
	}
	v := view{c, shards, now}
	left := make([][]Amount, len(shards)) // balances that do not follow from the shard alone
	taken := make([][]Amount, len(shards))
	floors := make([][]Amount, len(shards)) // for callers that wait or have a priority
	latest, moves := v.latest(), false
	for i := range c.Params {
		p := &c.Params[i]
		amount, _ := d.of(p.Name)
		balances, shares := make([]int64, len(shards)), make([]int64, len(shards))
		sum := standing{}
		spare := spareOf(shards, p)
		for at, s := range shards {
			one := c.standing(s, p, latest, c.stamp(s, now), spare)
			balances[at], shares[at] = one.balance, s.capacityOf(one, p, now)
			sum = sum.plus(one)
		}
		takes := fromFullest(balances, shares, amount)
		if rest := sub(sum.available(), amount); rest >= 0 && (even || sum.balance < amount) {
			moves = true
			targets := inProportion(shares, rest)
			takes = above(balances, targets, amount)
			for at := range shards {
				left[at] = append(left[at], Amount{Limit: p.Name, Tokens: targets[at]})
			}
		}
		children, narrower := d.parts(p.Name)
		deal(taken, Amount{Limit: p.Name, Tokens: amount, FromChildren: children, FromNarrower: narrower}, takes)
		for at, take := range takes {
			if take > 0 && d.isFloored() {
				required := shards[at].partOfFloor(p, take, amount, d.required(v.granted(p), nil, now))
				floors[at] = append(floors[at], Amount{Limit: p.Name, Tokens: min(required, max(balances[at], take))})
			}
		}
	}
	for at, s := range shards {
		rest := beside{part: &part{required: floors[at], balances: left[at], sessions: sessions}}
		if at == 0 {
			rest.counted = d.rest().counted
		}
		if len(taken[at]) == 0 && len(rest.counted) == 0 && !moves && !opens {
			continue
		}
		one := Part{At: at, Amounts: taken[at]}
		one.Plan.decide(s, c, &Demand{Amounts: taken[at], beside: &rest}, now)
		if !one.Plan.Writes() {
			return nil, false
		}
		parts = append(parts, one)
	}
	return parts, true
}

// partOfFloor returns the lowest balance of a shard that admits its part of an amount, if the demand requires a balance of the whole
// bucket.
func (s *State) partOfFloor(p *Params, part, amount, required int64) int64 {
	if required > amount {
		return add(part, s.share(p.Name, required-amount))
	}
	return sub(part, s.share(p.Name, sub(amount, required)))
}

// Spread plans how shards pay an unchecked demand, in one transaction. Each shard pays by the limits that it has. Spread takes the shards'
// tokens as [Config.Gather] does, and divides a debt among them by their shares: a debt of only one shard would not stop the others from
// admitting requests. Refunds go to the shard at index home first, then to others with room. Shards that open a session for the demand do
// so together.
func Spread(keep func(*State) *Config, shards []*State, home int, due *Demand, now int64) (parts []Part, ok bool) {
	of := keep(shards[home])
	opens := of.Opens(shards, due, now)
	now = effectiveNow(shards, now)
	var sessions []Amount
	if opens {
		now = together(shards, now, of.opening(opens))
		sessions = of.begins(shards, due, now)
	}
	all := part{sessions: sessions}
	taken := make([][]Amount, len(shards))
	for _, a := range due.Amounts {
		balances, shares, rooms := make([]int64, len(shards)), make([]int64, len(shards)), make([]int64, len(shards))
		for at, s := range shards {
			c := keep(s)
			if p := c.of(a.Limit); p != nil {
				one := c.standing(s, p, now, now, 0)
				balances[at], shares[at], rooms[at] = one.balance, s.capacityOf(one, p, now), s.roomFor(one, shards[home], a.Limit)
			}
		}
		if a.Tokens <= 0 {
			backs := intoRooms(rooms, home, -a.Tokens)
			for at := range backs {
				backs[at] = -backs[at]
			}
			deal(taken, a, backs)
			continue
		}
		deal(taken, a, fromFullest(balances, shares, a.Tokens))
	}
	for at, s := range shards {
		one := Part{At: at, Amounts: taken[at]}
		d, rest := Demand{Amounts: taken[at], Settles: true}, beside{kept: due.rest().kept}
		if at == home {
			rest.counted = due.rest().counted
		}
		d.beside = &rest
		if d.Empty() && !opens {
			continue
		}
		if opens {
			rest.part = &all
		}
		one.Plan.decide(s, keep(s), &d, now)
		if one.Plan.Kind == Reject { // it goes into debt
			d.Unchecked = true
			one.Plan.decide(s, keep(s), &d, now)
		}
		if !one.Plan.Writes() {
			return nil, false
		}
		parts = append(parts, one)
	}
	return parts, true
}

// deal appends each shard's part of an amount to its takes. The parts taken by requests of children, or of narrower resources, are assigned
// to the shards in their order, to each up to its part. In a sum of corrections these parts may be larger, or of the opposite sign: the
// last shard gets the remainder.
func deal(taken [][]Amount, a Amount, parts []int64) {
	last := len(parts) - 1
	for last > 0 && parts[last] == 0 {
		last--
	}
	for at, part := range parts {
		dealt := a.Move(part)
		if at == last {
			dealt.FromChildren += a.FromChildren
			dealt.FromNarrower += a.FromNarrower
			a.FromChildren, a.FromNarrower = 0, 0
		}
		if !dealt.IsZero() {
			taken[at] = append(taken[at], dealt)
		}
	}
}

// roomFor returns the room of a shard for tokens of a limit that were taken from another shard: none in another period.
func (s *State) roomFor(one standing, home *State, limit string) int64 {
	if !s.isPeriodOf(home, limit) {
		return 0
	}
	return one.room
}

// TakesBack reports whether a shard has room for some of the tokens that a demand returns to another shard, and for all of them.
func (c *Config) TakesBack(s, home *State, d *Demand, now int64) (some, all bool) {
	now, all = effectiveNow([]*State{s, home}, now), true
	for _, a := range d.Amounts {
		room := int64(0)
		if p := c.of(a.Limit); p != nil {
			room = s.roomFor(c.standing(s, p, now, now, 0), home, a.Limit)
		}
		some, all = some || room > 0, all && room >= -a.Tokens
	}
	return some, all
}

// Regains reports whether the refill of a bucket between two times is at least what a demand returns to it.
func (c *Config) Regains(d *Demand, from, to int64) bool {
	return !slices.ContainsFunc(d.Amounts, func(a Amount) bool {
		p := c.of(a.Limit)
		return a.Tokens < 0 && (p == nil || p.rule().over(nil, a.Limit, from, to) < uint64(-a.Tokens))
	})
}

// IsTrickle reports whether a bucket has only a trickle of each limit for which a shard falls short of a demand. It has only a trickle if
// all shards have no more than their refill within a time, in milliseconds, counted from when one of them was last seen, and if the shard
// itself refills the demand within that time.
func (c *Config) IsTrickle(shards []*State, short *State, d *Demand, at, since, within int64) bool {
	one, all := viewOf(c, []*State{short}, at), viewOf(c, shards, since)
	for i := range c.Params {
		p := &c.Params[i]
		amount, checked := d.asks(p.Name, p.Mode)
		if !checked || one.required(p, d) <= one.available(p, d) {
			continue
		}
		inflow := func(s *State) int64 { return signed(p.rule().over(s, p.Name, all.now, all.now+within)) }
		if all.available(p, d) > inflow(nil) || amount > inflow(short) {
			return false
		}
	}
	return true
}

// intoRooms divides a refund among shards. The shard at index home is filled first, then the others. Tokens without room go to the shard at
// home as well.
func intoRooms(rooms []int64, home int, amount int64) []int64 {
	parts := make([]int64, len(rooms))
	give := func(at int, most int64) {
		n := min(amount, most)
		parts[at] += n
		amount -= n
	}
	give(home, rooms[home])
	for at, room := range rooms {
		if at != home {
			give(at, room)
		}
	}
	give(home, amount)
	return parts
}

// Roomiest returns the shard that has the whole demand and is left with the largest part of its share. It returns false if no shard has the
// whole demand.
func (c *Config) Roomiest(shards []*State, d *Demand, now int64) (at int, ok bool) {
	now = effectiveNow(shards, now)
	most := int64(-1)
	for i, s := range shards {
		if least := c.left(s, d, now); least > most {
			at, most = i, least
		}
	}
	return at, most >= 0
}

// left returns the smallest part of its share, in units of wholeShare, that a limit of the demand is left with. It returns -1 if a limit
// falls short.
func (c *Config) left(s *State, d *Demand, now int64) int64 {
	least := int64(math.MaxInt64)
	for i := range c.Params {
		p := &c.Params[i]
		if _, checked := d.asks(p.Name, p.Mode); !checked {
			continue
		}
		rest := sub(c.standing(s, p, now, now, 0).balance, d.required(p, s, now))
		if rest < 0 {
			return -1
		}
		least = min(least, shareOf(rest, s.capacity(p.Name, p.rule(), now)))
	}
	return least
}

// IsRoomy reports whether a demand leaves a shard at least a quarter of its share of each limit.
func (c *Config) IsRoomy(s *State, d *Demand, now int64) bool {
	return c.left(s, d, s.effectiveNow(now)) >= wholeShare/4
}

// nearlyFull is the part of its share, in units of wholeShare, that every shard keeps while another one is full.
const nearlyFull = wholeShare / 8 * 7

// Uneven reports whether a demand on the shard at an index leaves one shard full and another with less than seven eighths of its
// share. The full shard then loses its refill, which the unsplit bucket would keep. Such a demand should be gathered.
func (c *Config) Uneven(shards []*State, at int, d *Demand, now int64) bool {
	now = effectiveNow(shards, now)
	for i := range c.Params {
		p := &c.Params[i]
		if p.isQuota() { // it has no refill
			continue
		}
		amount, _ := d.of(p.Name)
		full, short := false, false
		for j, s := range shards {
			one := c.standing(s, p, now, now, 0)
			full = full || one.room == 0
			if j == at {
				one.balance = sub(one.balance, amount)
			}
			short = short || one.balance < partOf(s.capacity(p.Name, p.rule(), now), nearlyFull)
		}
		if full && short {
			return true
		}
	}
	return false
}

// Fitting returns the demands that together fit into the tokens of all shards of a bucket, in the form of [Demand.Through]; nil for the
// others. It follows their order: a demand fits if there is room for it after the fitting demands before it.
func (c *Config) Fitting(shards []*State, demands []*Demand, now int64) []*Demand {
	v := viewOf(c, shards, now)
	fitting := make([]*Demand, len(demands))
	free := c.free(shards, demands, now)
	available := make([]Amount, len(c.Params))
	for i := range c.Params {
		available[i] = Amount{Limit: c.Params[i].Name, Tokens: v.balance(&c.Params[i])}
	}
	for at, d := range demands {
		d = d.through(c, func(p *Params, amount int64) bool { return Of(available, p.Name) >= amount })
		if !v.fits(d, available, free) {
			continue
		}
		fitting[at] = d
		for i := range free {
			free[i].Tokens -= Of(d.Slots(), free[i].Limit)
		}
		for i := range available {
			if amount, checked := d.asks(c.Params[i].Name, c.Params[i].Mode); checked {
				available[i].Tokens -= amount
			}
		}
	}
	return fitting
}

// fits reports whether a demand fits into the remaining tokens and slots.
func (v view) fits(d *Demand, available, free []Amount) bool {
	for i := range v.Params {
		p := &v.Params[i]
		if _, checked := d.asks(p.Name, p.Mode); checked && v.required(p, d) > available[i].Tokens {
			return false
		}
	}
	return !slices.ContainsFunc(d.Slots(), func(a Amount) bool { return a.Tokens > Of(free, a.Limit) })
}

// Portion moves amounts from the takes of several shards to a new list. The list has, for each shard, the part of one of the
// callers that share a transaction.
func Portion(taken [][]Amount, amounts []Amount) (portion [][]Amount) {
	portion = make([][]Amount, len(taken))
	for _, a := range amounts {
		for at := range taken {
			for i := range taken[at] {
				if t := &taken[at][i]; t.Limit == a.Limit && t.Tokens > 0 && a.Tokens > 0 {
					n := min(t.Tokens, a.Tokens)
					t.Tokens -= n
					portion[at] = append(portion[at], a.Move(n))
				}
			}
		}
	}
	return portion
}

// fromFullest divides an amount among shards, given their balances and shares. The shards that give are left with the same part of their
// share. If all shards together have less than the amount, that part is a debt.
func fromFullest(balances, shares []int64, amount int64) []int64 {
	above := func(part int64) (sum int64) {
		for i, balance := range balances {
			sum = add(sum, max(sub(balance, partOf(shares[i], part)), 0))
		}
		return sum
	}
	low, high := int64(0), int64(2*wholeShare) // above(low) covers the amount, above(high) does not
	for above(low) < amount && low > -1<<60 {
		low, high = min(2*low, -wholeShare), low
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; above(middle) >= amount {
			low = middle
		} else {
			high = middle
		}
	}
	short := above(low) < amount
	takes := make([]int64, len(balances))
	for i, balance := range balances {
		takes[i] = min(max(sub(balance, partOf(shares[i], low)), 0), amount)
		if short && i == len(balances)-1 {
			takes[i] = amount // a debt that is too deep to be divided
		}
		amount -= takes[i]
	}
	return takes
}

// inProportion divides tokens among shards so that each has the same part of its share, to the millitoken.
func inProportion(shares []int64, tokens int64) []int64 {
	whole := int64(0)
	for _, share := range shares {
		whole = add(whole, share)
	}
	parts := make([]int64, len(shares))
	rest := tokens
	for i, share := range shares {
		hi, lo := bits.Mul64(uint64(share), uint64(min(tokens, whole)))
		part, _ := bits.Div64(hi, lo, uint64(max(whole, 1))) // no overflow: a share is at most the whole
		parts[i] = int64(part)
		rest -= parts[i]
	}
	for i := range parts {
		more := min(rest, shares[i]-parts[i])
		parts[i] += more
		rest -= more
	}
	return parts
}

// above divides an amount among shards. It first takes the tokens of each shard above its target. The remainder is paid by refill that
// moves among the shards.
func above(balances, targets []int64, amount int64) []int64 {
	takes := make([]int64, len(balances))
	for i := range balances {
		takes[i] = min(max(sub(balances[i], targets[i]), 0), amount)
		amount -= takes[i]
	}
	takes[0] += amount
	return takes
}

// wholeShare is the part of its share that a full shard has.
const wholeShare = 1 << 40

// partOf returns the balance of a shard at a part of its share, saturated.
func partOf(share, part int64) int64 {
	hi, lo := bits.Mul64(uint64(share), uint64(max(part, -part)))
	tokens := int64(math.MaxInt64)
	if hi < wholeShare/2 {
		tokens = int64(hi<<(64-40) | lo>>40)
	}
	if part < 0 {
		return -tokens
	}
	return tokens
}

// shareOf returns a balance as a part of a share. The share is at least a few tokens, and the balance is from 0 up.
func shareOf(balance, share int64) int64 {
	hi, lo := bits.Mul64(uint64(balance), wholeShare)
	if hi >= uint64(max(share, 1)) {
		return math.MaxInt64
	}
	part, _ := bits.Div64(hi, lo, uint64(max(share, 1)))
	return int64(min(part, math.MaxInt64))
}
