package protocol

import (
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// An exhausted bucket that a whole fleet asks for keeps its keys throttled, by the reads that prove rejections. A process that
// is throttled learns nothing, and a failure policy for outages would admit what the bucket rejects. So the goroutines of a
// process share a read of a shard, and each process reads as often as the key can answer all of them.

// A look is a read of shards that is under way. Other goroutines that have to read one of them wait for it.
type look struct {
	done chan struct{} // closed when the read has ended
	err  error         // an outage that the read met, which is that of all who wait; set before done is closed
}

// lookAt reads shards that no other goroutine of the process is reading, in one consistent batch read. The shards of a bucket,
// which stand together, are read together: none of them is while another goroutine reads one. When there is nothing to
// read, lookAt waits for one of the others, and own is false.
func (it *items) lookAt(ctx context.Context, shards []*shard) (own bool, err error) {
	this := &look{done: make(chan struct{})}
	var mine []*shard
	var other *look
	for len(shards) > 0 {
		together := shards
		if at := slices.IndexFunc(shards, func(s *shard) bool { return s.bucket != shards[0].bucket }); at > 0 {
			together = shards[:at]
		}
		shards = shards[len(together):]
		if under := this.begin(together); under != nil {
			other = under
		} else {
			mine = append(mine, together...)
		}
	}
	if len(mine) == 0 {
		close(this.done)
		return false, it.await(ctx, other)
	}
	defer func() {
		if isOutage(err) && ctx.Err() == nil {
			this.err = err
		}
		for _, s := range mine {
			s.looking.Store(nil)
		}
		close(this.done)
	}()
	if err := it.inPace(ctx, mine); err != nil {
		return true, err
	}
	_, err = it.readShards(ctx, mine)
	return true, err
}

// begin has a look begin at shards. When another look at one of them is under way, it begins at none, and returns the other.
func (l *look) begin(shards []*shard) (under *look) {
	for i := 0; i < len(shards); {
		if shards[i].looking.CompareAndSwap(nil, l) {
			i++
		} else if under = shards[i].looking.Load(); under != nil {
			for _, s := range shards[:i] {
				s.looking.Store(nil)
			}
			return under
		}
	}
	return nil
}

// await waits for a look of another goroutine.
func (it *items) await(ctx context.Context, other *look) error {
	select {
	case <-other.done:
		if err := it.table.Yield(ctx); err != nil {
			return err
		}
		return other.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookSince returns the image of a shard as it was after an epoch.
func (it *items) lookSince(ctx context.Context, s *shard, epoch int64) (*image, error) {
	for {
		if i := s.image.Load(); i != nil && i.since(epoch) {
			return i, nil
		}
		if _, err := it.lookAt(ctx, []*shard{s}); err != nil {
			return nil, err
		}
	}
}

// lookPatiently returns the image of a shard that this process has none of.
func (it *items) lookPatiently(ctx context.Context, s *shard) (i *image, err error) {
	epoch := it.NextEpoch()
	for range patience + 1 {
		if i, err = it.lookSince(ctx, s, epoch); !isKeyThrottled(err) {
			break
		}
	}
	return i, err
}

// lookAfter returns the image of a shard after the store throttled a call: as it is from now on. It counts the throttles of a
// request, and returns nil when they are too many, or the shard cannot be read.
func (it *items) lookAfter(ctx context.Context, s *shard, throttles *int) *image {
	for epoch := it.NextEpoch(); *throttles < patience; {
		*throttles++
		i, err := it.lookSince(ctx, s, epoch)
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
	if s.bucket.pace.isStrained(it) {
		return isScarce(c, l, i, i.seenAt)
	}
	return s.traffic.isOutdated(now) && !c.Covers([]*bucket.State{&i.State}, &l.demand, i.seenAt)
}

// isScarce reports whether an image shows little more than the demand of a level: what crowd callers would take.
func isScarce(c *bucket.Config, l *level, i *image, now int64) bool {
	return c.Room([]*bucket.State{&i.State}, &l.demand, now, 0) < crowd
}

// slowDown notes an error of a call that reads shards.
func (it *items) slowDown(err error, shards ...*shard) {
	if !isKeyThrottled(err) {
		return
	}
	for _, s := range shards {
		s.bucket.pace.throttle(it.sinceStart(), it.table.IntN)
	}
}

// inPace waits until looks at all shards may begin.
func (it *items) inPace(ctx context.Context, shards []*shard) error {
	var rest time.Duration
	for _, s := range shards {
		rest = max(rest, s.bucket.pace.rest(it))
	}
	return it.table.Sleep(ctx, rest)
}
