package protocol

import (
	"cmp"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A party takes from one bucket: a single caller, or callers with equal limits who share writes. Callers who share are
// served in the order in which their requests came. Each write is for the callers whose demands fit together into the
// shards that it takes from.
type party struct {
	*level               // its demand is that of the next write
	to     *levelReceipt // of the last write
	short  shortage

	queue   *queue[*claim]    // of the callers; nil for a single one
	waiters []*waiter[*claim] // who are not served yet; nil for a single caller
	fit     []*waiter[*claim] // the claims that the level is for
	asks    []*bucket.Demand  // theirs, as the write takes them
	place   place
	last    *shard       // taken from last; nil for none
	lot     lot          // by which the next write finds its shard
	taken   *takenSlots  // slots taken by the last write; nil for none
	plan    *bucket.Plan // memory for its plans; nil for plans that are shared with others

	judgedAgain bool // by a clock reading later than its arrival
}

// partyOf returns the party of callers who share writes. The level asks for all of them at first.
func partyOf(waiters []*waiter[*claim], to *levelReceipt) party {
	p := party{to: to, waiters: waiters, place: waiters[0].job.place}
	p.ask(waiters, demandsOf(waiters))
	return p
}

// ask makes the next write take the demands of some of the callers.
func (p *party) ask(fit []*waiter[*claim], asks []*bucket.Demand) {
	whole := *fit[0].job.level
	demand, err := bucket.Join(asks)
	if err != nil { // more than can be counted, and so more than there is
		fit, asks, demand = fit[:1], asks[:1], whole.demand
	}
	whole.demand = demand
	for _, w := range p.waiters { // who all hear when no demand fits
		whole.began, whole.at = max(whole.began, w.job.level.began), max(whole.at, w.job.level.at)
	}
	p.level, p.fit, p.asks = &whole, fit, asks
}

// shortenWaits shortens the callers' waits to what is left of their time when the next write is judged.
func (p *party) shortenWaits(c *core, asOf int64) {
	if len(p.waiters) == 0 {
		p.shortenWait(c, asOf)
	}
	for _, w := range p.waiters {
		w.job.level.shortenWait(c, asOf)
	}
}

// judgeAt makes the next write judge by a clock reading later than the arrival: that of a view, which covers the demand by it.
func (p *party) judgeAt(now int64) {
	if now > p.at {
		judged := *p.level
		judged.at = now
		p.level = &judged
	}
}

// demandsOf returns the demands of callers, in their order.
func demandsOf(waiters []*waiter[*claim]) []*bucket.Demand {
	demands := make([]*bucket.Demand, len(waiters))
	for i, w := range waiters {
		demands[i] = &w.job.level.demand
	}
	return demands
}

// next returns the demand of the caller who is served first.
func (p *party) next() *bucket.Demand {
	if len(p.waiters) == 0 {
		return &p.demand
	}
	return &p.waiters[0].job.level.demand
}

// mayChoose reports whether the next write depends on what shards have: for whom it is, or of which part of a limit it takes.
func (p *party) mayChoose() bool {
	switch len(p.waiters) {
	case 0:
		return p.demand.Priority != ""
	case 1:
		return p.waiters[0].job.level.demand.Priority != ""
	default:
		return true
	}
}

// choose makes the next write take for the callers whose demands fit into the shards, each on top of the demands before it. If no demand
// fits, the write is for the first caller, who falls short.
func (p *party) choose(c *bucket.Config, shards []*bucket.State, now int64) {
	if len(p.waiters) == 0 {
		if d := p.demand.Through(c, shards, now); d != &p.demand {
			chosen := *p.level
			chosen.demand = *d
			p.level = &chosen
		}
		return
	}
	var fit []*waiter[*claim]
	var asks []*bucket.Demand
	for i, as := range c.Fitting(shards, demandsOf(p.waiters), now) {
		if as != nil {
			fit, asks = append(fit, p.waiters[i]), append(asks, as)
		}
	}
	if len(fit) == 0 {
		fit = p.waiters[:1]
		asks = demandsOf(fit)
	}
	if !slices.Equal(fit, p.fit) || !slices.Equal(asks, p.asks) {
		p.ask(fit, asks)
	}
}

// took notes the tokens of a write on a shard, and the image that it left, nil for an unknown one.
func (p *party) took(s *shard, left *image) {
	var known *lives
	if left != nil {
		known = s.livesOf(left)
	}
	p.to.took(p.level, s, p.demand.Amounts, known)
	if p.demand.Waits() {
		p.to.book([]booking{{shard: s, image: left}})
	}
	p.last = s
}

// portion gives each caller its part of the last write. Callers that wait have their tokens in the order of the party.
func (p *party) portion() {
	defer p.book()
	if len(p.to.parts) == 1 {
		for i, w := range p.fit {
			known := p.to.parts[0].known
			for _, behind := range p.asks[i+1:] {
				known = known.before(behind.Amounts)
			}
			w.job.to.took(w.job.level, p.to.parts[0].shard, p.asks[i].Amounts, known)
		}
		return
	}
	parts := make([][]bucket.Amount, len(p.to.parts))
	for i, taken := range p.to.parts {
		parts[i] = slices.Clone(taken.amounts)
	}
	for at, w := range p.fit {
		w.job.to.took(w.job.level, nil, nil, nil)
		for i, amounts := range bucket.Portion(parts, p.asks[at].Amounts) {
			if len(amounts) > 0 {
				w.job.to.parts = append(w.job.to.parts, shardAmounts{p.to.parts[i].shard, amounts, p.to.parts[i].known})
			}
		}
		if counted, all := p.limits.Config.Entries(&w.job.level.demand, nil, nil); len(counted) > 0 {
			w.job.to.parts = append(w.job.to.parts, shardAmounts{p.to.parts[0].shard, counted, &lives{all: all}})
		}
	}
}

// book gives each waiting caller its place in the bookings of the last write. After a transaction on several shards
// together, each of them waits for all of it.
func (p *party) book() {
	after := p.demand.Amounts
	for i, w := range p.fit {
		if !p.demand.Waits() {
			return
		}
		after, _ = bucket.Sum(after, bucket.Negated(p.asks[i].Amounts)) // their sum was counted before
		to := w.job.to
		bookings := slices.Clone(p.to.bookings())
		if len(bookings) == 1 {
			bookings[0].after = after
		}
		to.book(bookings)
	}
}

// beyond returns the callers whose demands do not fit beside the last plan. The party is for the others alone from then on.
func (p *party) beyond() (beyond []*waiter[*claim]) {
	fit := p.fit
	for _, w := range p.waiters { // both are in the same order
		if len(fit) > 0 && w == fit[0] {
			fit = fit[1:]
		} else {
			beyond = append(beyond, w)
		}
	}
	p.waiters = p.fit
	return beyond
}

// leave returns those for whom the last write was, who are served. The level asks for the others from then on.
func (p *party) leave() (served []*waiter[*claim]) {
	served = p.fit
	rest := make([]*waiter[*claim], 0, len(p.waiters)-len(served))
	for _, w := range p.waiters { // both are in the same order
		if len(served) > 0 && w == served[0] {
			served = served[1:]
		} else {
			rest = append(rest, w)
		}
	}
	served, p.waiters = p.fit, rest
	if len(p.waiters) > 0 {
		p.ask(p.waiters, demandsOf(p.waiters))
	}
	return served
}

// A shortage proves that a level falls short: shards were found short of its demand after the request came.
type shortage struct {
	first *shard // that was found short
	image *image // of the shard that was found short last, less what requests under way may take
	seen  *image // as the store returned it
	at    int64  // when that one fell short, epoch milliseconds
	whole bool   // two shards were found short, or the only one
}

// Error names the short limits.
func (*shortage) Error() string { return errShort.Error() }

// Is reports whether a shortage is errShort.
func (*shortage) Is(target error) bool { return target == errShort }

// state returns the state of the shard that was found short last, as it is reported. Requests under way take no more than there is, unless the
// shortage is that of a caller that waits, which may wait behind them. So its balances are not negative for others, unless they were seen so.
func (sh *shortage) state(waits bool) *bucket.State {
	if waits || sh.image == sh.seen {
		return &sh.image.State
	}
	beyond := make([]bucket.Amount, 0, len(sh.image.Limits))
	for i := range sh.image.Limits {
		l := &sh.image.Limits[i]
		if lacks := sh.image.Available(l, sh.at) - min(sh.seen.Available(&sh.seen.Limits[i], sh.at), 0); lacks < 0 {
			beyond = append(beyond, bucket.Amount{Limit: l.Name, Tokens: lacks})
		}
	}
	state := sh.image.Less(beyond)
	return &state
}

// noteShort notes that a shard was found short, for all callers or for some of them.
func (p *party) noteShort(s *shard, i *image, at int64) {
	whole := p.short.whole || i.Count() == 1 || p.short.first != nil && p.short.first != s
	p.short = shortage{cmp.Or(p.short.first, s), i, i, at, whole}
}

// proof returns the shortage of a party as an error.
func (p *party) proof() error {
	short := p.short
	return &short
}

// isSmall reports whether the demand of each caller is small beside the shard that was found short last.
func (p *party) isSmall() bool { return p.short.image != nil && p.areSmall(p.short.image, p.short.at) }

// isSmallFor reports whether the demand of each caller is small beside a shard as it was last seen.
func (p *party) isSmallFor(s *shard) bool {
	i := s.image.Load()
	return i != nil && p.areSmall(i, p.at)
}

// areSmall reports whether the demand of each caller is small beside a shard at a time. The limits of the shard must be in line with the
// level.
func (p *party) areSmall(i *image, at int64) bool {
	c := &p.limits.Config
	if !i.exists || !c.InLine(&i.State, at) {
		return false
	}
	for _, w := range p.waiters {
		if !c.IsSmall(&i.State, &w.job.level.demand) {
			return false
		}
	}
	return len(p.waiters) > 0 || c.IsSmall(&i.State, &p.demand)
}
