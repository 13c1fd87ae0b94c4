package explore

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A timekeeper judges programs whose limits reset at times, by the tokens of each period. It knows no decisions of
// the limiter. Its rules, besides those for outcomes and errors that hold for all programs:
//
//   - A shard is in the period of its mark, the latest stamp that it ever had, which never moves back. A session is one as
//     long as the shard notes its beginning. In a period the
//     shards of a bucket together have the capacity and the grants, less what leases of this period have taken and not
//     given back. A shard that has not come to the period yet has its whole share. A reset begins a period.
//   - No request leaves a balance below zero, and none takes of a period that had ended when the request came.
//   - A grant, and a reset, is done once for each operation ID. The rest of a grant with an end moves along into the next
//     period, and is cut off at that end.
//   - A disabled bucket gives nothing. After an operation that disables it, requests that come later are rejected,
//     and a second after one that enables it they are not.
//   - A rejected request fell short at some time since it came, and its reported wait ends with the period.
type timekeeper struct {
	*witness
	is     map[account]*period
	resets map[account]int
	parts  map[*running]map[part]int64    // what an operation, or its lease, has taken of a period and not given back
	net    map[*running]map[account]int64 // what the writes of an operation counted
	added  map[deed]int64                 // by grants
	made   map[deed]int                   // by resets
	said   Kind                           // the last switch that was stored; 0 for none
	over   map[*running]when              // of switches
	strict bool                           // no clock is ahead
}

// length is that of all periods and sessions.
const length = 2 * time.Minute

// A period is one of a limit of a bucket.
type period struct {
	part
	tokens int64 // millitokens that are left of it
	mark   int64 // the latest one of the shards, epoch milliseconds
	over   int64 // when the grants with an end are over, epoch milliseconds; 0 without any
}

// A part identifies a period.
type part struct {
	account
	begins int64 // of a calendar its beginning, of a session its own; 0 while none is open
	resets int   // before
}

// A when is when an operation was over: after how many others, and its time in epoch milliseconds.
type when struct {
	number int
	at     int64
}

// A deed is a manual operation of one ID.
type deed struct {
	account
	id string
}

func newTimekeeper(w *witness, p *Program) *timekeeper {
	return &timekeeper{
		witness: w, is: map[account]*period{}, resets: map[account]int{}, parts: map[*running]map[part]int64{},
		net: map[*running]map[account]int64{}, added: map[deed]int64{}, made: map[deed]int{}, over: map[*running]when{}, strict: p.Initial.Ahead == 0,
	}
}

// limits returns the limits of a bucket.
func (k *timekeeper) limits(entity string) []zlimit.Limit { return k.program.Initial.Limits[entity] }

// limit returns one limit of a bucket.
func (k *timekeeper) limit(at account) zlimit.Limit {
	limits := k.limits(at.entity)
	return limits[slices.IndexFunc(limits, func(l zlimit.Limit) bool { return l.Name == at.limit })]
}

// beginning returns when the period of a shard began that goes on at a time, 0 for none.
func beginning(l *bucket.Limit, mark, at int64) int64 {
	if l.Session() > 0 {
		if since := l.Since(); since > 0 && since+l.Session()*1000 > at {
			return since
		}
		return 0
	}
	return mark - mark%length.Milliseconds()
}

// markOf returns the mark of a shard. One with sessions notes their beginnings, and has no other mark than its stamp.
func markOf(s *bucket.State) int64 {
	if slices.ContainsFunc(s.Limits, func(l bucket.Limit) bool { return l.Session() > 0 }) {
		return s.RefilledAt
	}
	return max(s.RefilledAt, s.Crossed())
}

// standing returns what a shard adds to a period that goes on at a mark.
func standing(s *bucket.State, name string, begins, mark int64) int64 {
	l := limitOf(s, name)
	if l == nil {
		return 0
	}
	full, rest := share(l.Capacity, s), int64(0)
	if until := l.Until(); until > mark {
		rest = min(l.Granted(), max(l.Tokens, 0))
	}
	switch {
	case begins == 0 || beginning(l, markOf(s), mark) != begins:
		return full + rest + carried(l, full, rest, markOf(s), mark)
	case l.Granted() > 0 && l.Until() > 0 && l.Until() <= mark:
		return min(l.Tokens, full)
	default:
		return l.Tokens
	}
}

