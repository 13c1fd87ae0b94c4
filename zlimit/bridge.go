package zlimit

import (
	"fmt"
	"slices"
	"time"

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

// AuditEvent returns the audit event that an item is.
func (t table) AuditEvent(item expr.Item) (bridge.AuditEvent, bool) {
	key := store.KeyOf(item)
	k, ok := parseAuditKey(key)
	if !ok {
		return bridge.AuditEvent{}, false
	}
	e := bridge.AuditEvent{Key: key, NS: k.NS, ID: k.EventID, Entity: k.Entity}
	for _, a := range item {
		if !isKeyAttribute(a.Name) && a.Name != tableSchema.TTL {
			e.Attributes = append(e.Attributes, a)
		}
	}
	if at, err := time.Parse(timeFormat, item.Get("timestamp").Text()); err == nil {
		e.Time = at
	}
	return e, true
}

// isKeyAttribute reports whether an attribute makes up the key of the table or of an index.
func isKeyAttribute(name string) bool {
	return name == store.PK || name == store.SK || slices.ContainsFunc(tableSchema.Indexes, func(x store.Index) bool {
		return name == x.PK || name == x.SK
	})
}
