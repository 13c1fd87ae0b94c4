package zlimit

import (
	"context"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A Declaration contains an application's limits for a resource. They apply to entities without limits of their own.
// The command zlimitgen generates declarations from a file.
type Declaration struct {
	Resource string  `json:"resource"`
	Limits   []Limit `json:"limits"`
}

// Applied is the outcome of declarations. A resource in neither Set nor Kept had the declared limits already.
type Applied struct {
	Set  []string `json:"set"`  // resources whose limits were set
	Kept []string `json:"kept"` // resources with limits that were set in another way and stay
	// Managed are the resources that a file of limits manages, see [ManagedService]. Declarations have no effect on them,
	// also where the limits are the declared ones at present.
	Managed []string `json:"managed,omitempty"`
	// Manager is the manager of those, such as file:limits.yaml; "" if it has no name.
	Manager string `json:"manager,omitempty"`
}

// Apply brings the stored limits of resources in line with an application's declarations. Applications call it when they start.
//   - A resource without limits gets the declared ones.
//   - Limits that Apply stored follow the declaration when it changes.
//   - Limits that were set in another way, such as [LimitService.Set] or [LimitService.Update], stay as they are and are reported as kept,
//     until they are deleted. A change of the failure policy alone does not change who set the limits.
//   - A resource that is no longer declared keeps its limits.
//   - Limits that a file of limits manages stay as they are, are reported as managed, and are logged as a warning: a resource has one
//     owner.
//
// Apply costs a batch read of one item per resource, and a read of the managed levels if some of the resources are managed. If nothing
// changes it writes nothing, not even an audit event. A change costs what Set costs. Processes may call it concurrently. If they declare
// different limits, such as two versions of an application, the last one to start wins. After an error the changes made before it remain,
// and Apply returns them with the error.
func (s *LimitService) Apply(ctx context.Context, declared ...Declaration) (Applied, error) {
	var applied Applied
	if s.l.closed.Load() {
		return applied, ErrClosed
	}
	wants, levels := make([]Config, len(declared)), make([]Level, len(declared))
	keys := make([]store.Key, len(declared))
	for i, d := range declared {
		if err := validateResource(d.Resource); err != nil {
			return applied, err
		}
		if slices.ContainsFunc(declared[:i], func(other Declaration) bool { return other.Resource == d.Resource }) {
			return applied, &ValidationError{Field: "declarations", Value: d.Resource, Reason: "is given twice"}
		}
		field := "limits of " + d.Resource
		if len(d.Limits) == 0 {
			return applied, nothingGiven(field)
		}
		wants[i].Limits, levels[i].Resource = d.Limits, d.Resource
		if err := wants[i].check(levels[i], field); err != nil {
			return applied, err
		}
		keys[i] = s.l.ns.at(levels[i]).key
	}
	items, err := s.l.table.ReadChunks(ctx, keys)
	if err != nil {
		return applied, publicError("apply limits", err)
	}
	for i, d := range declared {
		var verdict verdict
		open, err := s.l.ns.at(levels[i]).open(items[i])
		if err == nil {
			verdict, _, err = open.judge(wants[i])
		}
		if err == nil && open.isManaged() {
			applied.Managed = append(applied.Managed, d.Resource)
		}
		if err == nil && verdict == declaredToSet {
			verdict, err = s.apply(ctx, levels[i], wants[i])
		}
		if err != nil {
			return applied, publicError("apply limits", err)
		}
		switch verdict {
		case declaredToSet:
			applied.Set = append(applied.Set, d.Resource)
		case declaredToKeep:
			applied.Kept = append(applied.Kept, d.Resource)
		default: // declaredAlready
		}
	}
	if len(applied.Managed) > 0 {
		set, err := s.l.Managed.Set(ctx)
		if err != nil {
			return applied, err
		}
		applied.Manager = set.Manager
		s.l.options.logger.WarnContext(ctx, "zlimit: declared limits have no effect, since a file of limits manages the resources",
			"resources", strings.Join(applied.Managed, ", "), "manager", applied.Manager)
	}
	return applied, nil
}

// A verdict is the meaning of a declaration for a resource.
type verdict int

const (
	declaredAlready verdict = iota // it has the declared limits
	declaredToKeep                 // it has other limits than those that Apply stored
	declaredToSet
)

// judge compares the stored limits of a resource with the declared ones, and returns the stored ones.
func (i *configItem) judge(want Config) (verdict, Config, error) {
	found, err := i.config()
	switch {
	case err != nil:
		return 0, found, err
	case slices.Equal(found.Limits, want.Limits):
		return declaredAlready, found, nil
	case len(found.Limits) > 0 && *i.declared != *i.version:
		return declaredToKeep, found, nil
	default:
		return declaredToSet, found, nil
	}
}

// apply sets the limits of a resource as declared, unless another writer came first and they are to stay.
func (s *LimitService) apply(ctx context.Context, at Level, want Config) (last verdict, err error) {
	_, err = s.rewrite(ctx, at, nil, func(i *configItem, by author) (*cachedLevel, []store.Write, error) {
		judged, next, err := i.judge(want)
		if last = judged; err != nil || judged != declaredToSet {
			return &cachedLevel{Config: next, toggle: i.switched(), version: *i.version}, nil, err
		}
		next.Limits = want.Limits
		return i.become(next, i.declared, by)
	})
	return last, err
}
