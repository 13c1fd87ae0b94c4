package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A witness compares what happens with what should. It knows items as the table has them, and the results of the public
// API. It does not know how a limiter decides. Its rules, by the invariants of the protocol:
//
//   - After a write of a bucket item the balance is that of before, with the refill between the two stamps, up to the
//     capacity. The consumption that the write counts is taken off (I1, I2, I9). Refill stamps never move back (I6). A
//     bucket or a limit begins full. A split and a merge keep the sum (I7). A transaction may move tokens between its
//     shards.
//   - At any time the shards of a bucket together have at most what the one ideal bucket has. A single shard has
//     exactly that. Rounding may cost or give slackShare millitokens. Writes that arrive out of the order of their
//     stamps may give the refill in between. What the ideal bucket admits, several shards admit.
//   - The writes for an operation count what they should. Those of an admitted request count exactly its amounts, of
//     its entity and of each parent that has the limit. Those of a rejected or failed one count nothing (I3, I4, I5). A
//     level whose limits changed within the config TTL may be charged by either. A commit writes exactly the adjustment
//     where the lease took something. A rollback returns exactly what was taken, and no level gets back more than it
//     gave. An operation with a write of unknown outcome may have charged once or not. Tokens that an operation fails
//     to give back by an outage stay charged. Where requests share writes, the sum of all operations is compared with
//     the sum of all writes.
//   - Every rejection names a limit that falls short, and a wait if waiting helps. Some limit did fall short at some
//     time since the request came.
//   - Every error is of the kind that the fault calls for. Without a fault, or for a conflict, there is none; for an
//     outage it is an outage. A rejected request is not admitted because giving back failed (I10).
//   - A write by stored limits gives an item limits that were stored together with those that it has, or later (I8). A
//     process need not know of a change for the config TTL. It never undoes a change that an item has taken on.
//   - At the end nothing else goes on, and the config TTL is past. Each process then asks for all that the limits can
//     hold. It is admitted at once, or after exactly the told wait. The limits that rejected it are then those that are
//     configured (I8), and the limiter tells that exactly what the ideal bucket has is available.
type witness struct {
	program *Program
	start   time.Time

	shards  map[string]map[int]*bucket.State // by entity
	ideals  map[account]*ideal
	gone    map[account]int      // how often a limit, or the bucket, was deleted
	configs map[string][]setting // of each entity, the last one last
	ops     []*running           // those that have begun
	counted map[account]int64    // what all writes counted, millitokens
	owed    map[account]int64    // what the outcomes of the operations say that they counted, where writes are shared
	doubt   bool                 // some of it cannot be known
	last    []change             // what the last write did
	wrong   *Violation
	ignored []string // rules that may be broken

	settings int             // changes of stored limits so far
	taken    map[shardOf]int // of each item, which limits of its entity's history it has
}

// A shardOf is one item of the bucket of an entity.
type shardOf struct {
	entity string
	shard  int
}

// A setting is the stored limits of an entity from a time on.
type setting struct {
	at     int64 // epoch milliseconds
	number int   // of all settings
	limits []zlimit.Limit
}

// leased is a lease and what it holds by what the witness saw.
type leased struct {
	lease *zlimit.Lease
	asked *running // by which it was made
	took  map[account]int64
	gone  map[account]int // as it was when it was made
	doubt bool            // a write of it has an outcome that it cannot know
}

// A Violation is something that must not be.
type Violation struct {
	Rule string // which one it breaks
	Text string
}

// slackShare is what the shards of a bucket may have more or less than the ideal bucket by rounding, millitokens.
const slackShare = 16

// configTTL is how long processes keep limits in memory.
const configTTL = 10 * time.Second

func newWitness(p *Program) *witness {
	w := &witness{
		program: p, start: time.Now(),
		shards: map[string]map[int]*bucket.State{}, ideals: map[account]*ideal{}, gone: map[account]int{},
		configs: map[string][]setting{}, taken: map[shardOf]int{}, counted: map[account]int64{}, owed: map[account]int64{},
	}
	for entity, limits := range p.Initial.Limits {
		w.configs[entity] = []setting{{0, 0, limits}}
	}
	return w
}

// blame notes the first violation.
func (w *witness) blame(rule, format string, args ...any) {
	if w.wrong == nil && !slices.Contains(w.ignored, rule) {
		w.wrong = &Violation{rule, fmt.Sprintf(format, args...)}
	}
}

