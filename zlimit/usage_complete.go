package zlimit

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// CompleteTo returns the time up to which usage by hours is complete: the aggregators of [aggregator.Aggregator.Run] have counted every
// change before it. It is the zero time if that is unknown: no aggregator has come to the end of its part of the changes yet, or the
// aggregator is a function of Lambda, whose lag CloudWatch has. Aggregators record it every ten seconds, by their own clocks. On DynamoDB
// days and months are complete some 80 minutes later than hours.
//
// It is one consistent query, a read unit for every twenty partitions of the change stream, finished ones included. It is safe for
// concurrent use.
//
// [aggregator.Aggregator.Run]: https://pkg.go.dev/github.com/zlimit/zlimit-go/aggregator#Aggregator.Run
func (s *UsageService) CompleteTo(ctx context.Context) (time.Time, error) {
	if err := s.l.check(nil); err != nil {
		return time.Time{}, err
	}
	q := layout.QueryStreamLeases()
	q.Consistent = true
	least := int64(0)
	for item, err := range s.l.table.Items(ctx, q) {
		if err != nil {
			return time.Time{}, publicError("read how far usage is counted", err)
		}
		lease, err := layout.DecodeStreamLease(item)
		switch {
		case err != nil, lease.AppliedTo == 0 && isOpenPartition(&lease):
			return time.Time{}, nil
		case !isOpenPartition(&lease):
		case least == 0 || lease.AppliedTo < least:
			least = lease.AppliedTo
		}
	}
	if least == 0 {
		return time.Time{}, nil
	}
	return time.UnixMilli(least).UTC(), nil
}

// isOpenPartition reports whether a lease is of a partition that is still to be read. Names of consumers begin with @.
func isOpenPartition(l *layout.StreamLease) bool {
	return !l.Finished && !strings.HasPrefix(l.Key.Partition, "@")
}

// Resources yields the resources that have usage, in alphabetical order: from snapshots of months, and from all other snapshots
// in stores that index them. A resource that was first used within the last 80 minutes may be missing on DynamoDB. An error ends the
// loop.
//
// It reads an index of the namespace, at half a read unit per 4 KB, which is some 30 entries. The index has an entry for each entity,
// each level of limits, and each month of usage of an entity and a resource. It is safe for concurrent use.
func (s *UsageService) Resources(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.l.check(nil); err != nil {
			yield("", err)
			return
		}
		found := map[string]bool{}
		q := layout.QueryEntities(s.l.ns.id(), "")
		for page, err := range s.l.table.Pages(ctx, q) {
			if err != nil {
				yield("", publicError("read usage", err))
				return
			}
			for _, key := range table.Keys(page) {
				if k, ok := layout.ParseUsageKey(key); ok {
					found[k.Resource] = true
				}
			}
		}
		for _, resource := range slices.Sorted(maps.Keys(found)) {
			if !yield(resource, nil) {
				return
			}
		}
	}
}
