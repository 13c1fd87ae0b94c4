package zlimit

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A Summary is the sum of the snapshots of a query. Its windows are those with consumption. Snapshots of the same
// window, of several entities or resources, count as one window. A sum over all entities of a resource adds up the own
// consumption of each, so a request counts once, whatever its parents. It also counts once in a sum over all resources
// of an entity, which excludes charges to wider resources. See [Snapshot.Counted].
type Summary struct {
	Window  Window       `json:"window"`
	From    time.Time    `json:"from,omitzero"` // the start of the first window; zero when there is none
	To      time.Time    `json:"to,omitzero"`   // the end of the last one
	Windows int          `json:"windows"`
	Events  int64        `json:"events"` // changes of buckets
	Limits  []LimitUsage `json:"limits"` // in the order of their names

	// MayRepeat says that a sum over all entities may count requests once more for each parent. One of its windows began
	// before the table counted the charges of children to their parents.
	MayRepeat bool `json:"may_repeat,omitzero"`
}

// A LimitUsage is the consumption of one limit in the windows of a [Summary].
type LimitUsage struct {
	Name string `json:"name"`
	// FromChildren is the charge of parents for requests of children: beside Total in a sum over all entities, and part
	// of Total in one of an entity. Over all resources, a request counts in it for each resource that it was charged
	// to.
	FromChildren Quantity `json:"from_children,omitzero"`
	// FromNarrower is what requests of narrower resources were charged to wider ones: beside Total in a sum over all resources of an
	// entity. Over all entities, a request counts in it for each parent as well.
	FromNarrower Quantity  `json:"from_narrower,omitzero"`
	Total        Quantity  `json:"total"`
	Average      Quantity  `json:"average"` // of a window, rounded toward zero
	Peak         Quantity  `json:"peak"`    // of the window with the highest consumption
	PeakAt       time.Time `json:"peak_at"` // the start of the first window that has it
}

// Limit returns the usage of a limit by its name; false when there is none.
func (s Summary) Limit(name string) (LimitUsage, bool) { return limitNamed(s.Limits, name) }

// ofAll reports whether a query is over all entities, so that its sum must count each request once.
func (q *UsageQuery) ofAll() bool { return q.Entity == "" }

// Summary sums up the snapshots of [UsageService.Snapshots] for a query, at the same cost, and half a read unit more
// without an entity. It reads them page by page and keeps only the sums.
func (s *UsageService) Summary(ctx context.Context, q UsageQuery) (Summary, error) {
	sum := Summary{Window: q.Window, Limits: []LimitUsage{}}
	window, children, narrower := map[string]Quantity{}, map[string]Quantity{}, map[string]Quantity{} // consumption in the last window so far, and by others in all
	var start time.Time
	for snapshot, err := range s.Snapshots(ctx, q) {
		if err != nil {
			return Summary{}, err
		}
		if sum.Windows == 0 {
			sum.From = snapshot.Start
		}
		if sum.Windows == 0 || !snapshot.Start.Equal(start) {
			sum.close(start, window)
			clear(window)
			start, sum.To = snapshot.Start, snapshot.End
			sum.Windows++
		}
		sum.Events += snapshot.Events
		for name, consumed := range snapshot.Counted(q) {
			window[name] = window[name].plus(consumed)
		}
		for name, part := range snapshot.FromChildren {
			children[name] = children[name].plus(part)
		}
		for name, part := range snapshot.FromNarrower {
			narrower[name] = narrower[name].plus(part)
		}
	}
	sum.close(start, window)
	for i := range sum.Limits {
		l := &sum.Limits[i]
		l.Average, l.FromChildren, l.FromNarrower = l.Total/Quantity(sum.Windows), children[l.Name], narrower[l.Name]
	}
	var err error
	if q.ofAll() && sum.Windows > 0 {
		sum.MayRepeat, err = s.l.mayRepeat(ctx, sum.From)
	}
	return sum, publicError("read usage", err)
}

// close adds a window that is complete.
func (s *Summary) close(start time.Time, consumed map[string]Quantity) {
	for name, tokens := range consumed {
		at, ok := placeOf(s.Limits, name)
		if !ok {
			s.Limits = slices.Insert(s.Limits, at, LimitUsage{Name: name, Peak: tokens, PeakAt: start})
		}
		l := &s.Limits[at]
		l.Total = l.Total.plus(tokens)
		if tokens > l.Peak {
			l.Peak, l.PeakAt = tokens, start
		}
	}
}

// named is the figures of a limit.
type named interface{ name() string }

func (l LimitUsage) name() string    { return l.Name }
func (l LimitCapacity) name() string { return l.Name }

// placeOf returns where the figures of a limit are, or belong, among others in the order of their names.
func placeOf[T named](limits []T, name string) (at int, ok bool) {
	return slices.BinarySearchFunc(limits, name, func(l T, name string) int { return cmp.Compare(l.name(), name) })
}

// limitNamed returns the figures of a limit; false when there are none.
func limitNamed[T named](limits []T, name string) (found T, ok bool) {
	at, ok := placeOf(limits, name)
	if ok {
		found = limits[at]
	}
	return found, ok
}
