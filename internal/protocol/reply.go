package protocol

import (
	"context"
	"errors"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// All writes of items with tokens or slots are sent here, so that one place interprets replies: a write was applied, may have been applied,
// lost a race, or was rejected by the store.

// exchange sends a write of an item, and remembers the returned image. It returns that image, from after the write or its failed condition.
// The image is nil if it is unknown or unreadable. A conflict with a transaction is a lost race. The plan is nil for a write of slots.
func (it *items) exchange(ctx context.Context, s *shard, w store.Write, plan *bucket.Plan, askedAt int64) (next *image, applied bool, err error) {
	known, by := s.image.Load(), call{it.NextEpoch(), askedAt}
	s.traffic.sent()
	result, err := it.table.Write(ctx, w)
	s.traffic.writing.Add(-1)
	it.replied(s, plan, result.Applied, err)
	switch {
	case err == nil && result.Applied: // the usual case
	case err == nil:
		it.LostRaces.Add(1)
	case errors.Is(err, store.ErrConflict):
		it.LostRaces.Add(1)
		return nil, false, nil
	default:
		return nil, false, err
	}
	w.Expr.Release()
	next = it.observe(s, &result, by, known)
	result.Release()
	return next, result.Applied, nil
}

// replied notes the reply to a write of a shard. The plan is nil for a write of slots.
func (it *items) replied(s *shard, plan *bucket.Plan, applied bool, err error) {
	switch {
	case !applied && !IsUnknown(err):
		s.traffic.refused(err == nil)
	case plan != nil && plan.Kind != bucket.Spend:
		it.noteStamp(s, plan)
	}
}

// A planned is the plan of a shard in a transaction.
type planned struct {
	shard  *shard
	plan   *bucket.Plan
	limits *Limits
}

// planned returns the parts of a view as plans of a transaction.
func (v *view) planned(parts []bucket.Part, l *Limits) []planned {
	plans := make([]planned, len(parts))
	for i := range parts {
		plans[i] = planned{v.shards[parts[i].At], &parts[i].Plan, l}
	}
	return plans
}

// transact writes plans in one transaction, together with other writes. It returns false if other writers came first. A transaction returns
// no images, so transact forgets the images of shards that it wrote or may have written.
func (it *items) transact(
	ctx context.Context, plans []planned, others []store.Write, send func(context.Context, []store.Write) (bool, error),
) (done bool, err error) {
	writes := make([]store.Write, len(plans), len(plans)+len(others))
	for i, p := range plans {
		if writes[i], err = p.shard.Write(p.plan, p.limits.Lineage); err != nil {
			return false, err
		}
	}
	if writes = append(writes, others...); len(writes) > store.MaxTransaction {
		return false, &BucketsError{len(plans)}
	}
	for _, p := range plans {
		p.shard.traffic.sent()
	}
	done, err = send(ctx, writes)
	for _, p := range plans {
		p.shard.traffic.writing.Add(-1)
		it.replied(p.shard, p.plan, done, err)
	}
	if done || IsUnknown(err) {
		forget(plans)
	}
	return done, err
}

// forget forgets the images of shards.
func forget(plans []planned) {
	for _, p := range plans {
		p.shard.image.Store(nil)
	}
}
