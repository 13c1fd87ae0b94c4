package rotate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Left is what the new entity has left of a resource.
type Left struct {
	Resource string          `json:"resource"`
	Statuses zlimit.Statuses `json:"limits"`
}

// Look reads what the new entity has left of each resource that has a bucket, by the limits of its next request. It costs a query of its
// buckets, and the reads of [zlimit.RateLimiter.Available] for each.
func (r *Rotation) Look(ctx context.Context, l *zlimit.RateLimiter) error {
	r.Left = nil
	for b, err := range l.Entities.Buckets(ctx, r.To) {
		if err != nil {
			return err
		}
		own := slices.DeleteFunc(slices.Clone(b.Statuses), func(s zlimit.Status) bool { return s.Limit.Term != 0 }) // slots stay with leases
		now, err := l.Available(ctx, zlimit.AvailableQuery{Entity: r.To, Resource: b.Resource})
		if err != nil && !errors.Is(err, zlimit.ErrNoLimits) && !errors.Is(err, zlimit.ErrDisabled) {
			return err
		}
		for i := range own { // it has the limits of its last request; some may be stored nowhere
			for _, s := range now {
				if s.Ancestor == 0 && s.Wider == 0 && s.Limit.Name == own[i].Limit.Name {
					own[i] = s
				}
			}
		}
		if len(own) > 0 {
			r.Left = append(r.Left, Left{b.Resource, own})
		}
	}
	slices.SortFunc(r.Left, func(a, b Left) int { return strings.Compare(a.Resource, b.Resource) })
	return nil
}
