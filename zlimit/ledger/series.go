package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Series is what was consumed in each window of a range.
type Series struct {
	Starts []time.Time // of all windows, those without consumption included
	// By are the amounts by limit and entity, one for each window. Their sum over all entities counts each request once.
	By map[string]map[string][]zlimit.Quantity
	// FromChildren are the amounts by limit that entities were charged for requests of their children.
	FromChildren map[string][]zlimit.Quantity
}

// ReadSeries reads the snapshots of a query. With resources it reads the snapshots of each of them, in place of the query's resource, and adds
// them up. It costs what [zlimit.UsageService.Snapshots] costs, for each resource. The query must have a range: without one ReadSeries returns a
// [*zlimit.ValidationError] before any read.
func ReadSeries(ctx context.Context, l *zlimit.RateLimiter, q zlimit.UsageQuery, resources ...string) (*Series, error) {
	if err := checkRange(&q); err != nil {
		return nil, err
	}
	r := &Series{By: map[string]map[string][]zlimit.Quantity{}, FromChildren: map[string][]zlimit.Quantity{}}
	for start := q.Window.Start(q.From); start.Before(q.To); start = q.Window.End(start) {
		r.Starts = append(r.Starts, start)
	}
	several := len(resources) > 1
	if len(resources) == 0 {
		resources = []string{q.Resource}
	}
	for _, q.Resource = range resources {
		for s, err := range l.Usage.Snapshots(ctx, q) {
			if err != nil {
				return nil, err
			}
			r.add(&s, &q, several)
		}
	}
	return r, nil
}

func (r *Series) add(s *zlimit.Snapshot, q *zlimit.UsageQuery, several bool) {
	i, ok := slices.BinarySearchFunc(r.Starts, s.Start, time.Time.Compare)
	if !ok {
		return
	}
	for limit, n := range s.Counted(*q) {
		if several && q.Entity == "" {
			n = own(s, limit, several)
		}
		if r.By[limit] == nil {
			r.By[limit] = map[string][]zlimit.Quantity{}
		}
		at(r.By[limit], s.Entity, len(r.Starts))[i] += n
	}
	for limit, n := range s.FromChildren {
		at(r.FromChildren, limit, len(r.Starts))[i] += n
	}
}

// Sum returns the amounts of all entities for each window.
func (r *Series) Sum(limit string) []zlimit.Quantity {
	total := make([]zlimit.Quantity, len(r.Starts))
	for _, amounts := range r.By[limit] {
		for i, n := range amounts {
			total[i] += n
		}
	}
	return total
}

// at returns the amounts of a name, which are new for a new name.
func at[N float64 | zlimit.Quantity](by map[string][]N, name string, n int) []N {
	if by[name] == nil {
		by[name] = make([]N, n)
	}
	return by[name]
}

// own is what an entity used of a limit itself in a window, without what children used. Where several resources are added up, it leaves out what
// counts at a narrower one, too. A request of a child for a narrower resource is in both parts, so the larger part counts: an entity that has
// children, and its own requests beside theirs for a resource and for a narrower one, may seem to use more.
func own(s *zlimit.Snapshot, limit string, several bool) zlimit.Quantity {
	part := s.FromChildren[limit]
	if several {
		part = max(part, s.FromNarrower[limit])
	}
	return s.Consumed[limit] - part
}
