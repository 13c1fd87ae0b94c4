package protocol

import (
	"context"
	"errors"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A bucket whose item is written more often than DynamoDB serves one key is divided. Its shards are the leaves of a tree,
// see package bucket.

// rateTime is the time over which the rate of writes is measured, and for which a shard that was merged is not looked for
// again.
const rateTime = 10 * time.Second

// evenTime is how old an image of a shard may be by which shards are found uneven. When other writers came first, this
// process does not try to make them even again for as long.
const evenTime = time.Second

// draw returns a shard at random: each leaf of the tree as often as its share says. A leaf that is not known yet is
// returned as it is.
func (e *Engine) draw(b *Bucket) *shard {
	s := b.shard(0)
	if s.count() <= 1 {
		return s
	}
	hash, now := e.table.IntN(1<<16), e.now()
	for n := s.count(); n > 1 && hash%n != s.Shard; n = s.count() {
		next := b.shard(bucket.Branch(hash, s.Shard))
		if i := next.image.Load(); i != nil && !i.exists {
			if now-i.seenAt < rateTime.Milliseconds() {
				return s // merged, and what is left is here
			}
			next.image.CompareAndSwap(i, nil) // it may have split off again
		}
		s = next
	}
	return s
}

// isUneven reports whether taking the demand of a level from one shard would leave it far below others that are full.
// It goes by the shards as they were seen of late.
func (e *Engine) isUneven(l *level, s *shard) bool {
	if !l.bucket.divided() || s.image.Load() == nil {
		return false
	}
	now := e.now()
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

// takeEvenly takes the demand of a level from all its shards, and leaves them even. It returns false when other writers
// came first, and this process then leaves the shards uneven for evenTime.
func (e *Engine) takeEvenly(ctx context.Context, l *level, to *taking) (done bool, err error) {
	v, err := e.viewInLine(ctx, l, e.seenSince(e.NextEpoch()))
	if err != nil {
		return false, err
	}
	now := e.now()
	parts, ok := l.limits.Config.Gather(v.states, &l.demand, true, now)
	if ok && len(parts) > 0 {
		done, err = e.writeParts(ctx, l, v.shards, parts, to)
	}
	if !done {
		l.bucket.uneven.Store(now)
	}
	return done, err
}

// takeFromShards takes the demand of a level, which one shard falls short of, from the shards together. So it admits
// what the undivided bucket would. It looks at all shards. It takes the demand from one that has all of it, or what
// each has of it in one transaction.
func (e *Engine) takeFromShards(ctx context.Context, l *level, to *taking) error {
	c := &l.limits.Config
	seen, tries := e.seenFor(l), 0
	return e.table.Optimistic(ctx, func() (bool, error) {
		strained := l.bucket.pace.isStrained(&e.items)
		if tries++; strained && tries > strainedTries {
			return false, ErrContended
		}
		v, err := e.viewInLine(ctx, l, seen)
		if IsThrottled(err) && e.foreseen([]level{*l}) {
			return false, errShort
		}
		if err != nil {
			return false, err
		}
		seen = e.seenSince(e.NextEpoch()) // of the next try: what this one sees is outdated then
		now := e.now()
		if !c.Covers(v.states, &l.demand, now) {
			return false, errShort
		}
		at, ok := c.Roomiest(v.states, &l.demand, now)
		if ok && strained {
			at = e.anyWith(c, v.states, &l.demand, now)
		}
		if ok || v.isWhole() {
			s := l.bucket.shard(0)
			if ok {
				s = v.shards[at]
			}
			err := e.takeFromShard(ctx, l, s)
			if err == nil {
				to.took(l, s, l.demand.Amounts)
			}
			return err == nil, unlessMoved(err)
		}
		parts, ok := c.Gather(v.states, &l.demand, false, now)
		if !ok {
			return false, nil
		}
		return e.writeParts(ctx, l, v.shards, parts, to)
	})
}

// strainedTries bounds the tries of one request to take from several shards while the store throttles them: each waits for the
// pace of looks.
const strainedTries = 3

// anyWith returns one of those shards at random that have all of a demand, of which there is one at least. Processes that
// look at the same time then do not all take from the same one.
func (e *Engine) anyWith(c *bucket.Config, states []*bucket.State, d *bucket.Demand, now int64) int {
	at := e.table.IntN(len(states))
	for !c.Covers(states[at:at+1], d, now) {
		at = (at + 1) % len(states)
	}
	return at
}

// unlessMoved drops errors that say that the shards changed since they were read.
func unlessMoved(err error) error {
	if errors.Is(err, errShort) || errors.Is(err, errNoShard) {
		return nil
	}
	return err
}

// writeParts takes parts from shards in one transaction.
func (e *Engine) writeParts(ctx context.Context, l *level, shards []*shard, parts []bucket.Part, to *taking) (done bool, err error) {
	writes := make([]store.Write, len(parts))
	for i := range parts {
		if writes[i], err = shards[parts[i].At].Write(&parts[i].Plan, l.limits.Owner); err != nil {
			return false, err
		}
	}
	done, err = e.table.Transact(ctx, writes)
	if !done || err != nil {
		return false, err
	}
	to.took(l, nil, nil)
	for i := range parts {
		s := shards[parts[i].At]
		s.image.Store(nil) // a transaction returns no images
		if len(parts[i].Amounts) > 0 {
			to.parts = append(to.parts, shardAmounts{s, parts[i].Amounts})
		}
	}
	return true, nil
}

// viewInLine returns the shards of a level in line with its limits. It reads those that were not seen.
func (e *Engine) viewInLine(ctx context.Context, l *level, seen sight) (view, error) {
	if err := e.readStale(ctx, []level{*l}, seen); err != nil {
		return view{}, err
	}
	v := e.view(l.bucket, seen)
	return v, e.bringInLine(ctx, l, &v)
}

// bringInLine brings the shards of a view in line with the limits of a level, by writes that take nothing. A reading that shows
// them out of line is forgotten: the next view would plan from what is no longer there.
func (e *Engine) bringInLine(ctx context.Context, l *level, v *view) error {
	if !l.inLine(v.states, e.now()) {
		l.bucket.reading.Store(nil)
	}
	if done, err := e.alignTogether(ctx, l, v); done || err != nil {
		return err
	}
	for at, s := range v.shards {
		i := v.images[at]
		if l.limits.Config.InLine(&i.State, e.now()) {
			continue
		}
		i, err := e.align(ctx, l, s, i)
		if err != nil {
			return err
		}
		v.images[at], v.states[at] = i, &i.State
	}
	return nil
}

// alignTogether brings the shards of a divided bucket in line in one transaction, and leaves them even. It returns false
// when no shard needs it, when other writers came first, and when others have changed the shards again since. Aligned one
// by one, a shard moves its stamp. With it moves the time from which on the refill that full shards could not hold belongs
// to the others. The bucket would lose tokens that it was told to have.
func (e *Engine) alignTogether(ctx context.Context, l *level, v *view) (done bool, err error) {
	now, differs := e.now(), false
	for _, i := range v.images {
		if l.limits.Config.InLine(&i.State, now) {
			continue
		}
		differs = true
		if _, err := e.confirm(ctx, l, l.limits, i); err != nil {
			return false, err
		}
	}
	if !differs || v.isWhole() {
		return false, nil
	}
	parts, ok := l.limits.Config.Gather(v.states, &bucket.Demand{}, true, now)
	if !ok || len(parts) < len(v.shards) {
		return false, nil
	}
	var nothing taking
	if done, err = e.writeParts(ctx, l, v.shards, parts, &nothing); !done || err != nil {
		return false, err
	}
	images, err := e.readShards(ctx, v.shards)
	if err != nil {
		return false, err
	}
	for at, i := range images {
		if !i.exists {
			return false, errOutdated // the shards are others now
		}
		v.images[at], v.states[at] = i, &i.State
	}
	return l.inLine(v.states, e.now()), nil // others may have changed them again
}

// align brings a shard in line with the limits of a level by a write that takes nothing.
func (e *Engine) align(ctx context.Context, l *level, s *shard, i *image) (aligned *image, err error) {
	limits := l.limits
	err = e.table.Optimistic(ctx, func() (bool, error) {
		if limits, err = e.confirm(ctx, l, limits, i); err != nil {
			return false, err
		}
		var plan bucket.Plan
		now := e.now()
		if plan.Align(&i.State, &limits.Config, now); !plan.Writes() {
			return false, &CrowdedError{s.Entity, s.Resource}
		}
		next, applied, err := e.write(ctx, s, limits.Owner, i, &plan, now)
		if err == nil && next == nil {
			next, err = e.readShard(ctx, s)
		}
		if err != nil {
			return false, err
		}
		if !next.exists {
			return false, errOutdated // the shards are others now
		}
		i = next
		return applied || limits.Config.InLine(&i.State, e.now()), nil
	})
	return i, err
}
