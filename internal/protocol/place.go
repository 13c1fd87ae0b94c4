package protocol

import (
	"math"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A place is the part of a bucket that a request goes to: a shard, or all shards together.
//
// If requests recently fell short of a split bucket, each of its shards serves requests as an unsplit bucket does. A request chooses a
// shard, shares a write to it with others, and learns from the reply. Amounts that requests of this process are about to take from a shard
// count as taken, so requests spread over the shards as the tokens do. A request for which the shard falls short chooses again.
type place struct {
	shard *shard    // nil for any
	lot   lot       // selects the shard, or its part after a split; 0 for any
	short *shortage // if the ration of the process is used up; nil if the store decides
	whole bool      // no shard covers the request: all shards are read together

	usedUp bool // its amounts count as pending for later requests until it is decided
}

// place returns the place of a request. With again, a shard that it chose before has fallen short.
func (tk *levelTaker) place(l *level, again bool) place {
	usedUp, split := l.bucket.isUsedUp(), l.bucket.isSplit()
	if !usedUp && !split {
		return place{}
	}
	at := tk.placeIn(l, usedUp, split, again)
	at.usedUp = usedUp
	return at
}

// placeIn is place for a bucket that is used up, or split.
func (tk *levelTaker) placeIn(l *level, usedUp, split, again bool) place {
	strained := split && tk.isStrained(l.bucket)
	if l.demand.Empty() || !usedUp && (strained || !again && !l.bucket.fell()) {
		return place{whole: strained}
	}
	p := placing{tk: tk, level: l, pending: &l.bucket.shard(0).traffic.pending, usedUp: usedUp, known: true, asOf: math.MaxInt64, since: math.MaxInt64}
	p.states, p.fit, p.fits = p.stateSpace[:0], p.fitSpace[:0], p.fitsSpace[:0]
	l.bucket.walk((*shard).last, p.consider)
	switch {
	case p.isOut():
		short := p.short
		short.first.traffic.fellShort(1)
		return place{short: &short}
	case !split:
		return place{}
	case strained: // writes in parallel would prolong the throttle
		return place{whole: true}
	case len(p.fit) > 0:
		return p.roomier()
	case p.stale > 0 && p.small && tk.options.RejectionAge > 0: // otherwise, a shard that is read decides only together with the others
		return place{shard: p.unknown, lot: lotOf(p.unknown.Shard)}
	default:
		return place{whole: true}
	}
}

// A placing finds the place of a request among the shards of a bucket, as last seen.
type placing struct {
	tk *levelTaker
	*level
	pending *pendingTakes // the amounts of undecided requests of this process for the bucket
	usedUp  bool

	states      []*bucket.State // the pending amounts are subtracted from the first one
	asOf, since int64
	known       bool // all shards were seen recently enough to reject the request, and have its limits
	roomy       bool // a shard covers the request and all pending amounts
	small       bool // the request is small compared with a shard
	short       shortage

	fit     []*shard        // the shards that cover the request and the amounts under way to them
	fits    []*bucket.State // their states
	unknown *shard          // a random one of the shards that were not seen recently
	stale   int             // the number of such shards

	stateSpace, fitsSpace [4]*bucket.State
	fitSpace              [4]*shard
}

// consider adds a shard, as last seen. A missing shard was split, merged, or lost with its tokens.
func (p *placing) consider(s *shard, i *image) {
	c := &p.limits.Config
	if i == nil {
		p.known = false
		p.addStale(s)
		return
	}
	now := int64(0)
	if i.exists {
		now = p.tk.items.judgedAt(c, i, p.at)
	}
	if !i.exists || !c.InLine(&i.State, now) {
		p.known = false
		return
	}
	recent := p.tk.items.isRecent(s, i, now)
	p.small = c.IsSmall(&i.State, &p.demand)
	small := p.demand.Waits() || p.small
	at := now
	if recent && small && p.usedUp {
		at = s.traffic.rationedAt(i, now, p.demand.Waits())
	}
	p.known = p.known && (recent || i.since(p.began)) && small
	less, left := p.pending.less(i), s.traffic.placed.less(i)
	if p.short.seen == nil || i.askedAt >= p.short.seen.askedAt {
		p.short = shortage{first: s, image: less, seen: i, at: at, whole: true}
	}
	p.roomy = p.roomy || c.Covers([]*bucket.State{&less.State}, &p.demand, at)
	switch {
	case c.Covers([]*bucket.State{&left.State}, &p.demand, at):
		p.fit, p.fits = append(p.fit, s), append(p.fits, &left.State)
	case !recent && !i.since(p.began):
		p.addStale(s)
	}
	if len(p.states) == 0 {
		i = less
	}
	p.states, p.asOf, p.since = append(p.states, &i.State), min(p.asOf, at), min(p.since, i.askedAt)
}

func (p *placing) addStale(s *shard) {
	if p.stale++; p.tk.table.IntN(p.stale) == 0 {
		p.unknown = s
	}
}

// restTime is the time within which a shard refills the demand of a request that is rejected although all shards together have it.
const restTime = 5 * time.Second

// isOut reports whether the ration of the process has nothing left for the request, and the shards have only a trickle. That is so if
// pending requests take all that the shards have. It is also so if no single shard covers the request while others take from the bucket:
// what each shard has left is for them, if a shard has enough again within [restTime]. Otherwise all shards are read together.
func (p *placing) isOut() bool {
	c := &p.limits.Config
	if !p.usedUp || !p.known || p.roomy {
		return false
	}
	alone := !p.pending.any() && !p.bucket.isRaced() && !p.short.first.traffic.isFrequent()
	if (len(p.fit) > 0 || alone) && c.Covers(p.states, &p.demand, p.asOf) {
		return false
	}
	if short := &p.short.image.State; len(p.states) > 1 && len(p.fit) == 0 && !alone &&
		c.IsTrickle([]*bucket.State{short}, short, &p.demand, p.asOf, p.since, restTime.Milliseconds()) {
		return true
	}
	return c.IsTrickle(p.states, &p.short.image.State, &p.demand, p.asOf, p.since, p.tk.options.RejectionAge.Milliseconds())
}

// roomier draws two of the shards that cover the request, and returns the one that has more. So the queues of shards have similar lengths,
// and processes that see the same images choose different shards.
func (p *placing) roomier() place {
	one, lot := p.draw()
	other, otherLot := p.draw()
	if at, ok := p.limits.Config.Roomiest([]*bucket.State{p.fits[one], p.fits[other]}, &p.demand, p.at); ok && at == 1 {
		one, lot = other, otherLot
	}
	return place{shard: p.fit[one], lot: lot}
}

// draw returns one of the covering shards, in proportion to their shares, and its lot.
func (p *placing) draw() (at int, lot lot) {
	for range maxDraws {
		lot = 0
		hash := p.tk.items.hash(&lot)
		for at, s := range p.fits {
			if hash%s.Count() == p.fit[at].Shard {
				return at, lot
			}
		}
	}
	at = p.tk.table.IntN(len(p.fit))
	count := p.fits[at].Count()
	return at, lotOf(p.fit[at].Shard + count*p.tk.table.IntN(1<<16/count))
}
