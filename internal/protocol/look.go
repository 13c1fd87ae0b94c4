package protocol

import (
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/table"
)

// If a whole fleet requests an exhausted bucket, the reads that prove rejections keep its keys throttled. A throttled read proves
// nothing, and the failure policy would admit requests that the bucket rejects. So the goroutines of a process share a read of a
// shard, and processes read only as often as the key can answer.

// looks reads shards, once for all goroutines of the process.
type looks struct {
	*core
	items   *items
	sharing *table.Sharing
}

// lookAt reads shards that no other goroutine of the process is reading, in one consistent batch read. The shards of one bucket are
// adjacent in the list, and are read together: if another goroutine is reading one of them, lookAt reads none of them. If nothing is left
// to read, it waits for one of the other reads. It reports whether it has made a read that was not late.
func (lk *looks) lookAt(ctx context.Context, shards []*shard, w *table.Sharer) (own bool, err error) {
	if lk.table.Immediate() { // nothing can be shared
		_, err := lk.items.readShards(ctx, shards)
		return true, err
	}
	if table.IsWithheld(ctx) { // the reads of others are withheld as well
		return false, table.ErrWithheld
	}
	this, given := lk.sharing.Shared(), shards
	var mine []*shard
	var other *table.Shared
	for len(shards) > 0 {
		together := shards
		if at := slices.IndexFunc(shards, func(s *shard) bool { return s.bucket != shards[0].bucket }); at > 0 {
			together = shards[:at]
		}
		shards = shards[len(together):]
		if under := beginLook(w, this, together); under != nil {
			other = under
		} else {
			mine = append(mine, together...)
		}
	}
	if len(mine) == 0 {
		this.End() // another goroutine may have found it at a shard that beginLook then left, and wait for it
		if err := lk.awaitPace(ctx, pacing(given, lk.core), other); err != nil {
			return false, err
		}
		_, err := w.Await(ctx, other)
		return false, err
	}
	w.Begins(this)
	run := *w
	look := func(ctx context.Context) {
		run.Run(ctx, this, func(ctx context.Context) error {
			lk.inPace(ctx, mine)
			_, err := lk.items.readShards(ctx, mine)
			return err
		})
		for _, s := range mine {
			s.looking.CompareAndSwap(this, nil)
		}
		this.End()
	}
	if !lk.background.GoOn(ctx, look) {
		look(ctx)
	}
	if err := lk.awaitPace(ctx, pacing(given, lk.core), this); err != nil {
		return false, err
	}
	return w.Await(ctx, this)
}

// pacing returns the bucket whose pace delays a look at the shards the longest.
func pacing(shards []*shard, c *core) *Bucket {
	b := shards[0].bucket
	for _, s := range shards[1:] {
		if s.bucket != b && s.bucket.pace.rest(c) > b.pace.rest(c) {
			b = s.bucket
		}
	}
	return b
}

// awaitPace waits while the pace of a bucket delays a look. It returns an error if the caller stops waiting before the look is sent: the
// bucket counts as away, the caller has no time for another call, or it does not wait for paces.
func (lk *looks) awaitPace(ctx context.Context, b *Bucket, c *table.Shared) error {
	if !b.pace.isClosed(lk.core) || table.Insists(ctx) {
		return nil
	}
	if isHasty(ctx) {
		return table.ErrWithheld
	}
	last := b.pace.lastTry(ctx, lk.grace())
	defer last.stop()
	if c.IsHeldUntil(ctx, b.stall.away(ctx, lk.core), last.C) {
		return table.ErrWithheld
	}
	return nil
}

// hastyKey is the key of contexts of requests that do not wait for paces.
type hastyKey struct{}

// hasty returns a context for a request. If requests share no writes, they do not wait for paces either: the failure policy decides after
// the first throttle.
func (c *core) hasty(ctx context.Context) context.Context {
	if c.options.WritesAtOnce > 0 || c.table.Immediate() {
		return ctx
	}
	return context.WithValue(ctx, hastyKey{}, true)
}

func isHasty(ctx context.Context) bool { return ctx.Value(hastyKey{}) != nil }

