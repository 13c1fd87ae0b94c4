// Package bridge gives package aggregator what package zlimit knows of a table and does not show to its users: keys,
// records and the writes of buckets.
package bridge

import (
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// Of returns the table behind a zlimit.Store. Package zlimit sets it when it is initialized.
var Of func(s any) Table

// A Table is what package zlimit knows of the table of a store, all namespaces together. It is safe for concurrent use.
type Table interface {
	// Store returns the store itself.
	Store() store.Store
	// Leases returns the leases of the consumers of its change stream.
	Leases() stream.Leases

	// Shard returns the shard whose item has a key; false when it is the key of another record.
	Shard(key store.Key) (Shard, bool)
	// State returns what the item of a shard holds.
	State(item expr.Item) (bucket.State, error)

	// ShardKey returns the key of a shard's item.
	ShardKey(s Shard) store.Key

	// Refill returns the write that refills every limit of a shard up to now, in epoch milliseconds; false when nothing has
	// flowed in.
	Refill(s Shard, state *bucket.State, now int64) (store.Write, bool, error)
	// Split returns the writes that divide a shard in two, for one transaction.
	Split(s Shard, item expr.Item, now int64) ([]store.Write, error)
	// Merge returns the writes by which a shard takes over the one that it split off last, for one transaction; none when
	// they cannot be joined. other is nil where that one is lost.
	Merge(s Shard, state, other *bucket.State, now int64) ([]store.Write, error)
	// Calm reports whether a shard that was written so often in a time may be joined with its sibling.
	Calm(writes int64, in time.Duration) bool

	// Countable reports whether a snapshot of usage can have a figure for a limit of that name.
	Countable(limit string) bool
	// CountUsage returns the write that adds changes to a snapshot, on condition that it contains none of them.
	CountUsage(u *Usage) (store.Write, error)
	// Counted returns the last change of each shard that a snapshot contains, by the number of the shard.
	Counted(snapshot expr.Item) map[int]store.Sequence

	// AuditEvent returns the audit event that an item is; false when it is the item of another record.
	AuditEvent(item expr.Item) (AuditEvent, bool)
}

// A Bucket names the bucket of an entity and a resource. NS is the id of its namespace.
type Bucket struct{ NS, Entity, Resource string }

// A Shard names one item of a bucket.
type Shard struct {
	Bucket
	Number int
}

// Usage is what changes of a bucket add to the snapshot of a window.
type Usage struct {
	Bucket
	Window    string          // its name
	Start     time.Time       // of the window
	ExpiresAt int64           // epoch seconds; 0 for never
	Events    int64           // changes
	Consumed  []bucket.Amount // of each limit, net, sorted by name
	Sources   []Source        // where the changes come from, sorted by number
}

// A Source is a shard that changes of usage come from.
type Source struct {
	Number      int
	First, Last store.Sequence // of its changes
}

// An AuditEvent is the item of one.
type AuditEvent struct {
	Key        store.Key
	NS, ID     string
	Entity     string
	Time       time.Time // zero when the item does not tell
	Attributes expr.Item // but for those that make up keys, and the time of expiry
}
