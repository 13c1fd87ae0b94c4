package zlimit

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// A UsageService reports the past consumption of entities, and their present balances. It is safe for concurrent use.
//
// An aggregator, package aggregator, follows the changes of buckets and sums up consumption. Without one the table has
// no snapshots. Snapshots lag by as much as the aggregator, and are kept as long as it is configured to keep them. On
// DynamoDB days and months lack the last 75 to 80 minutes by default, see aggregator.WithoutRollUp.
type UsageService struct{ l *RateLimiter }

// A Snapshot is the consumption of one resource by one entity in one window.
type Snapshot struct {
	Entity   string    `json:"entity"`
	Resource string    `json:"resource"`
	Window   Window    `json:"window"`
	Start    time.Time `json:"start"` // of the window, in UTC
	End      time.Time `json:"end"`   // the start of the next window
	// Consumed is the net consumption of each limit, by its name: tokens taken less tokens given back. It is negative
	// when requests that were admitted in an earlier window were corrected in this one. Beyond 9.2 quadrillion tokens
	// it is the largest Quantity; the table has the exact figure.
	Consumed map[string]Quantity `json:"consumed"`
	// FromChildren is the part of Consumed by which requests of children were charged to the entity as their parent, and to
	// a child as well. It lacks limits without such requests. Counts from before the table knew of this are not in it, see
	// [Summary.MayRepeat].
	FromChildren map[string]Quantity `json:"from_children,omitempty"`
	// FromNarrower is the part of Consumed by which requests of other resources were charged to this one, since they lie within it, see
	// [Config.Within], and to the other resource as well. It lacks limits without such requests.
	FromNarrower map[string]Quantity `json:"from_narrower,omitempty"`
	// Events is the number of changes of the bucket that the snapshot sums up.
	Events int64 `json:"events"`
}

// Own returns what requests of the entity itself consumed of each limit, and what requests of children without such a limit did. The
// sum over all entities of a resource counts each request once, with any parents.
func (s Snapshot) Own() map[string]Quantity { return without(s.Consumed, s.FromChildren) }

// Counted returns the part of the snapshot that the sum of a query includes, so that the sum counts each request once.
// Without an entity, that is [Snapshot.Own], since a request is also charged to parents. Without a resource, it
// excludes charges of narrower resources, whose snapshots have them as well. With both, it is Consumed.
func (s Snapshot) Counted(q UsageQuery) map[string]Quantity {
	switch {
	case q.Entity == "":
		return s.Own()
	case q.Resource == "":
		return without(s.Consumed, s.FromNarrower)
	default:
		return s.Consumed
	}
}

// without returns the rest of consumption without a part of it.
func without(consumed, part map[string]Quantity) map[string]Quantity {
	left := maps.Clone(consumed)
	for name, tokens := range part {
		left[name] = left[name].plus(-tokens)
	}
	return left
}

// A UsageQuery chooses among snapshots. Entity, Resource or both must be given, and Window.
type UsageQuery struct {
	Entity   string    `json:"entity"`        // "" for all entities of the resource
	Resource string    `json:"resource"`      // "" for all resources of the entity
	Window   Window    `json:"window"`        // the length of the windows
	From     time.Time `json:"from,omitzero"` // windows that start at this time or later; zero for all
	To       time.Time `json:"to,omitzero"`   // windows that start before this time; zero for all
	Limit    int       `json:"limit"`         // snapshots to yield at most; 0 for all
}

// Snapshots yields snapshots in the order of time, and within a window in the order of their entities or resources. A window without
// consumption has no snapshot, and one past its retention is left out. An error ends the loop.
//
// Snapshots reads while the loop runs, and may lag by moments. Its cost depends on the query:
//   - Hourly windows of an entity cost half a read unit per 4 KB of snapshots, which is some ten of them. A call reads at most 1 MB.
//     Without a resource, the query takes one call more, and one for each resource of the entity.
//   - Daily and monthly windows of an entity cost half a read unit for each window, with or without a snapshot. A call reads 100 windows.
//     With a lower Limit, the first call reads that many, and each later one twice as many, up to 100. If From or To is missing, or they
//     are more than 100 windows apart, two more calls of half a unit find the first and the last window. Without a resource, each resource
//     of the entity costs all of this; they are found as above.
//   - Windows of a resource, over all entities, cost half a read unit per 4 KB of an index, which is some 20 entries. Each snapshot costs
//     half a unit, with two calls for each 100. Daily and monthly windows take at least one call of half a unit for each window.
func (s *UsageService) Snapshots(ctx context.Context, q UsageQuery) iter.Seq2[Snapshot, error] {
	return func(yield func(Snapshot, error) bool) {
		if err := s.l.check(q.validate()); err != nil {
			yield(Snapshot{}, err)
			return
		}
		left := q.Limit
		for snapshot, err := range s.read(ctx, &q) {
			if err != nil {
				yield(Snapshot{}, publicError("read usage", err))
				return
			}
			left--
			if !yield(snapshot, nil) || left == 0 {
				return
			}
		}
	}
}

