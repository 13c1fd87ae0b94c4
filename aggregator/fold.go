package aggregator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An event is a change of a shard by which something was consumed, or given back.
type event struct {
	index    int // of the change in its batch
	shard    int
	sequence store.Sequence  // after the name of its stream
	refilled int64           // when the bucket was refilled before, epoch milliseconds; 0 for a new one
	consumed []bucket.Amount // net, without zeros
}

// A snapshot is the addition of a batch to the item of one bucket and window.
type snapshot struct {
	bucket layout.BucketKey // of shard 0
	window zlimit.Window
	start  time.Time
	events []event // by shard and sequence; may hold an event twice
	begins bool    // by the first event, the bucket was not refilled earlier in the window
}

func (s *snapshot) key() store.Key {
	return layout.UsageKey{
		NS: s.bucket.NS, Entity: s.bucket.Entity, Resource: s.bucket.Resource, WindowKey: layout.WindowKey(string(s.window), s.start),
	}.Key()
}

// snapshotID identifies a snapshot.
type snapshotID struct {
	bucket layout.BucketKey
	window zlimit.Window
	start  int64 // epoch seconds
}

// A fold sorts events into snapshots.
type fold struct {
	windows   []zlimit.Window
	snapshots map[snapshotID]*snapshot
	order     []*snapshot // as they were found
}

// add adds an event of a shard at a time to the snapshot of each window of the fold.
func (f *fold) add(shard layout.BucketKey, at time.Time, e event) {
	whole := shard
	whole.Shard = 0
	for _, w := range f.windows {
		start := w.Start(at)
		id := snapshotID{whole, w, start.Unix()}
		s := f.snapshots[id]
		if s == nil {
			s = &snapshot{bucket: whole, window: w, start: start, begins: e.refilled < start.UnixMilli()}
			if f.snapshots == nil {
				f.snapshots = map[snapshotID]*snapshot{}
			}
			f.snapshots[id] = s
			f.order = append(f.order, s)
		}
		s.events = append(s.events, e)
	}
}

// order puts new snapshots after the others, since they may have to wait.
func (s *snapshot) order(other *snapshot) int {
	switch {
	case s.begins == other.begins:
		return 0
	case s.begins:
		return 1
	default:
		return -1
	}
}

// finish returns the snapshots with their events in order, those that begin last.
func (f *fold) finish() []*snapshot {
	slices.SortStableFunc(f.order, (*snapshot).order)
	for _, s := range f.order {
		slices.SortStableFunc(s.events, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.sequence, b.sequence))
		})
	}
	return f.order
}

// consumption returns the consumption of each limit by a change of a bucket item, without zeros, given the limits
// before and after it. An item counts its consumption since its creation, modulo 2^64. A new item, or a new limit,
// counts from zero. Consumption by an item or a limit that is gone was counted before.
func consumption(before, after []bucket.Limit) []bucket.Amount {
	var consumed []bucket.Amount
	for i := range after {
		l := &after[i]
		n := bucket.Amount{Limit: bucket.LimitOf(l.Name), Tokens: l.Consumed, FromChildren: l.FromChildren(), FromNarrower: l.FromNarrower()}
		if at := slices.IndexFunc(before, func(b bucket.Limit) bool { return b.Name == l.Name }); at >= 0 {
			n.Tokens -= before[at].Consumed
			n.FromChildren -= before[at].FromChildren()
			n.FromNarrower -= before[at].FromNarrower()
		}
		if n.IsZero() || l.Name == bucket.WriteUnits {
			continue
		}
		if at := slices.IndexFunc(consumed, func(c bucket.Amount) bool { return c.Limit == n.Limit }); at >= 0 { // of other parts of the limit
			if sum, fits := consumed[at].Plus(n); fits {
				consumed[at] = sum
				continue
			}
		}
		consumed = append(consumed, n)
	}
	return consumed
}

// newer returns the events behind those that an item has counted, shard by shard.
func newer(events []event, counted map[int]store.Sequence) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.sequence <= counted[e.shard] })
}

// usage returns the sum of the events of the snapshot, each once. If a sum would not fit into 64 bits, it also returns the remaining
// events: the item could hold such a sum, but one write cannot add it.
func (s *snapshot) usage(events []event) (u *layout.UsageDelta, rest []event) {
	u = &layout.UsageDelta{
		NS: s.bucket.NS, Entity: s.bucket.Entity, Resource: s.bucket.Resource, Window: string(s.window), Start: s.start,
	}
	for i := range events {
		e := &events[i]
		if i > 0 && e.shard == events[i-1].shard && e.sequence == events[i-1].sequence {
			continue
		}
		if overflows(u.Consumed, e.consumed) {
			return u, events[i:]
		}
		u.Events++
		for _, c := range e.consumed {
			at, found := find(u.Consumed, c.Limit)
			if !found {
				u.Consumed = slices.Insert(u.Consumed, at, bucket.Amount{Limit: c.Limit})
			}
			u.Consumed[at], _ = u.Consumed[at].Plus(c) // which fits
		}
		if last := len(u.Shards) - 1; last < 0 || u.Shards[last].Shard != e.shard {
			u.Shards = append(u.Shards, layout.ShardChanges{Shard: e.shard, First: e.sequence})
		}
		u.Shards[len(u.Shards)-1].Last = e.sequence
	}
	return u, nil
}

// find returns where a limit is, or belongs, in amounts that are sorted by name.
func find(amounts []bucket.Amount, limit string) (at int, found bool) {
	return slices.BinarySearchFunc(amounts, limit, func(a bucket.Amount, limit string) int { return strings.Compare(a.Limit, limit) })
}

// overflows reports whether a sum with more would not fit 64 bits.
func overflows(sums, more []bucket.Amount) bool {
	return slices.ContainsFunc(more, func(a bucket.Amount) bool {
		at, found := find(sums, a.Limit)
		if !found {
			return false
		}
		_, fits := sums[at].Plus(a)
		return !fits
	})
}
