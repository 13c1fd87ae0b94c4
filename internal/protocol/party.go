package protocol

import (
	"cmp"
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A party is a single caller, or several callers with equal limits that share writes, which takes from one bucket. Callers that share are
// served in the order of their arrival. Each write is for the callers whose demands together fit into the shards that it takes from.
type party struct {
	*level               // its demand is the one of the next write
	to     *levelReceipt // what the last write took
	short  shortage

	queue   *queue[*claim]    // of the callers; nil for a single one
	waiters []*waiter[*claim] // callers that are still to be served; nil for a single caller
	fit     []*waiter[*claim] // the callers of the next write
	asks    []*bucket.Demand  // their demands, as the write takes them
	place   place
	last    *shard       // the shard of the last write; nil for none
	lot     lot          // selects the shard of the next write
	taken   *takenSlots  // slots taken by the last write; nil for none
	plan    *bucket.Plan // memory for plans; nil if plans share memory with others

	judgedAgain bool // decided again by a clock reading after its arrival
}

// partyOf returns the party of callers that share writes. At first, its demand is the sum for all of them.
func partyOf(waiters []*waiter[*claim], to *levelReceipt) party {
	p := party{to: to, waiters: waiters, place: waiters[0].job.place}
	p.ask(waiters, demandsOf(waiters))
	return p
}

// ask makes the next write take the demands of the given callers.
func (p *party) ask(fit []*waiter[*claim], asks []*bucket.Demand) {
	whole := *fit[0].job.level
	demand, err := bucket.Join(asks)
	if err != nil { // the sum overflows, so it exceeds what there is
		fit, asks, demand = fit[:1], asks[:1], whole.demand
	}
	whole.demand = demand
	for _, w := range p.waiters { // all of them are rejected if no demand fits
		whole.began, whole.at = max(whole.began, w.job.level.began), max(whole.at, w.job.level.at)
	}
	p.level, p.fit, p.asks = &whole, fit, asks
}

// shortenWaits shortens the callers' waits to what is left of their time when the next write is decided.
func (p *party) shortenWaits(c *core, asOf int64) {
	if len(p.waiters) == 0 {
		p.shortenWait(c, asOf)
	}
	for _, w := range p.waiters {
		w.job.level.shortenWait(c, asOf)
	}
}

// judgeAt makes the next write use the clock reading of a view, by which the view covers the demand, if it is later than the arrival.
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

// next returns the demand of the caller that is served first.
func (p *party) next() *bucket.Demand {
	if len(p.waiters) == 0 {
		return &p.demand
	}
	return &p.waiters[0].job.level.demand
}

// mayChoose reports whether the balances of shards decide which callers the next write serves, or which share of a limit it takes from.
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

// choose makes the next write take for the callers whose demands fit into the shards, one after another. If no demand fits, the write is
// for the first caller, which falls short.
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

// took notes the tokens that a write took from a shard, and the image that it left, nil if unknown.
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

// portion gives each caller its part of the last write. The tokens of waiting callers become available in the order of the party.
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

// book gives each waiting caller its part of the bookings of the last write. After a transaction over several shards, each caller waits for
// the tokens of all callers.
func (p *party) book() {
	after := p.demand.Amounts
	for i, w := range p.fit {
		if !p.demand.Waits() {
			return
		}
		after, _ = bucket.Sum(after, bucket.Negated(p.asks[i].Amounts)) // the sum did not overflow
		to := w.job.to
		bookings := slices.Clone(p.to.bookings())
		if len(bookings) == 1 {
			bookings[0].after = after
		}
		to.book(bookings)
	}
}

// beyond returns the callers that the last plan has no room for, and removes them from the party.
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

// leave returns the callers of the last write, which are served, and removes them from the party.
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

// errAbandoned is the error of a party without callers.
var errAbandoned = errors.New("each caller has given up")

// awaited removes callers that have given up from the party, before a write that would take tokens for them. It returns errAbandoned if none
// is left.
func (p *party) awaited() error {
	if p.queue == nil {
		return nil
	}
	switch waiters := p.queue.awaited(p.waiters); {
	case len(waiters) == 0:
		p.waiters = nil
		return errAbandoned
	case len(waiters) < len(p.waiters):
		p.waiters = waiters
		p.ask(waiters, demandsOf(waiters))
	}
	return nil
}

// A shortage proves that a level falls short: shards were found short of its demand after the request arrived.
type shortage struct {
	first *shard // found short first
	image *image // of the shard that was found short last, less the amounts that requests under way may take
	seen  *image // the same, as the store returned it
	at    int64  // when that shard fell short, epoch milliseconds
	whole bool   // two shards were found short, or the only one
}

// Error names the short limits.
func (*shortage) Error() string { return errShort.Error() }

// Is reports whether a shortage is errShort.
func (*shortage) Is(target error) bool { return target == errShort }

// state returns the state to report of the shard that was found short last. Requests under way can take no more than the balance, so they
// make no balance negative. For a waiting caller they may, since it may have to wait behind them.
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

// isSmall reports whether the demand of each caller is small compared with the shard that was found short last.
func (p *party) isSmall() bool { return p.short.image != nil && p.areSmall(p.short.image, p.short.at) }

// isSmallFor reports whether the demand of each caller is small compared with a shard, as last seen.
func (p *party) isSmallFor(s *shard) bool {
	i := s.image.Load()
	return i != nil && p.areSmall(i, p.at)
}

// areSmall reports whether the demand of each caller is small compared with a shard at a time. The limits of the shard must be in line with
// the level.
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
