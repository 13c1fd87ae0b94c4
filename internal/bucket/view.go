package bucket

import "math"

// A view is a whole bucket: all its shards, evaluated with a config at a time. Without shards the bucket does not exist, and is therefore
// full. Its methods change nothing.
type view struct {
	*Config
	shards []*State
	now    int64 // the time by which the shards are evaluated
}

// viewOf returns the view of shards by the clock that is furthest ahead.
func viewOf(c *Config, shards []*State, now int64) view {
	return view{c, shards, effectiveNow(shards, now)}
}

// available returns the balance of a limit, with the held tokens of a demand.
func (v view) available(p *Params, d *Demand) int64 {
	available := v.balance(p)
	if held := Of(d.rest().held, p.Name); held > 0 && len(v.shards) > 0 {
		return min(add(available, held), max(available, p.capacityAt(v.now)))
	}
	return available
}

// balance returns the balance of a limit.
func (v view) balance(p *Params) int64 {
	if len(v.shards) == 0 {
		return nothingTaken.idle(p, v.now)
	}
	return v.whole(p).available()
}

// required returns the balance that a demand requires.
func (v view) required(p *Params, d *Demand) int64 {
	return d.required(v.granted(p), only(v.shards), v.now)
}

// whole returns the state of a limit in all shards together. Refill that a full shard could not hold before the latest refill stamp is
// lost, since the images do not show whether the others had room then. After that stamp, the images show no takes, so the unsplit bucket
// would have kept the refill as long as any shard has room.
func (v view) whole(p *Params) (sum standing) {
	latest, spare := v.latest(), spareOf(v.shards, p)
	for _, s := range v.shards {
		sum = sum.plus(v.standing(s, p, latest, v.now, spare))
	}
	return sum
}

// latest returns the time from which a full shard's refill belongs to the others. No tokens were taken after that time, since takes on
// credit leave a stamp alone for at most maxCredit.
func (v view) latest() int64 {
	latest := int64(math.MinInt64)
	for _, s := range v.shards {
		at := v.since(s, v.now)
		if s.sharded() {
			at = add(at, maxCredit)
		}
		latest = max(latest, at)
	}
	return latest
}

// granted returns the parameters of a limit with the grant that the shards have together, and with what was carried into their period.
func (v view) granted(p *Params) *Params {
	var sum Grant
	carried, divided := int64(0), false
	for _, s := range v.shards {
		l := s.find(p.Name)
		divided = divided || p.Carry > 0 && s.sharded()
		if l == nil || l.Granted() == 0 && l.Carry() == 0 && l.Carried() == 0 && p.Carry == 0 {
			continue
		}
		ch := s.chainTo(l, p, v.since(s, v.now), v.now, 0)
		if carried = add(carried, ch.carriedAs(p)); ch.grant.Granted > 0 {
			sum = sum.plus(ch.grant)
		}
	}
	if sum.Granted == 0 && carried == 0 && !divided {
		return p
	}
	with := *p
	with.grant, with.carried, with.divided = sum, carried, divided
	return &with
}

// raises returns an error if the bucket cannot get a grant until a time: all grants of a limit must have the same end, and a grant without
// an end needs the period of a quota.
func (v view) raises(p *Params, gift, until int64) error {
	for _, s := range v.shards {
		v.now = max(v.now, v.restamp(s, v.now))
	}
	switch has := v.granted(p).grant; {
	case until != 0 && until <= v.now:
		return &EndError{Limit: p.Name, Over: true}
	case has.Granted > 0 && has.Until != until:
		return &EndError{Limit: p.Name, Present: has.Until}
	case until == 0 && p.Times == nil && p.Session < Endless && p.renewsAfter(v.shards, v.now) == Never:
		return &EndError{Limit: p.Name, Missing: true}
	case add(add(p.beyond(p.rule().most()), has.Granted), gift) == math.MaxInt64:
		return &OverflowError{Amount{Limit: p.Name, Tokens: gift}}
	default:
		return nil
	}
}

// inflow returns the refill of a limit until a later time, at the configured rate. The shares of the rate add up to it, but each is rounded
// down separately. The latest refill stamp may come from a fast clock. Until that stamp, a shard keeps no more than it has room for.
func (v view) inflow(p *Params, at int64) (sum uint64) {
	if len(v.shards) == 0 { // of a missing bucket, which a window may have clamped recently
		if p.Times == nil {
			return p.rule().over(nil, p.Name, v.now, at)
		}
		if p.Times.Between(v.now, at) {
			return uint64(p.rule().most())
		}
		return 0
	}
	more := func(tokens uint64) { sum = plus(sum, tokens) }
	latest := max(v.now, v.latest())
	for _, s := range v.shards {
		r := p.rule()
		from := max(v.now, v.since(s, v.now))
		if from < latest {
			early := r.over(s, p.Name, from, max(from, min(at, latest)))
			more(min(early, uint64(v.standing(s, p, latest, v.now, 0).room)))
			from = latest
		}
		more(r.over(s, p.Name, from, max(at, from)))
	}
	return sum
}

// untilAdmits is until for what a demand needs. It is a function of its own, so that a status without a wait allocates nothing for it.
func (v view) untilAdmits(p *Params, available int64, d *Demand) int64 {
	return v.until(p, available, func(capacity int64) int64 { return d.needs(p, capacity) })
}

// until returns the time, in milliseconds, until shards with too little of a limit have enough, if nothing else happens, or Never. The
// balance that is enough depends on the capacity.
func (v view) until(p *Params, available int64, needs func(capacity int64) int64) int64 {
	tracks := [1]track{v.trackOf(p, available, 0, needs)}
	tracks[0].alone = true
	tracks[0].begin()
	s := newSearch(tracks[:], 1, 0)
	return s.first()
}