// carried returns what a limit carries from the period of its mark into the one of a later mark, period by period. The rest of a grant is left
// beside it.
func carried(l *bucket.Limit, full, rest, from, mark int64) (tokens int64) {
	const step = int64(length / time.Millisecond)
	left := max(l.Tokens, 0) - rest
	for edge := from - from%step + step; edge <= mark && l.Carry() > 0; edge += step {
		tokens = min(left, l.Carry())
		left = full + tokens
	}
	return tokens
}

// grantOf returns what a shard has of grants that go on into a period at a mark.
func grantOf(s *bucket.State, name string, begins, mark int64) int64 {
	if s == nil || limitOf(s, name) == nil {
		return 0
	}
	switch l := limitOf(s, name); {
	case l.Until() > 0 && l.Until() <= mark:
		return 0
	case beginning(l, markOf(s), mark) == begins:
		return l.Granted()
	case l.Until() > 0:
		return min(l.Granted(), max(l.Tokens, 0))
	default:
		return 0
	}
}

// tree returns the shards of an entity, with those in a list of changes as they were before or are after.
func (k *timekeeper) tree(entity string, changes []change, before bool) (all []*bucket.State) {
	for number, s := range k.shards[entity] {
		changed := slices.IndexFunc(changes, func(c change) bool { return c.entity == entity && c.shard == number })
		if k.inTree(entity, number) && (changed < 0 || !before) {
			all = append(all, s)
		}
	}
	for _, c := range changes {
		if before && c.old != nil && c.entity == entity {
			all = append(all, c.old)
		}
	}
	return all
}

// judge holds the changes of one write, or of one transaction, against the rules.
func (k *timekeeper) judge(r *running, changes []change) {
	for _, entity := range slices.Sorted(maps.Keys(k.program.Initial.Limits)) {
		if slices.ContainsFunc(changes, func(c change) bool { return c.entity == entity }) {
			for _, l := range k.limits(entity) {
				k.judgeBucket(r, account{entity, l.Name}, changes)
			}
		}
	}
}

func (k *timekeeper) judgeBucket(r *running, at account, changes []change) {
	entity, full := at.entity, k.limit(at).Capacity*1000
	before, after := k.tree(entity, changes, true), k.tree(entity, changes, false)
	p := k.is[at]
	if p == nil {
		p = &period{part: part{account: at}, tokens: full}
		k.is[at] = p
	}
	p.mark = 0
	for _, s := range after {
		p.mark = max(p.mark, markOf(s))
	}
	k.pass(p, before, after)
	if r != nil && r.Kind == Reset && len(changes) > 0 {
		k.resets[at]++
		k.made[deed{at, r.ID}]++
		if k.made[deed{at, r.ID}] > 1 {
			k.blame("twice", "%s: %q resets a second time", k.name(r), r.Op)
		}
		p.resets, p.tokens, p.over = k.resets[at], full, 0
		p.begins = k.current(at, after, p.mark)
		k.compareAll(p, after)
		return
	}
	granted := int64(0)
	for _, c := range changes {
		if c.entity == entity && c.next != nil {
			granted += k.judgeShard(r, p, c, len(changes) > 1)
		}
	}
	if r != nil && r.Kind == TopUp {
		k.judgeGrant(r, p, granted)
	}
	k.compareAll(p, after)
}

// current returns the beginning of the period that goes on at a mark in one of the shards.
func (k *timekeeper) current(at account, shards []*bucket.State, mark int64) (begins int64) {
	for _, s := range shards {
		if l := limitOf(s, at.limit); l != nil {
			begins = max(begins, beginning(l, markOf(s), mark))
		}
	}
	return begins
}

// pass begins the period that goes on after a write, where it is another one than before. Grants that have ended are cut off.
func (k *timekeeper) pass(p *period, before, after []*bucket.State) {
	sum := func(begins int64) (total int64) {
		for _, s := range before {
			total += standing(s, p.limit, begins, p.mark)
		}
		return total
	}
	full := k.limit(p.account).Capacity * 1000
	switch begins := k.current(p.account, after, p.mark); {
	case begins != p.begins:
		p.begins, p.tokens = begins, max(full, sum(-1))
	case p.over > 0 && p.over <= p.mark:
		p.tokens = min(p.tokens, sum(begins))
	default:
		return
	}
	if p.over <= p.mark {
		p.over = 0
	}
}