func (q *UsageQuery) validate() error {
	if q.Entity == "" && q.Resource == "" {
		return &ValidationError{Field: "entity", Value: "", Reason: "must be given, or a resource"}
	}
	if q.Entity != "" {
		if err := validateEntity("entity", q.Entity); err != nil {
			return err
		}
	}
	if q.Resource != "" {
		if err := validateResource(q.Resource); err != nil {
			return err
		}
	}
	if q.Limit < 0 {
		return &ValidationError{Field: "limit", Value: strconv.Itoa(q.Limit), Reason: "must not be negative"}
	}
	return q.Window.validate()
}

// read yields the snapshots that a query chooses, however many.
func (s *UsageService) read(ctx context.Context, q *UsageQuery) iter.Seq2[Snapshot, error] {
	span, ok := q.span(s.l)
	switch {
	case !ok:
		return func(func(Snapshot, error) bool) {}
	case q.Entity == "":
		return s.snapshots(q, span.ofResource(ctx, q.Resource))
	case q.Resource != "":
		return s.snapshots(q, span.ofEntity(ctx, q.Entity, q.Resource))
	}
	return func(yield func(Snapshot, error) bool) {
		var lists []iter.Seq2[Snapshot, error]
		for resource, err := range span.resources(ctx, q.Entity) {
			if err != nil {
				yield(Snapshot{}, err)
				return
			}
			lists = append(lists, s.snapshots(q, span.ofEntity(ctx, q.Entity, resource)))
		}
		merge(lists, func(a, b Snapshot) int {
			if c := a.Start.Compare(b.Start); c != 0 {
				return c
			}
			return strings.Compare(a.Resource, b.Resource)
		})(yield)
	}
}

// snapshots yields the snapshots of items, without other windows and without expired ones.
func (s *UsageService) snapshots(q *UsageQuery, items iter.Seq2[expr.Item, error]) iter.Seq2[Snapshot, error] {
	return func(yield func(Snapshot, error) bool) {
		now := s.l.now().Unix()
		for item, err := range items {
			var decoded layout.Usage
			if err == nil {
				decoded, err = layout.DecodeUsage(item)
			}
			if err != nil {
				yield(Snapshot{}, err)
				return
			}
			if decoded.ExpiresAt > 0 && decoded.ExpiresAt <= now {
				continue
			}
			if snapshot, ok := snapshotOf(&decoded); ok && snapshot.Window == q.Window && !yield(snapshot, nil) {
				return
			}
		}
	}
}

// snapshotOf returns the snapshot that an item holds. It returns false when its key is that of no window, or of another
// one.
func snapshotOf(it *layout.Usage) (Snapshot, bool) {
	window, start, ok := parseWindowKey(it.Key.WindowKey)
	if !ok || string(window) != it.Window {
		return Snapshot{}, false
	}
	snapshot := Snapshot{
		Entity: it.Key.Entity, Resource: it.Key.Resource, Window: window, Start: start, End: window.End(start),
		Consumed: make(map[string]Quantity, len(it.Limits)), Events: it.TotalEvents,
	}
	for _, l := range it.Limits {
		if l.Name != bucket.WriteUnits && !strings.Contains(l.Name, "#") { // zae-limiter counts overdrafts of soft limits as NAME#od
			snapshot.Consumed[l.Name] = Quantity(l.Consumed)
		}
	}
	for _, c := range it.Children {
		addTo(&snapshot.FromChildren, c.Name, c.Consumed)
	}
	for _, n := range it.Narrower {
		addTo(&snapshot.FromNarrower, n.Name, n.Consumed)
	}
	return snapshot, true
}

// addTo adds to the figure of a limit in a map. It makes the map for the first figure other than 0.
func addTo(to *map[string]Quantity, limit string, figure int64) {
	if figure == 0 {
		return
	}
	if *to == nil {
		*to = map[string]Quantity{}
	}
	(*to)[limit] += Quantity(figure)
}

// merge yields the elements of lists in order, each of which is in order. An error ends it.
func merge[T any](lists []iter.Seq2[T, error], compare func(a, b T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type head struct {
			value T
			next  func() (T, error, bool)
		}
		var heads []head
		for _, list := range lists {
			next, stop := iter.Pull2(list)
			defer stop()
			heads = append(heads, head{next: next})
		}
		advance := func(at int) (err error) {
			var ok bool
			if heads[at].value, err, ok = heads[at].next(); !ok {
				heads = slices.Delete(heads, at, at+1)
			}
			return err
		}
		fail := func(err error) { yield(*new(T), err) }
		for at := len(heads) - 1; at >= 0; at-- {
			if err := advance(at); err != nil {
				fail(err)
				return
			}
		}
		for len(heads) > 0 {
			least := 0
			for at := range heads {
				if compare(heads[at].value, heads[least].value) < 0 {
					least = at
				}
			}
			if !yield(heads[least].value, nil) {
				return
			}
			if err := advance(least); err != nil {
				fail(err)
				return
			}
		}
	}
}
