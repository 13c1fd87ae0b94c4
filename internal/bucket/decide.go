package bucket

import (
	"math"
	"slices"
)

// Kind says how a demand is written.
type Kind uint8

// The kinds of plan.
const (
	Reject  Kind = iota // not at all: a limit falls short even after a refill
	Crowded             // not at all: the item would have more than MaxLimits
	Create              // as a new item: there is none
	Spend               // without a refill
	Advance             // together with the refill, and with all changes that bring the item in line with its config
)

// String returns the name of the kind.
func (k Kind) String() string {
	return [...]string{"reject", "crowded", "create", "spend", "advance"}[k]
}

// StepKind is a clause of the operations spend and advance in the schema.
type StepKind uint8

// The steps of a plan, each with its values in order.
const (
	Put       StepKind = iota // a number or a text for a field
	Remove                    // none: the field is removed from the item
	Take                      // amount
	Borrow                    // amount, floor, shards: a take that requires a balance other than the amount
	Below                     // ceiling
	Place                     // brink, balance, amount
	Unmoved                   // refill stamp
	Charge                    // amount
	Owe                       // amount, shards
	Refund                    // amount, room, capacity, shards
	Credit                    // room, delta
	Cover                     // floor
	Fill                      // brink, balance
	Count                     // amount
	Seed                      // balance, amount
	Drop                      // none
	Ascribe                   // amount
	Disown                    // none
	Contain                   // amount
	Release                   // none
	Same                      // life
	Persist                   // none
	Expire                    // time of expiry as seen, and the new one
	Resize                    // shards, next shards
	Renew                     // balance
	Period                    // the end of the present period
	Regard                    // amount
	Admit                     // none
	HoldSlots                 // slots, epoch, takers, when the counters began, slots that must be free
	GiveSlots                 // slots, epoch in which the holder last renewed, when the counters began
	Meter                     // amount, time
	Foresee                   // requests, time; in an advance requests
	Pass                      // time
	StepKinds                 // the number of kinds
)

// sets has the kinds of step that set or remove something unconditionally. A stamp must identify one state of the item, so a plan
// with such a step moves the stamp. Package layout compares the kinds with their clauses.
var sets = [StepKinds]bool{Put: true, Remove: true, Drop: true, Disown: true, Release: true, Persist: true, Renew: true}

// Sets reports whether a step of the kind sets or removes a value without a condition on the present value.
func (k StepKind) Sets() bool { return sets[k] }

// sets is [StepKind.Sets]. The field Known of a mixed fleet's item is an exception: its steps come with steps that require the
// exact balance.
func (s *Step) sets() bool { return s.Kind.Sets() && s.Field != Known }

// A Step is one clause of a write, for one limit or, without one, for the item.
type Step struct {
	Kind   StepKind
	Field  Field // of Put and Remove
	Limit  string
	Values [5]int64
	Text   string
}

// A Plan is the write of a demand. It may be reused from decision to decision, and its zero value is ready to use.
type Plan struct {
	Kind       Kind
	RefilledAt int64  // Spend: the oldest refill stamp allowed; Advance: the exact one
	ValidUntil int64  // Advance: the value of the item, unless it has none
	Now        int64  // Spend: the time after which the item must not have expired; Create, Advance: the refill stamp to write
	Generation int64  // Spend, Advance: the generation of the item
	At         int64  // Spend: the time at which the item must be valid; the largest int64 if it must be valid indefinitely
	Steps      []Step // Spend, Advance
	Item       State  // Create: the item
	Overflows  bool   // Advance: the item has no room for all returned tokens
	OnCredit   bool   // Spend: it relies on the refill since the exact stamp of the image
	Places     bool   // Spend: it clamps a limit that has been full since the stamp

	race       Race    // with other writes
	expires    bool    // Advance: the item expires
	doubt      int64   // Advance: the debt that may be left if the image is stale
	vague      bool    // Advance: no condition ensures that the present limit has as much as the image shows, such as 5 rather than -3
	changes    *Config // Advance: the config whose parameters the limits of the item get; nil if they already have them
	limitSpace [4]Limit
	stepSpace  [12]Step
}

