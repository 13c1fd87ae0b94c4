package bucket

import (
	"cmp"
	"slices"
)

// An Amount is the part of a write for one limit, in millitokens; it is negative for tokens that are returned.
type Amount struct {
	Limit  string
	Tokens int64

	// FromChildren is the part of Tokens taken by requests of children, and FromNarrower the part taken by requests of narrower
	// resources. The item counts each of them separately, and no decision depends on them.
	FromChildren, FromNarrower int64

	// Refusals is the number of requests that a shadow limit would have rejected. Their amount is only counted, and not taken
	// from a balance.
	Refusals int64
}

// negated returns the amount with the opposite sign.
func (a Amount) negated() Amount {
	return Amount{a.Limit, -a.Tokens, -a.FromChildren, -a.FromNarrower, -a.Refusals}
}

// IsZero reports whether the amount changes nothing.
func (a *Amount) IsZero() bool {
	return a.Tokens == 0 && a.FromChildren == 0 && a.FromNarrower == 0 && a.Refusals == 0
}

// Move moves tokens of the same sign to a new amount. It moves as much of each part of the amount as fits.
func (a *Amount) Move(tokens int64) Amount {
	fit := func(part int64) int64 { return max(min(part, max(tokens, 0)), min(tokens, 0)) }
	moved := Amount{Limit: a.Limit, Tokens: tokens, FromChildren: fit(a.FromChildren), FromNarrower: fit(a.FromNarrower)}
	a.Tokens -= moved.Tokens
	a.FromChildren -= moved.FromChildren
	a.FromNarrower -= moved.FromNarrower
	return moved
}

// As returns the amounts in the form that the bucket of a parent or of a wider resource is charged with.
func As(amounts []Amount, ofChildren, ofNarrower bool) []Amount {
	if !ofChildren && !ofNarrower {
		return amounts
	}
	charged := slices.Clone(amounts)
	for i := range charged {
		a := &charged[i]
		if ofChildren {
			a.FromChildren = a.Tokens
		}
		if ofNarrower {
			a.FromNarrower = a.Tokens
		}
	}
	return charged
}

// Of returns the amount of a limit in a list, 0 if the list does not name it.
func Of(amounts []Amount, limit string) int64 {
	for i := range amounts {
		if amounts[i].Limit == limit {
			return amounts[i].Tokens
		}
	}
	return 0
}

// An OverflowError reports that a sum of amounts of a limit does not fit into 64 bits.
type OverflowError struct{ Amount }

func (e *OverflowError) Error() string { return e.Limit + ": more tokens than can be counted" }

// Plus returns the sum of two amounts of a limit, and false if it does not fit into 64 bits.
func (a Amount) Plus(more Amount) (sum Amount, fits bool) {
	sum = Amount{a.Limit, a.Tokens + more.Tokens, a.FromChildren + more.FromChildren, a.FromNarrower + more.FromNarrower, a.Refusals + more.Refusals}
	fits = add(a.Tokens, more.Tokens) == sum.Tokens && add(a.FromChildren, more.FromChildren) == sum.FromChildren &&
		add(a.FromNarrower, more.FromNarrower) == sum.FromNarrower
	return sum, fits
}

// Sum returns a new list with the amounts of both lists by limit, or an [*OverflowError].
func Sum(a, b []Amount) ([]Amount, error) {
	total := append(make([]Amount, 0, len(a)+len(b)), a...)
next:
	for _, more := range b {
		for i := range total {
			if total[i].Limit != more.Limit {
				continue
			}
			sum, fits := total[i].Plus(more)
			if !fits {
				return nil, &OverflowError{more}
			}
			total[i] = sum
			continue next
		}
		total = append(total, more)
	}
	return total, nil
}

// Alike reports whether two lists both only take, both only return, or name the same limits with the same signs. In a series of lists, each
// like the next, no two have a limit with different signs.
func Alike(a, b []Amount) bool {
	sign, mixed := signOf(a)
	other, otherMixed := signOf(b)
	if mixed || otherMixed {
		return slices.EqualFunc(a, b, func(x, y Amount) bool {
			return x.Limit == y.Limit && cmp.Compare(x.Tokens, 0) == cmp.Compare(y.Tokens, 0)
		})
	}
	return sign == other
}

