package bucket

import (
	"math"
	"slices"
)

// Callers may wait for tokens that are not available yet. The limit goes into debt, and the tokens of a caller are available once the
// refill has paid the debt up to its own. The order of the writes is the queue. A debt is no deeper than the refill during its caller's
// wait.

// Waits reports whether a write may leave a debt that callers wait for.
func (d *Demand) Waits() bool {
	return d.Wait > 0 || d.beside != nil && d.beside.waits()
}

// waits is [Demand.Waits] for a write of several demands.
func (b *beside) waits() bool {
	return slices.ContainsFunc(b.line, func(one *Demand) bool { return one.Wait > 0 })
}

// isFloored reports whether a write requires balances other than its amounts.
func (d *Demand) isFloored() bool { return d.Wait > 0 || d.Priority != "" || len(d.rest().line) > 0 }

// Join returns the demand of several together, in their order, or an [*OverflowError].
func Join(demands []*Demand) (whole Demand, err error) {
	whole = *demands[0]
	floored, rest := whole.isFloored(), beside{slots: whole.Slots(), takers: whole.Holders(), counted: whole.rest().counted}
	for _, d := range demands[1:] {
		if whole.Amounts, err = Sum(whole.Amounts, d.Amounts); err != nil {
			return Demand{}, err
		}
		if len(d.Slots()) > 0 {
			if rest.slots, err = Sum(rest.slots, d.Slots()); err != nil {
				return Demand{}, err
			}
			rest.takers += d.Holders()
		}
		if len(d.rest().counted) > 0 {
			if rest.counted, err = Sum(rest.counted, d.rest().counted); err != nil {
				return Demand{}, err
			}
		}
		floored = floored || d.isFloored()
	}
	if whole.Wait, whole.Priority = 0, ""; floored {
		rest.line, rest.passed = demands, passedTogether(demands)
	}
	if floored || len(rest.slots) > 0 || len(rest.counted) > 0 {
		whole.beside = &rest
	}
	return whole, nil
}

// Together returns the demand of several requests of one caller as one demand with their sums, or an [*OverflowError]. They must have the
// same priority, and none may wait.
func Together(demands []*Demand) (whole Demand, err error) {
	same, each := make([]*Demand, len(demands)), make([][]Amount, len(demands))
	for i, d := range demands {
		one := *d
		one.Priority = ""
		same[i], each[i] = &one, d.Slots()
	}
	if whole, err = Join(same); err != nil {
		return Demand{}, err
	}
	if whole.Priority = demands[0].Priority; len(whole.Slots()) > 0 {
		each = slices.DeleteFunc(each, func(slots []Amount) bool { return len(slots) == 0 })
		whole.beside.each, whole.beside.takers = each, int64(len(each))
	}
	return whole, nil
}

// required returns the lowest balance of a limit that admits the demand: in a shard, or in the whole bucket for a nil one. It is the
// amount, less the debt that the refill pays within the caller's wait, plus the part that the caller's priority leaves to others. Of
// several demands, each requires its tokens in addition to the demands before it. So one write admits the callers that would be admitted
// one after another. No balance admits more than the limit can hold.
func (d *Demand) required(p *Params, s *State, now int64) int64 {
	rest := d.rest()
	if rest.part != nil {
		for _, a := range rest.part.required {
			if a.Limit == p.Name {
				return a.Tokens
			}
		}
	}
	if len(rest.line) == 0 {
		return d.requiredAfter(0, p, s, now)
	}
	least, ahead := int64(math.MinInt64), int64(0)
	for _, one := range rest.line {
		if amount := Of(one.Amounts, p.Name); amount > 0 {
			least = max(least, one.requiredAfter(ahead, p, s, now))
			ahead = add(ahead, amount)
		}
	}
	return least
}

// requiredAfter is [Demand.required] for one demand, behind others that take an amount.
func (d *Demand) requiredAfter(ahead int64, p *Params, s *State, now int64) int64 {
	r := p.rule()
	capacity := r.capacityAt(now)
	needs := d.needs(p, capacity)
	if needs > p.beyond(capacity) && needs > add(capacity, p.grants(s, now)) {
		return math.MaxInt64
	}
	amount := Of(d.Amounts, p.Name)
	kept := sub(needs, amount)
	if s != nil {
		kept = s.share(p.Name, kept)
	}
	least := add(ahead, amount+kept)
	if d.Wait > 0 {
		least = sub(least, signed(r.within(s, p.Name, now, d.Wait)))
	}
	return least
}

// needs returns the balance of a whole limit that admits the demand without a wait, if the limit can hold it.
func (d *Demand) needs(p *Params, capacity int64) int64 {
	return add(Of(d.Amounts, p.Name), p.Floors.kept(d.Priority, capacity))
}

// outlast makes a spend require that the item does not expire before a limit has paid a debt and is full.
func (p *Plan) outlast(r rule, debt, now int64) {
	p.Now = max(p.Now, r.paid(debt, now))
}

// paid returns a time by which a limit with a debt now has paid it and is full.
func (r rule) paid(debt, now int64) int64 { return add(now, r.slowest(add(r.most(), debt))) }

// blocks reports whether a debt of a limit rejects requests until refill has paid it, so that the item must outlive it.
func blocks(limit string, p *Params) bool {
	return limit != WriteUnits && p.Mode != Soft && !p.isQuota()
}

// depth returns how deep a debt a demand may leave, from its amount and [Demand.required].
func depth(amount, required int64, checked bool) int64 {
	if !checked {
		return 0
	}
	return max(sub(amount, required), 0)
}

// only returns the shard if there is only one, nil for the whole bucket.
func only(shards []*State) *State {
	if len(shards) == 1 {
		return shards[0]
	}
	return nil
}

// Due returns the time, in epoch milliseconds, at which the amounts of a caller are available, from the item as its write left it. The
// amounts after belong to the callers behind it that shared the write. It is the refill stamp if nothing is in debt, and saturates at the
// largest int64.
func (s *State) Due(amounts, after []Amount) int64 { return s.DueSince(s, amounts, after) }

// DueSince is [State.Due] for a caller whose write left an earlier state of the same item, when limits may have been changed since. The
// refill in between is the growth of the balance plus the growth of the count of consumed tokens, whatever the rate.
func (s *State) DueSince(left *State, amounts, after []Amount) int64 {
	due := s.RefilledAt
	for i := range amounts {
		was, is := left.find(amounts[i].Limit), s.find(amounts[i].Limit)
		if was == nil || is == nil || amounts[i].Tokens <= 0 || is.Mode() != Enforced {
			continue
		}
		inflow := sub(is.Tokens, was.Tokens) + (is.Consumed - was.Consumed)
		if balance := add(add(was.Tokens, Of(after, was.Name)), inflow); balance < 0 {
			if is.Times() != nil { // a quota lowered meanwhile, or in place of a limit that refills
				due = max(due, is.Times().Next(s.mark()))
				continue
			}
			if is.Session() > 0 {
				due = max(due, is.ends())
				continue
			}
			missing := uint64(-(balance + 1)) + 1
			due = max(due, is.rule().after(s, is.Name, s.RefilledAt, missing))
		}
	}
	return due
}
