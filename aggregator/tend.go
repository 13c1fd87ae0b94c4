package aggregator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Limiters refill, split and merge buckets themselves, on their way. Tending does it before they have to, for shards
// that a batch shows at work. Nothing depends on it, so a failure is only logged.

// When a shard is tended.
const (
	maxBatchAge = time.Minute              // age of the last change, above which a batch says nothing about the present
	scarceUnits = bucket.WriteCapacity / 5 // write units, below which a shard is split
	supplyTime  = 10 * time.Second         // for which a shard should have tokens, at the rate of the batch
)

// A tender tends shards.
type tender struct {
	*base
	counter *counter
	left    keySet // buckets that the log names as not tended
}

// A shift has the changes of one shard in a batch.
type shift struct {
	shard       layout.BucketKey
	state       *bucket.State // after the last change; nil when the item is gone
	was         *bucket.State // before the last change
	consumed    map[string]int64
	writes      int64 // of the item, under the present number of shards
	first, last time.Time
	atFirst     int64 // of the writes, in the first second
	atLast      int64 // in the last one
	mixed       bool  // clients of another program took of the item since its last refill
	refused     error // other programs limit by the item in a way that this one does not know: it is left alone
}

// isBusy reports whether the item was written so often that it is to be split. It counts the seconds that the batch covers completely,
// since streams give the time of a change in seconds.
func (s *shift) isBusy() bool {
	over := s.last.Truncate(time.Second).Sub(s.first.Truncate(time.Second)) - time.Second
	return bucket.IsBusy(float64(s.writes-s.atFirst-s.atLast), over)
}

// count counts a change of the item. A shard that was split or merged meanwhile is another one from then on.
func (s *shift) count(at time.Time, before, after *bucket.State) {
	if s.writes > 0 && before.Count() != after.Count() {
		s.writes, s.atFirst, s.atLast, s.first = 0, 0, 0, at
	}
	second := at.Truncate(time.Second)
	if !second.Equal(s.last.Truncate(time.Second)) {
		s.atLast = 0
	}
	if second.Equal(s.first.Truncate(time.Second)) {
		s.atFirst++
	}
	s.atLast++
	s.writes++
	s.last = at
}

// shifts returns the changes of each shard, in the order of their last ones.
func (td *tender) shifts(changes []store.Change) []*shift {
	byShard := map[layout.BucketKey]*shift{}
	var all []*shift
	for i := range changes {
		c := &changes[i]
		shard, ok := layout.ParseBucketKey(c.Key)
		if !ok {
			continue
		}
		before, after, err := td.counter.states(c)
		if err != nil {
			continue // reported when it was to be counted
		}
		s := byShard[shard]
		if s == nil {
			s = &shift{shard: shard, consumed: map[string]int64{}, first: c.At}
			byShard[shard] = s
			all = append(all, s)
		}
		s.count(c.At, &before, &after)
		s.mixed = s.mixed && before.RefilledAt == after.RefilledAt || before.TakenBy(&after, c.At.UnixMilli())
		s.refused = nil
		if s.state, s.was = &after, &before; c.New == nil {
			s.state = nil
		} else if _, err := layout.ReadState(c.New); err != nil {
			s.refused = err
		}
		for _, amount := range consumption(before.Limits, after.Limits) {
			s.consumed[amount.Limit] += amount.Tokens
		}
	}
	return all
}

// short reports whether a limit of the shard has less than is taken of it soon, and a refill would change that. A batch
// of a shorter time counts as one of that time, and of a longer one its part counts.
func (s *shift) short(now int64) bool {
	part := min(1, supplyTime.Seconds()/s.last.Sub(s.first).Seconds())
	for i := range s.state.Limits {
		l := &s.state.Limits[i]
		if n := int64(part * float64(s.consumed[l.Name])); n > 0 && l.Tokens < n && s.state.Available(l, now) > l.Tokens {
			return true
		}
	}
	return false
}

// tend looks after the shards that a batch shows.
func (td *tender) tend(ctx context.Context, changes []store.Change, b *batch) {
	now := td.options.clock()
	var group errgroup.Group
	group.SetLimit(td.options.concurrency)
	for _, s := range td.shifts(changes) {
		if now.Sub(s.last) > maxBatchAge {
			continue
		}
		if s.refused != nil {
			td.leave(s.shard.Key(), s.refused, b)
			continue
		}
		group.Go(func() error {
			what, done, err := td.tendShard(ctx, s, now.UnixMilli())
			if err != nil {
				td.log(ctx, &td.outages.tending, slog.LevelWarn, "aggregator: a bucket could not be tended", err, "what", what, "key", s.shard.Key().PK)
			}
			if done {
				b.tended(what)
			}
			return nil
		})
	}
	_ = group.Wait() // what failed is logged
}

// leave notes a bucket that is not tended, and logs it the first time.
func (td *tender) leave(key store.Key, refused error, b *batch) {
	b.note(func(r *Batch) { r.Left++ })
	if td.left.first(key) {
		td.options.logger.Warn("aggregator: a bucket is counted and otherwise left alone", "key", key.PK, "error", refused)
	}
}

// mostLeft bounds the memory of logged buckets.
const mostLeft = 1000

// A keySet remembers some keys. It is safe for concurrent use.
type keySet struct {
	mu   sync.Mutex
	keys map[store.Key]bool
}

// first reports whether a key is not remembered, and remembers it.
func (k *keySet) first(key store.Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys[key] {
		return false
	}
	if k.keys == nil || len(k.keys) == mostLeft {
		k.keys = map[store.Key]bool{}
	}
	k.keys[key] = true
	return true
}

