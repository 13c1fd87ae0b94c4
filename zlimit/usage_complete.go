package zlimit

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A GapKind says why changes were not counted.
type GapKind string

// Kinds of gaps.
const (
	GapUncounted GapKind = "uncounted" // the first aggregator began later
	GapLost      GapKind = "lost"      // the change stream had forgotten changes before an aggregator read them
	GapSkipped   GapKind = "skipped"   // a change could not be applied and was left out, see [aggregator.WithSkipping]
)

// A UsageGap is a period whose consumption may be missing permanently.
type UsageGap struct {
	Kind GapKind   `json:"kind"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// A Completeness says which usage is complete. It is immutable, so goroutines may share it.
type Completeness struct {
	// To is up to when aggregators have counted the changes. The zero time means that this is not known.
	To   time.Time  `json:"to"`
	Gaps []UsageGap `json:"gaps"` // in the order of their beginnings
}

// Covers reports whether all consumption of a range is counted: the range ends at To or earlier, and contains no gap.
func (c *Completeness) Covers(from, to time.Time) bool {
	return !c.To.Before(to) && len(c.Within(from, to)) == 0
}

// Within returns the gaps that overlap a range. A gap without length overlaps none.
func (c *Completeness) Within(from, to time.Time) (gaps []UsageGap) {
	for _, g := range c.Gaps {
		if g.From.Before(to) && from.Before(g.To) && g.From.Before(g.To) {
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// Completeness returns the time up to which the aggregators of [aggregator.Aggregator.Run] have counted every change, and the gaps before
// it. Gaps are changes that were lost or left out, or made before the first aggregator began. To is the zero time while an aggregator has
// not reached the end of its part of the changes. It is also zero if the aggregator is a Lambda function, whose lag CloudWatch reports.
// Aggregators record the time every ten seconds, by their own clocks. On DynamoDB days and months are complete some 80 minutes later than
// hours.
//
// It makes two consistent queries and a read: one read unit for every twenty partitions of the change stream, finished ones included, and
// one or two for gaps. It is safe for concurrent use.
//
// [aggregator.Aggregator.Run]: https://pkg.go.dev/github.com/zlimit/zlimit-go/aggregator#Aggregator.Run
//
// [aggregator.WithSkipping]: https://pkg.go.dev/github.com/zlimit/zlimit-go/aggregator#WithSkipping
func (s *UsageService) Completeness(ctx context.Context) (*Completeness, error) {
	if err := s.l.check(nil); err != nil {
		return nil, err
	}
	const doing = "read how far usage is counted"
	to, err := s.countedTo(ctx)
	if err != nil {
		return nil, publicError(doing, err)
	}
	c := &Completeness{To: to, Gaps: []UsageGap{}} // gaps are noted before an aggregator reads on
	q := layout.QueryStreamGaps()
	q.Consistent = true
	for item, err := range s.l.table.Items(ctx, q) {
		var gap layout.StreamGap
		if err == nil {
			gap, err = layout.DecodeStreamGap(item)
		}
		if err != nil {
			return nil, publicError(doing, err)
		}
		c.Gaps = append(c.Gaps, UsageGap{GapKind(gap.Kind), time.UnixMilli(int64(gap.Key.Since)).UTC(), time.UnixMilli(gap.To).UTC()})
	}
	if len(c.Gaps) == 0 {
		return c, nil
	}
	// Nothing was consumed before the namespace was registered.
	items, err := s.l.table.Read(ctx, layout.NamespaceIDKey{ID: s.l.ns.id()}.Key())
	if err != nil {
		return nil, publicError(doing, err)
	}
	if items[0] != nil {
		registered, err := layout.DecodeNamespaceID(items[0])
		if err != nil {
			return nil, publicError(doing, err)
		}
		created := layout.ParseTime(registered.CreatedAt)
		c.Gaps = slices.DeleteFunc(c.Gaps, func(g UsageGap) bool { return !created.Before(g.To) })
		for i := range c.Gaps {
			if c.Gaps[i].From.Before(created) {
				c.Gaps[i].From = created
			}
		}
	}
	slices.SortFunc(c.Gaps, func(a, b UsageGap) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	return c, nil
}

// countedTo returns up to when every change is counted or lost; the zero time while that is not known.
func (s *UsageService) countedTo(ctx context.Context) (time.Time, error) {
	q := layout.QueryStreamLeases()
	q.Consistent = true
	least := int64(0)
	for item, err := range s.l.table.Items(ctx, q) {
		if err != nil {
			return time.Time{}, err
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
