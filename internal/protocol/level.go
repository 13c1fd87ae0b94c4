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

// A level is a bucket of a request: of its entity or of one of the parents, for its resource or for a wider one. It has
// the amounts for that bucket, and the limits. A level is never changed: when a part of one turns out to be outdated,
// all levels are built again.
type level struct {
	bucket   *Bucket
	limits   *Limits
	demand   bucket.Demand
	began    int64           // epoch when the request came
	rooms    int             // how often the request has found room that others took before it
	at       int64           // when the request came, epoch milliseconds: it is judged by that reading
	came     arrival         // of a request that waits
	patience int64           // how long it waits from then on, milliseconds
	idle     bool            // nothing is taken of it
	first    bool            // it is taken from before those that are not
	kept     []bucket.Amount // slots that the line of the bucket keeps for its first caller from this one
	work     *work           // the memory of the request; nil for one of several levels, for slots, and once a shared write has the level
	position
}

// begin notes when the request of a new level came, and how often it has found room that others took.
func (l *level) begin(rooms int, came arrival) {
	l.demand.At = came.at
	l.rooms, l.at, l.came, l.patience = rooms, came.at, came, l.demand.Wait
	l.idle = l.demand.Empty() && len(l.demand.Slots()) == 0
}

// A position says where a level stands beside the first one of its request.
type position struct {
	ancestor int8 // how far the entity is above that of the request
	wider    int8 // how many resources wider than that of the request the resource is
}

// A levelTaker takes what one level asks, for one caller or for several who share a write.
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

// take takes the demand of one level, alone or together with other callers. It returns errShort if the level falls short, as seen
// since the request arrived or within the age of a rejection from memory. If other processes write the bucket often, a throttled
// write is retried at the pace of the bucket's writes. If tokens that are still to be returned make up for the shortage, they are
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

// held returns the demand of a level, with the tokens still to be given back to its bucket.
func (l *level) held() *bucket.Demand {
	if !l.bucket.pendingRefunds.owes.Load() {
		return &l.demand
	}
	return l.demand.Holding(l.bucket.pendingRefunds.amounts())
}

// takePatiently takes the demand of a level, and waits where the store throttles it. A lasting throttle is no outage if
// the store names the key as its reason, and others take the little that flows in.
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

// takePlaced takes the demand of a level from the place that was chosen for it, and waits where the store throttles it. It returns
// errElsewhere if the request is to choose again.
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

// isExhausted reports whether a bucket that is sought is scarce.
func (tk *levelTaker) isExhausted(l *level) bool { return tk.isScarce(l) && tk.isSought(l.bucket) }

// isScarce reports whether the shards of a bucket had tokens for a few requests each when they were last seen.
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

// takeInTurn takes the demand of a level by a write of its own, or one that it shares with other callers. A rejection that
// takes no call does not wait for the turn of one.
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
	if l.work != nil { // a caller that gives up leaves the level to the write
		l.work.kept, l.work = true, nil
	}
	return tk.shared.await(ctx, q, &claim{l, to, at})
}

// A work is the memory of a request: of its level, if it has one, and of a write of its own. It is reused.
type work struct {
	levels *[1]level
	kept   bool // the levels are: a shared write may refer to them after the request
	party  party
	plan   bucket.Plan
}

var works = sync.Pool{New: func() any { return &work{levels: new([1]level)} }}

// recycle allows later requests to use the memory.
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

// takeDirect takes for a party by one write, and notes how the store takes the writes of the bucket.
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

// takeAnywhere takes for a party from a shard drawn at random, or from several if that one falls short. A shard that turns out to
// be split serves only its part of the lots, as if the party had known of the split. Otherwise all processes that know fewer
// shards would use the first one. A party that has taken from a shard continues there, unless another one has more: its image shows
// without a call whether the others fall short.
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

// evenShard returns the shard that a party takes from: the one that it has chosen, and otherwise the one that it last took from, or that of
// its lot. Another one that has more takes its place for callers that wait, in a bucket that is used up, and for a small demand that would
// leave the shards uneven. A large demand is taken from all shards then, and is done.
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

// roomier returns a shard, or another one that is drawn if that has more, as both were last seen. So the shards stay even without a call.
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

// choosesAgain reports whether those who fall short of a shard choose another place: all who have chosen it, and those who share a write in a
// split bucket that turns out to be used up.
func (p *party) choosesAgain() bool {
	return p.bucket.isSplit() && !p.place.whole && (p.place.shard != nil || len(p.waiters) > 0 && p.bucket.isUsedUp())
}

// redraws draws another shard for a party that found one short, if two such shards decide that it falls short.
func (tk *levelTaker) redraws(p *party) bool {
	if !tk.goesByShare(p) {
		return false
	}
	p.lot = 0
	return true
}

// takeFromAll is takeFromShards for a party that one shard falls short of, or whose shard is not in line with the others.
func (tk *levelTaker) takeFromAll(ctx context.Context, p *party, unaligned bool) error {
	err := tk.takeFromShards(ctx, p)
	if unaligned && err != nil && !errors.Is(err, errShort) {
		tk.aligner.part(ctx, p.level, err)
	}
	if IsThrottled(err) && (tk.isStrained(p.bucket) || tk.isSought(p.bucket)) && p.isSmall() {
		return p.proof() // requests for the bucket keep its keys throttled: that is no outage
	}
	return err
}

// maxDraws bounds how often a shard is drawn to find a second one short. All shards are looked at where that fails,
// since the images of them are outdated.
const maxDraws = 8

// isStrained reports whether the store recently throttled looks at a bucket, or requests that write it.
func (c *core) isStrained(b *Bucket) bool {
	return b.pace.isStrained(c) || b.queue.pace.isStrained(c)
}

// enoughRooms is how often a request may find room that others then take, until shards that fall short reject it. Each time, a
// request of several levels charges the other levels and returns the tokens.
const enoughRooms = 1

// goesByShare reports whether one or two shards decide that a party falls short, and not a view of all shards. In a bucket that
// many processes write, some tokens are refilled while all shards are read, and others take them, so no view proves that the
// shards are exhausted. The same applies if a request has found room that others took. A request may then be rejected although a
// third shard has its tokens, so it must be small compared with the capacity of a shard. Unless the bucket is strained, it must
// also be a trickle.
func (tk *levelTaker) goesByShare(p *party) bool {
	return p.isSmall() && (tk.isStrained(p.bucket) || (p.bucket.isRaced() || p.rooms >= enoughRooms) && tk.isTrickle(p))
}

// isTrickle reports whether the shards of a bucket, as they were last seen, have only a trickle of what a party is short of, within the age
// of a rejection from memory.
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
