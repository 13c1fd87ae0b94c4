package zlimit

import (
	"context"
	"iter"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A usageSpan is the windows that a query chooses. The keys of a partition mix windows of all lengths, in the order of
// their starts. Hours are read as a range, which has few other windows in it. Days and months are looked up by their
// keys, since a range of them has mostly hours.
type usageSpan struct {
	l           *RateLimiter
	window      Window
	first, last time.Time // starts of the first and the last window; zero where the span is open
	limit       int       // snapshots that are wanted at most; 0 for all
}

// span returns the windows of a query; false when there are none.
func (q *UsageQuery) span(l *RateLimiter) (usageSpan, bool) {
	span := usageSpan{l: l, window: q.Window, limit: q.Limit}
	const end = 9999 // the year in which keys end
	if q.From.Year() >= end || !q.To.IsZero() && q.To.Year() < 1 {
		return span, false
	}
	if !q.From.IsZero() && q.From.Year() >= 1 {
		span.first = q.Window.Start(q.From)
		if span.first.Before(q.From) {
			span.first = q.Window.End(q.From)
		}
	}
	if !q.To.IsZero() && q.To.Year() < end {
		span.last = q.Window.Start(q.To.Add(-1))
		return span, !span.last.Before(span.first)
	}
	return span, true
}

// ofEntity yields the items of an entity and a resource.
func (s usageSpan) ofEntity(ctx context.Context, entity, resource string) iter.Seq2[expr.Item, error] {
	q := s.narrow(layout.QueryUsageOfEntity(s.l.ns.id(), entity, resource, ""))
	if s.window == WindowHourly {
		return s.l.table.Items(ctx, q)
	}
	return func(yield func(expr.Item, error) bool) {
		starts, err := s.starts(ctx, q)
		if err != nil {
			yield(nil, err)
			return
		}
		// The first call reads as many windows as snapshots are wanted, which is enough where windows are dense. Where they
		// are sparse, later calls read more and more of them.
		for size := q.Limit; len(starts) > 0; size = min(2*size, store.MaxRead) {
			chunk := starts[:min(size, len(starts))]
			starts = starts[len(chunk):]
			keys := make([]store.Key, len(chunk))
			for i, start := range chunk {
				keys[i] = layout.UsageKey{NS: s.l.ns.id(), Entity: entity, Resource: resource, WindowKey: s.window.key(start)}.Key()
			}
			items, err := s.l.table.ReadEventually(ctx, keys...)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range items {
				if item != nil && !yield(item, nil) {
					return
				}
			}
		}
	}
}

// ofResource yields the items of a resource over all entities.
func (s usageSpan) ofResource(ctx context.Context, resource string) iter.Seq2[expr.Item, error] {
	q := s.narrow(layout.QueryUsageOfResource(s.l.ns.id(), resource, ""))
	if s.window == WindowHourly {
		return s.l.table.LookUp(ctx, q, s.l.table.ReadEventually)
	}
	return func(yield func(expr.Item, error) bool) {
		starts, err := s.starts(ctx, q)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, start := range starts {
			of := layout.QueryUsageOfResource(s.l.ns.id(), resource, s.window.key(start))
			of.Limit = q.Limit
			for item, err := range s.l.table.LookUp(ctx, of, s.l.table.ReadEventually) {
				if !yield(item, err) || err != nil {
					return
				}
			}
		}
	}
}

// resources yields the resources that an entity has usage of: one query of one item for each.
func (s usageSpan) resources(ctx context.Context, entity string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		q := layout.QueryUsageOfEntity(s.l.ns.id(), entity, "", "")
		for {
			key, ok, err := s.l.firstUsage(ctx, q)
			if err != nil {
				yield("", err)
				return
			}
			if !ok || !yield(key.Resource, nil) {
				return
			}
			q.After = q.Prefix + key.Resource + "$" // "$" comes after "#", and before what goes on as another resource
		}
	}
}

// narrow bounds a query whose prefix is followed by the keys of windows. Keys of snapshots in a window begin with the
// key of the window, and "~" comes after all their continuations.
func (s usageSpan) narrow(q store.Query) store.Query {
	if !s.first.IsZero() {
		q.After = q.Prefix + s.window.key(s.window.Start(s.first.Add(-1))) + "~"
	}
	if !s.last.IsZero() {
		q.UpTo = q.Prefix + s.window.key(s.last) + "~"
	}
	q.Limit = store.MaxRead
	if s.limit > 0 {
		q.Limit = min(s.limit, store.MaxRead)
	}
	return q
}

// starts returns the starts of the windows, many of which may have no snapshot. Unless the span is short, starts leaves
// out those before the first key of a query and after the last one.
func (s usageSpan) starts(ctx context.Context, q store.Query) (starts []time.Time, err error) {
	first, last := s.first, s.last
	const short = store.MaxRead
	if first.IsZero() || last.IsZero() || last.Sub(first) > short*s.window.End(first).Sub(first) {
		for _, end := range []*time.Time{&first, &last} {
			key, ok, err := s.l.firstUsage(ctx, q)
			if !ok || err != nil {
				return nil, err
			}
			_, start, _ := parseWindowKey(key.WindowKey)
			*end = s.window.Start(start)
			q.Reverse = true
		}
	}
	for start := first; !start.After(last); start = s.window.End(start) {
		starts = append(starts, start)
	}
	return starts, nil
}

// firstUsage returns the first key of a snapshot that a query finds; false when there is none.
func (l *RateLimiter) firstUsage(ctx context.Context, q store.Query) (layout.UsageKey, bool, error) {
	q.Limit = 1
	for item, err := range l.table.Items(ctx, q) {
		if err != nil {
			return layout.UsageKey{}, false, err
		}
		key, ok := layout.ParseUsageKey(store.KeyOf(item))
		if _, _, isWindow := parseWindowKey(key.WindowKey); ok && isWindow {
			return key, true, nil
		}
	}
	return layout.UsageKey{}, false, nil
}
