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

// looks read shards, for all goroutines of the process together.
type looks struct {
	*core
	items   *items
	sharing *table.Sharing
}

// lookAt reads shards that no other goroutine of the process is reading, in one consistent batch read. The shards of a bucket,
// which stand together, are read together: none of them is while another goroutine reads one. When there is nothing to
// read, lookAt waits for one of the others. It reports whether it has read; after another's read, or one that is late, it has not.
func (lk *looks) lookAt(ctx context.Context, shards []*shard, w *table.Sharer) (own bool, err error) {
	if lk.table.Immediate() { // there is nothing to wait for
		_, err := lk.items.readShards(ctx, shards)
		return true, err
	}
	if table.IsWithheld(ctx) { // nor for the reads of others
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
		this.End() // another goroutine may have found it at a shard before beginLook left that, and wait for it
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

// pacing returns the bucket of shards whose pace holds a look back for longest.
func pacing(shards []*shard, c *core) *Bucket {
	b := shards[0].bucket
	for _, s := range shards[1:] {
		if s.bucket != b && s.bucket.pace.rest(c) > b.pace.rest(c) {
			b = s.bucket
		}
	}
	return b
}

// awaitPace waits while the pace of a bucket holds a look back. It returns an error for a caller that does not wait until the look is sent: the
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

// hasty returns a context for a request. Where requests share no writes, they do not wait for paces: the failure policy decides after the first
// throttle.
func (c *core) hasty(ctx context.Context) context.Context {
	if c.options.WritesAtOnce > 0 || c.table.Immediate() {
		return ctx
	}
	return context.WithValue(ctx, hastyKey{}, true)
}

func isHasty(ctx context.Context) bool { return ctx.Value(hastyKey{}) != nil }

// beginLook enters a look at shards. If another look at one of them is under way that the caller may not pass, it enters the look
// at none, and returns the other.
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

// lookPatiently returns the image of a shard that this process has none of.
func (lk *looks) lookPatiently(ctx context.Context, s *shard) (i *image, err error) {
	epoch := lk.NextEpoch()
	for range maxThrottles + 1 {
		if i, err = lk.lookSince(ctx, s, epoch); !isKeyThrottled(err) {
			break
		}
	}
	return i, err
}

// lookAfter returns the image of a shard after the store throttled a call: as it is from now on. It counts the throttles of a
// request, and returns nil when they are too many, or the shard cannot be read.
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

// isContested reports whether a shard had nothing to spare when it was last seen, and others have probably taken what flowed in
// since. A look is then cheaper than a write.
func (it *items) isContested(c *bucket.Config, l *level, s *shard, i *image, now int64) bool {
	if it.isStrained(s.bucket) {
		return isScarce(c, l, i, i.seenAt)
	}
	return s.traffic.isOutdated(now) && !c.Covers([]*bucket.State{&i.State}, &l.demand, i.seenAt)
}

// isScarce reports whether an image shows little more than the demand of a level: what crowdCallers callers would take.
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

// inPace waits until looks at all shards may begin. Who closes the engine does not wait for that.
func (lk *looks) inPace(ctx context.Context, shards []*shard) {
	var rest time.Duration
	for _, s := range shards {
		rest = max(rest, s.bucket.pace.rest(lk.core))
	}
	lk.sleep(ctx, rest)
}

// readStale reads the shards of levels that were not seen late enough, or not together, for all levels together. It
// makes one consistent batch read, and one more for each level of a tree that was not known.
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
	return nil // all were read, and none of the reads found a tree that stands still
}

// maxRounds bounds the reads of one view: the tree has at most six levels.
const maxRounds = 8