// signOf returns the sign of a list, which is -1 if it only returns tokens, and whether the list has both signs.
func signOf(amounts []Amount) (sign int, mixed bool) {
	for _, a := range amounts {
		switch s := cmp.Compare(a.Tokens, 0); {
		case s == 0:
		case sign == 0:
			sign = s
		case s != sign:
			return 0, true
		}
	}
	return sign, false
}

// Negated returns a new list of the amounts with opposite signs.
func Negated(amounts []Amount) []Amount {
	negative := make([]Amount, len(amounts))
	for i, a := range amounts {
		negative[i] = a.negated()
	}
	return negative
}

// A Demand has the amounts of one write. Limits that it does not name are neither checked nor charged.
type Demand struct {
	Amounts   []Amount // each limit at most once, all of them configured
	Unchecked bool     // taken without a check, down into debt
	Settles   bool     // it belongs to admitted requests, and is taken even if the bucket now rejects requests
	Life      int64    // the life of limits that the write starts, see [Limit.Life]
	At        int64    // when the request arrived, epoch milliseconds

	// Wait is the longest time that the caller waits for tokens, in milliseconds; 0 for a caller that does not wait.
	Wait int64
	// Priority is the caller's priority if a limit has a floor for it, and otherwise "".
	Priority string

	beside *beside // the parts that few demands have; nil for none. Copies of the demand share it, and it never changes
}

// The parts of a demand besides its amounts, which few demands have.
type beside struct {
	held    []Amount  // amounts that are taken but will be returned soon; they count as available, except for a write
	counted []Amount  // amounts that are only counted; no balance changes, and Amounts has none of these limits
	line    []*Demand // the demands of a shared write, in their order; nil for a single demand. Amounts has their sums
	part    *part     // the part of one shard in a transaction of several; nil for a demand on one shard

	slots  []Amount   // slots that the write takes; in a split bucket, a write does not take both slots and tokens
	takers int64      // the number of leases that share the slots, each with a fencing number; 0 for one
	each   [][]Amount // the slots of each of several requests of one caller, in their order; nil for one request
	asked  []Amount   // amounts of configured limits, if Amounts names their shares; nil if they are the same
	passed []Amount   // shares of limits that have too little for the demand, with the highest balance that is too little
	kept   []Life     // lives of limits whose grant ends, see [Life.Kept]
}

// alone has the rest of a demand that has only amounts.
var alone beside

// rest returns the parts of the demand besides its amounts. Callers must not change it.
func (d *Demand) rest() *beside {
	if d.beside == nil {
		return &alone
	}
	return d.beside
}

// Holding returns the demand, with amounts that are taken but will be returned soon. They count as available, except for a write.
func (d *Demand) Holding(amounts []Amount) *Demand {
	next, rest := *d, *d.rest()
	rest.held = amounts
	next.beside = &rest
	return &next
}

// A part has what a transaction of several shards does to one shard, besides the amounts.
type part struct {
	required []Amount // replace the result of [Demand.required]
	balances []Amount // balances to set, of limits that get refill of other shards
	full     []string // limits that an operator resets
	gifts    []Amount // added by an operator
	raises   []raise  // grants of an operator beyond the capacity

	sessions []Amount // the begin of sessions that all shards open, epoch milliseconds
}

// balances returns the balances to set for limits that get refill of other shards in the same transaction.
func (d *Demand) balances() []Amount {
	if part := d.rest().part; part != nil {
		return part.balances
	}
	return nil
}

// of returns the amount of the write for a limit, and whether the balance must cover it. Every write takes one unit of [WriteUnits] without
// a check: an unsplit bucket continues to admit requests, and the table itself throttles it.
func (d *Demand) of(limit string) (tokens int64, checked bool) {
	if limit == WriteUnits {
		return oneWrite, false
	}
	tokens = Of(d.Amounts, limit)
	return tokens, tokens > 0 && !d.Unchecked
}

