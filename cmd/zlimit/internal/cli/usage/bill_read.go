package usage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/fields"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A billQuery is what a bill is about.
type billQuery struct {
	month, zone      string
	from, to         time.Time // beginnings of hours
	entity, resource string
	tree             bool
	now              time.Time
	notes            []string
	progress         func(snapshots int64)
}

// settled is the age from which the figures of a day contain all its hours, on every store. Younger hours are read one by one.
const settled = 48 * time.Hour

// A billSpan is a part of the range, of windows of one length.
type billSpan struct {
	window   zlimit.Window
	from, to time.Time
}

// spans returns the parts that make up the range: whole days of UTC that are settled, and the hours before and after them.
func (q *billQuery) spans() (spans []billSpan) {
	first, last := zlimit.WindowDaily.Start(q.from), zlimit.WindowDaily.Start(q.to)
	if first.Before(q.from) {
		first = zlimit.WindowDaily.End(first)
	}
	last = minTime(last, zlimit.WindowDaily.Start(q.now.Add(-settled)))
	if !first.Before(last) {
		return []billSpan{{zlimit.WindowHourly, q.from, q.to}}
	}
	for _, s := range []billSpan{{zlimit.WindowHourly, q.from, first}, {zlimit.WindowDaily, first, last}, {zlimit.WindowHourly, last, q.to}} {
		if s.from.Before(s.to) {
			spans = append(spans, s)
		}
	}
	return spans
}

// edges returns the settled days of which the range has some hours.
func (q *billQuery) edges() (days []time.Time) {
	for _, end := range []time.Time{q.from, q.to} {
		day := zlimit.WindowDaily.Start(end)
		if day.Before(end) && !zlimit.WindowDaily.End(day).After(q.now.Add(-settled)) && !slices.Contains(days, day) {
			days = append(days, day)
		}
	}
	return days
}

// read makes the bill.
func (q *billQuery) read(ctx context.Context, l *zlimit.RateLimiter) (*Bill, error) {
	b := &Bill{Month: q.month, Zone: q.zone, From: q.from, To: q.to, Notes: append([]string{}, q.notes...), Lines: []BillLine{}, Totals: []BillLine{}}
	complete, err := l.Usage.Completeness(ctx) // before the figures, which are at least as complete
	if err != nil {
		return nil, err
	}
	if !complete.To.IsZero() {
		b.CompleteTo, b.Complete = &complete.To, complete.Covers(q.from, q.to)
	}
	b.Gaps = append([]zlimit.UsageGap{}, complete.Within(q.from, minTime(q.to, q.now))...)
	for _, gap := range b.Gaps {
		b.Notes = append(b.Notes, gapNote(gap))
	}
	subjects, parents, err := q.subjects(ctx, l)
	if err != nil {
		return nil, err
	}
	lines, read := map[BillLine]*BillLine{}, int64(0)
	for _, subject := range subjects {
		for _, span := range q.spans() {
			subject.Window, subject.From, subject.To = span.window, span.from, span.to
			for s, err := range l.Usage.Snapshots(ctx, subject) {
				if err != nil {
					return nil, err
				}
				if read++; q.progress != nil {
					q.progress(read)
				}
				addTo(lines, &s, parents[s.Entity])
			}
		}
		if err := q.checkEdges(ctx, l, subject, b); err != nil {
			return nil, err
		}
	}
	if q.entity != "" && len(lines) == 0 {
		if known, err := isKnown(ctx, l, q.entity, q.now); !known {
			return nil, cmp.Or(err, fmt.Errorf("%w: nothing is known of entity %q", zlimit.ErrEntityNotFound, q.entity))
		}
	}
	for _, line := range lines {
		if line.Unit = tokens; line.Limit == grammar.Money {
			line.Unit = fields.NanoDollars
		}
		b.Lines = append(b.Lines, *line)
	}
	b.order(q.tree)
	b.sum(q.entity != "" && !q.tree)
	return b, nil
}

// gapNote says what is missing in a bill.
func gapNote(g zlimit.UsageGap) string {
	why := map[zlimit.GapKind]string{
		zlimit.GapUncounted: "the first aggregator began at its end",
		zlimit.GapLost:      "the change stream had forgotten changes before they were counted",
		zlimit.GapSkipped:   "a change could not be counted, and was left out",
	}[g.Kind]
	return fmt.Sprintf("consumption from %s to %s may be missing: %s", g.From.Format(time.RFC3339), g.To.Format(time.RFC3339), cmp.Or(why, string(g.Kind)))
}

