package zlimit

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Bucket is the state of an entity's limits for one resource. It has the limits of its last write.
type Bucket struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	Shards   int    `json:"shards"` // items over which the bucket is spread
	// Disabled says that requests are rejected, see [LimitService.Disable]. [Resolved.DisabledBy] is the level that
	// rejects them.
	Disabled bool `json:"disabled,omitempty"`
	// Bypassed says that requests are counted alone, see [LimitService.Bypass].
	Bypassed bool     `json:"bypassed,omitempty"`
	Statuses Statuses `json:"statuses"`
	// Consumed is the net consumption of each limit since the bucket was created. The difference between two reads is
	// the consumption between them. This does not hold after items of the bucket were merged, or after an expired
	// bucket was created again.
	Consumed map[string]Quantity `json:"consumed"`
	// FromChildren is the part of Consumed that requests of children were charged to the entity, and to a child as well. It lacks limits
	// without such requests.
	FromChildren map[string]Quantity `json:"from_children,omitempty"`
	// FromNarrower is the part of Consumed that requests of narrower resources were charged, see [Config.Within]. It lacks limits without
	// such requests.
	FromNarrower map[string]Quantity `json:"from_narrower,omitempty"`
	// Unsupported lists features of zae-limiter in the bucket that this version does not know, see [UnsupportedError]. Statuses are empty
	// then.
	Unsupported []UnsupportedFeature `json:"unsupported,omitempty"`
}

// A spread is a bucket as its items have it.
type spread struct {
	entity, resource string
	shards           []*bucket.State
	unsupported      []UnsupportedFeature
}

// spreads yields the buckets whose items a query of an index finds, bucket by bucket.
func (l *RateLimiter) spreads(ctx context.Context, q store.Query, read table.Reader) iter.Seq2[spread, error] {
	return func(yield func(spread, error) bool) {
		var b spread
		for item, err := range l.table.LookUp(ctx, q, read) {
			var decoded *layout.Bucket
			var state bucket.State
			var refused *layout.RefusedError
			if err == nil {
				decoded, state, err = layout.ReadBucket(item)
				errors.As(err, &refused)
				err = layout.Readable(err)
			}
			if err != nil {
				yield(spread{}, err)
				return
			}
			if k := decoded.Key; k.Entity != b.entity || k.Resource != b.resource {
				if len(b.shards) > 0 && !yield(b, nil) {
					return
				}
				b = spread{entity: k.Entity, resource: k.Resource}
			}
			b.add(&state)
			if refused != nil {
				b.unsupported = unsupported(refused).Features
			}
		}
		if len(b.shards) > 0 {
			yield(b, nil)
		}
	}
}

func (b *spread) add(state *bucket.State) {
	state.Limits = slices.DeleteFunc(state.Limits, func(l bucket.Limit) bool { return l.RefillPeriod <= 0 }) // no program of this module writes it
	b.shards = append(b.shards, state)
}

// levels returns the state of the limits at a time. Limits change in one shard after another, so the limits of the
// shard that was refilled last apply.
func (b *spread) levels(now time.Time) []bucket.Status {
	last := slices.MaxFunc(b.shards, func(x, y *bucket.State) int { return cmp.Compare(x.RefilledAt, y.RefilledAt) })
	config := bucket.Config{Params: bucket.Rejoin(last.Params())}
	for _, s := range b.shards {
		for _, of := range s.Slots() {
			config.Slots = append(config.Slots, bucket.SlotParams{Name: of.Name, Slots: of.Capacity, Term: of.Term})
		}
	}
	statuses := config.Statuses(nil, b.shards, &bucket.Demand{}, now.UnixMilli())
	return config.SlotStatuses(statuses, b.shards, nil, now.UnixMilli())
}

func (b *spread) bucket(now time.Time) Bucket {
	found := Bucket{Entity: b.entity, Resource: b.resource, Shards: 1, Statuses: Statuses{}, Unsupported: b.unsupported}
	if b.unsupported == nil {
		found.Statuses = appendStatuses(nil, &protocol.LevelStatus{Entity: b.entity, Resource: b.resource, Statuses: b.levels(now)})
	}
	found.Consumed = make(map[string]Quantity, len(found.Statuses))
	for _, s := range b.shards {
		found.Shards = max(found.Shards, s.Shards)
		found.Disabled = found.Disabled || s.Disabled
		found.Bypassed = found.Bypassed || s.Bypass() != 0
		for _, l := range s.Limits {
			if l.Name != bucket.WriteUnits {
				found.Consumed[bucket.LimitOf(l.Name)] += Quantity(l.Consumed)
			}
			addTo(&found.FromChildren, bucket.LimitOf(l.Name), l.FromChildren())
			addTo(&found.FromNarrower, bucket.LimitOf(l.Name), l.FromNarrower())
		}
	}
	return found
}

// Own returns what requests of the entity itself consumed of each limit since the bucket was made.
func (b Bucket) Own() map[string]Quantity { return without(b.Consumed, b.FromChildren) }

// isParent reports whether all that the bucket has counted are requests of children.
func (b *spread) isParent() bool {
	own, children := map[string]int64{}, false
	for _, s := range b.shards {
		for _, l := range s.Limits {
			if l.Name != bucket.WriteUnits {
				own[l.Name] += l.Consumed - l.FromChildren()
				children = children || l.FromChildren() != 0
			}
		}
	}
	for _, consumed := range own {
		children = children && consumed == 0
	}
	return children
}
