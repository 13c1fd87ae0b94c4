package protocol

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Succeed copies the balances of the bucket of one entity to the bucket of another entity, for the same resource, in one transaction over
// all shards. It counts nothing as consumption. It returns the limits whose balances changed, and whether the bucket is a successor. A
// bucket that admits requests, or has admitted some, is not a successor, and is not changed. A bucket that already has these balances is
// not changed either.
func (e *Engine) Succeed(ctx context.Context, from, to, resource string) (changes []bucket.BalanceChange, succeeds bool, err error) {
	s := succession{aligner: &e.aligner, from: e.Memory.Bucket(from, resource), to: e.Memory.Bucket(to, resource)}
	err = e.core.table.Optimistic(ctx, func() (done bool, err error) {
		done, succeeds, err = s.try(ctx)
		return done, err
	})
	return s.changes, succeeds, unlessMoved(err)
}

// A succession is a call of [Engine.Succeed].
type succession struct {
	*aligner
	from, to *Bucket
	changes  []bucket.BalanceChange // from the first try, since its reply may have been lost
	tried    bool
}

// try makes one try. It returns false if other writers came first.
func (s *succession) try(ctx context.Context) (done, succeeds bool, err error) {
	epoch := s.NextEpoch()
	seen := s.looks.seenSince(epoch)
	if err := s.looks.readStale(ctx, []level{{bucket: s.from, began: epoch}, {bucket: s.to, began: epoch}}, seen); err != nil {
		return false, false, err
	}
	was, is := s.looks.view(s.from, seen), s.looks.view(s.to, seen)
	if len(was.stale)+len(is.stale) > 0 {
		return false, false, nil
	}
	for _, state := range is.states {
		if !state.Disabled || state.HasServed() {
			return true, false, nil
		}
	}
	items := s.successors(&was, &is)
	if items == nil {
		return true, true, nil
	}
	if s.note(&was, &is); len(is.states) == 0 {
		s.changes = nil // the bucket had nothing
	}
	done, err = s.succeed(ctx, items)
	for _, shard := range is.shards {
		shard.image.Store(nil) // a transaction returns no images
	}
	s.to.first.image.Store(nil)
	s.to.reading.Store(nil)
	return done, true, err
}

// successors returns the items that the bucket should have, nil if it already has them. If there is nothing to succeed, they have no
// limits.
func (s *succession) successors(was, is *view) []layout.Successor {
	states, same := was.states, true
	if len(states) == 0 {
		if len(is.states) == 0 {
			return nil
		}
		states = []*bucket.State{{RefilledAt: is.states[0].RefilledAt, Shards: 1}}
	}
	present := map[int]*bucket.State{}
	for _, state := range is.states {
		present[state.Shard] = state
	}
	var items []layout.Successor
	for _, state := range states {
		next, now := state.Successor(present[state.Shard], s.options.Mixed, s.now()), present[state.Shard]
		same = same && now != nil && now.Succeeds(&next)
		item := layout.Successor{Key: s.to.shard(state.Shard).BucketKey, Present: now, Next: &next, From: s.from.shard(state.Shard).BucketKey}
		if len(was.states) > 0 {
			item.Is = state
		}
		items = append(items, item)
		delete(present, state.Shard)
	}
	for number, now := range present {
		items, same = append(items, layout.Successor{Key: s.to.shard(number).BucketKey, Present: now, From: s.from.shard(number).BucketKey}), false
	}
	if same {
		return nil
	}
	return items
}

// note records which balances change.
func (s *succession) note(was, is *view) {
	if s.tried || len(is.states) == 0 {
		return
	}
	s.tried = true
	of := &bucket.Config{}
	if len(was.states) > 0 {
		of = s.items.keep(was.states[0])
	}
	s.changes = s.items.keep(is.states[0]).Succession(is.states, of, was.states, s.now())
}

func (s *succession) succeed(ctx context.Context, items []layout.Successor) (done bool, err error) {
	limits, err := s.options.Source.After(ctx, s.to, s.NextEpoch())
	if err != nil {
		return false, err
	}
	var writes []store.Write
	for i := range items {
		more, err := items[i].Writes(limits.Lineage)
		if err != nil {
			return false, err
		}
		writes = append(writes, more...)
	}
	return s.table.PatientTransact(ctx, writes)
}
