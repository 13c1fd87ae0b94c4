package layout

import (
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Split returns the writes that split a shard in two, for one transaction: shard s of n becomes shards s and s+n of 2n.
// They hold for the state alone. It returns none for a bucket that is not split, see [bucket.State.Carries].
//
// An orphan is an item in the new shard's place that no shard has split off, as in a restored backup; nil for none. The
// new shard takes its place, and counts on from it, since readers count by differences. The tokens of the orphan were
// never part of the bucket. The writes hold for its state alone, too.
func (k BucketKey) Split(s, orphan *bucket.State, o Lineage) ([]store.Write, error) {
	if s.Carries() {
		return nil, nil
	}
	var plan bucket.Plan
	plan.Split(s)
	update, err := k.Write(&plan, o)
	if err != nil {
		return nil, err
	}
	condition := Insert
	if orphan != nil {
		condition = func() (expr.Bound, error) { return asSeen(orphan) }
		for i := range plan.Item.Limits {
			own := &plan.Item.Limits[i]
			if at := slices.IndexFunc(orphan.Limits, func(l bucket.Limit) bool { return l.Name == own.Name }); at >= 0 {
				own.Consumed += orphan.Limits[at].Consumed
			}
		}
	}
	split := k.Item(&plan.Item, o)
	put := store.Write{Kind: store.Put, Key: split.Key.Key(), Item: split.Encode()}
	put.Expr, err = condition()
	return []store.Write{update, put}, err
}

// asSeen asks for a shard as it was seen.
func asSeen(s *bucket.State) (expr.Bound, error) {
	call := AsSeen(s.RefilledAt, int64(s.Shards), s.Seen(), s.Generation())
	for _, l := range s.Limits {
		call.Holding(l.Name, l.Tokens)
	}
	return call.Bind()
}

// Merge returns the writes by which a shard takes over the last one that it split off, for one transaction. Both are of
// the same size and have the same limits, see [bucket.State.MergesWith]; the writes hold for these states alone. The time now is in epoch
// milliseconds.
func (k BucketKey) Merge(other BucketKey, s, others *bucket.State, now int64) ([]store.Write, error) {
	var plan bucket.Plan
	plan.Merge(s, others, now)
	update, err := k.Write(&plan, Lineage{})
	if err != nil {
		return nil, err
	}
	remove := store.Write{Kind: store.Delete, Key: other.Key()}
	remove.Expr, err = asSeen(others)
	return []store.Write{update, remove}, err
}

// Inherit returns the writes by which a shard takes over the share of the last one that it split off, whose item is
// lost. The writes are for one transaction, and hold as long as there is no such item. The time now is in epoch
// milliseconds.
func (k BucketKey) Inherit(lost BucketKey, s *bucket.State, now int64) ([]store.Write, error) {
	var plan bucket.Plan
	plan.Merge(s, &bucket.State{RefilledAt: now, Shard: lost.Shard, Shards: s.Shards}, now)
	update, err := k.Write(&plan, Lineage{})
	if err != nil {
		return nil, err
	}
	check := store.Write{Kind: store.Check, Key: lost.Key()}
	check.Expr, err = Insert()
	return []store.Write{update, check}, err
}