// judgeShard judges the change of one shard, and returns what it was granted.
func (k *timekeeper) judgeShard(r *running, p *period, c change, together bool) (granted int64) {
	l := limitOf(c.next, p.limit)
	if l == nil {
		return 0
	}
	var was bucket.Limit
	mark, old := int64(0), (*bucket.Limit)(nil)
	if c.old != nil {
		mark = markOf(c.old)
		old = limitOf(c.old, p.limit)
	}
	if old != nil {
		was = *old
	}
	if markOf(c.next) < mark && (k.strict || l.Session() == 0) {
		k.blame("mark", "the mark of %s, shard %d, went back from %d to %d", c.entity, c.shard, mark, markOf(c.next))
	}
	if k.strict && c.old != nil && c.next.RefilledAt < c.old.RefilledAt {
		k.blame("stamp", "the refill stamp of %s went back from %d to %d", c.entity, c.old.RefilledAt, c.next.RefilledAt)
	}
	if c.old != nil && max(c.old.Shards, 1) != max(c.next.Shards, 1) || c.old == nil && c.next.Shards > 1 {
		return 0 // a split or a merge, which counts nothing: the sum decides
	}
	in := part{p.account, beginning(l, markOf(c.next), markOf(c.next)), k.resets[p.account]}
	amount := l.Consumed - was.Consumed
	due := k.due(r, in, amount)
	k.judgeTaking(r, c, l, in, amount)
	if in == p.part {
		p.tokens -= due
		return l.Granted() - grantOf(c.old, p.limit, in.begins, markOf(c.next))
	}
	if old != nil && !together && in.begins != 0 && beginning(old, mark, markOf(c.next)) == in.begins && l.Tokens != old.Tokens-due {
		k.blame("balance", "%s of %s, shard %d, is %d after a write in an earlier period that counts %d, of which %d are due; it was %d",
			p.limit, c.entity, c.shard, l.Tokens, amount, due, old.Tokens)
	}
	return 0
}

// due returns what a period has less for an amount that a write counts. What a lease gives back is due in the period that
// it was taken in.
func (k *timekeeper) due(r *running, in part, amount int64) int64 {
	if amount == 0 || r == nil {
		return amount
	}
	if k.net[r] == nil {
		k.net[r] = map[account]int64{}
	}
	k.net[r][in.account] += amount
	holder := r
	if r.lease != nil {
		holder = r.lease.asked
	}
	if amount < 0 {
		amount = -min(-amount, k.parts[holder][in])
	}
	if k.parts[holder] == nil {
		k.parts[holder] = map[part]int64{}
	}
	k.parts[holder][in] += amount
	return amount
}

// judgeTaking judges a write by which a request takes.
func (k *timekeeper) judgeTaking(r *running, c change, l *bucket.Limit, in part, amount int64) {
	if r == nil || r.Kind != Take || amount <= 0 {
		return
	}
	if c.next.Disabled || c.old != nil && c.old.Disabled {
		k.blame("disabled", "%s: %q takes of a disabled bucket", k.name(r), r.Op)
	}
	if l.Tokens < 0 {
		k.blame("exceeded", "%s: %q leaves %d of %s", k.name(r), r.Op, l.Tokens, in.limit)
	}
	switch session := k.limit(in.account).Session; {
	case session > 0 && in.begins == 0:
		k.blame("period", "%s: %q takes while no session is open", k.name(r), r.Op)
	case !k.strict:
	case in.begins+length.Milliseconds() <= r.begun:
		k.blame("period", "%s: %q takes of a period that had ended when it came", k.name(r), r.Op)
	}
}

// judgeGrant judges what a grant has given.
func (k *timekeeper) judgeGrant(r *running, p *period, granted int64) {
	if granted <= 0 {
		return
	}
	d := deed{p.account, r.ID}
	k.added[d] += granted
	if asked := r.Amounts[p.limit] * 1000; k.added[d] > asked {
		k.blame("twice", "%s: %q has granted %d, of %d", k.name(r), r.Op, k.added[d], asked)
	}
	p.tokens += granted
	if r.For > 0 {
		for _, s := range k.shards[p.entity] {
			if l := limitOf(s, p.limit); l != nil {
				p.over = max(p.over, l.Until())
			}
		}
	}
}

// compareAll holds the shards of a bucket against what a period has.
func (k *timekeeper) compareAll(p *period, shards []*bucket.State) {
	sum, most := int64(0), int64(0)
	for _, s := range shards {
		l := limitOf(s, p.limit)
		if l == nil {
			return // a disabled bucket that was never used
		}
		sum += standing(s, p.limit, p.begins, p.mark)
		most += share(l.Capacity, s)
	}
	if want := k.limit(p.account).Capacity * 1000; most != want {
		k.blame("resize", "the %d shards of %s hold %d together, of %d", len(shards), p.entity, most, want)
	}
	switch {
	case sum > p.tokens:
		k.blame("minted", "the %d shards of %s have %d of %s together, the period %d", len(shards), p.entity, sum, p.limit, p.tokens)
	case sum < p.tokens:
		k.blame("lost", "the %d shards of %s have %d of %s together, the period %d", len(shards), p.entity, sum, p.limit, p.tokens)
	}
}

