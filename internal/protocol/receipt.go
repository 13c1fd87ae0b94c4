package protocol

import (
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A Receipt is a ledger of the tokens taken, by level, shard and limit. Its zero value is empty. It must not be copied while a take is
// under way.
type Receipt struct {
	levels []levelReceipt
	rare   *rareReceipt // nil without a wait and a priority. Copies share it, and it never changes

	levelSpace [1]levelReceipt // for the most frequent case of one level and one shard
}

// A rareReceipt has the parts that few receipts have.
type rareReceipt struct {
	until    time.Duration   // when all tokens are available, since the engine was made; 0 without a wait
	latest   time.Duration   // until when the caller waits, since the engine was made
	priority string          // of the request
	asked    []bucket.Amount // the amounts of a waiting request
}

// usual has the rare parts of all other receipts.
var usual rareReceipt

// rest returns the rare parts of a receipt, which must not be changed.
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

// asks notes the amounts of a waiting request.
func (r *Receipt) asks(amounts []bucket.Amount) {
	next := *r.rest()
	next.asked = amounts
	r.rare = &next
}

// due notes when all tokens are available, and until when the caller waits.
func (r *Receipt) due(until, latest time.Duration) {
	next := *r.rest()
	next.until, next.latest = until, latest
	r.rare = &next
}

// A levelReceipt has the tokens taken from one level.
type levelReceipt struct {
	bucket *Bucket
	limits *Limits           // by which the tokens were taken
	parts  []shardAmounts    // one for each shard, or several if lives of its limits differ
	rare   *rareLevelReceipt // nil without a wait and slots. Copies share it, and it never changes
	round  int32             // requests with the same levels share a round
	position

	partSpace [1]shardAmounts
}

// A rareLevelReceipt has the parts that few level receipts have.
type rareLevelReceipt struct {
	bookings []booking // of a waiting caller
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

// apart returns a copy that shares no memory with the receipt. The caller may then reuse the receipt.
func (t *levelReceipt) apart() levelReceipt {
	own := *t
	own.parts = slices.Clone(t.parts)
	return own
}

// book notes the bookings of a caller.
func (t *levelReceipt) book(bookings []booking) { t.rare = &rareLevelReceipt{bookings, t.holds()} }

// hold notes the slots of a caller.
func (t *levelReceipt) hold(holds []*Hold) { t.rare = &rareLevelReceipt{t.bookings(), holds} }

// shardAmounts are amounts taken from one shard, each limit once.
type shardAmounts struct {
	shard   *shard
	amounts []bucket.Amount
	known   *lives // the lives of the shard's limits; nil if unknown
}

func (p *shardAmounts) lives() []bucket.Life { return p.known.list() }

// lives has the life of each limit of one item. Receipts share it.
type lives struct {
	all   []bucket.Life
	shape *bucket.Shape // the shape of all images with these lives; nil if lives do not follow from a shape
}

// before returns the lives for a receipt of a shared write, given the amounts of a caller behind it.
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

// took notes the tokens taken from a shard of a level. The shard is nil if nothing was taken from the level so far.
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

// Limits returns the limits that the tokens were taken from, each once. It returns none for an empty receipt.
func (r *Receipt) Limits() []bucket.Params {
	var all []bucket.Params
	for i := range r.levels {
		all = appendMissing(all, r.levels[i].limits.Config.Limits())
		all = appendMissing(all, r.levels[i].limits.slotNames())
	}
	return all
}

// Has reports whether the limits that the tokens were taken from include one of that name.
func (r *Receipt) Has(limit string) bool {
	return slices.ContainsFunc(r.levels, func(t levelReceipt) bool { return t.limits.has(limit) })
}

// HasSlots reports whether the limits of the request include slots of that name.
func (r *Receipt) HasSlots(limit string) bool {
	return slices.ContainsFunc(r.levels, func(t levelReceipt) bool { return t.limits.Config.FindSlots(limit) != nil })
}

// IsEmpty reports whether the receipt is empty.
func (r *Receipt) IsEmpty() bool { return len(r.levels) == 0 }

// Entity returns the entity of the request, "" for an empty receipt.
func (r *Receipt) Entity() string {
	if len(r.levels) == 0 {
		return ""
	}
	return r.levels[0].bucket.Entity
}

// Resource returns the resource of the request, "" for an empty receipt.
func (r *Receipt) Resource() string {
	if len(r.levels) == 0 {
		return ""
	}
	return r.levels[0].bucket.Resource
}

// Request returns a request for further amounts of the receipt's limits. The receipt must not be empty.
func (r *Receipt) Request(amounts []bucket.Amount) Request {
	t := &r.levels[0]
	more := Request{Entity: t.bucket.Entity, Resource: t.bucket.Resource, Amounts: amounts, Priority: r.rest().priority}
	if t.limits.Own {
		more.Own = t.limits
	}
	return more
}

// Add adds the tokens of a later request of the same entity and resource. If that request had other levels, since the entity was moved or
// limits were changed, it begins a new round. If a sum overflows, Add returns a [*bucket.OverflowError], and leaves the receipt unchanged.
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

// isOf reports whether a level receipt belongs to a bucket. The engine may have evicted and reloaded the bucket since.
func (t *levelReceipt) isOf(b *Bucket) bool { return t.bucket.is(b) }

// totalOf returns the sum of a bucket's tokens in several receipts.
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

// add adds tokens that were taken from the same level later. The engine may have evicted and reloaded the bucket in between. Each shard
// stays one part, so that a correction names a limit once.
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

// total returns the tokens taken from all shards.
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
	holds []*Hold // slots to release
}

// A correction has the amounts due to one shard of a level.
type correction struct {
	bucket  *Bucket
	limits  *Limits
	shard   *shard // nil for any
	amounts []bucket.Amount
	lives   []bucket.Life // lives of the limits that get the refunds; nil for any
	holds   []*Hold       // slots of the same item that the same write releases
}

// Done reports whether nothing is due any more.
func (s *Settlement) Done() bool { return len(s.due) == 0 && len(s.holds) == 0 }

// Due returns the number of corrections that are still to be written.
func (s *Settlement) Due() int { return len(s.due) }

// Return returns the settlement that refunds everything.
func (r *Receipt) Return() Settlement {
	var s Settlement
	for i := range r.levels {
		s.due = r.levels[i].returns(s.due)
	}
	for i := range s.due { // predictions of shadow limits stay counted
		for j := range s.due[i].amounts {
			s.due[i].amounts[j].Refusals = 0
		}
	}
	s.holds = r.Holds()
	return s
}

// Holds returns the slots of the request, which are released when it ends.
func (r *Receipt) Holds() (holds []*Hold) {
	for i := range r.levels {
		holds = append(holds, r.levels[i].holds()...)
	}
	return holds
}

// returns appends the corrections that refund the receipt of a level.
func (t *levelReceipt) returns(due []correction) []correction {
	for _, p := range t.parts {
		if d := (bucket.Demand{Amounts: p.amounts}); !d.Empty() {
			due = append(due, correction{bucket: t.bucket, limits: t.limits, shard: p.shard, amounts: bucket.Negated(p.amounts), lives: p.lives()})
		}
	}
	return due
}

// Correct returns the settlement that corrects the consumption of the entity itself: positive for more, negative for less. Each level is
// charged for the limits that it had at the time of the take. Each shard is refunded at most its own part. If there are several rounds,
// more is charged to the last one, and refunds go to the latest rounds first.
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

// portionOf returns the part of a correction that goes to a round, and the remainder.
func portionOf(round []levelReceipt, amounts []bucket.Amount) (part, rest []bucket.Amount) {
	for _, a := range amounts {
		had, taken := false, int64(0)
		for i := range round {
			if t := &round[i]; t.limits.Config.Has(a.Limit) {
				total, _ := t.total() // an earlier sum did not overflow
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
			for at := range t.parts { // from the same share of the limit, on any shard
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

// charged returns the part of a level receipt that is charged if more of a limit was used.
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
