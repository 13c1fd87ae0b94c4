package rotate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

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

// bothLevels returns the levels of the old entity and of the new one.
func (r *rotator) bothLevels(ctx context.Context) (from, to map[string]zlimit.Stored, err error) {
	if from, err = r.levels(ctx, r.done.From); err == nil {
		to, err = r.levels(ctx, r.done.To)
	}
	return from, to, err
}

// planLevels reports the levels of the old entity, and what is not copied of them.
func (r *rotator) planLevels(ctx context.Context) error {
	levels, err := r.levels(ctx, r.done.From)
	if err != nil {
		return err
	}
	managed := 0
	for resource, stored := range levels {
		if suspended := resource == "" && stored.Switch == zlimit.SwitchDisabled; suspended && stored.Config.IsZero() {
			continue // which is not copied, and may be there by an earlier run
		}
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

// leave takes the new entity away from its parent, below which an earlier version has made it, and notes the resources that are enabled for the old one. Switches have to wait until all is
// charged.
func (r *rotator) leave(ctx context.Context) error {
	if r.new.ParentID != "" {
		if _, err := r.l.Entities.SetParent(ctx, r.done.To, ""); err != nil {
			return err
		}
	}
	from, err := r.levels(ctx, r.done.From)
	for resource, stored := range from {
		if stored.Switch == zlimit.SwitchEnabled {
			r.enabled = append(r.enabled, resource)
		}
	}
	slices.Sort(r.enabled)
	return err
}

// copyLevels gives the new entity the limits of the old one.
func (r *rotator) copyLevels(ctx context.Context) error {
	from, to, err := r.bothLevels(ctx)
	if err != nil {
		return err
	}
	for resource, stored := range from {
		if there := to[resource]; !stored.Config.IsZero() && !there.Config.Same(&stored.Config) {
			if !there.Config.IsZero() {
				r.note("%v had other limits, and has the limits of %s: it had %s", zlimit.Level{Entity: r.done.To, Resource: resource}, r.done.From, textOf(&there.Config))
			}
			if err := r.l.Limits.Set(ctx, zlimit.Level{Entity: r.done.To, Resource: resource}, stored.Config); err != nil {
				return err
			}
		}
	}
	for resource, there := range to {
		if was := from[resource]; was.Config.IsZero() && !there.Config.IsZero() {
			r.note("%v had limits, which %s has not: it had %s", zlimit.Level{Entity: r.done.To, Resource: resource}, r.done.From, textOf(&there.Config))
			if err := r.l.Limits.Delete(ctx, zlimit.Level{Entity: r.done.To, Resource: resource}); err != nil {
				return err
			}
		}
	}
	return nil
}

// textOf returns the limits of a config as commands take them.
func textOf(c *zlimit.Config) string {
	var texts []string
	for i := range c.Limits {
		texts = append(texts, c.Limits[i].String())
	}
	return cmp.Or(strings.Join(texts, ", "), "no limits, and other rules")
}

// suspend makes all levels of the old entity refuse requests, but those that serve them whatever their limits hold: there is no budget to
// be carried over. The last stage suspends them. It reports whether any level was not suspended before.
func (r *rotator) suspend(ctx context.Context) (again bool, err error) {
	levels, err := r.levels(ctx, r.done.From)
	if err != nil {
		return false, err
	}
	levels[""] = zlimit.Stored{Switch: levels[""].Switch} // which every request falls back on
	for resource, stored := range levels {
		if said := stored.Switch; said == zlimit.SwitchBypassed || said == zlimit.SwitchInherit && resource != "" {
			continue
		}
		again = again || stored.Switch != zlimit.SwitchDisabled
		if err := r.disable(ctx, resource); err != nil {
			return again, err
		}
	}
	return again, nil
}

// disable suspends a level of the old entity. A level that is suspended already may have buckets that are not marked yet.
func (r *rotator) disable(ctx context.Context, resource string) error {
	report, err := r.l.Limits.Disable(ctx, zlimit.Level{Entity: r.done.From, Resource: resource}, nil)
	if err == nil && report.Everywhere.After(r.done.Everywhere) {
		r.done.Everywhere = report.Everywhere
	}
	return err
}

// copySwitches gives the levels of the new entity the switches of the old one. The default comes last, from which on the new one serves
// requests, and its buckets are marked with that. A level of the old entity that was bypassed is suspended once the new one has its switch.
func (r *rotator) copySwitches(ctx context.Context) error {
	from, to, err := r.bothLevels(ctx)
	if err != nil {
		return err
	}
	resources := slices.Sorted(maps.Keys(from))
	slices.Reverse(resources) // the default is ""
	for _, resource := range resources {
		if err := r.copySwitch(ctx, resource, from[resource].Switch, to[resource].Switch); err != nil {
			return err
		}
	}
	of, err := r.reached(ctx)
	if err != nil {
		return err
	}
	return r.mark(ctx, r.done.To, of.resources)
}

// copySwitch gives a level of the new entity its switch. A run before may have done so.
func (r *rotator) copySwitch(ctx context.Context, resource string, from, to zlimit.Switch) (err error) {
	at := zlimit.Level{Entity: r.done.To, Resource: resource}
	var report zlimit.SwitchReport
	switch {
	case from == zlimit.SwitchBypassed:
		if report, err = r.l.Limits.Bypass(ctx, at, nil); err == nil {
			err = r.disable(ctx, resource)
		}
	case slices.Contains(r.enabled, resource):
		report, err = r.l.Limits.Enable(ctx, at, nil)
	case resource == "": // also if a run before has stored it: it may not have marked all buckets
		report, err = r.l.Limits.LeaveSwitch(ctx, at, nil)
	case resource != "" && from == zlimit.SwitchDisabled && to == zlimit.SwitchInherit:
		_, err = r.l.Limits.Disable(ctx, at, nil)
	}
	if report.Everywhere.After(r.done.Served) {
		r.done.Served = report.Everywhere
	}
	return err
}
