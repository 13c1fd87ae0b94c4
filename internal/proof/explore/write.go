package explore

import (
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/zlimit"
)

// judge holds the changes of one write, or of one transaction, against the rules.
func (w *witness) judge(r *running, changes []change) {
	var resized []change
	for _, c := range changes {
		switch {
		case c.old != nil && c.next != nil && max(c.old.Shards, 1) != max(c.next.Shards, 1),
			c.old == nil && c.next.Shards > 1,
			c.next == nil && c.old.Shards > 1 && len(changes) > 1 && changes[0].next != nil:
			resized = append(resized, c)
		case c.next == nil:
			delete(w.taken, shardOf{c.entity, c.shard})
			for i := range c.old.Limits {
				if w.inTree(c.entity, c.shard) {
					w.drop(c.entity, c.old.Limits[i].Name)
				}
			}
		case c.old == nil:
			if r == nil || len(r.Own) == 0 {
				w.judgeLimits(c)
			}
			w.judgeNew(r, c)
		default:
			w.judgeUpdate(r, c, len(changes) > 1 && changes[0].entity == changes[len(changes)-1].entity)
			w.see(r, c, len(changes) > 1)
		}
	}
	if len(resized) > 0 {
		w.judgeResize(resized)
	}
}

// drop notes that a limit of an entity is no longer counted.
func (w *witness) drop(entity, limit string) {
	at := account{entity, limit}
	if w.ideals[at] == nil {
		return
	}
	delete(w.ideals, at)
	delete(w.changes, at)
	w.gone[at]++
}

// count notes that a write on behalf of an operation counted an amount.
func (w *witness) count(r *running, entity, limit string, amount int64) {
	w.counted[account{entity, limit}] += amount
	w.drawn[account{entity, limit}] += max(amount, 0)
	if r != nil && amount > 0 && r.wrote == 0 {
		w.writes++
		r.wrote = w.writes
	}
	if r != nil && amount != 0 {
		if r.net == nil {
			r.net = map[account]int64{}
		}
		r.net[account{entity, limit}] += amount
	}
}

// due returns the amount that the ideal bucket takes for an amount counted by a write. It is negative for a
// refund, which is at most the holding of the operation, or of the settled lease, in this very limit.
func (w *witness) due(r *running, at account, amount int64) int64 {
	if r == nil || amount == 0 || w.program.Initial.Coalescing {
		return amount // coalescing programs delete nothing, and their sums are compared in the end
	}
	holder := r
	switch {
	case r.lease != nil:
		holder = r.lease.asked
	case r.more != nil:
		holder = r.more.asked
	}
	h := holder.held[at]
	switch is := w.gone[at]; {
	case amount < 0 && h.born != is:
		return 0
	case amount < 0:
		amount = -min(-amount, h.tokens)
	case r.lease != nil:
		return amount
	case h.born != is:
		h = holding{born: is}
	}
	h.tokens += amount
	if holder.held == nil {
		holder.held = map[account]holding{}
	}
	holder.held[at] = h
	return amount
}

func (w *witness) judgeNew(r *running, c change) {
	for i := range c.next.Limits {
		l := &c.next.Limits[i]
		if l.Name == bucket.WriteUnits {
			continue
		}
		if l.Tokens != min(l.Capacity-l.Consumed, l.Capacity) {
			w.blame("new bucket", "the bucket of %s begins with %d of %s, and %d consumed", c.entity, l.Tokens, l.Name, l.Consumed)
		}
		at := account{c.entity, l.Name}
		w.ideals[at] = &ideal{tokens: l.Tokens, at: c.next.RefilledAt, limit: paramsOf(l)}
		delete(w.changes, at)
		w.due(r, at, l.Consumed)
		w.count(r, c.entity, l.Name, l.Consumed)
	}
}

