package rotate

import (
	"context"
	"maps"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// served returns the resources for which the old entity, whose rotation is done, serves requests by a switch of its own; "" for those that nothing
// is said of.
func (r *rotator) served(ctx context.Context) (resources []string, err error) {
	levels, err := r.levels(ctx, r.done.From)
	if err != nil {
		return nil, err
	}
	if levels[""].Switch != zlimit.SwitchDisabled {
		resources = append(resources, "")
	}
	for _, resource := range slices.Sorted(maps.Keys(levels)) {
		if s := levels[resource].Switch; resource != "" && (s == zlimit.SwitchEnabled || s == zlimit.SwitchBypassed) {
			resources = append(resources, resource)
		}
	}
	return resources, nil
}

// again is a run of a rotation that is done. It suspends the old entity where somebody lets it serve requests since, and both IDs use the budget.
func (r *rotator) again(ctx context.Context) error {
	served, err := r.served(ctx)
	if err != nil || len(served) == 0 {
		return err
	}
	r.done.Suspended = true
	for _, resource := range served {
		if err := r.disable(ctx, resource); err != nil {
			return err
		}
	}
	r.note("%s was served since the rotation, and is suspended again; what it used meanwhile is not taken from %s", r.done.From, r.done.To)
	return nil
}

// planAgain reports what a run of a rotation that is done would do.
func (r *rotator) planAgain(ctx context.Context) error {
	served, err := r.served(ctx)
	if len(served) > 0 {
		r.done.Suspended = true
		r.note("%s is served since the rotation: a run suspends it again", r.done.From)
	}
	return err
}
