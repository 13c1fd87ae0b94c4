package layout

import (
	"fmt"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// An Owner is what the record of an entity says about charging a parent. The items of its buckets repeat it.
type Owner struct {
	Cascade bool   // what the entity consumes is charged to its parent as well
	Parent  string // entity id; "" for none
}

// ReadState returns the state that the item of a bucket holds. Its errors name the item.
func ReadState(item expr.Item) (bucket.State, error) {
	decoded, err := DecodeBucket(item)
	if err != nil {
		return bucket.State{}, fmt.Errorf("%s: %w", store.KeyOf(item).PK, err)
	}
	return decoded.State(), nil
}

// State returns the state that the item holds. It shares the limits with the item.
//
// No program of this module writes a limit without a refill period. A limit that another program wrote so has no refill
// until it is configured.
func (it *Bucket) State() bucket.State {
	for i := range it.Limits {
		if l := &it.Limits[i]; l.RefillPeriod <= 0 || l.RefillAmount < 0 {
			l.RefillAmount, l.RefillPeriod = 0, 1
		}
	}
	return bucket.State{
		Limits:     it.Limits,
		RefilledAt: it.RefilledAt,
		ExpiresAt:  it.ExpiresAt,
		Shard:      it.Key.Shard,
		Shards:     int(it.ShardCount),
	}
}

// Owner returns what the item repeats of the entity's record.
func (it *Bucket) Owner() Owner { return Owner{it.Cascade, it.Parent} }

// Item returns the item of a state, which may be that of another shard of the bucket. It has a copy of the limits.
func (k BucketKey) Item(s *bucket.State, o Owner) *Bucket {
	k.Shard = s.Shard
	return &Bucket{
		Key:        k,
		Limits:     slices.Clone(s.Limits),
		RefilledAt: s.RefilledAt,
		ShardCount: int64(s.Shards),
		Cascade:    o.Cascade,
		Parent:     o.Parent,
		ExpiresAt:  s.ExpiresAt,
	}
}

// Write returns the write of a plan, which is not one that rejects. The owner is written with a new item alone.
func (k BucketKey) Write(p *bucket.Plan, o Owner) (store.Write, error) {
	return k.WriteAt(k.Key(), p, o)
}

// WriteAt is [BucketKey.Write] for a caller that has built the key of the item before.
func (k BucketKey) WriteAt(key store.Key, p *bucket.Plan, o Owner) (store.Write, error) {
	w := store.Write{Kind: store.Update, Key: key}
	var err error
	switch p.Kind {
	case bucket.Create:
		w.Kind, w.Item = store.Put, k.Item(&p.Item, o).Encode()
		w.Expr, err = Insert()
	case bucket.Spend:
		w.Expr, err = bindSpend(p)
	default:
		w.Expr, err = k.bindAdvance(p)
	}
	return w, err
}

// bindSpend binds a plan that leaves the refill stamp alone.
func bindSpend(p *bucket.Plan) (expr.Bound, error) {
	call := Spend(p.RefilledAt, seconds(p.Now))
	for i := range p.Steps {
		switch s := &p.Steps[i]; s.Kind {
		case bucket.Take:
			call.Take(s.Limit, s.Values[0])
		case bucket.Charge:
			call.Charge(s.Limit, s.Values[0])
		case bucket.Owe:
			call.Owe(s.Limit, s.Values[0], s.Values[1])
		default: // bucket.Refund
			call.Refund(s.Limit, s.Values[0], s.Values[1], s.Values[2], s.Values[3])
		}
	}
	return call.Bind()
}

// bindAdvance binds a plan that moves the refill stamp.
func (k BucketKey) bindAdvance(p *bucket.Plan) (expr.Bound, error) {
	call := Advance(p.RefilledAt, p.Now)
	for i := range p.Steps {
		s := &p.Steps[i]
		v := s.Values
		switch s.Kind {
		case bucket.Credit:
			call.Credit(s.Limit, v[0], v[1])
		case bucket.Cover:
			call.Cover(s.Limit, v[0])
		case bucket.Fill:
			call.Fill(s.Limit, v[0], v[1])
		case bucket.Count:
			call.Count(s.Limit, v[0])
		case bucket.Configure:
			call.Configure(s.Limit, v[0], v[1], v[2])
		case bucket.Seed:
			call.Seed(s.Limit, v[0], v[1])
		case bucket.Drop:
			call.Drop(s.Limit)
		case bucket.Know:
			call.Know(s.Limit, v[0])
		case bucket.Forget:
			call.Forget(s.Limit)
		case bucket.Expire:
			call.Expire(v[0])
		case bucket.Persist:
			call.Persist(k.GSI4())
		default: // bucket.Resize
			call.Share(v[0], v[1])
		}
	}
	return call.Bind()
}

// Indexes that a new bucket need not be in: that of its resource, and that of its namespace.
var (
	ofResource  = Table.Index(QueryBucketsOfResource("ns", "resource", "").Index)
	ofNamespace = Table.Index(QueryNamespaceItems("ns").Index)
)

// Unlisted takes a new bucket out of the index of its resource, and out of that of its namespace if it expires. All buckets of
// a resource, and of a namespace, have one key in these indexes. [BucketKey.List] enters the bucket into the first one.
func Unlisted(item expr.Item) expr.Item {
	left := []*store.Index{ofResource}
	if _, expires := item.Lookup(Table.TTL); expires {
		left = append(left, ofNamespace)
	}
	return slices.DeleteFunc(item, func(a expr.Attribute) bool {
		return slices.ContainsFunc(left, func(x *store.Index) bool { return a.Name == x.PK || a.Name == x.SK })
	})
}

// IsListed reports whether a bucket is in the index of its resource.
func IsListed(item expr.Item) bool { return item.Index(ofResource.PK) >= 0 }

// List returns the write that enters a bucket into the index of its resource.
func (k BucketKey) List() (store.Write, error) {
	enter, err := List(k.GSI2())
	return store.Write{Kind: store.Update, Key: k.Key(), Expr: enter}, err
}