func (w *witness) judgeUpdate(r *running, c change, together bool) {
	old, next := c.old, c.next
	if r == nil || len(r.Own) == 0 {
		w.judgeLimits(c)
	}
	if r != nil && r.Kind == Reset {
		w.judgeReset(r, c)
		return
	}
	if next.RefilledAt < old.RefilledAt {
		w.blame("stamp", "the refill stamp of %s went back from %d to %d", c.entity, old.RefilledAt, next.RefilledAt)
	}
	for i := range next.Limits {
		l := &next.Limits[i]
		if l.Name == bucket.WriteUnits {
			continue
		}
		at := account{c.entity, l.Name}
		params := paramsOf(l)
		had := limitOf(old, l.Name)
		full := share(l.Capacity, next)
		if had == nil {
			if l.Tokens != min(full-l.Consumed, full) && !together {
				w.blame("new limit", "%s of %s begins with %d of %d, and %d consumed", l.Name, c.entity, l.Tokens, full, l.Consumed)
			}
			w.count(r, c.entity, l.Name, l.Consumed)
			w.move(r, at, params, next.RefilledAt, w.due(r, at, l.Consumed), 0)
			continue
		}
		amount := l.Consumed - had.Consumed
		w.judgeFloor(r, c, l, amount)
		due := w.due(r, at, amount)
		w.count(r, c.entity, l.Name, amount)
		room := min(full, share(had.Capacity, old))
		filled := had.Tokens + flow(old.RefilledAt, next.RefilledAt, share(had.RefillAmount, old), had.RefillPeriod)
		forgone := int64(0)
		if r != nil && r.settles() && !together {
			forgone = w.forgone(c, had, l.Tokens-min(filled, room)+due)
		}
		filled, by := w.onCredit(at, c, had, filled, room, l.Tokens+due)
		if want := min(min(filled, room)-due, room); (l.Tokens > want || l.Tokens < want-forgone) && (!together || due != amount) {
			rule := "balance"
			if due != amount {
				rule = "given twice"
			}
			w.blame(rule, "%s of %s (shard %d) is %d after a write that counts %d, of which %d are due; "+
				"it was %d, %d with the refill, of %d: want %d", l.Name, c.entity, c.shard, l.Tokens, amount, due, had.Tokens, filled, room, want)
			due = amount // for what else there is to see
		}
		if params == paramsOf(had) && w.ideals[at] != nil {
			params = w.ideals[at].limit // which another shard may have got already
		}
		spilled := max(0, filled-room)
		if over := min(filled, room) - due - room; over > 0 && due < 0 {
			spilled += max(min(over, r.meanwhile(at, w.drawn[at])), forgone)
		} else {
			spilled += forgone
		}
		w.move(r, at, params, by, due, spilled)
	}
	for i := range old.Limits {
		if name := old.Limits[i].Name; limitOf(next, name) == nil {
			w.drop(c.entity, name)
		}
	}
}

// onCredit returns what a limit had before a write, and the time of the ideal bucket for it. A write that leaves the stamp alone may have
// clamped in place what had no room up to its clock reading, and the writes after it count from that reading.
func (w *witness) onCredit(at account, c change, had *bucket.Limit, filled, room, left int64) (has, by int64) {
	if by = c.next.RefilledAt; by != c.old.RefilledAt {
		return filled, by
	}
	if i := w.ideals[at]; i != nil {
		by = max(by, i.at)
	}
	now := time.Now().UnixMilli()
	if brink := room - flow(c.old.RefilledAt, now, share(had.RefillAmount, c.old), had.RefillPeriod); brink < filled && left == brink {
		return brink, now
	}
	return filled, by
}

// judgeReset judges a shard that an operator made full. What leases took before is not put back from then on.
func (w *witness) judgeReset(r *running, c change) {
	if c.shard == 0 {
		w.resets[r.ID]++
	}
	if w.resets[r.ID] > 1 {
		w.blame("twice", "%s: %q resets a second time", w.name(r), r.Op)
	}
	for i := range c.next.Limits {
		l, had := &c.next.Limits[i], limitOf(c.old, c.next.Limits[i].Name)
		if l.Name == bucket.WriteUnits {
			continue
		}
		if full := share(l.Capacity, c.next); l.Tokens != full || had != nil && l.Consumed != had.Consumed {
			w.blame("reset", "%s: %q leaves %d of %s in shard %d, of %d, and counts %d", w.name(r), r.Op, l.Tokens, l.Name, c.shard, full, l.Consumed)
		}
		if c.shard == 0 {
			at := account{c.entity, l.Name}
			w.ideals[at] = &ideal{tokens: l.Capacity, at: c.next.RefilledAt, limit: paramsOf(l)}
			w.gone[at]++
		}
	}
}

