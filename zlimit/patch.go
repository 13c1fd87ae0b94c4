package zlimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Patch sets single limits of a level, and leaves the others unchanged. It replaces limits of the same names, and adds the others.
//
// A level has either limits of its own, or all limits of the next wider level. So Patch of a level without limits also copies the other
// limits of the wider level. From then on the level does not follow changes of the wider one: [LimitService.Inherit] copies them again.
// The wider level of an entity and a resource is the first with limits of these: the entity's default, the resource, the system. A
// resource's wider level is the system. The copies are stored as limits of the level, so other programs read them as they do others.
//
// An entity's default comes before the limits of every resource, so it has no wider level. Patch and [LimitService.Exclude] change a
// default that has limits, and return [ErrNoLimits] otherwise.
//
// Patch costs what [LimitService.Update] costs. If the level has no limits, it costs one more consistent read, of up to three levels.
func (s *LimitService) Patch(ctx context.Context, at Level, limits ...Limit) error {
	if len(limits) == 0 {
		return nothingGiven("limits")
	}
	if err := validateLimits("limits", limits, time.Second); err != nil {
		return err
	}
	return s.edit(ctx, at, false, func(now, _ []Limit) ([]Limit, error) {
		for _, l := range limits {
			now = append(withoutLimit(now, l.Name), l)
		}
		return now, nil
	})
}

// Inherit makes limits of a level follow the next wider one again: each gets the value that it has there, or is removed
// if the wider one has none of the name. If all limits then equal the wider level's, the level has none of its own any
// more, and follows the wider one. Otherwise it has copies, see [LimitService.Patch].
//
// An entity's default and the system have no wider level: Inherit is a [*ValidationError] there. It returns
// [ErrNoLimits] for a name that neither level has. It costs what [LimitService.Update] costs, and a consistent read of up to three levels.
func (s *LimitService) Inherit(ctx context.Context, at Level, names ...string) error {
	if err := checkLimitNames(names); err != nil {
		return err
	}
	if source := at.Source(); source == SourceEntityDefault || source == SourceSystem {
		return &ValidationError{Field: "level", Value: at.String(), Reason: "has no wider level to inherit limits from"}
	}
	return s.edit(ctx, at, true, func(now, wider []Limit) ([]Limit, error) {
		for _, name := range names {
			i := slices.IndexFunc(wider, func(l Limit) bool { return l.Name == name })
			if i < 0 && !hasLimit(now, name) {
				return nil, unknownAt(at, name, append(now, wider...))
			}
			if now = withoutLimit(now, name); i >= 0 {
				now = append(now, wider[i])
			}
		}
		if len(now) == 0 || slices.Equal(inOrder(now), inOrder(wider)) {
			return nil, nil
		}
		return now, nil
	})
}

// Exclude removes limits from a level, whether they are its own or the next wider one's. The others stay, see
// [LimitService.Patch]. A request that names an excluded limit then fails with a [*ValidationError], unless a wider
// resource has it.
//
// Exclude returns [ErrNoLimits] for a name that does not apply at the level. It is a [*ValidationError] if no limit
// would be left: such a level would have all limits of the wider one. [LimitService.Bypass] admits requests without
// limits. Exclude costs what Patch costs.
func (s *LimitService) Exclude(ctx context.Context, at Level, names ...string) error {
	if err := checkLimitNames(names); err != nil {
		return err
	}
	return s.edit(ctx, at, false, func(now, _ []Limit) ([]Limit, error) {
		known := now
		for _, name := range names {
			if !hasLimit(known, name) {
				return nil, unknownAt(at, name, known)
			}
			now = withoutLimit(now, name)
		}
		if len(now) == 0 {
			return nil, &ValidationError{
				Field: "limits", Value: strings.Join(names, ", "),
				Reason: "would leave " + at.String() + " without limits of its own, so that the wider level's limits apply; see Bypass",
			}
		}
		return now, nil
	})
}

// edit changes the limits that apply at a level, its own or the next wider one's, which it may need in addition to its
// own.
func (s *LimitService) edit(ctx context.Context, at Level, needsWider bool, change func(now, wider []Limit) ([]Limit, error)) error {
	return s.Update(ctx, at, func(c *Config) (err error) {
		var wider []Limit
		if needsWider || len(c.Limits) == 0 {
			if wider, err = s.widerLimits(ctx, at); err != nil {
				return err
			}
		}
		if len(c.Limits) == 0 {
			c.Limits = slices.Clone(wider)
		}
		c.Limits, err = change(c.Limits, wider)
		return err
	})
}

// widerLimits returns the limits that hold at a level without limits.
func (s *LimitService) widerLimits(ctx context.Context, at Level) ([]Limit, error) {
	source := at.Source()
	if source == SourceEntityDefault {
		return nil, fmt.Errorf("%w: %v stands before the limits of every resource: name one, or set all limits of the entity", ErrNoLimits, at)
	}
	var levels []Level
	if source == SourceEntity {
		levels = append(levels, Level{Entity: at.Entity}, Level{Resource: at.Resource})
	}
	if source != SourceSystem {
		levels = append(levels, Level{})
	}
	found, err := s.read(ctx, levels...)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if err := found[i].refused(); err != nil {
			return nil, err
		}
		if len(found[i].Config.Limits) > 0 {
			return found[i].Config.Limits, nil
		}
	}
	return nil, nil
}

func hasLimit(limits []Limit, name string) bool {
	return slices.ContainsFunc(limits, func(l Limit) bool { return l.Name == name })
}

func withoutLimit(limits []Limit, name string) []Limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l Limit) bool { return l.Name == name })
}

func checkLimitNames(names []string) error {
	if len(names) == 0 {
		return &ValidationError{Field: "limits", Value: "", Reason: "must name at least one limit"}
	}
	for _, name := range names {
		if err := validateLimitName("limit", name); err != nil {
			return err
		}
	}
	return nil
}

// unknownAt returns the error for a limit that neither a level nor the wider one has.
func unknownAt(at Level, name string, known []Limit) error {
	var names []string
	for _, l := range known {
		if !slices.Contains(names, l.Name) {
			names = append(names, l.Name)
		}
	}
	return fmt.Errorf("%w: %q at %v, which has [%s]", ErrNoLimits, name, at, strings.Join(names, ", "))
}