// stored notes a write of a switch.
func (k *timekeeper) stored(r *running, key store.Key) {
	if r != nil && (r.Kind == Disable || r.Kind == Enable) && len(key.SK) > 7 && key.SK[:7] == "#CONFIG" {
		k.said = r.Kind
	}
}

// look notes whether a request falls short now.
func (k *timekeeper) look(r *running, now int64) {
	for name, amount := range r.Amounts {
		at := account{r.Entity, name}
		l := k.limit(at)
		have := l.Capacity * 1000
		switch p := k.is[at]; {
		case p == nil:
		case !p.isOver(now, l):
			have = p.tokens
		case l.Carry > 0:
			have += min(max(p.tokens, 0), l.Carry*1000)
		}
		r.short = r.short || have < amount*1000
	}
}

// isOver reports whether a period is over at a time.
func (p *period) isOver(now int64, l zlimit.Limit) bool {
	return l.Session > 0 && p.begins == 0 || p.begins+length.Milliseconds() <= now
}

// judgeOp judges the outcome of an operation.
func (k *timekeeper) judgeOp(r *running) {
	now := time.Now().UnixMilli()
	k.over[r] = when{k.done, now}
	var exceeded *zlimit.ExceededError
	switch disabled := errors.Is(r.err, zlimit.ErrDisabled); {
	case disabled:
		k.judgeRefusal(r, now)
	case r.err != nil && !k.excused(r) && !k.mayFail(r):
		k.blame("error", "%s: %q fails: %v", k.name(r), r.Op, r.err)
		return
	case errors.As(r.err, &exceeded):
		k.judgeWait(r, exceeded, now)
	case r.Kind == Take && r.err == nil && !r.degraded && k.offSince(r):
		k.blame("disabled", "%s: %q is admitted after the bucket was disabled", k.name(r), r.Op)
	}
	if r.unknown == 0 && r.returns == 0 && r.outages == 0 && !r.canceled {
		k.judgeWork(r)
	}
}

// judgeWork judges what an operation counted, or granted, that met no fault.
func (k *timekeeper) judgeWork(r *running) {
	settles := r.err == nil && r.lease != nil && !r.lease.doubt
	switch {
	case r.Kind == Take && r.err != nil:
		k.judgeCount(r, r.Amounts, 0)
	case r.Kind == Take:
		k.judgeCount(r, r.Amounts, 1)
	case r.Kind == Adjust && settles:
		k.judgeCount(r, r.Amounts, 1)
	case r.Kind == Rollback && settles:
		k.judgeCount(r, r.lease.asked.Amounts, -1)
	case r.Kind == TopUp && r.err == nil:
		at := account{r.Entity, "rpm"}
		if added, asked := k.added[deed{at, r.ID}], r.Amounts["rpm"]*1000; added != asked {
			k.blame("granted", "%s: %q is done, and granted %d", k.name(r), r.Op, added)
		}
	}
}

// judgeCount judges what an operation counted: a number of times some amounts.
func (k *timekeeper) judgeCount(r *running, amounts zlimit.Amounts, times int64) {
	entity := r.owner()
	for _, l := range k.limits(entity) {
		want := times * amounts[l.Name] * 1000
		if got := k.net[r][account{entity, l.Name}]; got != want {
			k.blame("charge", "%s: %q counted %d of %s of %s, not %d", k.name(r), r.Op, got, l.Name, entity, want)
		}
	}
}

// mayFail reports whether a manual operation may fail with the error that it has: a grant that met no session that it
// could be for, or a grant with another end, and a switch that met an item that it cannot read.
func (k *timekeeper) mayFail(r *running) bool {
	switch r.Kind {
	case TopUp:
		return errors.As(r.err, new(*zlimit.ValidationError))
	case Disable, Enable:
		return r.outages > 0 && errors.As(r.err, new(*zlimit.ItemError))
	default:
		return false
	}
}

// offSince reports whether the bucket of a request was disabled when it came, and ever since.
func (k *timekeeper) offSince(r *running) bool {
	off := false
	for _, other := range k.ops {
		switch {
		case other.Kind != Disable && other.Kind != Enable:
		case other.Kind == Enable && (!other.judged || k.over[other].number > r.after):
			return false
		case other.Kind == Disable && other.completed() && other.err == nil && k.over[other].number <= r.after:
			off = k.said == Disable
		}
	}
	return off
}

