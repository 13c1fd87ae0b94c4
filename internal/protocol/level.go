package protocol

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A level is one bucket of a request: of its entity or of one of the parents, for its resource or for a wider one. It has the amounts for
// that bucket, and the limits. A level is never changed: if it turns out to be outdated, all levels are built again.
type level struct {
	bucket   *Bucket
	limits   *Limits
	demand   bucket.Demand
	began    int64           // epoch when the request arrived
	rooms    int             // how often the request has found room that others then took
	at       int64           // when the request arrived, epoch milliseconds: the reading by which it is decided
	came     arrival         // of a waiting request
	patience int64           // how long it waits from its arrival, milliseconds
	idle     bool            // nothing is taken from it
	first    bool            // it goes before the levels without this flag
	kept     []bucket.Amount // slots that are kept from this caller for the first one in line
	work     *work           // reusable memory; nil for several levels, for slots, and after a shared write has the level
	position
}

// begin notes when the request of a new level arrived, and how often it has found room that others took.
func (l *level) begin(rooms int, came arrival) {
	l.demand.At = came.at
	l.rooms, l.at, l.came, l.patience = rooms, came.at, came, l.demand.Wait
	l.idle = l.demand.Empty() && len(l.demand.Slots()) == 0
}

// A position is where a level stands relative to the first level of its request.
type position struct {
	ancestor int8 // how many parents the entity is above the request's own
	wider    int8 // how many steps the resource is wider than the request's own
}

// A levelTaker takes the demand of one level, for one caller or for several callers that share a write.
type levelTaker struct {
	*core
	items   *items
	looks   *looks
	aligner *aligner
	judge   *judge
	lister  *lister
	resizer *resizer
	refunds *refunds
	slots   *slotTaker
	shared  sharing[*claim]
}

// take takes the demand of one level, in a separate or a shared write. It returns errShort if the level falls short, in an image from after
// the request's arrival or of the age that a rejection from memory allows. If other processes write the bucket often, a throttled write is
// retried at the pace of the bucket's writes. If tokens of the bucket that are still to be returned would cover the shortage, they are
// returned first.
func (tk *levelTaker) take(ctx context.Context, l *level, to *levelReceipt) error {
	if l.demand.Empty() {
		to.took(l, nil, nil, nil)
		return nil
	}
	err := tk.takePatiently(ctx, l, to)
	if err == nil || !errors.Is(err, errShort) || !l.bucket.pendingRefunds.owes.Load() {
		return err
	}
	if states, _ := l.bucket.states(nil); !l.limits.Config.Covers(states, l.held(), tk.now()) || !tk.coversSlots(l, states) {
		return err
	}
	if err := tk.refunds.returnDue(ctx, l.bucket); err != nil {
		return err
	}
	return tk.takePatiently(ctx, l, to)
}

// held returns the demand of a level, and the tokens still to be returned to its bucket.
func (l *level) held() *bucket.Demand {
	if !l.bucket.pendingRefunds.owes.Load() {
		return &l.demand
	}
	return l.demand.Holding(l.bucket.pendingRefunds.amounts())
}

// takePatiently takes the demand of a level, and waits while the store throttles it. A lasting throttle is not an outage if the store names
// the key as the reason, and others take the little refill there is.
func (tk *levelTaker) takePatiently(ctx context.Context, l *level, to *levelReceipt) error {
	for again := 0; ; again++ {
		at := tk.place(l, again > 0)
		if at.short != nil {
			return at.short
		}
		at.whole = at.whole || again >= maxDraws
		if err := tk.takePlaced(ctx, l, to, at); !errors.Is(err, errElsewhere) {
			return err
		}
	}
}

// takePlaced takes the demand of a level from its chosen place, and waits while the store throttles it. It returns errElsewhere if the
// request should choose again.
func (tk *levelTaker) takePlaced(ctx context.Context, l *level, to *levelReceipt, at place) error {
	if at.usedUp {
		pending := &l.bucket.shard(0).traffic.pending
		pending.begins(l.demand.Amounts)
		defer pending.ends(l.demand.Amounts)
	}
	if tk.options.WritesAtOnce == 0 || l.bucket.stall.over.Load() != 0 && table.IsWithheld(ctx) {
		return tk.takeAlone(ctx, l, to, place{whole: true})
	}
	if at.shard != nil {
		at.shard.traffic.placed.begins(l.demand.Amounts)
		defer at.shard.traffic.placed.ends(l.demand.Amounts)
	}
	err := tk.shared.patiently(ctx, &l.bucket.queue, l.demand.Waits(), func() error { return tk.takeInTurn(ctx, l, to, at) })
	if err != nil && isHotKey(err) && tk.isExhausted(l) {
		return ErrContended
	}
	return err
}