// Decide plans the write of a demand at a time, in epoch milliseconds, to an item, which is nil if it does not exist. A plan is a
// guess, since its image may be stale. The conditions of its write verify the guess. A plan to reject has no write, and is only
// as reliable as the image.
func (p *Plan) Decide(s *State, c *Config, d *Demand, now int64) { p.DecideIn(Race{}, s, c, d, now) }

// DecideIn is [Plan.Decide] for a write that races with others.
func (p *Plan) DecideIn(r Race, s *State, c *Config, d *Demand, now int64) {
	p.race = r
	if s == nil {
		p.Create(c, d, 0, 1, now)
		return
	}
	p.decide(s, c, d, s.effectiveNow(now))
	if len(d.Slots()) > 0 && p.Writes() && !p.holdSlots(s, d, now) {
		p.reset(Reject, s, s.RefilledAt, now)
	}
	p.race.Asks = nil // a reused plan must not keep demands alive
}

// decide is Decide at the time by which the item is evaluated.
func (p *Plan) decide(s *State, c *Config, d *Demand, now int64) {
	switch {
	case !c.InLine(s, now) || len(d.balances()) > 0 || c.mixed(s):
	case s.RefilledAt >= sub(now, c.Freshness) && s.isPlain() && !c.Bypass && d.isPlain() && p.spendPlain(s, c, d, now):
		return
	case s.RefilledAt >= sub(now, c.Freshness) && p.spend(s, c, d, now, false), s.givesCredit(d, now) && p.spend(s, c, d, now, true):
		return
	}
	if p.advance(s, c, d, c.stamp(s, now)); p.Now == p.RefilledAt && p.sets() {
		p.advance(s, c, d, p.Now+1)
	}
}

// sets reports whether the plan sets or removes a value unconditionally. Another plan on the same stamp would set it again, or would rely
// on the former value. So such a plan writes a new stamp.
func (p *Plan) sets() bool {
	return p.Kind == Advance && slices.ContainsFunc(p.Steps, func(s Step) bool { return s.sets() })
}

// stamp returns the refill stamp that an advance at a time writes.
func (c *Config) stamp(s *State, now int64) int64 {
	switch {
	case c.Leads(s, now): // nothing is refilled, and the stamp is set back
		return now
	case !c.Matches(s): // a new stamp, so that plans for the old parameters fail
		return max(now, s.RefilledAt+1)
	default: // a stamp does not move back for clocks that differ a little
		return max(now, s.RefilledAt)
	}
}

// Align plans a write that applies the config to an item at a time and takes nothing. So a change of limits takes effect even if
// no demand is admitted.
func (p *Plan) Align(s *State, c *Config, now int64) { p.Decide(s, c, &Demand{}, now) }

// Writes reports whether the plan has a write.
func (p *Plan) Writes() bool { return p.Kind > Crowded }

// reset begins a plan for an item, nil for none.
func (p *Plan) reset(kind Kind, s *State, refilledAt, now int64) {
	p.Kind, p.RefilledAt, p.Now, p.At, p.ValidUntil, p.Generation = kind, refilledAt, now, now, -1, 0
	if s != nil {
		p.Generation = s.Generation()
	}
	p.Steps = p.stepSpace[:0]
	p.Item = State{}
	p.Overflows, p.OnCredit, p.Places, p.changes = false, false, false, nil
}

func (p *Plan) step(kind StepKind, limit string, values ...int64) {
	s := Step{Kind: kind, Limit: limit}
	copy(s.Values[:], values)
	p.Steps = append(p.Steps, s)
}

// admit plans the check that requests are admitted, unless the demand settles a request.
func (p *Plan) admit(d *Demand) {
	if !d.Settles {
		p.step(Admit, "")
	}
}

