package scale

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Stream is the change stream of a table in whose first minute of an hour each of many entities is used once. It has a shard for
// each partition of the table. The changes are made when they are read, since a million of them would fill the memory.
type Stream struct {
	table  *Table
	key    layout.BucketKey // except the entity
	before bucket.State     // of each bucket
	hour   time.Time
	shards [][]use
}

// A use is a change of the bucket of an entity.
type use struct {
	entity int
	after  time.Duration // the beginning of the hour
}

// newStream returns the stream of that many entities, whose buckets were all as one of them before.
func newStream(t *Table, key layout.BucketKey, before bucket.State, hour time.Time, entities int) *Stream {
	s := &Stream{table: t, key: key, before: before, hour: hour, shards: make([][]use, t.Partitions)}
	random := rand.New(rand.NewPCG(t.Seed, 4))
	space := newSpace("", t.Partitions)
	for i := range entities {
		shard := space.find(at(s.bucket(i).Key().PK, ""))
		s.shards[shard] = append(s.shards[shard], use{i, time.Duration(random.Int64N(int64(time.Minute)))})
	}
	for _, uses := range s.shards {
		slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.after, b.after) })
	}
	return s
}

// bucket returns the key of the bucket of an entity.
func (s *Stream) bucket(entity int) layout.BucketKey {
	k := s.key
	k.Entity = "active-" + strconv.Itoa(entity)
	return k
}

// change returns the change of a use, by its place in the shard.
func (s *Stream) change(u use, place int) store.Change {
	k, when := s.bucket(u.entity), s.hour.Add(u.after)
	after := s.before
	after.Limits = slices.Clone(after.Limits)
	after.RefilledAt = when.UnixMilli()
	for i := range after.Limits {
		after.Limits[i].Consumed += 1000
	}
	return store.Change{
		Key:      k.Key(),
		Old:      k.Key().Join(k.Item(&s.before, layout.Lineage{}).Encode()),
		New:      k.Key().Join(k.Item(&after, layout.Lineage{}).Encode()),
		Sequence: store.SequenceOf(strconv.Itoa(place + 1)),
		Stream:   "2000-01-01T00:00:00.000",
		At:       when.Truncate(time.Second),
	}
}

// A follower is an aggregating process's view of a table: its items and its stream.
type follower struct {
	*Client
	stream *Stream
}

var _ store.Streamer = (*follower)(nil)

// StartStream does nothing.
func (*follower) StartStream(context.Context) error { return nil }

// Partitions returns the shards.
func (f *follower) Partitions(context.Context) (all []store.Partition, err error) {
	f.travel(1)
	for i := range f.stream.shards {
		all = append(all, store.Partition{ID: strconv.Itoa(i)})
	}
	return all, nil
}

// Children returns none.
func (*follower) Children(context.Context, string) ([]store.Partition, error) { return nil, nil }

// Changes returns changes of a shard that were made by now, at most a thousand.
func (f *follower) Changes(_ context.Context, partition string, at store.Position, limit int) (store.ChangePage, error) {
	f.travel(2)
	page := store.ChangePage{Next: at}
	shard, err := strconv.Atoi(partition)
	if err != nil {
		return page, err
	}
	place := 0
	if at.After != "" {
		if place, err = strconv.Atoi(string(at.After)); err != nil {
			return page, err
		}
	}
	since := time.Since(f.stream.hour)
	for _, u := range f.stream.shards[shard][place:] {
		if u.after > since || len(page.Changes) == min(limit, 1000) {
			break
		}
		page.Changes = append(page.Changes, f.stream.change(u, place))
		place++
	}
	if n := len(page.Changes); n > 0 {
		page.Next = store.Position{After: page.Changes[n-1].Sequence}
	}
	return page, nil
}