// judgeLimits checks that a write changes the limits of an item to later ones than it has. Where the same limits were stored
// more than once, the item may have got them each time.
func (w *witness) judgeLimits(c change) {
	has := w.taken[shardOf{c.entity, c.shard}]
	if c.old != nil && haveSameLimits(c.old, c.next) {
		return
	}
	before := false
	for at, limits := range w.history(c.entity) {
		switch {
		case !hasLimits(c.next, limits):
		case at >= has:
			w.taken[shardOf{c.entity, c.shard}] = at
			return
		default:
			before = true
		}
	}
	if before {
		w.blame("back", "a write undoes a change of limits that the item of %s has taken on", c.entity)
	}
}

// haveSameLimits reports whether two items have the same limits.
func haveSameLimits(a, b *bucket.State) bool {
	return slices.EqualFunc(a.Limits, b.Limits, func(a, b bucket.Limit) bool { return paramsOf(&a) == paramsOf(&b) })
}

// hasLimits reports whether an item has limits, and no others.
func hasLimits(s *bucket.State, limits []zlimit.Limit) bool {
	for _, l := range limits {
		if had := limitOf(s, l.Name); had == nil || paramsOf(had) != paramsOfLimit(l) {
			return false
		}
	}
	for i := range s.Limits {
		name := s.Limits[i].Name
		if name != bucket.WriteUnits && !slices.ContainsFunc(limits, func(l zlimit.Limit) bool { return l.Name == name }) {
			return false
		}
	}
	return true
}

// judgeResize checks that a split or a merge keeps the sum. It adds each shard's balance at the latest stamp before,
// and the inflow of all since.
func (w *witness) judgeResize(changes []change) {
	entity := changes[0].entity
	latest, now := int64(0), int64(0)
	for _, c := range changes {
		if c.next != nil {
			now = max(now, c.next.RefilledAt)
		}
		if c.old != nil {
			latest = max(latest, c.old.RefilledAt)
		}
		if c.old == nil { // it has the limits of the shard that it split from
			w.taken[shardOf{entity, c.shard}] = w.taken[shardOf{entity, bucket.Origin(c.shard)}]
		}
	}
	before, after, full, spilled := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, c := range changes {
		if c.old != nil {
			for i := range c.old.Limits {
				p := paramsOf(&c.old.Limits[i])
				has, more := level(c.old, &p, latest)
				before[p.Name] += has + flow(latest, now, share(p.RefillAmount, c.old), p.RefillPeriod)
				spilled[p.Name] += more
			}
		}
		if c.next != nil {
			for i := range c.next.Limits {
				p := paramsOf(&c.next.Limits[i])
				has, _ := level(c.next, &p, now)
				after[p.Name] += has
				full[p.Name] += share(p.Capacity, c.next)
			}
		}
	}
	for limit, most := range full {
		spilled[limit] += max(0, before[limit]-most)
		before[limit] = min(before[limit], most)
	}
	delete(before, bucket.WriteUnits)
	delete(after, bucket.WriteUnits)
	if !maps.Equal(before, after) {
		w.blame("resize", "the shards of %s had %v together and have %v", entity, before, after)
	}
	for limit := range after { // what rounding cost so far is not held against the other number of shards
		at := account{entity, limit}
		i := w.ideals[at]
		if i == nil || !w.agree(at, &i.limit) {
			continue
		}
		now := max(now, i.at)
		w.refill(at, i, now)
		i.under += spilled[limit]
		sum, _ := w.sum(at, &i.limit, now)
		if off := sum - i.tokens; max(off, -off) <= 2*int64(len(changes)) {
			i.tokens += off
		}
	}
}
