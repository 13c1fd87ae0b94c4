// Package bridge gives package aggregator what package zlimit knows of a table and does not show to its users: keys,
// records and the writes of buckets.
package bridge

import (
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
}
