package rotate

import (
	"context"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// levels returns the levels of an entity, by resource.
func (r *rotator) levels(ctx context.Context, entity string) (map[string]zlimit.Stored, error) {
	levels := map[string]zlimit.Stored{}
	for stored, err := range r.l.Limits.List(ctx, zlimit.LevelQuery{Entity: entity}) {
		if err != nil {
			return nil, err
		}
		if len(stored.Unsupported) > 0 {
			return nil, &zlimit.UnsupportedError{
				Source: stored.Level.Source(), Entity: entity, Resource: stored.Level.Resource, Features: stored.Unsupported,
			}
		}
		levels[stored.Level.Resource] = stored
	}
	return levels, nil
}

// planLevels reports the levels of the old entity, and what is not copied of them.
func (r *rotator) planLevels(ctx context.Context) error {
	levels, err := r.levels(ctx, r.done.From)
	if err != nil {
		return err
	}
	managed := 0
	for resource, stored := range levels {
		r.done.Levels = append(r.done.Levels, zlimit.Level{Entity: r.done.To, Resource: resource})
		if stored.Managed {
			managed++
		}
	}
	slices.SortFunc(r.done.Levels, zlimit.Level.Compare)
	if managed > 0 {
		r.note("a file of limits keeps levels of %s: name %s in the file as well, where later changes come from", r.done.From, r.done.To)
	}
	if before := r.done.Resumed == "" || r.done.Resumed == stageCopying; before && levels[""].Switch == zlimit.SwitchDisabled {
		r.note("%s is suspended, and %s will serve requests", r.done.From, r.done.To)
	}
	if r.old.Cascade && r.old.ParentID == "" {
		r.note("%s would charge a parent, but has none: set it again if %s gets a parent", r.done.From, r.done.To)
	}
	return nil
}

// copy takes the new entity away from its parent, and gives it the limits of the old one. A level of a resource that is enabled is enabled
// for the new entity as well. Levels that refuse requests, or serve them whatever their limits hold, have to wait until all is charged.
func (r *rotator) copy(ctx context.Context) error {
	if r.new.ParentID != "" {
		if _, err := r.l.Entities.SetParent(ctx, r.done.To, ""); err != nil {
			return err
		}
	}
	from, err := r.levels(ctx, r.done.From)
	if err != nil {
		return err
	}
	to, err := r.levels(ctx, r.done.To)
	if err != nil {
		return err
	}
	for resource, stored := range from {
		at, there := zlimit.Level{Entity: r.done.To, Resource: resource}, to[resource]
		if !stored.Config.IsZero() && !there.Config.Same(&stored.Config) {
			if err := r.l.Limits.Set(ctx, at, stored.Config); err != nil {
				return err
			}
		}
		if stored.Switch == zlimit.SwitchEnabled && there.Switch != zlimit.SwitchEnabled {
			if _, err := r.l.Limits.Enable(ctx, at, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// suspend makes all levels of the old entity refuse requests, but those that serve them whatever their limits hold: there is no budget to
// be carried over. The last stage suspends them.
func (r *rotator) suspend(ctx context.Context) error {
	levels, err := r.levels(ctx, r.done.From)
	if err != nil {
		return err
	}
	levels[""] = zlimit.Stored{Switch: levels[""].Switch} // which every request falls back on
	for resource, stored := range levels {
		if said := stored.Switch; said == zlimit.SwitchBypassed || said == zlimit.SwitchInherit && resource != "" {
			continue
		}
		if err := r.disable(ctx, resource); err != nil {
			return err
		}
	}
	return nil
}

// disable suspends a level of the old entity. A level that is suspended already may have buckets that are not marked yet.
func (r *rotator) disable(ctx context.Context, resource string) error {
	report, err := r.l.Limits.Disable(ctx, zlimit.Level{Entity: r.done.From, Resource: resource}, nil)
	if err == nil && report.Everywhere.After(r.done.Everywhere) {
		r.done.Everywhere = report.Everywhere
	}
	return err
}

// copySwitches gives the levels of the new entity the switches that had to wait. The old entity's levels that were enabled are suspended by
// now, and enabled for the new one. A level that is enabled for the new one alone was so for a charge, see [rotator.allow].
func (r *rotator) copySwitches(ctx context.Context) error {
	from, err := r.levels(ctx, r.done.From)
	if err != nil {
		return err
	}
	to, err := r.levels(ctx, r.done.To)
	if err != nil {
		return err
	}
	for resource, there := range to {
		if there.Switch == zlimit.SwitchEnabled && from[resource].Switch == zlimit.SwitchInherit {
			if _, err := r.l.Limits.LeaveSwitch(ctx, there.Level, nil); err != nil {
				return err
			}
		}
	}
	for resource, stored := range from {
		at, said := zlimit.Level{Entity: r.done.To, Resource: resource}, to[resource].Switch
		switch {
		case stored.Switch == zlimit.SwitchBypassed:
			if _, err := r.l.Limits.Bypass(ctx, at, nil); err != nil {
				return err
			}
			if err := r.disable(ctx, resource); err != nil {
				return err
			}
		case stored.Switch == zlimit.SwitchDisabled && resource != "" && said == zlimit.SwitchInherit:
			if _, err := r.l.Limits.Disable(ctx, at, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
