package explore

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A crowd judges programs that take slots, by the holders as they see themselves. It knows the leases, their channels of loss, and who was
// killed. It knows neither epochs nor heartbeats. Its rules:
//
//   - A request is admitted only where all holders at work together have no more slots than the limit, or than one before it within
//     the config TTL. A holder is at work until it is killed, is notified of its loss, or begins to settle its lease.
//   - A rejected request fell short at some time since it came. Slots count as taken while a request or a settlement is under way, and a
//     fifth of a term after a loss. They also count for two terms after a kill, or a write of unknown outcome.
//   - The free and the held slots of an item are together the slots that it has. A later holder has a greater fencing number.
//   - Three terms later no slot is lost: each process gets all that the holders at work leave, and none more. Who was at work when all was
//     over still is, unless there was a fault or the bucket was deleted.
type crowd struct {
	*witness
	limits  map[string][]setting
	holders []*holder
	doubts  []doubt
}

// A doubt is slots that may count as held until a time though no one holds them.
type doubt struct {
	entity string
	slots  int64
	over   int64 // epoch milliseconds
}

// term is that of all slots, and theSlots the name of their limit.
const (
	term     = 10 * time.Second
	theSlots = "slots"
)

// A holder is what a crowd knows of the holder of a lease. Requests that are admitted together have a lease each.
type holder struct {
	*leased
	of    *Op // the request
	lost  <-chan struct{}
	fence int64
	noted bool // it was judged when it came
	over  bool // its slots are held no more, or a doubt says for how long
}

// split separates limits of slots from the others.
func split(limits []zlimit.Limit) (slots, rates []zlimit.Limit) {
	for _, l := range limits {
		if l.Term > 0 {
			slots = append(slots, l)
		} else {
			rates = append(rates, l)
		}
	}
	return slots, rates
}

// request returns what an operation asks for.
func (o *Op) request() zlimit.Amounts {
	if o.Slots == 0 {
		return o.Amounts
	}
	all := zlimit.Amounts{theSlots: o.Slots}
	maps.Copy(all, o.Amounts)
	return all
}

// admitted notes leases with slots.
func (o *order) admitted(le *leased) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, of := range le.asked.requests() {
		lease := le.lease
		if le.all != nil {
			lease = le.all.Of(i)
		}
		if of.Slots > 0 && !lease.Degraded() {
			k := o.witness.crowd
			k.holders = append(k.holders, &holder{leased: le, of: of, lost: lease.Lost(), fence: lease.Fence()})
		}
	}
}

// isLost reports whether the holder of a lease knows that it is lost.
func (h *holder) isLost() bool {
	select {
	case <-h.lost:
		return true
	default:
		return false
	}
}

// isAtWork reports whether a holder believes that it holds its slots, and does work.
func (h *holder) isAtWork() bool {
	return !h.asked.port.dead.Load() && h.settles == nil && !h.isLost()
}

// asksFor returns the slots of an entity that a request takes.
func (k *crowd) asksFor(o *Op, entity string) (slots int64) {
	if o.Slots > 0 && slices.Contains(k.program.Initial.chain(o.Entity), entity) {
		return o.Slots
	}
	return 0
}

// asksInAll returns the slots of an entity that requests take together.
func (k *crowd) asksInAll(o *Op, entity string) (slots int64) {
	for _, of := range o.requests() {
		slots += k.asksFor(of, entity)
	}
	return slots
}

// atWork returns the slots of all holders at work. Slots of a bucket that was deleted since are left out.
func (k *crowd) atWork(entity string) (slots int64) {
	for _, h := range k.holders {
		if h.isAtWork() && !k.isDeleted(h) {
			slots += k.asksFor(h.of, entity)
		}
	}
	return slots
}

// isDeleted reports whether the bucket of a request was deleted since the request came, or may have been.
func (k *crowd) isDeleted(h *holder) bool {
	return slices.ContainsFunc(k.ops, func(o *running) bool {
		return o.Kind == Delete && k.asksFor(h.of, o.Entity) > 0 && (!o.ended || o.over > h.asked.since)
	})
}

// bounds returns the least and the most slots that there may have been since a time, by a process's knowledge.
func (k *crowd) bounds(entity string, since int64) (least, most int64) {
	all, least := k.limits[entity], int64(1<<40)
	for i, s := range all {
		if i+1 < len(all) && all[i+1].at < since-configTTL.Milliseconds() {
			continue
		}
		if len(s.limits) == 0 {
			least = 0
		}
		for _, l := range s.limits {
			least, most = min(least, l.Capacity), max(most, l.Capacity)
		}
	}
	return least, most
}

