package protocol

import (
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A Receipt is a ledger of the tokens taken: per level, shard and limit. Its zero value is one of nothing. It must not
// be copied while a take is under way.
type Receipt struct {
	levels []levelReceipt
	rare   *rareReceipt // nil for a caller that neither waits nor has a priority. Copies share it, and nothing changes it

	levelSpace [1]levelReceipt // for the most frequent case: one level, one shard
}

// A rareReceipt has the parts that few receipts have.
type rareReceipt struct {
	until    time.Duration   // when all of it is there, since the engine was made; 0 for a caller that does not wait
	latest   time.Duration   // until when the caller waits, since the engine was made
	priority string          // of the request
	asked    []bucket.Amount // by a request that waits
}

// usual are the rare parts of all other receipts.
var usual rareReceipt

// rest returns the rare parts of a receipt. They are not to be changed.
func (r *Receipt) rest() *rareReceipt {
	if r.rare == nil {
		return &usual
	}
	return r.rare
}

// of notes the priority of the request.
func (r *Receipt) of(priority string) {
	if r.rest().priority != priority {
		next := *r.rest()
		next.priority = priority
		r.rare = &next
	}
}

// asks notes what a request that waits has asked for.
func (r *Receipt) asks(amounts []bucket.Amount) {
	next := *r.rest()
	next.asked = amounts
	r.rare = &next
}

// due notes when all of it is there, and until when the caller waits.
func (r *Receipt) due(until, latest time.Duration) {
	next := *r.rest()
	next.until, next.latest = until, latest
	r.rare = &next
}

// A levelReceipt has the tokens taken of one level.
type levelReceipt struct {
	bucket *Bucket
	limits *Limits           // by which it was taken
	parts  []shardAmounts    // each shard once, and once more for other lives of its limits
	rare   *rareLevelReceipt // nil for a caller that neither waits nor has slots. Copies share it, and nothing changes it
	round  int32             // of the receipt: requests with the same levels share one
	position

	partSpace [1]shardAmounts
}

// A rareLevelReceipt has the parts that few of them have.
type rareLevelReceipt struct {
	bookings []booking // of a caller that waits
	holds    []*Hold   // of slots
}

func (t *levelReceipt) bookings() []booking {
	if t.rare == nil {
		return nil
	}
	return t.rare.bookings
}

func (t *levelReceipt) holds() []*Hold {
	if t.rare == nil {
		return nil
	}
	return t.rare.holds
}

// apart returns a copy that shares no memory with the receipt, which the caller may use again.
func (t *levelReceipt) apart() levelReceipt {
	own := *t
	own.parts = slices.Clone(t.parts)
	return own
}

// book notes the bookings of a caller.
func (t *levelReceipt) book(bookings []booking) { t.rare = &rareLevelReceipt{bookings, t.holds()} }

// hold notes the slots of a caller.
func (t *levelReceipt) hold(holds []*Hold) { t.rare = &rareLevelReceipt{t.bookings(), holds} }

// shardAmounts are amounts taken of one shard, each limit once.
type shardAmounts struct {
	shard   *shard
	amounts []bucket.Amount
	known   *lives // of the limits of the shard; nil if they are not known
}

func (p *shardAmounts) lives() []bucket.Life { return p.known.list() }

// lives has the life of each limit of one item. Receipts share them.
type lives struct {
	all   []bucket.Life
	shape *bucket.Shape // of all images with these lives; nil if they do not follow from it
}

// before returns the lives as one of several receipts of a write has them, given one behind it.
func (l *lives) before(behind []bucket.Amount) *lives {
	all := l.list()
	next := bucket.Behind(all, behind)
	if len(all) == 0 || &next[0] == &all[0] {
		return l
	}
	return &lives{all: next}
}

func (l *lives) list() []bucket.Life {
	if l == nil {
		return nil
	}
	return l.all
}

// took notes the tokens taken of a shard of a level. The shard is nil for a level that nothing was taken of so far.
func (t *levelReceipt) took(l *level, s *shard, amounts []bucket.Amount, known *lives) {
	t.bucket, t.position, t.limits, t.parts, t.rare = l.bucket, l.position, l.limits, nil, nil
	if s == nil {
		return
	}
	if l.limits.Config.CountsAny(&l.demand) {
		all, own := l.limits.Config.Entries(&l.demand, amounts, known.list())
		amounts, known = all, &lives{all: own}
	}
	t.partSpace[0] = shardAmounts{s, amounts, known}
	t.parts = t.partSpace[:]
}

// Limits returns the limits by which the request was taken, each once; none for a receipt of nothing.
func (r *Receipt) Limits() []bucket.Params {
	var all []bucket.Params
	for i := range r.levels {
		all = appendMissing(all, r.levels[i].limits.Config.Limits())
		all = appendMissing(all, r.levels[i].limits.slotNames())
	}
	return all
}

// Has reports whether one of the limits by which the request was taken has a name.
func (r *Receipt) Has(limit string) bool {
	return slices.ContainsFunc(r.levels, func(t levelReceipt) bool { return t.limits.has(limit) })
}

// HasSlots reports whether one of the limits by which the request was taken is of slots and has a name.
func (r *Receipt) HasSlots(limit string) bool {
	return slices.ContainsFunc(r.levels, func(t levelReceipt) bool { return t.limits.Config.FindSlots(limit) != nil })
}

// IsEmpty reports whether the receipt is one of nothing.
func (r *Receipt) IsEmpty() bool { return len(r.levels) == 0 }

// Entity returns the entity of the request, "" for a receipt of nothing.
func (r *Receipt) Entity() string {
	if len(r.levels) == 0 {
		return ""
	}
	return r.levels[0].bucket.Entity
}

// Resource returns the resource of the request, "" for a receipt of nothing.
func (r *Receipt) Resource() string {
	if len(r.levels) == 0 {
		return ""
	}
	return r.levels[0].bucket.Resource
}

// Request returns a request for more of the receipt's limits. The receipt is not one of nothing.
func (r *Receipt) Request(amounts []bucket.Amount) Request {
	t := &r.levels[0]
	more := Request{Entity: t.bucket.Entity, Resource: t.bucket.Resource, Amounts: amounts, Priority: r.rest().priority}
	if t.limits.Own {
		more.Own = t.limits
	}
	return more
}

// Add adds the tokens of a later request of the same entity and resource. Where it was taken of other levels, since the entity was moved
// or limits were changed, it begins a new round. Add returns a [*bucket.OverflowError] when that is more than can be counted, and leaves
// the receipt as it is.
func (r *Receipt) Add(more *Receipt) error {
	total := slices.Clone(r.levels)
	first := r.roundOf(len(total))
	if !slices.EqualFunc(total[first:], more.levels, isSameLevel) {
		for _, m := range more.levels {
			m.round = r.levels[first].round + 1
			total = append(total, m)
			if _, err := totalOf(total, m.bucket); err != nil {
				return err
			}
		}
		r.levels = total
		return nil
	}
	for i := range more.levels {
		if err := total[first+i].add(&more.levels[i]); err != nil {
			return err
		}
		if _, err := totalOf(total, more.levels[i].bucket); first > 0 && err != nil {
			return err
		}
	}
	r.levels = total
	return nil
}

// roundOf returns the first level receipt of the round that ends before one.
func (r *Receipt) roundOf(end int) (first int) {
	for first = end - 1; first > 0 && r.levels[first-1].round == r.levels[end-1].round; {
		first--
	}
	return first
}

// isSameLevel reports whether two receipts are of one level.
func isSameLevel(a, b levelReceipt) bool { return a.isOf(b.bucket) && a.position == b.position }

// isOf reports whether a level receipt is of a bucket, which the engine may have forgotten and seen again.
func (t *levelReceipt) isOf(b *Bucket) bool { return t.bucket.is(b) }

// totalOf returns the tokens of a bucket in several receipts.
func totalOf(receipts []levelReceipt, b *Bucket) (total []bucket.Amount, err error) {
	for i := range receipts {
		if t := &receipts[i]; t.isOf(b) {
			part, err := t.total()
			if err != nil {
				return nil, err
			}
			if total == nil {
				total = part
			} else if total, err = bucket.Sum(total, part); err != nil {
				return nil, err
			}
		}
	}
	return total, nil
}

// add adds tokens taken of the same level later, perhaps when the engine had forgotten its bucket and seen it again.
// Each shard stays one part, so that a correction names a limit once.
func (t *levelReceipt) add(more *levelReceipt) (err error) {
	t.limits, t.parts = more.limits, slices.Clone(t.parts)
	for _, p := range more.parts {
		at := slices.IndexFunc(t.parts, func(known shardAmounts) bool {
			return known.shard.Shard == p.shard.Shard && slices.Equal(known.lives(), p.lives())
		})
		if at < 0 {
			t.parts = append(t.parts, shardAmounts{t.bucket.shard(p.shard.Shard), p.amounts, p.known})
			continue
		}
		if t.parts[at].amounts, err = bucket.Sum(t.parts[at].amounts, p.amounts); err != nil {
			return err
		}
	}
	_, err = t.total()
	return err
}

// total returns the tokens taken of all shards.
func (t *levelReceipt) total() (total []bucket.Amount, err error) {
	if len(t.parts) == 1 {
		return t.parts[0].amounts, nil
	}
	for _, p := range t.parts {
		if total, err = bucket.Sum(total, p.amounts); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// A Settlement has the corrections of a receipt that are still to be written. It is not safe for concurrent use.
type Settlement struct {
	due   []correction
	holds []*Hold // slots to give back
}

// A correction has the amounts due to one shard of a level.
type correction struct {
	bucket  *Bucket
	limits  *Limits
	shard   *shard // nil for any
	amounts []bucket.Amount
	lives   []bucket.Life // of the limits that the amounts are given back to; nil for any
	holds   []*Hold       // slots of the same item that the same write gives back
}

// Done reports whether nothing is due any more.
func (s *Settlement) Done() bool { return len(s.due) == 0 && len(s.holds) == 0 }

// Due returns the number of corrections that are still to be written.
func (s *Settlement) Due() int { return len(s.due) }

// Return returns the settlement that gives everything back.
func (r *Receipt) Return() Settlement {
	var s Settlement
	for i := range r.levels {
		s.due = r.levels[i].returns(s.due)
	}
	for i := range s.due { // what a shadow limit foretold remains so
		for j := range s.due[i].amounts {
			s.due[i].amounts[j].Refusals = 0
		}
	}
	s.holds = r.Holds()
	return s
}

// Holds returns the slots of the request, which end with it.
func (r *Receipt) Holds() (holds []*Hold) {
	for i := range r.levels {
		holds = append(holds, r.levels[i].holds()...)
	}
	return holds
}

// returns appends the corrections that give back the receipts of a level.
func (t *levelReceipt) returns(due []correction) []correction {
	for _, p := range t.parts {
		if d := (bucket.Demand{Amounts: p.amounts}); !d.Empty() {
			due = append(due, correction{bucket: t.bucket, limits: t.limits, shard: p.shard, amounts: bucket.Negated(p.amounts), lives: p.lives()})
		}
	}
	return due
}

// Correct returns the settlement that corrects the consumption of the entity itself: positive for more, negative for
// less. Each level is charged for those limits that it had when it was taken from. Each shard gets back at most its own
// part. Of several rounds, the last one is charged for more, and the last ones get back first.
func (r *Receipt) Correct(amounts []bucket.Amount) Settlement {
	var s Settlement
	for end := len(r.levels); end > 0; {
		first, part := r.roundOf(end), amounts
		if first > 0 {
			part, amounts = portionOf(r.levels[first:end], amounts)
		}
		var charges charges
		for i := first; i < end; i++ {
			t := &r.levels[i]
			below := r.levels[first:i]
			s.due = t.corrections(s.due, countedBelow(charges.of(part, t.position), func(limit string, children bool) bool {
				return slices.ContainsFunc(below, func(b levelReceipt) bool {
					return b.isBelow(t.position, t.bucket.Resource, b.bucket.Resource, children) && b.limits.has(limit)
				})
			}))
		}
		end = first
	}
	s.holds = r.Holds()
	return s
}

// portionOf returns the part of a correction that goes to a round, and the rest of it.
func portionOf(round []levelReceipt, amounts []bucket.Amount) (part, rest []bucket.Amount) {
	for _, a := range amounts {
		had, taken := false, int64(0)
		for i := range round {
			if t := &round[i]; t.limits.Config.Has(a.Limit) {
				total, _ := t.total() // it was added up before
				had, taken = true, max(taken, bucket.OfWhole(total, a.Limit))
			}
		}
		switch {
		case !had:
			rest = append(rest, a)
		case a.Tokens > 0:
			part = append(part, a)
		default:
			part = append(part, a.Move(max(a.Tokens, -taken)))
			rest = append(rest, a)
		}
	}
	return part, rest
}

// corrections appends the corrections of one level.
func (t *levelReceipt) corrections(due []correction, amounts []bucket.Amount) []correction {
	first := len(due)
	add := func(p *shardAmounts, a bucket.Amount) {
		for i := range due[first:] {
			if c := &due[first+i]; c.shard == p.shard && slices.Equal(c.lives, p.lives()) {
				c.amounts = append(c.amounts, a)
				return
			}
		}
		due = append(due, correction{bucket: t.bucket, limits: t.limits, shard: p.shard, amounts: []bucket.Amount{a}, lives: p.lives()})
	}
	for _, a := range amounts {
		if a.Tokens > 0 && t.limits.Config.Has(a.Limit) {
			more := a
			for at := range t.parts { // of the same part of the limit, whichever shards it was taken of
				for _, taken := range t.parts[at].amounts {
					if bucket.LimitOf(taken.Limit) == a.Limit && taken.Tokens > 0 {
						more.Limit = taken.Limit
					}
				}
			}
			add(t.charged(a.Limit), more)
		}
		for at := len(t.parts) - 1; at >= 0; at-- {
			for _, taken := range t.parts[at].amounts {
				if back := min(-a.Tokens, taken.Tokens); back > 0 && bucket.LimitOf(taken.Limit) == a.Limit {
					moved := a.Move(-back)
					moved.Limit = taken.Limit
					add(&t.parts[at], moved)
				}
			}
		}
	}
	return due
}

// charged returns the part of a level receipt by which more of a limit is charged.
func (t *levelReceipt) charged(limit string) *shardAmounts {
	for i := range t.parts {
		if bucket.IsUnowned(t.parts[i].lives(), limit) {
			return &t.parts[i]
		}
	}
	if len(t.parts) > 0 {
		return &t.parts[0]
	}
	var none shardAmounts
	none.known = new(lives)
	_, none.known.all = t.limits.Config.Entries(&bucket.Demand{}, nil, nil)
	return &none
}
