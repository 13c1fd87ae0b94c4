package zlimit

import (
	"context"
	"slices"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Declaration is what an application says of a resource that it limits: the limits of entities without limits of
// their own. The command zlimitgen writes declarations from a file.
type Declaration struct {
	Resource string  `json:"resource"`
	Limits   []Limit `json:"limits"`
}

// Applied tells what became of declarations. A resource in neither list had the declared limits already.
type Applied struct {
	Set  []string `json:"set"`  // resources whose limits were set
	Kept []string `json:"kept"` // resources with limits that were set by other means; those were left alone
}

// Apply brings the stored limits of resources in line with what an application declares. Applications call it when they
// start.
//   - Resources without limits get the declared ones.
//   - Limits that Apply stored follow the declaration when it changes.
//   - Limits that were set by other means are left alone and reported as kept, until they are deleted. An operator sets
//     such limits with [LimitService.SetResource]. A change of the failure policy alone leaves limits whose they were.
//   - Resources that are not declared any more keep their limits.
//
// Apply costs a batch read of an item for each resource. Where nothing is to change it writes nothing, not even an
// audit event. A change costs what SetResource costs. Processes may call it at once. When they declare different
// limits, such as two versions of an application, the last one to start prevails. An error leaves what was applied
// before it, which is returned with it.
func (s *LimitService) Apply(ctx context.Context, declared ...Declaration) (Applied, error) {
	var applied Applied
	if s.l.closed.Load() {
		return applied, ErrClosed
	}
	refs, wants := make([]configRef, len(declared)), make([]level, len(declared))
	keys := make([]store.Key, len(declared))
	for i, d := range declared {
		if err := validateResource(d.Resource); err != nil {
			return applied, err
		}
		if slices.ContainsFunc(declared[:i], func(other Declaration) bool { return other.Resource == d.Resource }) {
			return applied, &ValidationError{Field: "declarations", Value: d.Resource, Reason: "is given twice"}
		}
		wants[i].limits = d.Limits
		if err := wants[i].check(SourceResource, "limits of "+d.Resource); err != nil {
			return applied, err
		}
		refs[i] = s.l.ns.resourceLevel(d.Resource)
		keys[i] = refs[i].key
	}
	items, err := s.l.table.ReadChunks(ctx, keys)
	if err != nil {
		return applied, publicError("apply limits", err)
	}
	for i, d := range declared {
		verdict, _, _, err := refs[i].judge(items[i], wants[i])
		if err == nil && verdict == declaredToSet {
			verdict, err = s.apply(ctx, refs[i], wants[i])
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
	return applied, nil
}

// A verdict says what a declaration means for a resource.
type verdict int

const (
	declaredAlready verdict = iota // it has the declared limits
	declaredToKeep                 // it has others, which are not those that Apply stored
	declaredToSet
)

// judge compares the item of a resource with what is declared of it.
func (c configRef) judge(item expr.Item, want level) (verdict, *level, configItem, error) {
	open, err := c.open(item)
	if err != nil {
		return 0, nil, open, err
	}
	found, err := c.decode(item)
	switch {
	case err != nil:
		return 0, nil, open, err
	case slices.Equal(found.limits, want.limits):
		return declaredAlready, found, open, nil
	case len(found.limits) > 0 && *open.declared != *open.version:
		return declaredToKeep, found, open, nil
	default:
		return declaredToSet, found, open, nil
	}
}

// apply sets the limits of a resource as declared, unless another writer came first and they are to stay.
func (s *LimitService) apply(ctx context.Context, c configRef, want level) (last verdict, err error) {
	err = s.change(ctx, c, func(item expr.Item, by author) (*level, []store.Write, error) {
		judged, found, open, err := c.judge(item, want)
		if last = judged; err != nil || judged != declaredToSet {
			return found, nil, err
		}
		next := level{limits: want.limits, policy: found.policy}
		open.fill(next, 0)
		*open.declared = *open.version
		return s.replace(c, item, open, next, by)
	})
	return last, err
}
