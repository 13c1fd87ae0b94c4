package zlimit

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// A Capacity is the state of a resource's limits, summed over all entities that use it. Buckets of parents are separate, because a request
// takes tokens from the child and from each parent, and should count once.
type Capacity struct {
	Resource string          `json:"resource"`
	At       time.Time       `json:"at"`
	Entities int             `json:"entities"` // with a bucket, without Parents
	Items    int             `json:"items"`    // of these buckets
	Limits   []LimitCapacity `json:"limits"`   // in the order of their names
	// Parents counts the entities of OfParents: those that consumed nothing themselves, and were charged for children. Buckets from
	// before the table counted that are among Entities.
	Parents   int             `json:"parents,omitzero"`
	OfParents []LimitCapacity `json:"of_parents,omitempty"`
	// Unsupported counts the entities among them whose buckets are not part of Limits. zae-limiter limits these in a
	// way unknown to this version, see [UnsupportedError].
	Unsupported int `json:"unsupported,omitzero"`
	// Coverage says which part of the buckets this is.
	Coverage Coverage `json:"coverage"`
}

// A LimitCapacity is the state of one limit, summed over all entities whose buckets have it.
type LimitCapacity struct {
	Name      string   `json:"name"`
	Entities  int      `json:"entities"`
	Capacity  Quantity `json:"capacity"`  // of all buckets
	Available Quantity `json:"available"` // in all buckets; none in those that are in debt
	InDebt    int      `json:"in_debt"`   // entities in debt
	Debt      Quantity `json:"debt"`      // of all of them, positive
}

// Utilization returns the part of the capacity that is not available, from 0 to 1.
func (c LimitCapacity) Utilization() float64 {
	if c.Capacity <= 0 {
		return 0
	}
	return 1 - float64(c.Available)/float64(c.Capacity)
}

// Limit returns where a limit stands, by its name; false when no bucket has it.
func (c Capacity) Limit(name string) (LimitCapacity, bool) { return limitNamed(c.Limits, name) }

// Capacity adds up the buckets of a resource, as [UsageService.Buckets] yields them, and reports which part of all
// buckets these are. It reads them page by page, and keeps only the sums. It costs as much, and half a read unit more
// per 4 KB of the index of usage in two hours, about 20 entries.
func (s *UsageService) Capacity(ctx context.Context, resource string) (Capacity, error) {
	sum := Capacity{Resource: resource, At: s.l.now().UTC(), Limits: []LimitCapacity{}}
	if err := s.l.check(validateResource(resource)); err != nil {
		return Capacity{}, err
	}
	added := func(yield func(string, error) bool) {
		for b, err := range s.spreads(ctx, resource) {
			if err == nil {
				sum.addBucket(&b)
			}
			if !yield(b.entity, err) || err != nil {
				return
			}
		}
	}
	var err error
	if sum.Coverage, err = s.coverage(ctx, resource, added); err != nil {
		return Capacity{}, publicError("read the capacity", err)
	}
	return sum, nil
}

func (c *Capacity) addBucket(b *spread) {
	entities, limits := &c.Entities, &c.Limits
	if b.isParent() {
		entities, limits = &c.Parents, &c.OfParents
	}
	*entities++
	c.Items += len(b.shards)
	if b.unsupported != nil {
		c.Unsupported++
		return
	}
	for _, level := range b.levels(c.At) {
		*limits = addLevel(*limits, &level)
	}
}

func addLevel(limits []LimitCapacity, level *bucket.Status) []LimitCapacity {
	at, ok := placeOf(limits, level.Name)
	if !ok {
		limits = slices.Insert(limits, at, LimitCapacity{Name: level.Name})
	}
	l := &limits[at]
	l.Entities++
	l.Capacity = l.Capacity.plus(Quantity(level.CapacityNow()))
	if level.Available >= 0 {
		l.Available = l.Available.plus(Quantity(level.Available))
	} else {
		l.InDebt++
		l.Debt = l.Debt.plus(-Quantity(level.Available))
	}
	return limits
}

// Buckets yields the buckets of a resource, in the order of their entities, in their current state. An entity that has
// not used the resource, or whose bucket has expired, has none: its limits are full. On DynamoDB a bucket that was used
// once may be missing, and is then neither in debt nor rejected: [UsageService.Coverage] reports how many may be.
//
// Buckets reads an index page by page as the loop proceeds, with two calls for each 100 items. It costs half a read
// unit per 4 KB of the index, about 20 entries, and half a unit per 4 KB of each item. All of it may lag slightly.
func (s *UsageService) Buckets(ctx context.Context, resource string) iter.Seq2[Bucket, error] {
	return func(yield func(Bucket, error) bool) {
		if err := s.l.check(validateResource(resource)); err != nil {
			yield(Bucket{}, err)
			return
		}
		for b, err := range s.spreads(ctx, resource) {
			if err != nil {
				yield(Bucket{}, publicError("list buckets", err))
				return
			}
			if !yield(b.bucket(s.l.now()), nil) {
				return
			}
		}
	}
}

func (s *UsageService) spreads(ctx context.Context, resource string) iter.Seq2[spread, error] {
	return s.l.spreads(ctx, layout.QueryBucketsOfResource(s.l.ns.id(), resource, ""), s.l.table.ReadEventually)
}