// Create plans a full shard less the demand, if there is none: shard 0 of 1 is a whole bucket.
func (p *Plan) Create(c *Config, d *Demand, shard, shards int, now int64) {
	p.reset(Create, nil, now, now)
	p.Item = State{Limits: p.limitSpace[:0], RefilledAt: now, Shard: shard, Shards: shards}
	expiry, next := itemExpiry{config: c, now: now}, edge{after: now, stamp: now}
	for i := range len(c.Params) + 1 {
		params := &writeUnits
		if i < len(c.Params) {
			params = &c.Params[i]
		}
		amount, checked := d.asks(params.Name, params.Mode)
		raise, _ := d.raise(params.Name)
		capacity := add(p.Item.idle(params, now), raise.tokens)
		required := d.required(params, &p.Item, now)
		if checked && required > capacity {
			p.reset(Reject, nil, now, now)
			return
		}
		balance := min(sub(capacity, amount), capacity)
		children, narrower := d.parts(params.Name)
		consumed := d.counts(params.Name, amount)
		p.Item.Limits = append(p.Item.Limits, Limit{
			Name: params.Name, Tokens: balance, Consumed: consumed,
			Capacity: params.Capacity, RefillAmount: params.RefillAmount, RefillPeriod: params.RefillPeriod,
			Life: d.lifeOf(params.Name),
		})
		rare := Rare{
			Times: params.Times, Windows: params.Windows, Session: params.Session, Carry: params.Carry, FromChildren: children, FromNarrower: narrower,
			Granted: raise.tokens, Until: raise.until, Lacking: raise.lacks, Refusals: refusalsOf(d, params.Name),
		}
		if params.Mode != Enforced {
			rare.Soft = max(c.MarkUntil, 1)
		}
		if params.Mode == Shadow {
			rare.Shade = 1
		}
		expiry.grants(raise.until)
		next.grants(raise.until)
		if c.Mixed && params.Name != WriteUnits {
			rare.Known = consumed
		}
		if params.Session > 0 {
			rare.Since = d.begins(params.Name, now)
			rare.Applied = rare.Since
		}
		if rare != usual {
			made := rare
			p.Item.Limits[i].Rare = &made
		}
		expiry.cover(params, balance, depth(amount, required, checked), rare.Since)
		next.cover(params.Times, params.Windows, params.Session, rare.Since)
	}
	p.Item.ValidUntil = next.next
	if next.zone != "" || c.Bypass {
		p.Item.Change(func(n *Notes) {
			if n.Zone = next.zone; c.Bypass {
				n.Bypass = max(c.MarkUntil, 1)
			}
		})
	}
	if shards == 1 {
		expiry.keep(nil)
		p.Item.ExpiresAt = expiry.end(now)
	}
}

// ascribe plans to count the parts of a demand for a limit that belong to requests of children and of narrower resources.
func (p *Plan) ascribe(limit string, d *Demand) {
	if !d.isOfOthers() {
		return
	}
	children, narrower := d.parts(limit)
	if children != 0 {
		p.step(Ascribe, limit, children)
	}
	if narrower != 0 {
		p.step(Contain, limit, narrower)
	}
}

// count plans to count the amount that an advance takes from a limit.
func (p *Plan) count(limit string, d *Demand) {
	amount, _ := d.of(limit)
	if counted := d.counts(limit, amount); counted != 0 {
		p.step(Count, limit, counted)
	}
	if refused := refusalsOf(d, limit); refused != 0 {
		p.step(Foresee, limit, refused)
	}
	p.ascribe(limit, d)
}