// isExhausted reports whether a bucket is scarce, and may itself cause the throttles of its key.
func (tk *levelTaker) isExhausted(l *level) bool { return tk.isScarce(l) && tk.isSought(l.bucket) }

// isScarce reports whether the shards of a bucket, as last seen, had tokens for only a few requests each, on average.
func (tk *levelTaker) isScarce(l *level) bool {
	shards, room := int64(0), int64(0)
	l.bucket.walk((*shard).last, func(_ *shard, i *image) {
		if i != nil && i.exists {
			shards++
			room += min(l.limits.Config.Room([]*bucket.State{&i.State}, &l.demand, i.seenAt, 0), math.MaxInt32)
		}
	})
	return room < shards*crowdCallers
}

// takeInTurn takes the demand of a level by a separate write, or by a write that other callers share. A rejection from memory waits for no
// write.
func (tk *levelTaker) takeInTurn(ctx context.Context, l *level, to *levelReceipt, at place) error {
	q := &l.bucket.queue
	if at.shard != nil && at.shard.takes != nil {
		q = at.shard.takes
	}
	if round, ok := q.begin(tk.core); ok {
		defer tk.shared.finish(ctx, q, round)
		return tk.takeAlone(ctx, l, to, at)
	}
	if q.pace.isClosed(tk.core) && tk.judge.isShort(l) {
		return errShort
	}
	if l.work != nil { // the write still uses the level if the caller gives up
		l.work.kept, l.work = true, nil
	}
	return tk.shared.await(ctx, q, &claim{l, to, at})
}

// A work is the reusable memory of a request: for its level if it has only one, and for a separate write.
type work struct {
	levels *[1]level
	kept   bool // the levels are not reused: a shared write may refer to them after the request
	party  party
	plan   bucket.Plan
}

var works = sync.Pool{New: func() any { return &work{levels: new([1]level)} }}

// recycle makes the memory available to later requests.
func (w *work) recycle() {
	if w.kept {
		w.levels, w.kept = new([1]level), false
	} else {
		w.levels[0] = level{}
	}
	w.party = party{}
	works.Put(w)
}

// takeAlone takes the demand of a level for a single caller.
func (tk *levelTaker) takeAlone(ctx context.Context, l *level, to *levelReceipt, at place) error {
	w := l.work
	if w == nil {
		w = works.Get().(*work)
		defer w.recycle()
	}
	p := &w.party
	*p = party{level: l, to: to, plan: &w.plan, place: at}
	if err := tk.takeDirect(ctx, p); err != nil || p.taken == nil {
		return err
	}
	err := tk.slots.handOut(ctx, p)
	if err != nil {
		tk.refunds.giveBack(ctx, to)
	}
	return err
}

// takeDirect takes for a party by one write, and notes whether the store throttled it.
func (tk *levelTaker) takeDirect(ctx context.Context, p *party) error {
	began := time.Duration(0)
	if tk.options.WritesAtOnce > 0 && !tk.table.Immediate() {
		began = tk.sinceStart()
	}
	err := tk.takeAnywhere(ctx, p)
	if err == nil && began > 0 {
		tk.writes.Took(tk.sinceStart() - began)
	}
	p.bucket.queue.ended(tk.core, err, p.demand.Waits())
	return err
}

// takeAnywhere takes for a party from a shard drawn at random, or from several shards if that one falls short. If the shard turns out to be
// split, the lot decides which part of it to use, as if the party had known of the split. Otherwise all processes that know fewer shards
// would use the first one. A party that has taken from a shard continues there, unless another shard has more: the image shows without a
// call whether the remaining callers fall short.
func (tk *levelTaker) takeAnywhere(ctx context.Context, p *party) error {
	for attempt := range table.MaxAttempts {
		if err := tk.aligner.alignParted(ctx, p.level); err != nil {
			return err
		}
		if p.short.whole && tk.goesByShare(p) {
			return p.proof()
		}
		s, done, err := tk.evenShard(ctx, p)
		if done || err != nil {
			return err
		}
		err = tk.takeFromShard(ctx, p, s)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errNoShard):
		case errors.Is(err, errShort) && p.choosesAgain():
			return errElsewhere
		case errors.Is(err, errShort) && attempt < maxDraws && (tk.redraws(p) || tk.redirects(p)):
		case errors.Is(err, errShort) && tk.areShort(p):
			return p.proof()
		case errors.Is(err, errUnaligned), errors.Is(err, errShort) && p.bucket.isSplit():
			return tk.takeFromAll(ctx, p, errors.Is(err, errUnaligned))
		default:
			return err
		}
	}
	return ErrContended
}