// tendShard refills, splits or merges a shard as needed. It returns the need, and whether it was met.
func (td *tender) tendShard(ctx context.Context, s *shift, now int64) (what string, done bool, err error) {
	switch what := td.need(s, now); what {
	case refill:
		// The refill of a mixed fleet's item hands out no time in which others may have taken tokens, and leaves a note that
		// every program follows from then on.
		config := s.state.Own()
		config.Mixed = s.mixed
		var plan bucket.Plan
		if plan.Align(s.state, config, now); plan.Kind != bucket.Advance {
			return what, false, nil
		}
		w, err := s.shard.Write(&plan, layout.Lineage{})
		if err != nil {
			return what, false, err
		}
		r, err := td.table.Write(ctx, w) // one that comes too late is not needed
		if err == nil && r.Applied {
			err = td.list(ctx, s.shard, r.Item)
		}
		return what, r.Applied, err
	case split:
		done, err = td.split(ctx, s.shard, s.state.Shards, s.isBusy(), now)
		return what, done, err
	case merge:
		seen, lost := s.state, false
		if seen == nil {
			seen, lost = s.was, true
		}
		done, err = td.merge(ctx, s.shard, seen.Shards, lost, now)
		return what, done, err
	default:
		return what, false, nil
	}
}

// list enters a bucket that was refilled into the index of its resource, as the refill by a limiter does. A throttled entry is left to
// the next refill.
func (td *tender) list(ctx context.Context, k layout.BucketKey, refilled expr.Item) error {
	if !td.table.Partitioned() || layout.IsListed(refilled) {
		return nil
	}
	w, err := k.List()
	if err != nil {
		return err
	}
	if _, err = td.table.Write(ctx, w); store.OutcomeOf(err) == store.Throttled {
		return nil
	}
	return err
}

// Work that a shard may need.
const (
	nothing = ""
	refill  = "refill"
	split   = "split"
	merge   = "merge"
)

// need returns the need of a shard by its changes in the batch.
func (td *tender) need(s *shift, now int64) string {
	partitioned := td.table.Partitioned()
	switch {
	case s.state == nil:
		if partitioned && s.was.Shards > 1 && s.shard.Shard >= s.was.Shards/2 {
			return merge // its origin takes its share over, unless a merge deleted it
		}
		return nothing
	case partitioned && (s.state.Writable(now) < scarceUnits || s.isBusy()) && 2*max(s.state.Shards, 1) <= td.options.maxShards && !s.state.Carries():
		return split
	case partitioned && s.state.Shards > 1 && bucket.IsQuiet(s.writes, s.last.Sub(s.first)):
		return merge
	case s.short(now):
		return refill
	default:
		return nothing
	}
}

// split splits a shard if the bucket still has the given number of shards, unless the shard has recovered: a busy one
// is split before it is scarce.
func (td *tender) split(ctx context.Context, s layout.BucketKey, shards int, busy bool, now int64) (bool, error) {
	return td.resize(ctx, []layout.BucketKey{s}, func(states []*bucket.State, o layout.Lineage) ([]store.Write, error) {
		if states[0] == nil || states[0].Changed || states[0].Shards != shards || !busy && states[0].Writable(now) >= scarceUnits {
			return nil, nil
		}
		return s.Split(states[0], nil, o)
	})
}

// merge merges a shard with its sibling, if the number of shards has not changed. If the higher one of the two is lost, the other takes
// over its share.
func (td *tender) merge(ctx context.Context, of layout.BucketKey, shards int, lost bool, now int64) (bool, error) {
	low, high := of, of
	low.Shard, high.Shard = bucket.Sibling(of.Shard, shards)
	return td.resize(ctx, []layout.BucketKey{low, high}, func(states []*bucket.State, _ layout.Lineage) ([]store.Write, error) {
		switch {
		case states[0] == nil || states[0].Shards != shards || lost != (states[1] == nil):
			return nil, nil
		case shards < 2 || low.Shard >= shards/2:
			return nil, nil
		case lost:
			return low.Inherit(high, states[0], now)
		case !states[0].MergesWith(states[1]) || states[0].Writable(now) < scarceUnits || states[1].Writable(now) < scarceUnits:
			return nil, nil
		}
		return low.Merge(high, states[0], states[1], now)
	})
}

// resize reads shards, and does in one transaction the writes that are planned from their states and owners. It does
// none if nothing is planned. When others write the shards, resize tries again, and leaves them alone in the end.
func (td *tender) resize(
	ctx context.Context, shards []layout.BucketKey, plan func([]*bucket.State, layout.Lineage) ([]store.Write, error),
) (done bool, err error) {
	keys := make([]store.Key, len(shards))
	for i, s := range shards {
		keys[i] = s.Key()
	}
	err = td.table.Optimistic(ctx, func() (bool, error) {
		items, err := td.table.Read(ctx, keys...)
		if err != nil {
			return false, err
		}
		states := make([]*bucket.State, len(items))
		var lineage layout.Lineage
		for i, item := range items {
			if item == nil {
				continue
			}
			found, state, err := layout.ReadBucket(item)
			if err != nil {
				return false, err
			}
			states[i], lineage = &state, found.Lineage()
		}
		writes, err := plan(states, lineage)
		if err != nil || len(writes) == 0 {
			return true, err
		}
		done, err = td.table.Transact(ctx, writes)
		return done, err
	})
	if errors.Is(err, table.ErrContended) {
		err = nil // other writers came first
	}
	return done, err
}
