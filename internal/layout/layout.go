// Package layout is the layout of the table: the keys, items, conditional writes and queries of every record. It turns
// the state of a bucket into items and writes. It makes no call and reads no clock.
//
// The files that end in _gen.go are generated from spec/schema.yaml:
//   - keys_gen.go builds keys, parses them and makes queries.
//   - items_gen.go and internal_items_gen.go encode and decode items of namespaces, table_items_gen.go items of the table itself.
//   - exprs_gen.go has conditional writes as data, and calls_gen.go binds them.
//   - table_gen.go describes the table to stores.
//
// Names of attributes stand in these files alone. docs/schema.md is the reference, from the same source.
//
// Times in items are [TimeFormat], epoch milliseconds or epoch seconds; the fields of items say which. Amounts in buckets
// are millitokens.
package layout

import (
	"slices"

	"github.com/zlimit/zlimit-go/internal/store"
)

// IsKeyAttribute reports whether an attribute is part of the key of the table or of an index.
func IsKeyAttribute(name string) bool {
	return name == store.PK || name == store.SK || slices.ContainsFunc(Table.Indexes, func(x store.Index) bool {
		return name == x.PK || name == x.SK
	})
}