// beginLook registers a look at shards. If another look at one of them is under way, and the caller may not replace it, beginLook registers
// nothing and returns the other look.
func beginLook(w *table.Sharer, l *table.Shared, shards []*shard) (under *table.Shared) {
	for i := 0; i < len(shards); {
		under = shards[i].looking.Load()
		switch {
		case under == nil || w.Passes(under):
			if shards[i].looking.CompareAndSwap(under, l) {
				i++
			}
		default:
			for _, s := range shards[:i] {
				s.looking.CompareAndSwap(l, nil)
			}
			return under
		}
	}
	return nil
}

// lookSince returns the image of a shard as it was after an epoch.
func (lk *looks) lookSince(ctx context.Context, s *shard, epoch int64) (*image, error) {
	for w := lk.sharing.Sharer(); ; {
		if i := s.image.Load(); i != nil && i.since(epoch) {
			return i, nil
		}
		if _, err := lk.lookAt(ctx, []*shard{s}, &w); err != nil {
			return nil, err
		}
	}
}

// lookPatiently returns the image of a shard that this process has no image of.
func (lk *looks) lookPatiently(ctx context.Context, s *shard) (i *image, err error) {
	epoch := lk.NextEpoch()
	for range maxThrottles + 1 {
		if i, err = lk.lookSince(ctx, s, epoch); !isKeyThrottled(err) {
			break
		}
	}
	return i, err
}

// lookAfter returns a new image of a shard after the store has throttled a call. It counts the throttles of a request. It returns nil if
// they are too many, or if the shard cannot be read.
func (lk *looks) lookAfter(ctx context.Context, s *shard, throttles *int) *image {
	for epoch := lk.NextEpoch(); *throttles < maxThrottles && lk.background.isOpen(); {
		*throttles++
		i, err := lk.lookSince(ctx, s, epoch)
		if err == nil {
			return i
		}
		if !isKeyThrottled(err) {
			return nil
		}
	}
	return nil
}

// isContested reports whether a shard fell short when it was last seen, and others have probably taken the refill since. A look is then
// cheaper than a write.
func (it *items) isContested(c *bucket.Config, l *level, s *shard, i *image, now int64) bool {
	if it.isStrained(s.bucket) {
		return isScarce(c, l, i, i.seenAt)
	}
	return s.traffic.isOutdated(now) && !c.Covers([]*bucket.State{&i.State}, &l.demand, i.seenAt)
}

// isScarce reports whether an image has tokens for fewer than crowdCallers requests like the one of a level.
func isScarce(c *bucket.Config, l *level, i *image, now int64) bool {
	return c.Room([]*bucket.State{&i.State}, &l.demand, now, 0) < crowdCallers
}

// slowDown notes an error of a call that reads shards.
func (c *core) slowDown(ctx context.Context, err error, shards ...*shard) {
	if !isKeyThrottled(err) || table.IsWithheld(ctx) {
		return
	}
	for _, s := range shards {
		s.bucket.pace.throttle(c.sinceStart(), c.table.IntN)
		s.bucket.stall.throttled(c, err)
	}
}

// inPace waits until looks at all shards may begin. The wait ends early when the engine is closed.
func (lk *looks) inPace(ctx context.Context, shards []*shard) {
	var rest time.Duration
	for _, s := range shards {
		rest = max(rest, s.bucket.pace.rest(lk.core))
	}
	lk.sleep(ctx, rest)
}

// readStale reads the shards of levels that were not seen recently enough, or not together, in one consistent batch read for all levels. If
// the images show unknown shards, it reads these too, one level of the tree at a time.
func (lk *looks) readStale(ctx context.Context, levels []level, seen recency) error {
	w := lk.sharing.Sharer()
	for reads, throttles := 0, 0; reads < maxRounds; {
		var stale []*shard
		for i := range levels {
			stale = append(stale, lk.view(levels[i].bucket, seen).stale...)
		}
		if len(stale) == 0 {
			return nil
		}
		own, err := lk.lookAt(ctx, stale, &w)
		switch {
		case isKeyThrottled(err) && throttles < maxThrottles:
			throttles++
		case err != nil:
			return err
		case own:
			reads++
		}
	}
	return nil // the trees of shards have changed during each read
}

// maxRounds bounds the reads of one view: the tree has at most six levels.
const maxRounds = 8