// digest returns a digest of what the witness holds against what comes.
func (w *witness) digest() uint64 {
	sum := uint64(0)
	for at, i := range w.ideals {
		sum += digestOf(at, *i)
	}
	for at, n := range w.gone {
		sum += digestOf(at, n)
	}
	for _, r := range w.ops {
		if !r.judged {
			sum += digestOf(r.actor, r.number, r.short, r.apart, r.begun)
			for at, n := range r.gone {
				sum += digestOf(r.actor, r.number, at, n)
			}
		}
	}
	return sum
}

// A change is what a write did to a shard.
type change struct {
	entity    string
	shard     int
	old, next *bucket.State
}

// watch lets a write happen, and judges what it did.
func (w *witness) watch(r *running, t *table, writes []store.Write, do func() (applied bool)) {
	before := make([]expr.Item, len(writes))
	for i := range writes {
		before[i] = t.item(writes[i].Key, false)
	}
	if !do() {
		return
	}
	var changes []change
	for i := range writes {
		next := t.item(writes[i].Key, false)
		if s, ok := layout.ParseBucketKey(writes[i].Key); ok {
			if (before[i] == nil) != (next == nil) || !before[i].Equal(next) {
				changes = append(changes, w.changeOf(s, before[i], next))
			}
			continue
		}
		w.configure(r, writes[i].Key, next != nil)
	}
	w.last = changes
	w.judge(r, changes)
}

func (w *witness) changeOf(s layout.BucketKey, before, next expr.Item) change {
	c := change{entity: s.Entity, shard: s.Shard, old: w.decode(before), next: w.decode(next)}
	if w.shards[s.Entity] == nil {
		w.shards[s.Entity] = map[int]*bucket.State{}
	}
	if c.next == nil {
		delete(w.shards[s.Entity], s.Shard)
	} else {
		w.shards[s.Entity][s.Shard] = c.next
	}
	return c
}

func (w *witness) decode(item expr.Item) *bucket.State {
	if item == nil {
		return nil
	}
	s, err := layout.ReadState(item)
	if err != nil {
		w.blame("item", "an item cannot be read: %v", err)
		return nil
	}
	return &s
}

// configure notes a change of stored limits.
func (w *witness) configure(r *running, key store.Key, there bool) {
	_, path, _ := strings.Cut(key.PK, "/")
	if !strings.HasPrefix(key.SK, "#CONFIG") {
		return
	}
	entity, found := strings.CutPrefix(path, "ENTITY#")
	if !found {
		entity = ""
	}
	var limits []zlimit.Limit
	if there && r != nil {
		limits = r.Limits
	}
	w.settings++
	w.configs[entity] = append(w.configs[entity], setting{time.Now().UnixMilli(), w.settings, limits})
}

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
				w.drop(c.entity, c.old.Limits[i].Name)
			}
		case c.old == nil:
			if r == nil || len(r.Own) == 0 {
				w.judgeLimits(c)
			}
			w.judgeNew(r, c)
		default:
			w.judgeUpdate(r, c, len(changes) > 1 && changes[0].entity == changes[len(changes)-1].entity)
		}
	}
	if len(resized) > 0 {
		w.judgeResize(resized)
	}
}

// drop notes that a limit of an entity is no longer counted.
func (w *witness) drop(entity, limit string) {
	at := account{entity, limit}
	delete(w.ideals, at)
	w.gone[at]++
}

// count notes that a write on behalf of an operation counted an amount.
func (w *witness) count(r *running, entity, limit string, amount int64) {
	w.counted[account{entity, limit}] += amount
	if r != nil && amount != 0 {
		if r.net == nil {
			r.net = map[account]int64{}
		}
		r.net[account{entity, limit}] += amount
	}
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
		w.ideals[account{c.entity, l.Name}] = &ideal{tokens: l.Tokens, at: c.next.RefilledAt, limit: paramsOf(l)}
		w.count(r, c.entity, l.Name, l.Consumed)
	}
}