// asks is [Demand.of] for a limit with a mode: a soft limit need not cover the amount.
func (d *Demand) asks(limit string, mode Mode) (tokens int64, checked bool) {
	tokens, checked = d.of(limit)
	return tokens, checked && mode != Soft
}

// isOfOthers reports whether parts of the write's amounts may belong to requests of children or of narrower resources.
func (d *Demand) isOfOthers() bool {
	for i := range d.Amounts {
		if d.Amounts[i].FromChildren != 0 || d.Amounts[i].FromNarrower != 0 {
			return true
		}
	}
	return d.beside != nil && len(d.beside.counted) > 0
}

// counts returns the consumption that the write counts for a limit, given the amount that it takes.
func (d *Demand) counts(limit string, amount int64) int64 {
	return amount + Of(d.rest().counted, limit)
}

// parts returns which parts of the write's amount for a limit belong to requests of children and of narrower resources.
func (d *Demand) parts(limit string) (children, narrower int64) {
	for i := range d.Amounts {
		if d.Amounts[i].Limit == limit {
			return d.Amounts[i].FromChildren, d.Amounts[i].FromNarrower
		}
	}
	if d.beside == nil {
		return 0, 0
	}
	for _, a := range d.beside.counted {
		if a.Limit == limit {
			return a.FromChildren, a.FromNarrower
		}
	}
	return 0, 0
}

// lifeOf returns the life of a limit that the write starts.
func (d *Demand) lifeOf(limit string) int64 {
	if limit == WriteUnits {
		return 0
	}
	return d.Life
}

// GiveBack sets the amounts of a demand for an item. Some may be negative, that is, returned. The lives are the lives of the limits when
// the amounts were taken. For each amount:
//
//   - If the limit has started again since, a returned amount is dropped: the new balance started full, which includes it.
//   - A returned amount of an earlier period of a quota, or from before a manual reset, is only counted as usage.
//   - A correction of an amount that was not taken from a balance is only counted, too.
//   - If a guaranteed share was removed since, an amount to take from it is taken from the limit itself: 5 of rpm/batch become 5 of rpm.
func (d *Demand) GiveBack(amounts []Amount, lives []Life, s *State) {
	amounts = s.ofRest(amounts)
	d.Amounts, d.beside = amounts, nil
	is := func(a Amount) identity {
		if is := s.isFormer(a.Limit, lives); a.Tokens < 0 || is == unowned {
			return is
		}
		return live
	}
	var kept []Life
	for _, a := range amounts {
		if was := lifeIn(lives, a.Limit); a.Tokens < 0 && was.Until != 0 && is(a) == live {
			kept = append(kept, *was)
		}
	}
	if kept != nil {
		d.beside = &beside{kept: kept}
	}
	if !slices.ContainsFunc(amounts, func(a Amount) bool { return is(a) != live }) {
		return
	}
	d.Amounts = slices.DeleteFunc(slices.Clone(amounts), func(a Amount) bool { return is(a) != live && is(a) != partly })
	var counted []Amount
	for _, a := range amounts {
		if i := is(a); i == over || i == unowned && s.find(a.Limit) != nil {
			counted = append(counted, a)
		}
	}
	for i := range d.Amounts {
		a := &d.Amounts[i]
		if is(*a) != partly {
			continue
		}
		kept := max(a.Tokens, -lifeIn(lives, a.Limit).Kept)
		counted = append(counted, Amount{Limit: a.Limit, Tokens: a.Tokens - kept})
		a.Tokens = kept
	}
	if len(counted) > 0 {
		d.beside = &beside{counted: counted, kept: kept}
	}
}

// afterGrant returns the demand's amount for a limit if the write passes the end of its grant: returned tokens of the grant are
// dropped.
func (d *Demand) afterGrant(limit string, amount int64) int64 {
	for _, was := range d.rest().kept {
		if was.Limit == limit {
			return max(amount, -was.Kept)
		}
	}
	return amount
}

