package bucket

import "slices"

// A Mode states what happens to requests that a limit has no tokens for.
type Mode uint8

// The modes of limits.
const (
	Enforced Mode = iota // rejects them
	Soft                 // admits them, and goes into debt
	Shadow               // admits them, counts them as rejected, and keeps its balance
)

// A soft limit is charged without a check. A request that a shadow limit would reject is only counted, and takes nothing from it, so the
// limit continues as if it had rejected the request. Package protocol first evaluates the limit as if it were enforced.
//
// The item stores, for such a limit, that it rejects nothing until a time about a minute ahead: the stamp of the mode. A write that leaves
// the refill stamp alone, and exceeds the limit, requires that stamp. An advance prolongs it if its config is fresh enough. So no process
// uses an earlier config for longer than that, and other programs see the mode. A bypass is stored in the same way, for the whole item.

// Mode returns the mode of a limit of an item.
func (l *Limit) Mode() Mode {
	switch r := l.Rare; {
	case r == nil || r.Soft == 0:
		return Enforced
	case r.Shade != 0:
		return Shadow
	default:
		return Soft
	}
}

// Foreseen returns the demand with the amounts of the given shadow limits only counted, since each of them would reject it.
func (d *Demand) Foreseen(limits ...string) Demand {
	return d.counting(func(a *Amount) bool {
		if !slices.Contains(limits, a.Limit) {
			return false
		}
		a.Refusals = 1
		return true
	})
}

// Bypassing returns the demand with all amounts only counted.
func (d *Demand) Bypassing() Demand { return d.counting(func(*Amount) bool { return true }) }

// counting returns the demand with some of its amounts only counted.
func (d *Demand) counting(is func(*Amount) bool) Demand {
	next, rest := *d, *d.rest()
	next.Amounts = nil
	rest.counted = slices.Clone(rest.counted)
	for _, a := range d.Amounts {
		if is(&a) {
			rest.counted = append(rest.counted, a)
		} else {
			next.Amounts = append(next.Amounts, a)
		}
	}
	next.beside = &rest
	return next
}

// refusalsOf returns how many requests of a demand a shadow limit would have rejected.
func refusalsOf(d *Demand, limit string) int64 {
	for i := range d.rest().counted {
		if d.rest().counted[i].Limit == limit {
			return d.rest().counted[i].Refusals
		}
	}
	return 0
}

// CountsAlike reports whether two demands only count the same limits, so that one write may take both.
func (d *Demand) CountsAlike(other *Demand) bool {
	return slices.EqualFunc(d.rest().counted, other.rest().counted, func(a, b Amount) bool { return a.Limit == b.Limit })
}

// CountsAny reports whether some amounts of a demand are only counted.
func (c *Config) CountsAny(d *Demand) bool {
	return c.Bypass || d.beside != nil && len(d.beside.counted) > 0
}

// Entries returns the amounts of a demand, including those that are only counted, and the lives of their limits, for a lease.
func (c *Config) Entries(d *Demand, amounts []Amount, lives []Life) ([]Amount, []Life) {
	counted := d.rest().counted
	if !c.CountsAny(d) {
		return amounts, lives
	}
	all := append(append(make([]Amount, 0, len(amounts)+len(counted)), amounts...), counted...)
	isCounted := func(limit string) bool {
		return c.Bypass || slices.ContainsFunc(counted, func(a Amount) bool { return a.Limit == limit })
	}
	known := slices.DeleteFunc(slices.Clone(lives), func(l Life) bool { return isCounted(l.Limit) })
	for i := range c.Params {
		if isCounted(c.Params[i].Name) {
			known = append(known, Life{Limit: c.Params[i].Name, Unowned: true})
		}
	}
	return all, known
}

// IsUnowned reports whether the amounts of a limit were only counted, given the lives of a lease.
func IsUnowned(lives []Life, limit string) bool {
	return slices.ContainsFunc(lives, func(l Life) bool { return l.Limit == limit && l.Unowned })
}

// renewal is how long before the end of a mode's stamp an advance prolongs it, in milliseconds.
const renewal = 30_000

// stampAfter returns the stamp of a mode that a write at a time leaves, given the former one, 0 for none.
func (c *Config) stampAfter(had, now int64) int64 {
	if c.MarkUntil > had && had < add(now, renewal) {
		return c.MarkUntil
	}
	return had
}

// isVouched reports whether, for every limit that the demand exceeds, the item has a valid stamp that the limit rejects nothing.
func (d *Demand) isVouched(s *State, c *Config, now int64) bool {
	if c.Bypass && !d.Settles && s.Bypass() <= now {
		return false
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Rare == nil || l.Rare.Soft > now || l.Rare.Soft == 0 {
			continue
		}
		if refusalsOf(d, l.Name) != 0 || l.Mode() == Soft && Of(d.Amounts, l.Name) > 0 {
			return false
		}
	}
	return true
}

// pass plans that a write without a refill requires the stamp of a bypass, if it relies on one.
func (p *Plan) pass(c *Config, d *Demand, now int64) {
	if c.Bypass && !d.Settles {
		p.step(Pass, "", now)
	}
}

// regard plans the amounts of a limit that a write without a refill only counts, and the condition on a share that the demand passes over,
// which has credit in addition to its balance.
func (p *Plan) regard(l *Limit, d *Demand, credit, now int64) {
	if counted := Of(d.rest().counted, l.Name); counted != 0 {
		p.step(Regard, l.Name, counted)
	}
	if refused := refusalsOf(d, l.Name); refused != 0 {
		p.step(Foresee, l.Name, refused, now)
	}
	if most, passed := d.passes(l.Name, add(l.Tokens, credit)); passed {
		p.step(Below, l.Name, sub(most, credit))
	}
}

// mode sets the mode of a limit to the configured one.
func (p *Plan) mode(l *Limit, params *Params, c *Config) {
	had := *l.rare()
	soft, shade := int64(0), int64(0)
	if params.Mode != Enforced {
		soft = max(c.stampAfter(had.Soft, p.Now), 1)
	}
	if params.Mode == Shadow {
		shade = 1
	}
	if soft == had.Soft && shade == had.Shade {
		return
	}
	if shade == 0 && (had.Shade != 0 || had.Refusals != 0) {
		p.remove(Refusals, l.Name)
	}
	l.Change(func(r *Rare) { r.Soft, r.Shade = soft, shade })
}

// bypass plans the stamp of a bypass.
func (p *Plan) bypass(s *State, c *Config) {
	until := int64(0)
	if c.Bypass {
		until = max(c.stampAfter(s.Bypass(), p.Now), 1)
	}
	p.put(BypassUntil, "", s.Bypass(), until)
}