// mayLack reports whether a request may have met stored limits without slots.
func (k *crowd) mayLack(r *running) bool {
	if k == nil {
		return false
	}
	for entity := range k.limits {
		if least, _ := k.bounds(entity, r.begun); least == 0 && k.asksInAll(&r.Op, entity) > 0 {
			return true
		}
	}
	return false
}

// stored returns the slots of the stored limits, 0 for none.
func (k *crowd) stored(entity string) int64 {
	last := k.limits[entity][len(k.limits[entity])-1]
	if len(last.limits) == 0 {
		return 0
	}
	return last.limits[0].Capacity
}

// taken returns the slots that may count as held, without one request's.
func (k *crowd) taken(entity string, but *running) (slots int64) {
	now := time.Now().UnixMilli()
	for _, h := range k.holders {
		if !h.over {
			slots += k.asksFor(h.of, entity)
		}
	}
	for _, d := range k.doubts {
		if d.entity == entity && now < d.over {
			slots += d.slots
		}
	}
	for _, r := range k.ops {
		if r != but && r.Kind == Take && !r.judged {
			slots += k.asksInAll(&r.Op, entity)
		}
	}
	return slots
}

// slack is how much longer slots may count as held where a clock is ahead.
func (k *crowd) slack() time.Duration { return 2 * k.program.Initial.Ahead }

// mayHold notes that the slots of a request may count as held for a time.
func (k *crowd) mayHold(o *Op, d time.Duration) {
	for entity := range k.limits {
		if slots := k.asksFor(o, entity); slots > 0 {
			k.doubts = append(k.doubts, doubt{entity, slots, time.Now().Add(d + k.slack()).UnixMilli()})
		}
	}
}

// step judges what has changed about the holders.
func (k *crowd) step() {
	if k == nil {
		return
	}
	for _, h := range k.holders {
		if !h.noted {
			h.noted = true
			k.judgeHolder(h)
		}
		if h.over {
			continue
		}
		s := h.settles
		switch h.over = true; {
		case h.asked.port.dead.Load():
			k.mayHold(h.of, 2*term)
		case h.isLost():
			k.mayHold(h.of, term/5)
		case s == nil || !s.judged:
			h.over = false
		case s.unknown > 0 || s.canceled:
			k.mayHold(h.of, 2*term)
		case s.err != nil:
			h.over = false // it was not written, and is held on
		}
	}
	for _, r := range k.ops {
		if r.judged || r.Kind != Take {
			continue
		}
		if k.listens(r); r.short {
			continue
		}
		for entity := range k.limits {
			least, _ := k.bounds(entity, r.begun)
			slots := k.asksInAll(&r.Op, entity)
			r.short = r.short || slots > 0 && k.taken(entity, r)+slots > least
		}
	}
}

// judgeHolder judges the holders when another one has come.
func (k *crowd) judgeHolder(h *holder) {
	for _, entity := range k.program.Initial.chain(h.of.Entity) {
		if _, most := k.bounds(entity, h.asked.begun); k.atWork(entity) > most {
			k.blame("crowd", "%s: %q is admitted, and %d slots of %s are held by holders at work, of %d", k.name(h.asked), h.asked.Op,
				k.atWork(entity), entity, most)
		}
	}
	for _, other := range k.holders {
		before := other.asked.ended && other.asked.over < h.asked.since
		if other != h && other.of.Entity == h.of.Entity && (before && other.fence >= h.fence || other.fence == h.fence) {
			k.blame("fence", "%s: %q has the fencing number %d, and %q %d", k.name(h.asked), h.asked.Op, h.fence, other.asked.Op, other.fence)
		}
	}
}

// fault notes that a write of slots may be done or not. It may move all slots of its process.
func (k *crowd) fault(c *call) {
	if k == nil || c.op == nil || c.op.settles() || c.kind != writeCall {
		return
	}
	known := false
	for _, h := range k.holders {
		if h.asked.port == c.port {
			k.mayHold(h.of, 2*term)
			known = known || h.asked == c.op
		}
	}
	for _, of := range c.op.requests() {
		if !known {
			k.mayHold(of, 2*term)
		}
	}
}

// judge judges the counters of an item.
func (k *crowd) judge(changes []change) {
	if k == nil {
		return
	}
	for _, c := range changes {
		if c.next == nil {
			continue
		}
		for _, s := range c.next.Slots() {
			if s.Free+s.Even+s.Odd != s.Capacity {
				k.blame("slots", "%s has %d free slots, and %d and %d held ones, of %d", c.entity, s.Free, s.Even, s.Odd, s.Capacity)
			}
		}
	}
}

