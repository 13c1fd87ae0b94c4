package zlimit

import (
	"context"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// leases are the records by which the consumers of the change stream share its partitions, and remember how far they
// have come. They belong to the table, not to a namespace.
type leases struct{ store store.Store }

var _ stream.Leases = leases{}

// List makes a consistent query: a read unit for every twenty leases or so.
func (s leases) List(ctx context.Context) ([]stream.Lease, error) {
	q := queryStreamLeases()
	q.Consistent = true
	var all []stream.Lease
	for {
		page, err := s.store.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			decoded, err := decodeStreamLease(item)
			if err != nil {
				return nil, err
			}
			all = append(all, decoded.lease())
		}
		if page.Next == nil {
			return all, nil
		}
		q.Continue = page.Next
	}
}

// Save makes one write: a write unit, and one more for the index when the record is new.
func (s leases) Save(ctx context.Context, next stream.Lease) (found stream.Lease, saved bool, err error) {
	item := streamLeaseItem{
		Key:      streamLeaseKey{Partition: next.Partition},
		Position: string(next.Position),
		Owner:    next.Owner,
		Beats:    next.Beats,
		Finished: next.Finished,
	}
	if !next.ExpiresAt.IsZero() {
		item.ExpiresAt = next.ExpiresAt.Unix()
	}
	condition, err := insert()
	if next.Beats > 1 {
		condition, err = replaceStreamLease(next.Beats - 1)
	}
	if err != nil {
		return found, false, err
	}
	result, err := s.store.Write(ctx, store.Write{Kind: store.Put, Key: item.Key.key(), Item: item.encode(), Expr: condition})
	if err != nil || result.Item == nil {
		return found, false, err
	}
	decoded, err := decodeStreamLease(result.Item)
	return decoded.lease(), result.Applied && err == nil, err
}

// Holds reports whether a key is that of a lease.
func (leases) Holds(k store.Key) bool {
	q := queryStreamLeases()
	return k.PK == q.PK && strings.HasPrefix(k.SK, q.Prefix)
}

func (it *streamLeaseItem) lease() stream.Lease {
	l := stream.Lease{
		Partition: it.Key.Partition,
		Position:  store.Sequence(it.Position),
		Owner:     it.Owner,
		Beats:     it.Beats,
		Finished:  it.Finished,
	}
	if it.ExpiresAt != 0 {
		l.ExpiresAt = time.Unix(it.ExpiresAt, 0).UTC()
	}
	return l
}
