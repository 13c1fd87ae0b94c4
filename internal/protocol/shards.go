package protocol

import (
	"context"
	"errors"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A bucket is split if its item is written more often than DynamoDB allows for one key. Its shards are the leaves of a tree, see package
// bucket.

// rateTime is the time over which the rate of writes is measured, and for which a merged shard is not looked up again.
const rateTime = 10 * time.Second

// evenTime is the greatest age of images that may show that shards are uneven. After other writers came first, this process does not try to
// level the shards for the same time.
const evenTime = time.Second

// A lot is a drawn hash. It selects a shard, however often the bucket is split. It is 0 before it is drawn, which happens when the bucket
// is found to be split.
type lot int

// lotOf returns the lot of a hash, or of a chosen shard. Both are less than 1<<16.
func lotOf(hash int) lot { return lot(hash | 1<<16) }

// hash returns the hash of a lot. It draws the hash on the first call.
func (it *items) hash(l *lot) int {
	if *l == 0 {
		*l = lotOf(it.table.IntN(1 << 16))
	}
	return int(*l)
}

// isOf reports whether an item is the one that a lot selects. It no longer is if the item was split, and the hash belongs to the other
// half.
func (it *items) isOf(l *lot, i *image) bool {
	return i.Count() == 1 || it.hash(l)%i.Count() == i.Shard
}

// draw returns the shard of a lot: each leaf of the tree in proportion to its share. It may return a shard that was not seen yet.
func (it *items) draw(b *Bucket, l *lot) *shard {
	s := b.shard(0)
	if s.count() <= 1 {
		return s
	}
	hash, now := it.hash(l), it.now()
	for n := s.count(); n > 1 && hash%n != s.Shard; n = s.count() {
		next := b.shard(bucket.Branch(hash, s.Shard))
		if i := next.image.Load(); i != nil && !i.exists {
			if at := s.image.Load(); now-i.seenAt < rateTime.Milliseconds() && at != nil && i.arrived > at.sameSince {
				*l = lotOf(s.Shard)
				return s // the next one was merged into this one
			}
			next.image.CompareAndSwap(i, nil) // it may have been split off again
		}
		s = next
	}
	return s
}

// isUneven reports whether taking the demand of a level from one shard of a split bucket would leave it far below others that are full. It
// uses the shards as last seen.
func (tk *levelTaker) isUneven(l *level, s *shard) bool {
	if s.image.Load() == nil {
		return false
	}
	now := tk.now()
	if now-l.bucket.uneven.Load() < evenTime.Milliseconds() {
		return false
	}
	var states []*bucket.State
	at, late := -1, false
	l.bucket.walk((*shard).last, func(other *shard, i *image) {
		if i == nil || now-i.seenAt > evenTime.Milliseconds() {
			late = true
			return
		}
		if !i.exists {
			return
		}
		if other == s {
			at = len(states)
		}
		states = append(states, &i.State)
	})
	return !late && at >= 0 && l.limits.Config.Uneven(states, at, &l.demand, now)
}

// takeEvenly takes the demand of a level from all its shards, and leaves them even. It returns false if other writers came first. This
// process then leaves the shards uneven for evenTime.
func (tk *levelTaker) takeEvenly(ctx context.Context, l *level, to *levelReceipt) (done bool, err error) {
	v, err := tk.aligner.viewInLine(ctx, l, tk.looks.seenSince(tk.NextEpoch()))
	if err != nil {
		return false, err
	}
	now := tk.now()
	c := &l.limits.Config
	parts, ok := c.Gather(v.states, l.demand.Through(c, v.states, now), true, now)
	if ok && len(parts) > 0 {
		done, err = tk.aligner.writeParts(ctx, l, &v, parts, to)
	}
	if !done {
		l.bucket.uneven.Store(now)
	}
	return done, err
}

// takeFromShards takes for a party from all shards together, after one shard fell short. So it admits every request that the unsplit bucket
// would. It reads all shards. It takes the demand from one that has all of it, or from several in one transaction. If others come first
// again and again, the shards that were found short meanwhile decide.
func (tk *levelTaker) takeFromShards(ctx context.Context, p *party) error {
	c := &p.limits.Config
	seen := tk.looks.seenFor(p.level)
	for attempt := range table.MaxAttempts {
		if err := p.awaited(); err != nil {
			return err
		}
		switch {
		case attempt < maxViews:
		case p.short.whole && p.isSmall():
			return p.proof()
		case p.bucket.pace.isStrained(tk.core): // each further view would wait for the pace of looks
			return ErrContended
		}
		v, err := tk.aligner.viewInLine(ctx, p.level, seen)
		if IsThrottled(err) && tk.judge.predictsRejection([]level{*p.level}) != nil {
			return errShort
		}
		if err != nil {
			return err
		}
		seen = tk.looks.seenSince(tk.NextEpoch()) // the next try needs later images
		now := tk.now()
		p.shortenWaits(tk.core, now)
		p.choose(c, v.states, now)
		if !c.Covers(v.states, &p.demand, now) {
			return errShort
		}
		if done, err := tk.takeFromView(ctx, p, &v, now, attempt > 0); done || err != nil {
			return err
		}
		if err := tk.table.Pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// redirects sends a party to the shard that, as last seen, has most for its next caller. It reports whether a shard has enough. It ignores
// the shard that was just found short.
func (tk *levelTaker) redirects(p *party) bool {
	if !p.bucket.isSplit() {
		return false
	}
	var stateSpace [4]*bucket.State
	var shardSpace [4]*shard
	states, shards, now := stateSpace[:0], shardSpace[:0], tk.now()
	p.bucket.walk((*shard).last, func(s *shard, i *image) {
		if i != nil && i.exists && i != p.short.image && now-i.seenAt < evenTime.Milliseconds() && p.limits.Config.InLine(&i.State, now) {
			states, shards = append(states, &s.traffic.placed.less(i).State), append(shards, s)
		}
	})
	at, ok := p.limits.Config.Roomiest(states, p.next(), p.at)
	if ok {
		p.lot = lotOf(shards[at].Shard)
	}
	return ok
}

// areShort reports whether all shards together fall short of the demand of a party's next caller, and have only a trickle. It uses images
// that arrived after the request, or are recent enough for a rejection from memory. They were not read together, see [view], so the demand
// must be small.
func (tk *levelTaker) areShort(p *party) bool {
	if !p.bucket.isSplit() || !p.isSmall() {
		return false
	}
	c, now := &p.limits.Config, tk.now()
	var space [4]*bucket.State
	states, complete := space[:0], true
	p.bucket.walk((*shard).last, func(s *shard, i *image) {
		complete = complete && i != nil && i.exists && (i.since(p.began) || tk.items.isRecent(s, i, now)) && c.InLine(&i.State, now)
		if complete { // a missing shard was split, merged, or lost with its tokens; a view shows which
			states = append(states, &i.State)
		}
	})
	return complete && !c.Covers(states, p.next(), p.at) && tk.isTrickle(p)
}

// maxViews is the number of views of all shards after which a request gives up, since others came first each time.
const maxViews = 3

// takeFromView takes the demand of a party from one shard or from several, given a view that covers it. If the callers of a shared write do
// not fit into one shard together, they take from one shard after another: only a demand that no single shard covers needs a transaction.
// It returns false if others came first. If they also did before, it takes from a random shard that has the demand, so that processes that
// read at the same time take from different shards.
func (tk *levelTaker) takeFromView(ctx context.Context, p *party, v *view, now int64, again bool) (done bool, err error) {
	c := &p.limits.Config
	at, ok := c.Roomiest(v.states, &p.demand, now)
	if !ok && len(p.waiters) > 1 {
		if at, ok = c.Roomiest(v.states, p.next(), now); ok {
			p.choose(c, v.states[at:at+1], now)
		}
	}
	if ok && !v.isWhole() && c.Opens(v.states, &p.demand, now) {
		ok = false
	}
	if ok && again {
		at = tk.anyWith(c, v.states, &p.demand, now)
	}
	if ok || v.isWhole() {
		s := p.bucket.shard(0)
		if ok {
			s = v.shards[at]
		}
		p.lot = lotOf(s.Shard)
		p.judgeAt(now)
		err := tk.takeFromShard(ctx, p, s)
		return err == nil, unlessMoved(err)
	}
	parts, ok := c.Gather(v.states, &p.demand, false, now)
	if !ok {
		return false, nil
	}
	return tk.aligner.writeParts(ctx, p.level, v, parts, p.to)
}

// anyWith returns a random one of the shards that have the whole demand. There must be one.
func (tk *levelTaker) anyWith(c *bucket.Config, states []*bucket.State, d *bucket.Demand, now int64) int {
	at := tk.table.IntN(len(states))
	for !c.Covers(states[at:at+1], d, now) {
		at = (at + 1) % len(states)
	}
	return at
}

// unlessMoved drops errors about shards that changed since they were read.
func unlessMoved(err error) error {
	if errors.Is(err, errShort) || errors.Is(err, errNoShard) || errors.Is(err, errUnaligned) {
		return nil
	}
	return err
}

// writeParts takes parts from shards in one transaction.
func (al *aligner) writeParts(ctx context.Context, l *level, v *view, parts []bucket.Part, to *levelReceipt) (done bool, err error) {
	if len(l.demand.Slots()) > 0 { // it was split meanwhile: the slots are taken in a separate write
		return false, errOutdated
	}
	if done, err = al.items.transact(ctx, v.planned(parts, l.limits), nil, al.table.Transact); !done || err != nil {
		return false, err
	}
	to.tookParts(l, v, parts)
	if l.demand.Waits() {
		al.bookParts(ctx, to)
	}
	return true, nil
}

// tookParts notes the tokens that the parts of a demand take from the shards of a view.
func (t *levelReceipt) tookParts(l *level, v *view, parts []bucket.Part) {
	t.took(l, nil, nil, nil)
	for i := range parts {
		s, image, amounts := v.shards[parts[i].At], v.images[parts[i].At], parts[i].Amounts
		known := parts[i].Plan.Lives(&image.State, s.livesOf(image).list())
		if parts[i].At == 0 {
			amounts, known = l.limits.Config.Entries(&l.demand, amounts, known)
		}
		if len(amounts) > 0 {
			t.parts = append(t.parts, shardAmounts{s, amounts, &lives{all: known}})
		}
	}
}

// bookParts reads the shards of a transaction. The images may include later writes, so a caller may wait too long, but never too short.
func (al *aligner) bookParts(ctx context.Context, to *levelReceipt) {
	shards := make([]*shard, len(to.parts))
	for i := range to.parts {
		shards[i] = to.parts[i].shard
	}
	images, err := al.items.readShards(ctx, shards)
	for i, s := range shards {
		b := booking{shard: s, later: true}
		if err == nil && images[i].exists {
			b.image = images[i]
		}
		to.book(append(to.bookings(), b))
	}
}