// evenShard returns the shard that a party takes from: the one that it last took from, or else the chosen one, or else one drawn at random.
// If a second drawn shard has more, that one is used instead for waiting callers, in a used-up bucket, and for a small demand that would
// leave the shards uneven. A large demand that would leave them uneven is taken from all shards; evenShard then returns done.
func (tk *levelTaker) evenShard(ctx context.Context, p *party) (s *shard, done bool, err error) {
	s, p.last = p.last, nil
	if s == nil {
		p.lot = cmp.Or(p.lot, p.place.lot)
		s = tk.items.draw(p.bucket, &p.lot)
	}
	switch {
	case !p.bucket.isSplit() || p.place.shard != nil:
	case p.demand.Waits(), p.bucket.isUsedUp():
		return tk.roomier(p, s), false, nil
	case tk.isStrained(p.bucket), !tk.isUneven(p.level, s):
	case p.isSmallFor(s):
		return tk.roomier(p, s), false, nil
	default:
		done, err = tk.takeEvenly(ctx, p.level, p.to)
	}
	return s, done, err
}

// roomier draws a second shard, and returns the one of the two that has more, as both were last seen. So the shards stay even without a
// call.
func (tk *levelTaker) roomier(p *party, s *shard) *shard {
	var lot lot
	other := tk.items.draw(p.bucket, &lot)
	i, j := s.image.Load(), other.image.Load()
	if i == nil || j == nil || !i.exists || !j.exists {
		return s
	}
	states := []*bucket.State{&s.traffic.placed.less(i).State, &other.traffic.placed.less(j).State}
	if at, ok := p.limits.Config.Roomiest(states, p.next(), tk.now()); ok && at == 1 {
		p.lot = lot
		return other
	}
	return s
}

// choosesAgain reports whether callers choose another place after a shard fell short: if they had chosen the shard, and if they share a
// write in a split bucket that turns out to be used up.
func (p *party) choosesAgain() bool {
	return p.bucket.isSplit() && !p.place.whole && (p.place.shard != nil || len(p.waiters) > 0 && p.bucket.isUsedUp())
}

// redraws draws another shard for a party after one fell short, if two short shards suffice to reject it.
func (tk *levelTaker) redraws(p *party) bool {
	if !tk.goesByShare(p) {
		return false
	}
	p.lot = 0
	return true
}

// takeFromAll is takeFromShards for a party after one shard fell short, or was found out of line with the others.
func (tk *levelTaker) takeFromAll(ctx context.Context, p *party, unaligned bool) error {
	err := tk.takeFromShards(ctx, p)
	if unaligned && err != nil && !errors.Is(err, errShort) {
		tk.aligner.part(ctx, p.level, err)
	}
	if IsThrottled(err) && (tk.isStrained(p.bucket) || tk.isSought(p.bucket)) && p.isSmall() {
		return p.proof() // the requests for the bucket throttle its keys: that is no outage
	}
	return err
}

// maxDraws bounds how often a shard is drawn to find a second one. If none is found, the images are outdated, and all shards are read.
const maxDraws = 8

// isStrained reports whether the store recently throttled looks at a bucket, or requests that write it.
func (c *core) isStrained(b *Bucket) bool {
	return b.pace.isStrained(c) || b.queue.pace.isStrained(c)
}

// enoughRooms is how often a request may find room that others then take, before one or two short shards suffice to reject it. Each such
// try of a request with several levels charges the other levels, and returns the tokens.
const enoughRooms = 1

// goesByShare reports whether one or two short shards suffice to reject a party, instead of a view of all shards. While all shards of a
// busy bucket are read, some tokens are refilled and taken by others, so no view proves that the shards are exhausted. The same applies if
// a request has found room that others took. A request may then be rejected although a third shard has its tokens. So it must be small
// compared with the capacity of a shard, and, unless the bucket is strained, the shards must have only a trickle.
func (tk *levelTaker) goesByShare(p *party) bool {
	return p.isSmall() && (tk.isStrained(p.bucket) || (p.bucket.isRaced() || p.rooms >= enoughRooms) && tk.isTrickle(p))
}

// isTrickle reports whether the shards of a bucket, as last seen, have only a trickle of the limits that a party is short of: no more than
// the refill within the age that a rejection from memory allows.
func (tk *levelTaker) isTrickle(p *party) bool {
	var states []*bucket.State
	since, complete := int64(math.MaxInt64), true
	p.bucket.walk((*shard).last, func(_ *shard, i *image) {
		if complete = complete && i != nil; i != nil && i.exists {
			states, since = append(states, &i.State), min(since, i.seenAt)
		}
	})
	age := tk.options.RejectionAge.Milliseconds()
	return complete && len(states) > 0 && p.limits.Config.IsTrickle(states, &p.short.image.State, &p.demand, p.short.at, since, age)
}