// advance plans a refill up to now together with the demand. Only an item that leads has a stamp after now. A write drops at most maxDrops
// limits. If the item should lose more, they are refilled like others, and dropped by later writes.
//
//nolint:gocyclo // a case for each kind of limit
func (p *Plan) advance(s *State, c *Config, d *Demand, now int64) {
	p.reset(Advance, s, s.RefilledAt, now)
	p.ValidUntil = s.Seen()
	p.admit(d)
	from := c.since(s, now)
	expiry, next := itemExpiry{config: c, now: now}, s.edgeAfter(now)
	kept, dropped := 0, 0
	p.expires = c.ExpiryFactor > 0 && !s.sharded()
	var space [6]Amount
	// vague has, for each vague limit, the least balance before the write that leaves no deeper debt than planned. If the image shows 5,
	// and 2 are refilled, that is -2, which leaves 0. A balance of -3 would leave a debt of 1, which the expiry does not cover.
	vague := space[:0]
	for i := range s.Limits {
		l := &s.Limits[i]
		params := c.of(l.Name)
		if params == nil {
			own := l.params()
			params = &own
			switch goes := !c.Partial || kept >= maxOthers && s.full(l, from, now); {
			case goes && dropped < maxDrops:
				p.drop(l)
				dropped++
				continue
			case !goes:
				kept++
			}
		}
		settle := p.balance
		if c.mixed(s) && l.Name != WriteUnits {
			settle = p.settled
		}
		is := *l
		p.doubt, p.vague = 0, false
		balance, ok := settle(s, l, &is, params, d, c.owed(s, l, params, from, now), from, now)
		if !ok {
			p.reset(Reject, s, s.RefilledAt, now)
			return
		}
		if !l.has(params) {
			is.configure(params)
			p.changes = c
		}
		if l.Rare != nil && l.Rare.Times != nil {
			is.turn(s, l, params, now)
		}
		if params.Carry != 0 || l.Carried() != 0 {
			is.carry(s, l, params, d, from, now)
		}
		if d.restarts(l.Name) || l.isOtherKind(params) { // earlier takes came from another balance
			is.Life = add(l.Life, oneReset)
		}
		p.mode(&is, params, c)
		amount, checked := d.asks(l.Name, params.Mode)
		since := p.session(s, l, &is, params, d)
		if p.vague && p.expires && blocks(l.Name, params) {
			vague = append(vague, Amount{Limit: l.Name, Tokens: sub(l.Tokens, max(balance, 0))})
		}
		expiry.cover(params, balance, max(depth(amount, d.required(params, s, now), checked), p.doubt), since)
		next.cover(params.Times, params.Windows, params.Session, since)
		if _, raises := d.raise(l.Name); raises || l.Granted() != 0 || l.Until() != 0 {
			until := is.regrant(s.chainTo(l, params, from, now, 0).grant.under(s, l, params, now), d)
			expiry.grants(until)
			next.grants(until)
		}
		p.differ(l, &is, s.Inherits())
	}
	if kept+len(c.Params) > MaxLimits {
		p.reset(Crowded, s, s.RefilledAt, now)
		return
	}
	if !p.start(s, c, d, &expiry, &next) {
		p.reset(Reject, s, s.RefilledAt, now)
		return
	}
	if s.Inherits() { // each limit has its own times and windows from now on
		p.remove(SharedTimes, "")
		p.remove(SharedWindows, "")
	}
	p.bypass(s, c)
	p.note(s, next)
	expiry.keep(s.Slots())
	expires := expiry.end(now)
	if s.sharded() {
		expires = 0
	}
	// The former expiry also covers debts that others have left since the image. An earlier expiry may not, so the write ensures that there
	// are none. Example: the item lives for another 90 s. Another process leaves a debt of 60, at a refill of 1 a second, and keeps that
	// expiry. With an expiry in 30 s, planned from an image that shows 5, half of the debt would be forgotten.
	if expires > 0 && (expires < s.ExpiresAt || !c.Matches(s)) {
		for _, v := range vague {
			p.step(Cover, v.Limit, v.Tokens)
		}
	}
	switch {
	case expires == s.ExpiresAt:
	case expires == 0:
		p.step(Persist, "")
	case s.ExpiresAt == 0:
		p.put(ExpiresAt, "", 0, expires)
	default:
		p.step(Expire, "", s.ExpiresAt, expires)
	}
}

