package bucket

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// A limit may guarantee a share of itself to the requests of a priority: a percentage of its capacity and of its refill. The item has a
// separate limit for that share, and the limit itself has the remainder, so together they never hold or get more. A request of the priority
// takes from its share if that has the whole amount, and otherwise from the remainder, with the floor of the priority. One write does
// either. The image decides which, and the condition requires only the chosen one.

// guarantees separates the name of a limit from the priority in the name of a share. No name of a limit contains it.
const guarantees = "/"

// LimitOf returns the name of the configured limit that a limit of an item belongs to. For most limits that is their own name.
func LimitOf(name string) string {
	of, _, _ := strings.Cut(name, guarantees)
	return of
}

// IsPart reports whether a limit of an item is a share that is guaranteed to a priority.
func IsPart(name string) bool { return strings.IndexByte(name, guarantees[0]) >= 0 }

// isPartOf reports whether a limit of an item is a share of another limit, and if a priority is given, the share of that priority.
func isPartOf(name, limit, priority string) bool {
	of, rest, found := strings.Cut(name, guarantees)
	return found && of == limit && (priority == "" || rest == priority)
}

// A Whole has the configured parameters of a limit that is divided into shares. It is zero for any other limit.
type Whole struct {
	Capacity     int64 // millitokens
	RefillAmount int64 // millitokens
}

// Divide returns the limits of an item for a configured limit: the limit itself, or its remainder and its shares.
func (p Params) Divide() []Params {
	all := []Params{p}
	for priority, share := range p.Floors.all() {
		if share.guaranteed == 0 {
			continue
		}
		part := p
		part.Name, part.Floors = p.Name+guarantees+priority, ""
		part.Capacity, part.RefillAmount = percentOf(p.Capacity, share.guaranteed), percentOf(p.RefillAmount, share.guaranteed)
		all[0].Whole = Whole{p.Capacity, p.RefillAmount}
		all[0].Capacity -= part.Capacity
		all[0].RefillAmount -= part.RefillAmount
		all = append(all, part)
	}
	return all
}

// whole returns the limit as configured.
func (p *Params) whole() Params {
	whole := *p
	if p.Whole != (Whole{}) {
		whole.Capacity, whole.RefillAmount, whole.Whole = p.Whole.Capacity, p.Whole.RefillAmount, Whole{}
	}
	return whole
}

// Limits returns the limits as configured, without shares.
func (c *Config) Limits() []Params {
	if !slices.ContainsFunc(c.Params, func(p Params) bool { return IsPart(p.Name) }) {
		return c.Params
	}
	var limits []Params
	for i := range c.Params {
		if !IsPart(c.Params[i].Name) {
			limits = append(limits, c.Params[i].whole())
		}
	}
	return limits
}

// Rejoin restores limits that were divided into shares.
func Rejoin(params []Params) []Params {
	for i := range params {
		at := slices.IndexFunc(params, func(p Params) bool { return isPartOf(params[i].Name, p.Name, "") })
		if at < 0 {
			continue
		}
		of := &params[at]
		if of.Whole == (Whole{}) {
			of.Whole = Whole{of.Capacity, of.RefillAmount}
		}
		of.Whole.Capacity, of.Whole.RefillAmount = add(of.Whole.Capacity, params[i].Capacity), add(of.Whole.RefillAmount, params[i].RefillAmount)
	}
	return params
}

// Redivide gives the limits of a config the shares that the stored limits have, and no others.
func (c *Config) Redivide(stored *Config) {
	c.Params = slices.DeleteFunc(c.Params, func(p Params) bool {
		return IsPart(p.Name) && stored.of(p.Name) == nil && stored.of(LimitOf(p.Name)) != nil
	})
	for _, p := range stored.Params {
		if IsPart(p.Name) && c.of(p.Name) == nil && c.of(LimitOf(p.Name)) != nil {
			c.Params = append(c.Params, p)
		}
	}
}

// part returns the share of a limit that is guaranteed to a priority, nil for none.
func (c *Config) part(limit, priority string) *Params {
	for i := range c.Params {
		if isPartOf(c.Params[i].Name, limit, priority) {
			return &c.Params[i]
		}
	}
	return nil
}

// asked returns the demand as the caller made it: on configured limits.
func (d *Demand) asked() *Demand {
	if d.rest().asked == nil {
		return d
	}
	next, rest := *d, *d.rest()
	next.Amounts, rest.asked, rest.passed = rest.asked, nil, nil
	next.beside = &rest
	return &next
}

// Through returns the form in which the demand is taken from shards at a time. If a limit has a share for the demand's priority, and the
// share has the amount, the amount is taken from the share. If no limit has such a share, Through returns the demand itself. Called with
// its own result, it chooses again.
func (d *Demand) Through(c *Config, shards []*State, now int64) *Demand {
	if d.Priority == "" {
		return d
	}
	v := viewOf(c, shards, now)
	return d.through(c, func(p *Params, amount int64) bool { return v.available(p, d) >= amount })
}

// through is [Demand.Through], given a function that reports whether a share has an amount.
func (d *Demand) through(c *Config, has func(p *Params, amount int64) bool) *Demand {
	if d.Priority == "" || d.Unchecked || len(d.rest().line) > 0 {
		return d
	}
	d = d.asked()
	next, rest := *d, *d.rest()
	for i, a := range d.Amounts {
		p := c.part(a.Limit, d.Priority)
		switch {
		case p == nil || a.Tokens <= 0:
			continue
		case rest.asked == nil:
			rest.asked, next.Amounts = d.Amounts, slices.Clone(d.Amounts)
		}
		if has(p, a.Tokens) {
			next.Amounts[i].Limit = p.Name
		} else {
			rest.passed = append(rest.passed, Amount{Limit: p.Name, Tokens: a.Tokens - 1})
		}
	}
	if rest.asked == nil {
		return d
	}
	next.beside = &rest
	return &next
}

