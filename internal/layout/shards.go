package layout

import (
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Split returns the writes that divide a shard in two, for one transaction: shard s of n becomes shards s and s+n of 2n.
// They hold for the state alone.
func (k BucketKey) Split(s *bucket.State, o Owner) ([]store.Write, error) {
	var plan bucket.Plan
	plan.Split(s)
	update, err := k.Write(&plan, o)
	if err != nil {
		return nil, err
	}
	split := k.Item(&plan.Item, o)
	put := store.Write{Kind: store.Put, Key: split.Key.Key(), Item: split.Encode()}
	put.Expr, err = Insert()
	return []store.Write{update, put}, err
}

// Merge returns the writes by which a shard takes over the one that it split off last, for one transaction. Both are of
// the same size and have the same limits, see [bucket.State.Joins]; the writes hold for these states alone.
func (k BucketKey) Merge(other BucketKey, s, others *bucket.State) ([]store.Write, error) {
	var plan bucket.Plan
	plan.Merge(s, others)
	update, err := k.Write(&plan, Owner{})
	if err != nil {
		return nil, err
	}
	call := Absorb(others.RefilledAt, int64(others.Shards))
	for _, l := range others.Limits {
		call.Holding(l.Name, l.Tokens)
	}
	remove := store.Write{Kind: store.Delete, Key: other.Key()}
	remove.Expr, err = call.Bind()
	return []store.Write{update, remove}, err
}

// Inherit returns the writes by which a shard takes over the share of the one that it split off last, whose item is
// lost. The writes are for one transaction, and hold as long as there is no such item. The time now is in epoch
// milliseconds.
func (k BucketKey) Inherit(lost BucketKey, s *bucket.State, now int64) ([]store.Write, error) {
	var plan bucket.Plan
	plan.Merge(s, &bucket.State{RefilledAt: now, Shard: lost.Shard, Shards: s.Shards})
	update, err := k.Write(&plan, Owner{})
	if err != nil {
		return nil, err
	}
	check := store.Write{Kind: store.Check, Key: lost.Key()}
	check.Expr, err = Insert()
	return []store.Write{update, check}, err
}