// Join adds another demand on the same item to a demand. Amounts that are only counted are added to each other. It returns false, and
// changes nothing, if a limit would be both changed and only counted, if a sum overflows, or if the end of a grant bounds what only one of
// the two gives back.
func (d *Demand) Join(other *Demand) bool {
	amounts, err := Sum(d.Amounts, other.Amounts)
	if err != nil {
		return false
	}
	counted, err := Sum(d.rest().counted, other.rest().counted)
	both := func(a Amount) bool {
		return slices.ContainsFunc(amounts, func(b Amount) bool { return a.Limit == b.Limit })
	}
	kept, ok := d.keptWith(other)
	if err != nil || !ok || slices.ContainsFunc(counted, both) {
		return false
	}
	if d.Amounts = amounts; len(counted)+len(kept) > 0 {
		next := *d.rest()
		next.counted, next.kept = counted, kept
		d.beside = &next
	}
	return true
}

// keptWith returns the most that two demands together give back after the end of a grant. It returns false if the bound applies to only one
// of the two, for the same limit.
func (d *Demand) keptWith(other *Demand) (kept []Life, ok bool) {
	for _, pair := range [2][2]*Demand{{d, other}, {other, d}} {
		for _, life := range pair[0].rest().kept {
			its := lifeIn(pair[1].rest().kept, life.Limit)
			switch {
			case its.Until == 0 && Of(pair[1].Amounts, life.Limit) != 0:
				return nil, false
			case lifeIn(kept, life.Limit).Until == 0:
				life.Kept = add(life.Kept, its.Kept)
				kept = append(kept, life)
			}
		}
	}
	return kept, true
}

// CountOnly makes a demand only count its amounts.
func (d *Demand) CountOnly() {
	next := beside{counted: slices.Concat(d.rest().counted, d.Amounts)}
	d.Amounts, d.beside = nil, &next
}

// The relation of a limit of an item to a limit of a lease.
type identity uint8

const (
	live    identity = iota // the same
	over                    // the same limit, after a manual reset or in a later period
	another                 // started again
	unowned                 // none: the amounts of the lease were taken from no balance
	partly                  // the same limit, after the end of a grant that a part of the amounts came from
)

// isFormer returns the relation of a limit of the item to the limit of that name in a list of lives.
func (s *State) isFormer(limit string, lives []Life) identity {
	l := s.find(limit)
	at := slices.IndexFunc(lives, func(was Life) bool { return was.Limit == limit })
	switch {
	case at >= 0 && lives[at].Unowned:
		return unowned
	case l == nil || at < 0:
		return live
	case lives[at].Number%oneReset != l.Life%oneReset:
		return another
	case lives[at].Number != l.Life, !s.isDuring(l, &lives[at]):
		return over
	case lives[at].Until != 0 && lives[at].Until != l.Until():
		return partly
	default:
		return live
	}
}

// isDuring reports whether a limit of the item is still in the period of a life: its session began at the same time, or the quota
// has not reset since. So a change of reset times, or of the length of sessions, does not end a period.
func (s *State) isDuring(l *Limit, was *Life) bool {
	switch {
	case l.Session() > 0:
		return was.Period == 0 && was.Since == l.Since()
	case l.Times() == nil:
		return was.Period == 0 && was.Since == 0
	case was.Period == 0:
		return false
	default:
		if began, ok := s.turned(l); ok {
			return was.From >= began
		}
		return !l.Times().Between(was.From, s.mark())
	}
}

// A Life distinguishes a limit of an item from earlier ones of the same name, see [Limit.Life], and periods of a quota.
type Life struct {
	Limit  string
	Number int64
	Period int64 // end of the period of a quota, epoch milliseconds; 0 for a limit that refills, and for a session quota
	From   int64 // a time in that period, no later than the life was first seen, epoch milliseconds
	Since  int64 // when the session of a session quota began, epoch milliseconds; 0 while none was open

	Until int64 // when the grant of the limit ends, epoch milliseconds; 0 for none
	Kept  int64 // the most that may be returned after that, millitokens: what the lease took of the limit's own tokens

	Unowned bool // amounts of the lease were only counted, and taken from no balance
}

// lifeIn returns the life of a limit from a list.
func lifeIn(lives []Life, limit string) *Life {
	for i := range lives {
		if lives[i].Limit == limit {
			return &lives[i]
		}
	}
	return new(Life)
}