// refusedFor is how long a limiter may refuse requests after an operator enabled them.
const refusedFor = time.Second

// judgeRefusal judges that a request was refused since an operator said so.
func (k *timekeeper) judgeRefusal(r *running, now int64) {
	some := false
	for _, other := range k.ops {
		some = some || other.Kind == Disable
		on := other.Kind == Enable && other.completed() && other.err == nil && k.said == Enable
		if at := k.over[other].at; on && at+refusedFor.Milliseconds() < r.begun && !k.isSwitching() {
			k.blame("refused", "%s: %q is refused %d ms after the bucket was enabled", k.name(r), r.Op, now-at)
		}
	}
	if !some || r.Kind != Take {
		k.blame("refused", "%s: %q is refused: %v", k.name(r), r.Op, r.err)
	}
}

// isSwitching reports whether some switch is not over, or was not done as a whole.
func (k *timekeeper) isSwitching() bool {
	return slices.ContainsFunc(k.ops, func(r *running) bool {
		return (r.Kind == Disable || r.Kind == Enable) && (!r.completed() || r.err != nil)
	})
}

// judgeWait judges a rejection.
func (k *timekeeper) judgeWait(r *running, e *zlimit.ExceededError, now int64) {
	if !r.short {
		k.blame("unjustified", "%s: %q is rejected (%v), though there was enough all the time", k.name(r), r.Op, e)
	}
	within := true // the capacities
	for name, amount := range r.Amounts {
		within = within && amount <= k.limit(account{r.Entity, name}).Capacity
	}
	if !e.Possible() {
		if within {
			k.blame("wait", "%s: %q is rejected forever", k.name(r), r.Op)
		}
		return
	}
	if !k.strict || !within {
		return
	}
	wait := e.RetryAfter().Milliseconds()
	from, to := r.begun+wait, now+wait
	for name := range r.Amounts {
		at := account{r.Entity, name}
		edge, l, p := to-to%length.Milliseconds(), k.limit(at), k.is[at]
		if l.Session > 0 && p != nil {
			edge = p.begins + length.Milliseconds()
		}
		if from <= edge && edge <= to || l.Session > 0 && p != nil && p.begins == 0 { // the session ended meanwhile
			return
		}
	}
	k.blame("wait", "%s: %q must wait %v, until between %d and %d, which is no end of a period", k.name(r), r.Op, e.RetryAfter(), from, to)
}

// digest returns a digest of the memory of a timekeeper.
func (k *timekeeper) digest() uint64 {
	sum := digestOf(k.said)
	for at, p := range k.is {
		sum += digestOf(at, *p)
	}
	for at, n := range k.resets {
		sum += digestOf(at, n)
	}
	for d, n := range k.added {
		sum += digestOf(d, n)
	}
	for d, n := range k.made {
		sum += digestOf(d, n, "made")
	}
	for r, parts := range k.parts {
		for at, n := range parts {
			sum += digestOf(r.id(), at, n)
		}
	}
	for _, r := range k.ops {
		if !r.judged {
			sum += digestOf(r.id(), r.short, r.begun, k.offSince(r))
		} else if r.isManual() {
			sum += digestOf(r.id(), k.over[r].at)
		}
	}
	return sum
}

// finishTimed asks each process, when all is over, for all that a period has, and gives it back. Nothing was taken of that
// period.
func (o *order) finishTimed() {
	const later = 400 * time.Second // of clocks ahead, too
	clock := o.begin(Op{Kind: Rest, For: later}, -1, 0, o.ports[0])
	if o.rest(clock) != nil {
		return
	}
	for process, l := range o.limiters {
		for _, entity := range o.entities() {
			if o.witness.wrong != nil {
				return
			}
			all := zlimit.Amounts{}
			for _, l := range o.witness.timed.limits(entity) {
				all[l.Name] = l.Capacity
			}
			r := o.begin(Op{Kind: Take, Entity: entity, Amounts: all}, -1, 0, o.ports[process])
			lease, err := o.acquire(r.context(), r, l)
			o.ended(r, err)
			if errors.As(err, new(*zlimit.ExceededError)) {
				o.blameWait("in the end, %c asks for all of %s in periods of which nothing was taken: %v", 'A'+process, entity, err)
			}
			if lease != nil {
				o.giveBack(o.ports[process], lease)
			}
		}
	}
}
