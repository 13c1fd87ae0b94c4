package layout

import (
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Successor is an item of a bucket that is to have what an item of another bucket has, see [bucket.State.Successor].
type Successor struct {
	Key     BucketKey
	Present *bucket.State // in its place; nil for none
	Next    *bucket.State // nil where the item is deleted
	From    BucketKey     // the item of the other bucket
	Is      *bucket.State // what that has; nil for none
}

// Writes returns the writes of a successor, for one transaction. They hold for the present states alone. An item of the other bucket is asked
// for in any case.
func (s *Successor) Writes(o Lineage) (writes []store.Write, err error) {
	from := store.Write{Kind: store.Check, Key: s.From.Key()}
	if from.Expr, err = Insert(); s.Is != nil {
		from.Expr, err = sameAsSeen(s.Is)
	}
	if err != nil {
		return nil, err
	}
	own := store.Write{Kind: store.Delete, Key: s.Key.Key()}
	if s.Next != nil {
		own.Kind, own.Item = store.Put, s.Key.Item(s.Next, o).Encode()
	}
	if own.Expr, err = Insert(); s.Present != nil {
		own.Expr, err = sameAsSeen(s.Present)
	}
	return []store.Write{from, own}, err
}

// sameAsSeen asks for a shard as it was seen. A switch that is marked on it since has changed its generation.
func sameAsSeen(s *bucket.State) (expr.Bound, error) {
	call := SameAsSeen(s.RefilledAt, int64(s.Shards), s.Seen(), s.Generation())
	for _, l := range s.Limits {
		call.Holding(l.Name, l.Tokens)
	}
	return call.Bind()
}
