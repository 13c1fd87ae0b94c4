// Package leases keeps the leases of the consumers of a change stream in the table that the changes are of. By them the
// consumers share its partitions, and remember how far they have come. They belong to the table, not to a namespace.
package leases

import (
	"context"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Table is the leases in a table. It is safe for concurrent use.
type Table struct{ table *table.Table }

var _ stream.Leases = Table{}

// In returns the leases in a table.
func In(t *table.Table) Table { return Table{t} }

// List makes a consistent query: a read unit for every twenty leases or so.
func (t Table) List(ctx context.Context, from string) ([]stream.Lease, error) {
	q := layout.QueryStreamLeases()
	q.Consistent = true
	if from != "" {
		q.After = q.Prefix + from[:len(from)-1] // comes before it
	}
	var all []stream.Lease
	for item, err := range t.table.Items(ctx, q) {
		if err != nil {
			return nil, err
		}
		decoded, err := layout.DecodeStreamLease(item)
		if err != nil {
			all = append(all, broken(store.KeyOf(item), err))
			continue
		}
		all = append(all, lease(&decoded))
	}
	return all, nil
}

// Save makes one write: a write unit, and one more for the index when the record is new.
func (t Table) Save(ctx context.Context, next stream.Lease) (found stream.Lease, saved bool, err error) {
	item := layout.StreamLease{
		Key:       layout.StreamLeaseKey{Partition: next.Partition},
		Position:  string(next.Position),
		Owner:     next.Owner,
		Beats:     next.Beats,
		Finished:  next.Finished,
		AppliedTo: next.AppliedTo,
	}
	if !next.ExpiresAt.IsZero() {
		item.ExpiresAt = next.ExpiresAt.Unix()
	}
	condition, err := layout.Insert()
	if next.Beats > 1 {
		condition, err = layout.ReplaceStreamLease(next.Beats - 1)
	}
	if err != nil {
		return found, false, err
	}
	result, err := t.table.Write(ctx, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode(), Expr: condition})
	if err != nil || result.Item == nil {
		return found, false, err
	}
	decoded, err := layout.DecodeStreamLease(result.Item)
	return lease(&decoded), result.Applied && err == nil, err
}

// Delete makes a write for every 25 leases: a write unit for each, and one for its index entry.
func (t Table) Delete(ctx context.Context, partitions []string) error {
	keys := make([]store.Key, len(partitions))
	for i, p := range partitions {
		keys[i] = layout.StreamLeaseKey{Partition: p}.Key()
	}
	return t.table.Delete(ctx, keys)
}

// Holds reports whether a key is that of a lease.
func (Table) Holds(k store.Key) bool {
	q := layout.QueryStreamLeases()
	return k.PK == q.PK && strings.HasPrefix(k.SK, q.Prefix)
}

// broken returns the lease whose item cannot be read.
func broken(key store.Key, err error) stream.Lease {
	parsed, ok := layout.ParseStreamLeaseKey(key)
	if !ok {
		parsed.Partition = key.SK
	}
	return stream.Lease{Partition: parsed.Partition, Broken: err.Error()}
}

func lease(it *layout.StreamLease) stream.Lease {
	l := stream.Lease{
		Partition: it.Key.Partition,
		Position:  store.Sequence(it.Position),
		Owner:     it.Owner,
		Beats:     it.Beats,
		Finished:  it.Finished,
		AppliedTo: it.AppliedTo,
	}
	if it.ExpiresAt != 0 {
		l.ExpiresAt = time.Unix(it.ExpiresAt, 0).UTC()
	}
	return l
}
