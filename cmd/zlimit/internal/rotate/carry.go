package rotate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A bucket of the new entity gets all that the one of the old entity has: balances, grants, sessions, what was carried into a period. As long as
// it refuses requests, it can get that again, and nothing is added up. So whatever changes in between, the last run makes both
// the same, and from then on a change of limits does to the new bucket what it would have done to the old one.

// A Charge is what the new entity has less of a resource, or more, than its limits begin with.
type Charge struct {
	Resource string         `json:"resource"`
	Used     zlimit.Amounts `json:"used,omitempty"`
	Granted  zlimit.Amounts `json:"granted,omitempty"`
}

// A Settlement is a limit of which the new entity had another balance than the old one, since one of them was changed during the rotation.
type Settlement struct {
	Resource string          `json:"resource"`
	Limit    string          `json:"limit"`
	Before   zlimit.Quantity `json:"before"`
	After    zlimit.Quantity `json:"after"`
}

// carry makes each bucket of the new entity have what that of the old one has. A bucket that serves requests already stays as it is. It reports
// whether none does.
func (r *rotator) carry(ctx context.Context) (closed bool, err error) {
	of, err := r.reached(ctx)
	if err != nil {
		return false, err
	}
	closed = true
	for _, resource := range of.resources {
		r.report("carrying over " + resource)
		change, err := r.l.Limits.Reset(hooks.Succeed(ctx, r.done.From), zlimit.ResetRequest{Entity: r.done.To, Resource: resource})
		if err != nil {
			return false, err
		}
		for _, c := range change.Limits {
			r.done.Settled = append(r.done.Settled, Settlement{resource, c.Limit, c.Before, c.After})
		}
		closed = closed && change.Shards > 0
	}
	return closed, nil
}

// keepCharges notes in the metadata what the new entity has less than its limits begin with, for later runs to report.
func (r *rotator) keepCharges(ctx context.Context) error {
	if err := r.planCharges(ctx); err != nil {
		return err
	}
	return r.keep(ctx, func(metadata map[string]string) {
		if metadata[StageKey] == "" { // another run has come to the end
			return
		}
		if delete(metadata, ChargesKey); len(r.done.Charges) > 0 {
			metadata[ChargesKey] = encode(r.done.Charges)
		}
	})
}

// planCharges finds out what the new entity has less than its limits begin with, from the buckets of the old one.
func (r *rotator) planCharges(ctx context.Context) error {
	r.done.Charges = []Charge{}
	for b, err := range r.l.Entities.Buckets(ctx, r.done.From) {
		if err != nil {
			return err
		}
		if len(b.Unsupported) > 0 {
			return &zlimit.UnsupportedError{Source: zlimit.SourceEntity, Entity: b.Entity, Resource: b.Resource, Features: b.Unsupported}
		}
		limits, err := r.byStored(ctx, b.Resource, balancesOf(b.Statuses, b.Resource))
		if err != nil {
			return err
		}
		c := Charge{Resource: b.Resource, Used: zlimit.Amounts{}, Granted: zlimit.Amounts{}}
		for name, was := range limits {
			switch missing := was.capacity - was.left; {
			case missing > 0:
				c.Used[name] = missing
			case missing < 0:
				c.Granted[name] = -missing
			}
		}
		if len(c.Used)+len(c.Granted) > 0 {
			r.done.Charges = append(r.done.Charges, c)
		}
	}
	slices.SortFunc(r.done.Charges, func(a, b Charge) int { return strings.Compare(a.Resource, b.Resource) })
	return nil
}

// A balance is what a limit of an entity has left.
type balance struct {
	limit    zlimit.Limit
	capacity int64 // that holds now
	left     int64
}

// byStored replaces balances of a bucket of the old entity by those that its stored limits leave: a bucket has the limits of its last request.
// Limits that are not stored stay as requests gave them. Others of which nothing is stored any more are left out, since no request has to pass them.
func (r *rotator) byStored(ctx context.Context, resource string, limits map[string]balance) (map[string]balance, error) {
	statuses, err := r.l.Available(hooks.Look(ctx), zlimit.AvailableQuery{Entity: r.done.From, Resource: resource})
	if err != nil && !errors.Is(err, zlimit.ErrNoLimits) {
		return nil, err
	}
	stored := balancesOf(statuses, resource)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		is := limits[name].limit
		if now, there := stored[name]; there {
			limits[name] = now
		} else if !isGiven(&is) {
			delete(limits, name)
			r.note("limit %s of %s is not stored any more: %s gets nothing of it", name, resource, r.done.To)
		}
	}
	return limits, nil
}

// isGiven reports whether requests may have given a limit. Others are stored.
func isGiven(l *zlimit.Limit) bool {
	return l.Resets == "" && l.Session == 0 && l.Windows == "" && l.Mode == zlimit.ModeEnforced && len(grammar.Shares(l.Floors)) == 0
}

// wider returns the resources that a resource lies within.
func (r *rotator) wider(ctx context.Context, resource string) (wider []string, err error) {
	for seen := []string{resource}; ; seen = append(seen, resource) {
		found, err := r.l.Resources.Get(ctx, resource)
		if err != nil || found.Within == "" || slices.Contains(seen, found.Within) {
			return seen[1:], err
		}
		resource = found.Within
	}
}

// balancesOf returns the limits of the entity itself for a resource. Slots are held by leases, which stay with the old entity.
func balancesOf(statuses zlimit.Statuses, resource string) map[string]balance {
	limits := map[string]balance{}
	for _, s := range statuses {
		if s.Ancestor == 0 && s.Wider == 0 && s.Resource == resource && s.Limit.Term == 0 {
			limits[s.Limit.Name] = balance{s.Limit, s.Now().Capacity, s.Available}
		}
	}
	return limits
}