// passes returns the highest balance of a share at which the demand takes from the remainder of the limit instead. It returns the largest
// number and false if the demand does not do so, and if the image has more than that balance.
func (d *Demand) passes(part string, has int64) (most int64, ok bool) {
	for _, a := range d.rest().passed {
		if a.Limit == part && has <= a.Tokens {
			return a.Tokens, true
		}
	}
	return math.MaxInt64, false
}

// passedTogether returns the shares that several demands pass over, each after the demands before it.
func passedTogether(demands []*Demand) (all []Amount) {
	for i, d := range demands {
		for _, a := range d.rest().passed {
			for _, before := range demands[:i] {
				a.Tokens = add(a.Tokens, Of(before.Amounts, a.Limit))
			}
			if at := slices.IndexFunc(all, func(b Amount) bool { return b.Limit == a.Limit }); at >= 0 {
				all[at].Tokens = min(all[at].Tokens, a.Tokens)
			} else {
				all = append(all, a)
			}
		}
	}
	return all
}

// ofRest returns amounts in which the shares that the item lacks are replaced by their limits.
func (s *State) ofRest(amounts []Amount) []Amount {
	lost := func(a Amount) bool {
		return a.Tokens > 0 && IsPart(a.Limit) && s.find(a.Limit) == nil && s.find(LimitOf(a.Limit)) != nil
	}
	if !slices.ContainsFunc(amounts, lost) {
		return amounts
	}
	var all []Amount
	for _, a := range amounts {
		if lost(a) {
			a.Limit = LimitOf(a.Limit)
		}
		at := slices.IndexFunc(all, func(b Amount) bool { return b.Limit == a.Limit })
		if at < 0 {
			all = append(all, a)
		} else if sum, fits := all[at].Plus(a); fits {
			all[at] = sum
		}
	}
	return all
}

// owed returns the debt of the shares of a limit that an item loses when it is brought in line with a config. The limit takes over the
// debt, so that a change of shares creates no tokens.
func (c *Config) owed(s *State, l *Limit, p *Params, from, now int64) (debt int64) {
	if c.Partial || p.Floors == "" && l.has(p) { // it loses none
		return 0
	}
	for part := range c.lost(s, p.Name) {
		if ch := s.chain(part, from, now, 0); !ch.renewed {
			debt = sub(debt, min(raised(ch.from(part.Tokens), ch.inflow), 0))
		}
	}
	return debt
}

// lost yields the shares of a limit that one write removes from an item.
func (c *Config) lost(s *State, limit string) iter.Seq[*Limit] {
	return func(yield func(*Limit) bool) {
		dropped := 0
		for i := range s.Limits {
			l := &s.Limits[i]
			if c.of(l.Name) != nil || dropped == maxDrops {
				continue
			}
			if dropped++; isPartOf(l.Name, limit, "") && !yield(l) {
				return
			}
		}
	}
}

// combine turns the status of the remainder of a divided limit into the status of the whole limit. A demand is admitted if its share has
// the amount, or if the remainder has it in addition to the floor.
func (v view) combine(status *Status, p *Params, d *Demand) {
	amount, checked := d.of(p.Name)
	all, usable := status.Available, sub(status.Available, status.Kept)
	most := sub(p.capacityAt(v.now), status.Kept)
	for i := range v.Params {
		part := &v.Params[i]
		if !isPartOf(part.Name, p.Name, "") {
			continue
		}
		has := v.available(part, d)
		all = add(all, has)
		if d.Priority == "" || !isPartOf(part.Name, p.Name, d.Priority) {
			continue
		}
		status.Parted = true
		status.Own, usable, most = has, max(usable, has), max(most, part.capacityAt(v.now))
		switch {
		case !checked:
		case has >= amount:
			status.Short, status.Wait = false, 0
		case amount <= part.rule().most():
			status.Wait = min(status.Wait, v.until(part, has, func(int64) int64 { return amount }))
		}
	}
	switch status.Available = all; {
	case !checked:
	case status.Wait == Never: // it may have so much of a full limit
		status.Kept = max(sub(status.CapacityNow(), most), 0)
	default:
		status.Kept = max(sub(all, usable), 0)
	}
}

// OfWhole returns the sum of the amounts of a configured limit and its shares in a list.
func OfWhole(amounts []Amount, limit string) (tokens int64) {
	for i := range amounts {
		if LimitOf(amounts[i].Limit) == limit {
			tokens = add(tokens, amounts[i].Tokens)
		}
	}
	return tokens
}

// Rejoined returns changes of configured limits, each including the changes of its shares.
func Rejoined(changes []BalanceChange) (whole []BalanceChange) {
	for _, c := range changes {
		at := slices.IndexFunc(whole, func(w BalanceChange) bool { return isPartOf(c.Limit, w.Limit, "") })
		if at < 0 {
			whole = append(whole, c)
			continue
		}
		whole[at].Before, whole[at].After = add(whole[at].Before, c.Before), add(whole[at].After, c.After)
	}
	return whole
}