// digest returns a digest of the memory of a crowd.
func (k *crowd) digest() (sum uint64) {
	if k == nil {
		return 0
	}
	for _, h := range k.holders {
		sum += digestOf(h.asked.id(), h.isAtWork(), h.over, h.fence, h.settles.id(), k.isDeleted(h))
	}
	now := time.Now().UnixMilli()
	for _, d := range k.doubts {
		if now < d.over {
			sum += digestOf(d)
		}
	}
	return sum
}

// kill ends a process immediately. Its calls under way never reach the store, except those that the store has answered with a delay.
func (p *port) kill() {
	p.dead.Store(true)
	p.learn(digestOf("dead", time.Now().UnixNano()))
	for _, c := range p.waiting() {
		if c.port == p && !c.orphan && p.withdraw(c) {
			c.answer <- &store.Error{Op: "call", Err: store.ErrClosed}
		}
	}
}

// finishSlots asks each process for all slots, when nothing else has gone on for three terms. Calls of processes come before the clock.
func (o *order) finishSlots() {
	k := o.witness.crowd
	if k == nil {
		return
	}
	before := slices.DeleteFunc(slices.Clone(k.holders), func(h *holder) bool { return !h.isAtWork() || k.isDeleted(h) })
	const steps = 12
	clock := o.begin(Op{Kind: Rest, For: 3 * term, Steps: steps}, -1, 0, o.ports[len(o.ports)-1])
	if o.rest(clock) != nil {
		return
	}
	for _, h := range k.holders {
		switch s := h.settles; {
		case s != nil && s.err != nil && s.unknown == 0 && !h.isLost() && !h.asked.port.dead.Load():
			h.doubt = true
			o.settleAgain(s, h.leased)
		case slices.Contains(before, h) && o.left == o.program.Faults.Most && !h.isAtWork():
			o.blame("kept", "%q has lost its slots, and nothing else went on", h.asked.Op)
		}
	}
	for process, l := range o.limiters {
		for _, entity := range o.entities() {
			if len(k.limits[entity]) > 0 && !o.ports[process].dead.Load() {
				o.askSlots(o.ports[process], l, entity)
			}
		}
	}
}

// settleAgain settles leases as before: one whose commit was not written is open for another commit, and so a rollback.
func (o *order) settleAgain(before *running, le *leased) {
	r := o.begin(before.Op, -1, 0, le.asked.port)
	r.lease, le.settles = le, r
	if before.Kind == Adjust { // it has what it adjusts by
		r.Amounts = nil
	}
	err := le.settle(r.context(), r)
	if le.all != nil && errors.Is(err, zlimit.ErrLeaseClosed) { // those that were settled before
		err = nil
	}
	o.ended(r, err)
}

// blame is blame of the witness for another goroutine than the scheduler's.
func (o *order) blame(rule, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.witness.blame(rule, "in the end, "+format, args...)
}

// askSlots asks a process for all slots that the holders at work leave, and for one more.
func (o *order) askSlots(p *port, l *zlimit.RateLimiter, entity string) {
	k, free := o.witness.crowd, int64(1<<40)
	for _, e := range o.program.Initial.chain(entity) {
		n := int64(0)
		for _, h := range k.holders {
			if h.isAtWork() {
				n += k.asksFor(h.of, e)
			}
		}
		if k.stored(e) == 0 {
			return
		}
		free = min(free, k.stored(e)-n)
	}
	if free > 0 {
		lease := o.askForSlots(p, l, entity, free)
		if lease == nil {
			return
		}
		defer o.giveBack(p, lease)
	}
	if lease := o.askForSlots(p, l, entity, 1); lease != nil {
		o.blame("exact", "%c gets one more slot of %s than there are", 'A'+p.process, entity)
		o.giveBack(p, lease)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.program.Initial.chain(entity) {
		if s := o.witness.shards[e][0].FindSlots(theSlots); s == nil || s.Capacity != k.stored(e) {
			k.blame("exact", "in the end, %s has %+v, and not %d slots", e, s, k.stored(e))
		}
	}
}

// askForSlots asks for n slots. It must get them if they are free.
func (o *order) askForSlots(p *port, l *zlimit.RateLimiter, entity string, n int64) *leased {
	r := o.begin(hold(entity, n), -1, 0, p)
	le, err := o.acquire(r.context(), r, l)
	o.ended(r, err)
	if err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
		o.blame("exact", "%c asks for %d slots of %s: %v", 'A'+p.process, n, entity, err)
	}
	return le
}