// drop plans to remove a limit and all its notes from the item. The debt of a guaranteed share, as the image shows it, moves to the limit.
func (p *Plan) drop(l *Limit) {
	if IsPart(l.Name) {
		p.step(Cover, l.Name, min(l.Tokens, 0))
	}
	p.step(Drop, l.Name)
	if l.Name != WriteUnits {
		p.step(Disown, l.Name) // even if a write since the image was the first to count any
		p.step(Release, l.Name)
	}
	if l.Shade() != 0 || l.Refusals() != 0 {
		p.remove(Refusals, l.Name)
	}
	p.differ(l, &Limit{Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod}, false)
}

// start plans to add the configured limits that the item lacks, full less the demand. It returns false if one of them does not cover the
// demand.
func (p *Plan) start(s *State, c *Config, d *Demand, expiry *itemExpiry, next *edge) bool {
	for i := range len(c.Params) + 1 {
		params := &writeUnits
		if i < len(c.Params) {
			params = &c.Params[i]
		}
		if s.find(params.Name) != nil {
			continue
		}
		amount, checked := d.asks(params.Name, params.Mode)
		capacity := s.starts(params, p.Now)
		required := d.required(params, s, p.Now)
		if checked && required > capacity {
			return false
		}
		balance, given := d.balance(params.Name)
		raise, raises := d.raise(params.Name)
		if !given {
			balance = min(sub(add(capacity, raise.tokens), amount), add(capacity, raise.tokens))
		}
		counted := d.counts(params.Name, amount)
		p.step(Seed, params.Name, balance, counted)
		if refused := refusalsOf(d, params.Name); refused != 0 {
			p.step(Foresee, params.Name, refused)
		}
		is := Limit{Name: params.Name, Life: d.lifeOf(params.Name)}
		is.configure(params)
		p.mode(&is, params, c)
		if raises {
			is.regrant(Grant{}, d)
			expiry.grants(raise.until)
			next.grants(raise.until)
		}
		p.ascribe(params.Name, d)
		if c.mixed(s) && params.Name != WriteUnits && counted != 0 {
			is.SetKnown(counted)
		}
		since := p.session(s, nil, &is, params, d)
		p.differ(&Limit{Name: params.Name}, &is, false)
		expiry.cover(params, balance, depth(amount, required, checked), since)
		next.cover(params.Times, params.Windows, params.Session, since)
	}
	return true
}

// balance plans the steps of one limit in an advance from one time to another. It adds the debt of removed shares of the limit to the
// demand. It returns the balance after the write, as the image predicts it, and false if that balance does not cover the demand.
//
//nolint:gocyclo // a case for each kind of limit
func (p *Plan) balance(s *State, l, _ *Limit, params *Params, d *Demand, owed, from, now int64) (balance int64, ok bool) {
	amount, checked := d.asks(l.Name, params.Mode)
	amount = add(amount, owed)
	changed := !l.has(params)
	ch := s.chainTo(l, params, from, now, 0)
	if ch.ended {
		amount = d.afterGrant(l.Name, amount)
	}
	inflow, capacity, renewed := plus(ch.inflow, d.gift(l.Name)), s.ceiling(ch, params, d, changed, now), ch.renewed
	refill := signed(inflow)
	refilled := raised(ch.from(l.Tokens), inflow)
	most, passed := d.passes(l.Name, refilled)
	moves := amount != 0 || changed || passed
	balance, given := d.balance(l.Name)
	required := add(d.required(params, s, now), owed)
	if checked && !given && min(refilled, capacity) < required {
		return 0, false
	}
	switch {
	case given:
		p.leave(l, balance, d)
	case renewed: // the refund belongs to the period before
		balance = sub(capacity, max(amount, 0))
		if balance == l.Tokens && l.Session() > 0 && l.Since() == 0 { // a write that takes from it would have opened a session
			break
		}
		p.renew(l, balance, ch)
	case ch.ended:
		balance = sub(min(refilled, capacity), amount)
		p.Overflows = p.Overflows || balance > capacity
		balance = min(balance, capacity)
		p.exactly(l, balance)
	case inflow > math.MaxInt64 && l.Tokens < 0: // the difference may overflow for such a deep debt
		balance = sub(min(refilled, capacity), amount)
		p.Overflows = p.Overflows || amount < 0 && balance > capacity
		balance = min(balance, capacity)
		p.step(Fill, l.Name, l.Tokens, balance)
	case amount < 0 && sub(refilled, amount) > capacity:
		balance = capacity
		p.Overflows = true
		p.step(Fill, l.Name, add(sub(capacity, refill), amount), balance)
	case amount >= 0 && (refilled >= capacity && (refill > 0 || moves) || refilled > capacity && s.mayExceed(l)):
		balance = sub(capacity, amount)
		p.step(Fill, l.Name, sub(capacity, refill), balance)
	case refill > 0 || moves:
		balance = sub(refilled, amount)
		room := min(add(sub(capacity, refill), min(amount, 0)), sub(most, refill))
		p.step(Credit, l.Name, room, sub(balance, l.Tokens)) // the deepest debt saturates
		switch {
		case checked:
			p.step(Cover, l.Name, sub(required, refill))
		case amount > 0 && p.expires && blocks(l.Name, params):
			p.doubt = doubtful(balance, amount)
			least := sub(0, refill)
			if balance < 0 { // twice the debt, in case it is the deepest one
				least = add(l.Tokens, balance)
			}
			p.step(Cover, l.Name, least)
		default:
			p.vague = true
		}
	default:
		balance, p.vague = l.Tokens, true
	}
	p.count(l.Name, d)
	return balance, true
}