func (w *witness) judgeUpdate(r *running, c change, together bool) {
	old, next := c.old, c.next
	if r == nil || len(r.Own) == 0 {
		w.judgeLimits(c)
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
			if l.Tokens != min(full-l.Consumed, full) {
				w.blame("new limit", "%s of %s begins with %d of %d, and %d consumed", l.Name, c.entity, l.Tokens, full, l.Consumed)
			}
			w.count(r, c.entity, l.Name, l.Consumed)
			w.reset(at, params, next.RefilledAt)
			continue
		}
		amount := l.Consumed - had.Consumed
		w.count(r, c.entity, l.Name, amount)
		room := min(full, share(had.Capacity, old))
		filled := had.Tokens + flow(old.RefilledAt, next.RefilledAt, share(had.RefillAmount, old), had.RefillPeriod)
		if want := min(min(filled, room)-amount, room); l.Tokens != want && !together {
			w.blame("balance", "%s of %s (shard %d) is %d after a write that counts %d; it was %d, %d with the refill, of %d: want %d",
				l.Name, c.entity, c.shard, l.Tokens, amount, had.Tokens, filled, room, want)
		}
		i := w.ideals[at]
		if i == nil || params != paramsOf(had) || !w.agree(at, &i.limit) {
			w.reset(at, params, next.RefilledAt)
		} else {
			i.take(next.RefilledAt, amount)
		}
	}
	for i := range old.Limits {
		if name := old.Limits[i].Name; limitOf(next, name) == nil {
			w.drop(c.entity, name)
		}
	}
}

// agree reports whether all shards of a bucket have the same parameters of a limit. While a change of limits reaches one
// shard after another, there is no one bucket that they could be held against.
func (w *witness) agree(at account, p *bucket.Params) bool {
	for _, s := range w.shards[at.entity] {
		if l := limitOf(s, at.limit); l == nil || paramsOf(l) != *p {
			return false
		}
	}
	return true
}