// Behind returns the lives for one of several takes that share a write, given the amounts of the takes after it.
func Behind(lives []Life, later []Amount) []Life {
	if !slices.ContainsFunc(lives, func(l Life) bool { return l.Kept > 0 }) {
		return lives
	}
	lives = slices.Clone(lives)
	for i := range lives {
		lives[i].Kept = max(0, sub(lives[i].Kept, max(0, Of(later, lives[i].Limit))))
	}
	return lives
}

// Lives returns the lives of the limits of an item. If known has the same lives, it returns known itself.
func (s *State) Lives(known []Life) []Life {
	same := 0
	for i := range s.Limits {
		if same < len(known) && s.isLife(&s.Limits[i], &known[same]) {
			same++
		}
	}
	if same == len(s.Limits) && same == len(known) {
		return known
	}
	lives := make([]Life, len(s.Limits))
	for i := range s.Limits {
		lives[i] = s.life(&s.Limits[i])
	}
	return lives
}

func (s *State) life(l *Limit) Life {
	life := Life{Limit: l.Name, Number: l.Life}
	if l.Rare != nil && l.Granted() > 0 && l.Until() > s.RefilledAt {
		life.Until, life.Kept = l.Until(), max(0, sub(s.without(l, s.RefilledAt, s.RefilledAt), l.Tokens))
	}
	switch {
	case l.Session() > 0:
		life.Since = l.Since()
	case l.Times() != nil:
		life.From = s.mark()
		life.Period = l.Times().Next(life.From)
	}
	return life
}

// isLife reports whether a known life is the present one of a limit of the item.
func (s *State) isLife(l *Limit, known *Life) bool {
	is := s.life(l)
	if is.From > known.From && is.Period == known.Period && s.isDuring(l, known) {
		is.From = known.From
	}
	return is == *known
}

// Lives returns the lives of the limits of an item after the plan is written, given the lives known before it.
func (p *Plan) Lives(s *State, known []Life) []Life {
	if p.Kind != Advance || !s.isPast(p.Now) && !s.Changed && p.changes == nil {
		return known
	}
	next := *s
	next.RefilledAt, next.Shape = p.Now, nil
	next.Change(func(n *Notes) { n.Crossed = max(n.Crossed, s.RefilledAt) })
	if p.changes != nil {
		next.Limits = slices.Clone(s.Limits)
		for i := range next.Limits {
			if params := p.changes.of(next.Limits[i].Name); params != nil {
				next.Limits[i].configure(params)
			}
		}
		known = nil
	}
	for _, step := range p.Steps {
		if step.Kind > Remove || step.Field != Since && step.Field != LifeNumber {
			continue
		}
		if &next.Limits[0] == &s.Limits[0] {
			next.Limits = slices.Clone(s.Limits)
		}
		if l := next.find(step.Limit); l != nil && step.Field == Since {
			l.SetSince(step.Values[0])
		} else if l != nil {
			l.Life = step.Values[0]
		}
	}
	return next.Lives(known)
}

// balance returns the balance to set for a limit, and false if the balance follows from the limit's own refill.
func (d *Demand) balance(limit string) (tokens int64, ok bool) {
	for _, a := range d.balances() {
		if a.Limit == limit {
			return a.Tokens, true
		}
	}
	return 0, false
}

// Empty reports whether a demand changes nothing.
func (d *Demand) Empty() bool {
	return allZero(d.Amounts) && (d.beside == nil || allZero(d.beside.counted))
}

func allZero(amounts []Amount) bool {
	for i := range amounts {
		if !amounts[i].IsZero() {
			return false
		}
	}
	return true
}

// Returns reports whether a demand takes nothing.
func (d *Demand) Returns() bool {
	return !slices.ContainsFunc(d.Amounts, func(a Amount) bool { return a.Tokens > 0 })
}

// Less returns the state after its balances are reduced by amounts.
func (s *State) Less(amounts []Amount) State {
	less := *s
	less.Limits = slices.Clone(s.Limits)
	for i := range less.Limits {
		l := &less.Limits[i]
		l.Tokens = sub(l.Tokens, Of(amounts, l.Name))
	}
	return less
}