// Vocabulary of slots.
func hold(entity string, n int64) Op { return Op{Kind: Take, Entity: entity, Slots: n} }

func holdAnd(amount int64) Op {
	o := take("c", amount)
	o.Slots = 1
	return o
}

// holdAs takes a slot and an amount for a priority.
func holdAs(priority string, amount int64) Op {
	o := holdAnd(amount)
	o.As = priority
	return o
}

func slotsOf(n int64) zlimit.Limit { return zlimit.Slots(theSlots, n, zlimit.Term(term)) }

// passing lets time pass in steps, between which calls may happen.
func passing(d time.Duration, steps int) Op { return Op{Kind: Rest, For: d, Steps: steps} }

// slotGrammars have requests that hold slots. A step of time is half a term, or a whole one: then beats are lost.
func slotGrammars() []Grammar {
	alone := Initial{Limits: map[string][]zlimit.Limit{"c": {slotsOf(2)}}}
	beside := Initial{Limits: map[string][]zlimit.Limit{"c": {zlimit.PerDay("rpm", 10), slotsOf(2)}}}
	family := Initial{Family: true, Limits: map[string][]zlimit.Limit{"c": {slotsOf(2)}, "d": {slotsOf(2)}, "p": {slotsOf(3)}}}
	floored := Initial{Limits: map[string][]zlimit.Limit{"c": {zlimit.PerDay("rpm", 10).Floor("low", 40), slotsOf(2)}}}
	ahead, shared := alone, beside
	ahead.Ahead, shared.Coalescing = term/5, true
	nearly := passing(2*term-term/10, 1)
	rollback, commit, die := Op{Kind: Rollback}, Op{Kind: Adjust}, Op{Kind: Die}
	half, whole, both := rest(term/2), rest(term), passing(2*term, 4)

	words := []Op{hold("c", 1), hold("c", 2), rollback, die, half, whole, both}
	hasty := []Op{hold("c", 1), rollback, nearly, half}
	mixed := []Op{holdAnd(2), hold("c", 2), take("c", 8), rollback, commit, die, both}
	shards := []Op{
		holdAnd(2), hold("c", 1), take("c", 8), rollback,
		{Kind: Split, Entity: "c"},
		{Kind: Merge, Entity: "c"},
		both, set("c", zlimit.PerDay("rpm", 10), slotsOf(1)),
	}
	operator := []Op{
		hold("c", 1), rollback, both, set("c", slotsOf(1)), set("c", slotsOf(3)),
		{Kind: Delete, Entity: "c"},
		set("c", zlimit.Slots(theSlots, 2, zlimit.Term(term/2))),
	}
	floors := []Op{holdAs("low", 3), holdAs("low", 4), holdAnd(3), take("c", 5), rollback, adjust(-1), both}
	children := []Op{hold("c", 1), hold("c", 2), hold("d", 2), rollback, die, both}
	one, two := []Op{hold("c", 1)}, []Op{hold("c", 1), rollback}
	return []Grammar{
		{Name: "slots, cold", Initial: alone, Words: [2][]Op{words, words}},
		{Name: "slots", Initial: alone, Warm: [2][]Op{one, two}, Words: [2][]Op{words, words}},
		{Name: "slots, ahead", Initial: ahead, Warm: [2][]Op{nil, one}, Words: [2][]Op{hasty, hasty}},
		{Name: "slots, rates", Initial: beside, Warm: [2][]Op{{holdAnd(1)}, {take("c", 1)}}, Words: [2][]Op{mixed, mixed}},
		{
			Name: "slots, split", Initial: beside,
			Warm: [2][]Op{{holdAnd(1), {Kind: Split, Entity: "c"}}, {take("c", 1)}}, Words: [2][]Op{shards, shards},
		},
		{Name: "slots, floors", Initial: floored, Warm: [2][]Op{{holdAnd(1)}, {take("c", 1)}}, Words: [2][]Op{floors, floors}},
		{Name: "slots, operator", Initial: alone, Warm: [2][]Op{one, one}, Words: [2][]Op{operator, operator}},
		{Name: "slots, family", Initial: family, Warm: [2][]Op{one, nil}, Words: [2][]Op{children, children}},
		{
			Name: "slots, one process", Initial: shared, Warm: [2][]Op{one, nil}, Words: [2][]Op{mixed, mixed}, Shared: true,
			Others: []Op{hold("c", 1)},
		},
	}
}