// judgeLimits checks that a write changes the limits of an item to later ones than it has. Where the same limits were stored
// more than once, the item may have got them each time.
func (w *witness) judgeLimits(c change) {
	has := w.taken[shardOf{c.entity, c.shard}]
	if c.old != nil && slices.EqualFunc(c.old.Limits, c.next.Limits, func(a, b bucket.Limit) bool { return paramsOf(&a) == paramsOf(&b) }) {
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

// history returns the limits that held for an entity one after another, by all settings of it and of the system.
func (w *witness) history(entity string) (all [][]zlimit.Limit) {
	own, system := w.configs[entity], w.configs[""]
	var of, last []zlimit.Limit // the entity's own, and the system's
	for len(own)+len(system) > 0 {
		if len(system) == 0 || len(own) > 0 && own[0].number < system[0].number {
			of, own = own[0].limits, own[1:]
		} else {
			last, system = system[0].limits, system[1:]
		}
		if len(of) > 0 {
			all = append(all, of)
		} else {
			all = append(all, last)
		}
	}
	return all
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

// reset makes an ideal bucket anew from what the shards have.
func (w *witness) reset(at account, p bucket.Params, now int64) {
	w.ideals[at] = &ideal{tokens: w.sum(at, &p, now), at: now, limit: p}
}

// sum returns what the shards of a bucket have of a limit together.
func (w *witness) sum(at account, p *bucket.Params, now int64) (sum int64) {
	for _, s := range w.shards[at.entity] {
		sum += level(s, p, now)
	}
	return sum
}

// judgeResize checks that a split or a merge keeps the sum: what each shard held at the latest stamp before, and what flowed
// into them together since.
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
	before, after, full := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, c := range changes {
		if c.old != nil {
			for i := range c.old.Limits {
				p := paramsOf(&c.old.Limits[i])
				before[p.Name] += level(c.old, &p, latest) + flow(latest, now, share(p.RefillAmount, c.old), p.RefillPeriod)
			}
		}
		if c.next != nil {
			for i := range c.next.Limits {
				p := paramsOf(&c.next.Limits[i])
				after[p.Name] += level(c.next, &p, now)
				full[p.Name] += share(p.Capacity, c.next)
			}
		}
	}
	for limit, most := range full {
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
		i.until(now)
		if off := w.sum(at, &i.limit, now) - i.tokens; -slackShare <= off && off <= slackShare {
			i.tokens += off
		}
	}
}

// fault notes a fault of a call: with the operation that made it, or where requests share writes with all of its process.
func (w *witness) fault(c *call, f Fate) {
	if c.op == nil || f == Conflict {
		return
	}
	gives := w.gives(c)
	for _, r := range w.ops {
		if r.judged || r != c.op && (!w.program.Initial.Coalescing || r.port != c.port) {
			continue
		}
		if f != CancelFirst && f != CancelAfter {
			r.outages++
			if gives {
				r.returns++
			}
		}
		if f != Throttle && c.kind == writeCall {
			r.unknown++
		}
	}
}

// gives reports whether a call gives something back.
func (w *witness) gives(c *call) bool {
	for i := range c.writes {
		write := &c.writes[i]
		if _, ok := layout.ParseBucketKey(write.Key); !ok || write.Kind != store.Update {
			continue
		}
		old := c.port.table.item(write.Key, false)
		if old == nil {
			continue
		}
		next, err := write.Expr.Apply(old)
		if err != nil {
			continue
		}
		was, is := w.decode(old), w.decode(next)
		for j := range is.Limits {
			if had := limitOf(was, is.Limits[j].Name); had != nil && is.Limits[j].Name != bucket.WriteUnits && is.Limits[j].Consumed < had.Consumed {
				return true
			}
		}
	}
	return false
}

// step judges what can be judged whenever all goroutines wait.
func (w *witness) step() {
	now := time.Now().UnixMilli()
	w.compare(now)
	for _, r := range w.ops {
		if r.judged {
			continue
		}
		if r.Kind == Take && !r.short {
			w.look(r, now)
		}
		if r.ended {
			r.judged = true
			w.judgeOp(r)
		}
	}
}

// compare holds the shards of each bucket against the ideal bucket.
func (w *witness) compare(present int64) {
	for at, i := range w.ideals {
		shards := w.shards[at.entity]
		now := present
		for _, s := range shards {
			now = max(now, s.RefilledAt) // which may be ahead: a change of limits moves every stamp
		}
		sum := w.sum(at, &i.limit, now)
		want := *i
		want.until(now)
		slack := int64(0)
		if len(shards) > 1 {
			slack = slackShare
		}
		switch {
		case !w.agree(at, &i.limit):
		case sum > want.tokens+i.slack+slack:
			w.blame("minted", "the %d shards of %s have %d of %s together, the ideal bucket %d", len(shards), at.entity, sum, at.limit, want.tokens)
		case sum < want.tokens && len(shards) == 1:
			w.blame("lost refill", "the %d shards of %s have %d of %s together, the ideal bucket %d", len(shards), at.entity, sum, at.limit, want.tokens)
		}
	}
}

// effective returns the stored limits that hold for an entity after a number of its settings, and of the system's.
func (w *witness) effective(entity string) []zlimit.Limit {
	if c := w.configs[entity]; len(c) > 0 && len(c[len(c)-1].limits) > 0 {
		return c[len(c)-1].limits
	}
	if c := w.configs[""]; len(c) > 0 {
		return c[len(c)-1].limits
	}
	return nil
}

// window returns the limits that may have held for an entity, by what a process knows, since a time.
func (w *witness) window(entity string, since int64) [][]zlimit.Limit {
	since -= configTTL.Milliseconds()
	var own, system [][]zlimit.Limit
	for _, from := range []struct {
		entity string
		to     *[][]zlimit.Limit
	}{{entity, &own}, {"", &system}} {
		settings := w.configs[from.entity]
		for i, s := range settings {
			if i+1 == len(settings) || settings[i+1].at >= since {
				*from.to = append(*from.to, s.limits)
			}
		}
	}
	var all [][]zlimit.Limit
	fallback := len(own) == 0
	for _, limits := range own {
		if len(limits) == 0 {
			fallback = true
		} else {
			all = append(all, limits)
		}
	}
	if fallback {
		all = append(all, system...)
		if len(system) == 0 {
			all = append(all, nil)
		}
	}
	return all
}

// has reports whether a limit is among those that may have held for an entity since a time: always, or at least
// sometimes.
func (w *witness) has(entity, limit string, since int64) (always, sometimes bool) {
	always = true
	for _, limits := range w.window(entity, since) {
		if slices.ContainsFunc(limits, func(l zlimit.Limit) bool { return l.Name == limit }) {
			sometimes = true
		} else {
			always = false
		}
	}
	return always, sometimes
}

// look notes whether some limit cannot admit a request now, or whether that cannot be told.
func (w *witness) look(r *running, now int64) {
	r.short = len(r.Own) > 0
	for _, entity := range w.program.Initial.chain(r.Entity) {
		held := w.window(entity, r.begun)
		if len(held) != 1 {
			r.short = true
			return
		}
		for _, l := range held[0] {
			asked, ok := r.Amounts[l.Name]
			if !ok {
				continue
			}
			p, at := paramsOfLimit(l), account{entity, l.Name}
			sum := w.sum(at, &p, now)
			if len(w.shards[entity]) == 0 {
				sum = p.Capacity
			}
			have := sum
			if i := w.ideals[at]; i != nil && i.limit == p && len(w.shards[entity]) > 1 && w.agree(at, &p) {
				is := *i
				is.until(now)
				have = is.tokens - slackShare
			}
			r.apart = r.apart || sum < asked*1000
			r.short = r.short || have < asked*1000
		}
	}
}
