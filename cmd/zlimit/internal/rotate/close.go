package rotate

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A process keeps stored limits and switches in memory, so it may serve an entity that is suspended. A bucket that is marked with the switch
// refuses every request, whatever a process has in memory. So both entities get a marked bucket of each resource that has limits
// or was used, before the new entity has any limits. Defaults and the limits of the system hold for resources of any name. A
// rotation with such limits waits until no process has the switches of before.

// keptFor is how long a process may decide by what it has read of a level: the default of [zlimit.WithConfigTTL], and a call with its tries.
const keptFor = time.Minute + 5*time.Second

// A reach is where an entity may have buckets.
type reach struct {
	resources []string // that have limits of their own, or that the entity has used, and the wider ones
	open      bool     // limits hold for resources of any name
}

// close suspends the old entity, and makes each bucket of both entities refuse requests by itself.
func (r *rotator) close(ctx context.Context) error {
	of, err := r.reached(ctx)
	if err != nil {
		return err
	}
	if err := r.mark(ctx, r.done.To, of.resources); err != nil {
		return err
	}
	again, err := r.suspend(ctx)
	if err != nil {
		return err
	}
	rest := keptFor
	if of.open {
		if rest, err = r.keepSince(ctx, again); err != nil {
			return err
		}
	}
	if err := r.mark(ctx, r.done.From, of.resources); err != nil || !of.open {
		return err
	}
	if rest > 0 {
		r.report(stepWaiting)
		if err := r.wait(ctx, rest); err != nil {
			return err
		}
	}
	_, err = r.l.Limits.Disable(ctx, zlimit.Level{Entity: r.done.From}, nil) // buckets that were made meanwhile
	r.known = nil
	return err
}

// mark marks the buckets of an entity for resources with their switches, as they are stored then, and makes them where they refuse requests.
func (r *rotator) mark(ctx context.Context, entity string, resources []string) error {
	ctx = hooks.Restamp(ctx)
	for _, resource := range resources {
		if _, err := r.l.Limits.LeaveSwitch(ctx, zlimit.Level{Entity: entity, Resource: resource}, nil); err != nil {
			return err
		}
	}
	return nil
}

// reached returns where the old entity may have buckets, as this run has found it.
func (r *rotator) reached(ctx context.Context) (*reach, error) {
	if r.known != nil {
		return r.known, nil
	}
	of, names := reach{}, map[string]bool{}
	for _, q := range []zlimit.LevelQuery{{Source: zlimit.SourceSystem}, {Source: zlimit.SourceResource}, {Entity: r.done.From}} {
		for stored, err := range r.l.Limits.List(ctx, q) {
			switch {
			case err != nil:
				return nil, err
			case len(stored.Config.Limits) == 0:
			case stored.Level.Resource == "":
				of.open = true
			default:
				names[stored.Level.Resource] = true
			}
		}
	}
	for b, err := range r.l.Entities.Buckets(ctx, r.done.From) {
		if err != nil {
			return nil, err
		}
		names[b.Resource] = true
	}
	for _, name := range slices.Collect(maps.Keys(names)) {
		wider, err := r.wider(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, name := range wider {
			names[name] = true
		}
	}
	of.resources = slices.Sorted(maps.Keys(names))
	r.known = &of
	return r.known, nil
}
