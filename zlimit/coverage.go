package zlimit

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Coverage reports which part of the buckets of a resource [UsageService.Buckets] and [UsageService.Capacity] show.
//
// On DynamoDB a bucket is listed some time after it was created. A process lists two new buckets per ten seconds immediately, and the
// others when they are first refilled, in debt or rejected. So an unlisted bucket was used for less than about a second, and was neither
// in debt nor rejected since.
//
// Unlisted is derived from usage: an aggregator counts each entity that uses the resource, listed or not. It may be too high, since a
// bucket may have expired within the two hours. It is too low by entities of earlier hours, and of the last minute, which the aggregator
// may not have counted yet.
type Coverage struct {
	Complete bool `json:"complete"` // every bucket is shown, as in SQLite and in memory
	Used     int  `json:"used"`     // entities with usage in this hour or the one before; 0 where no aggregator counts it
	Unlisted int  `json:"unlisted"` // entities that are not shown
}

// Known reports whether the coverage is known: all is shown, or an aggregator counts the usage.
func (c Coverage) Known() bool { return c.Complete || c.Used > 0 }

// Missing returns the part of the entities that may be missing, from 0 to 1.
func (c Coverage) Missing() float64 { return float64(c.Unlisted) / float64(max(c.Used, 1)) }

// String describes the coverage in words.
func (c Coverage) String() string {
	switch {
	case c.Complete:
		return "all buckets are shown"
	case c.Used == 0:
		return "buckets that were used once may be missing; no usage of the last two hours shows how many"
	default:
		return fmt.Sprintf("of %d entities that used it in the last two hours, %d are not shown: used once, or expired", c.Used, c.Unlisted)
	}
}

// Coverage reports which part of the buckets of a resource [UsageService.Buckets] shows. Coverage reads the keys of the
// buckets, and of the usage of two hours, from an index. That costs half a read unit per 4 KB, about 20 entries. In
// SQLite and in memory it reads nothing.
func (s *UsageService) Coverage(ctx context.Context, resource string) (Coverage, error) {
	if err := s.l.check(validateResource(resource)); err != nil {
		return Coverage{}, err
	}
	if !s.l.table.Partitioned() {
		return Coverage{Complete: true}, nil
	}
	listed := s.entitiesOf(ctx, layout.QueryBucketsOfResource(s.l.ns.id(), resource, ""), func(key store.Key) (string, bool) {
		k, ok := layout.ParseBucketKey(key)
		return k.Entity, ok
	})
	c, err := s.coverage(ctx, resource, listed)
	return c, publicError("read the coverage", err)
}

// coverage compares the listed entities, in their order, with the entities that have usage.
func (s *UsageService) coverage(ctx context.Context, resource string, listed iter.Seq2[string, error]) (c Coverage, err error) {
	type sight struct {
		entity string
		listed bool
	}
	as := func(entities iter.Seq2[string, error], listed bool) iter.Seq2[sight, error] {
		return func(yield func(sight, error) bool) {
			for entity, err := range entities {
				if !yield(sight{entity, listed}, err) {
					return
				}
			}
		}
	}
	lists := []iter.Seq2[sight, error]{as(listed, true)}
	c.Complete = !s.l.table.Partitioned()
	if hour := s.l.now().UTC().Truncate(time.Hour); !c.Complete {
		for _, start := range []time.Time{hour.Add(-time.Hour), hour} {
			q := layout.QueryUsageOfResource(s.l.ns.id(), resource, WindowHourly.key(start))
			lists = append(lists, as(s.entitiesOf(ctx, q, func(key store.Key) (string, bool) {
				k, ok := layout.ParseUsageKey(key)
				return k.Entity, ok
			}), false))
		}
	}
	var last sight // sight of the entity so far
	used := false
	count := func() {
		if used {
			c.Used++
		}
		if used && !last.listed {
			c.Unlisted++
		}
	}
	for next, err := range merge(lists, func(a, b sight) int { return strings.Compare(a.entity, b.entity) }) {
		if err != nil {
			return Coverage{}, err
		}
		if next.entity != last.entity {
			count()
			last, used = sight{entity: next.entity}, false
		}
		last.listed = last.listed || next.listed
		used = used || !next.listed
	}
	count()
	return c, nil
}

// entitiesOf yields the entities of the keys that a query of an index finds, in its order.
func (s *UsageService) entitiesOf(ctx context.Context, q store.Query, of func(store.Key) (string, bool)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for item, err := range s.l.table.Items(ctx, q) {
			entity := ""
			if err == nil {
				entity, _ = of(store.KeyOf(item))
			}
			if !yield(entity, err) || err != nil {
				return
			}
		}
	}
}
