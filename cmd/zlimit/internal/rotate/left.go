package rotate

import (
	"context"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Left is what the new entity has left of a resource.
type Left struct {
	Resource string          `json:"resource"`
	Statuses zlimit.Statuses `json:"limits"`
}

// Look reads what the new entity has left of each resource that has a bucket. It costs a query of its buckets.
func (r *Rotation) Look(ctx context.Context, l *zlimit.RateLimiter) error {
	r.Left = nil
	for b, err := range l.Entities.Buckets(ctx, r.To) {
		if err != nil {
			return err
		}
		own := slices.DeleteFunc(slices.Clone(b.Statuses), func(s zlimit.Status) bool { return s.Limit.Term != 0 }) // slots stay with leases
		if len(own) > 0 {
			r.Left = append(r.Left, Left{b.Resource, own})
		}
	}
	slices.SortFunc(r.Left, func(a, b Left) int { return strings.Compare(a.Resource, b.Resource) })
	return nil
}
