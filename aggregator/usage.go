package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Each snapshot of usage knows the last change of each shard that it contains. The write's condition is that the
// snapshot contains none of the added changes. When it contains some, the failed write returns the item, and the rest
// is added then. A write whose outcome is unknown can therefore be done again, and several aggregators may do the same
// work.

// A counter counts changes in snapshots.
type counter struct {
	*base
	paces paces // how often snapshots begin
	made  time.Time
}

// fold sorts the changes of buckets into snapshots of windows. It reports unreadable changes and leaves them out.
// Trying again would not help, and would hold up all that follows.
func (ct *counter) fold(changes []store.Change, b *batch, windows ...zlimit.Window) []*snapshot {
	f := fold{windows: windows}
	for i := range changes {
		c := &changes[i]
		shard, ok := layout.ParseBucketKey(c.Key)
		if !ok || c.New == nil {
			continue
		}
		before, after, err := ct.states(c)
		if err != nil {
			ct.options.logger.Error("aggregator: a change of a bucket cannot be read, and is not counted",
				"key", c.Key.PK, "sequence", string(c.Sequence), "error", err)
			b.Unreadable++
			continue
		}
		amounts := consumption(before.Limits, after.Limits)
		e := event{index: i, shard: shard.Shard, sequence: place(c), refilled: before.RefilledAt, consumed: ct.countable(c, amounts)}
		if len(e.consumed) < len(amounts) {
			b.Unreadable++
		}
		if len(e.consumed) > 0 {
			f.add(shard, c.At, e)
			b.Counted++
		}
	}
	return f.finish()
}

// place returns what orders the changes of an item over all streams. A stream turned off and on again may begin with
// low sequences, and so may the stream of a restored table.
func place(c *store.Change) store.Sequence {
	if c.Stream == "" {
		return c.Sequence
	}
	return store.Sequence(c.Stream+"/") + c.Sequence
}

// states returns the state of an item before and after a change; the zero state where the item did not exist. Items that no
// program of this module writes are counted like all others.
func (ct *counter) states(c *store.Change) (before, after bucket.State, err error) {
	if c.Old != nil {
		before, err = layout.ReadState(c.Old)
	}
	if layout.Readable(err) == nil && c.New != nil {
		after, err = layout.ReadState(c.New)
	}
	return before, after, layout.Readable(err)
}

// countable returns the amounts of the limits that a snapshot can have figures for.
func (ct *counter) countable(c *store.Change, amounts []bucket.Amount) []bucket.Amount {
	kept := amounts[:0]
	for _, amount := range amounts {
		if layout.HasUsage(amount.Limit) {
			kept = append(kept, amount)
			continue
		}
		ct.options.logger.Error("aggregator: a limit has a name that usage has no room for, and is not counted",
			"key", c.Key.PK, "limit", amount.Limit)
	}
	return kept
}

// usage returns what [snapshot.usage] does, with how long the snapshot is kept.
func (ct *counter) usage(s *snapshot, events []event) (u *layout.UsageDelta, rest []event) {
	u, rest = s.usage(events)
	u.Kept = ct.kept(s.window, s.start)
	return u, rest
}

// kept returns how long the snapshot of a window is kept, and where it is listed.
func (ct *counter) kept(w zlimit.Window, start time.Time) layout.Kept {
	k := layout.Kept{Unlisted: ct.table.Partitioned()}
	if d := ct.options.retention[w]; d > 0 {
		k.ExpiresAt = w.End(start).Add(d).Unix()
	}
	return k
}

// count adds the events of a snapshot to its item: one UpdateItem, and one more whenever the item contains some of them
// already. It returns the events that could not be added.
func (ct *counter) count(ctx context.Context, s *snapshot, b *batch) ([]event, error) {
	left := s.events
	for len(left) > 0 {
		u, rest := ct.usage(s, left)
		w, err := u.Write()
		if err != nil {
			return left, err
		}
		b.note(func(r *Batch) { r.Writes++ })
		r, err := ct.write(ctx, s, w)
		switch {
		case err != nil:
			return left, fmt.Errorf("aggregator: count usage in %s %s: %w", w.Key.PK, w.Key.SK, err)
		case r.Applied:
			if layout.CountedEvents(r.Item) == u.Events {
				b.start(s)
			}
			left = rest
			continue
		}
		b.start(s) // an earlier try may have written it and gone no further
		rest = newer(left, layout.CountedChanges(r.Item))
		if len(rest) == len(left) {
			return left, fmt.Errorf("aggregator: count usage in %s %s: the item does not say what it contains", w.Key.PK, w.Key.SK)
		}
		left = rest
	}
	return nil, nil
}

// countAll counts snapshots, each by itself.
func (ct *counter) countAll(ctx context.Context, snapshots []*snapshot, b *batch) {
	inParallel(ct.options.concurrency, snapshots, func(s *snapshot) {
		left, err := ct.count(ctx, s, b)
		for _, e := range left {
			b.fail(e.index, err)
		}
	})
}