// mayExceed reports whether a limit of the item may now hold more than its capacity.
func (s *State) mayExceed(l *Limit) bool { return s.Changed || l.Windows() != nil || l.Granted() != 0 }

// renew plans the reset of a quota. What it carries, and the remainder of a grant, depend on the exact balance.
func (p *Plan) renew(l *Limit, balance int64, ch chain) {
	if ch.exact {
		p.exactly(l, balance)
		return
	}
	p.step(Renew, l.Name, balance)
}

// exactly plans a new balance, on condition that the balance is exactly that of the image.
func (p *Plan) exactly(l *Limit, balance int64) {
	difference := sub(balance, l.Tokens)
	if add(l.Tokens, difference) != balance { // out of a debt too deep for a difference
		p.step(Fill, l.Name, l.Tokens, balance)
		return
	}
	p.step(Credit, l.Name, l.Tokens, difference)
	p.step(Cover, l.Name, l.Tokens)
}

// leave plans to set a balance that includes refill of other shards, on condition that the balance is exactly that of the image. A manual
// reset needs no such condition.
func (p *Plan) leave(l *Limit, balance int64, d *Demand) {
	if d.restarts(l.Name) {
		p.step(Renew, l.Name, balance)
		return
	}
	p.exactly(l, balance)
}

// ceiling returns the most that a limit of an item has after a chain up to a time, when the item gets new parameters. The old
// parameters bound the refill so far. Tokens that an operator adds are added after that, up to the new capacity, or beyond it as
// a grant.
func (s *State) ceiling(ch chain, params *Params, d *Demand, changed bool, now int64) int64 {
	ceiling, gift := ch.ceiling, d.gift(params.Name)
	if !changed && gift == 0 {
		return ceiling
	}
	most := add(add(s.share(params.Name, params.rule().capacityAt(now)), ch.grant.Granted), ch.carriedAs(params))
	switch {
	case !changed:
	case ch.renewed:
		ceiling = sub(most, ch.spent)
	default:
		ceiling = min(ceiling, most)
	}
	if r, raises := d.raise(params.Name); raises {
		return add(ceiling, r.tokens)
	}
	return max(ceiling, min(raised(ceiling, gift), most))
}

// seconds returns epoch milliseconds as whole epoch seconds.
func seconds(milliseconds int64) int64 {
	s := milliseconds / 1000
	if milliseconds%1000 < 0 {
		s--
	}
	return s
}