// addTo adds a snapshot to the lines of its entity and resource.
func addTo(lines map[BillLine]*BillLine, s *zlimit.Snapshot, parent string) {
	own := s.Own()
	for limit, consumed := range s.Consumed {
		key := BillLine{Entity: s.Entity, Resource: s.Resource, Limit: limit}
		line := lines[key]
		if line == nil {
			line = &BillLine{Entity: s.Entity, Parent: parent, Resource: s.Resource, Limit: limit}
			lines[key] = line
		}
		line.Own += own[limit]
		line.FromChildren += s.FromChildren[limit]
		line.FromNarrower += s.FromNarrower[limit]
		line.Total += consumed
	}
}

// sum adds up the lines of each resource and limit, each request once. The requests of children are in their own lines, unless the bill is of
// one entity alone.
func (b *Bill) sum(alone bool) {
	totals := map[BillLine]*BillLine{}
	for i := range b.Lines {
		l := &b.Lines[i]
		key := BillLine{Resource: l.Resource, Limit: l.Limit}
		if totals[key] == nil {
			totals[key] = &BillLine{Resource: l.Resource, Limit: l.Limit, Unit: l.Unit}
		}
		once := l.Own
		if alone {
			once = l.Total
		}
		totals[key].Own += l.Own
		totals[key].Total += once
	}
	for _, key := range slices.SortedFunc(maps.Keys(totals), func(x, y BillLine) int {
		return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Limit, y.Limit))
	}) {
		b.Totals = append(b.Totals, *totals[key])
	}
}

// subjects returns queries for all that the bill is about, without their range, and the parent of each entity.
func (q *billQuery) subjects(ctx context.Context, l *zlimit.RateLimiter) (subjects []zlimit.UsageQuery, parents map[string]string, err error) {
	parents = map[string]string{}
	if q.entity != "" {
		entities := []string{q.entity}
		if e, err := l.Entities.Get(ctx, q.entity); err == nil {
			parents[e.ID] = e.ParentID
		}
		for i := 0; q.tree && i < len(entities); i++ {
			for child, err := range l.Entities.Children(ctx, entities[i]) {
				if err != nil {
					return nil, nil, err
				}
				if _, known := parents[child.ID]; !known {
					entities, parents[child.ID] = append(entities, child.ID), child.ParentID
				}
			}
		}
		for _, entity := range entities {
			subjects = append(subjects, zlimit.UsageQuery{Entity: entity, Resource: q.resource})
		}
		return subjects, parents, nil
	}
	for e, err := range l.Entities.List(ctx, zlimit.EntityQuery{}) {
		if err != nil {
			return nil, nil, err
		}
		parents[e.ID] = e.ParentID
	}
	resources := map[string]bool{}
	if q.resource != "" {
		resources[q.resource] = true
	} else {
		for resource, err := range l.Usage.Resources(ctx) {
			if err != nil {
				return nil, nil, err
			}
			resources[resource] = true
		}
		for r, err := range l.Resources.List(ctx) { // some of which were first used recently
			if err != nil {
				return nil, nil, err
			}
			resources[r.ID] = true
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(resources)) {
		subjects = append(subjects, zlimit.UsageQuery{Resource: resource})
	}
	return subjects, parents, nil
}

// checkEdges compares the hours of days at the bounds with those days. Hours are kept for a shorter time.
func (q *billQuery) checkEdges(ctx context.Context, l *zlimit.RateLimiter, subject zlimit.UsageQuery, b *Bill) error {
	for _, day := range q.edges() {
		events := map[zlimit.Window]int64{}
		for _, window := range []zlimit.Window{zlimit.WindowDaily, zlimit.WindowHourly} {
			subject.Window, subject.From, subject.To = window, day, zlimit.WindowDaily.End(day)
			for s, err := range l.Usage.Snapshots(ctx, subject) {
				if err != nil {
					return err
				}
				events[window] += s.Events
			}
		}
		note := fmt.Sprintf("hours of %s are missing, of which the range has some: they are kept for a shorter time than days", day.Format(time.DateOnly))
		if events[zlimit.WindowHourly] < events[zlimit.WindowDaily] && !slices.Contains(b.Notes, note) {
			b.Complete, b.Notes = false, append(b.Notes, note)
		}
	}
	return nil
}
