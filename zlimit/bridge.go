package zlimit

import (
	"fmt"

	"github.com/zlimit/zlimit-go/internal/bridge"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// table is what package aggregator may use of a store.
type table struct{ store store.Store }

var _ bridge.Table = table{}

func init() { bridge.Of = func(s any) bridge.Table { return table{s.(Store).impl} } }

// Store returns the store itself, nil where there is none.
func (t table) Store() store.Store { return t.store }

// Leases returns the leases of the consumers of its change stream.
func (t table) Leases() stream.Leases { return leases(t) }

// Shard returns the shard whose item has a key.
func (t table) Shard(key store.Key) (bridge.Shard, bool) {
	k, ok := parseBucketKey(key)
	return bridge.Shard{Bucket: bridge.Bucket{NS: k.NS, Entity: k.Entity, Resource: k.Resource}, Number: k.Shard}, ok
}

// State returns what the item of a shard holds.
func (t table) State(item expr.Item) (bucket.State, error) {
	decoded, err := decodeBucket(item)
	if err != nil {
		return bucket.State{}, fmt.Errorf("%s: %w", store.KeyOf(item).PK, err)
	}
	return decoded.state(), nil
}
