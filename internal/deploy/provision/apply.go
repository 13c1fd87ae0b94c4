package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
)

// ErrStale says that a plan is out of date: the stored levels, or the set of managed ones, have changed since.
var ErrStale = errors.New("the plan is out of date")

// recordTimeout and recordOneLevel bound the record of the changes, which a run writes even after an interrupt: a time,
// and one for each level.
const (
	recordTimeout  = 5 * time.Second
	recordOneLevel = time.Millisecond
)

// Apply plans and does the changes. It returns the plan, and with an error the changes that were done. The changes done
// are recorded in any case. If the record fails, the next run finishes this one.
//
// While it runs no other run does: that is a [zlimit.LockedError]. If saved is not nil, the present plan must be the
// same, or have nothing left to change. The latter is so after an apply of the same plan. Otherwise nothing is written
// and the error is [ErrStale].
func (p *Provisioner) Apply(ctx context.Context, declared []zlimit.Stored, saved *Plan) (plan *Plan, done []Change, err error) {
	err = p.limiter.Managed.Run(ctx, func(ctx context.Context, lock *zlimit.ManagedRun) error {
		r := &run{Provisioner: p, lock: lock}
		var err error
		if plan, r.set, err = p.plan(ctx, declared, false); err == nil && saved != nil {
			err = saved.check(plan)
		}
		if err == nil && p.keepsScaled {
			err = plan.Undoes()
		}
		if err == nil && p.planned != nil {
			p.planned(plan)
		}
		if err != nil || plan.Empty() && plan.Manager == r.set.Manager {
			return err
		}
		err = r.do(ctx, plan)
		done = r.done
		return err
	})
	return plan, done, err
}

// A run is one application of a plan.
type run struct {
	*Provisioner
	lock    *zlimit.ManagedRun
	set     zlimit.ManagedSet     // of managed levels
	managed map[zlimit.Level]bool // the levels of the set, while changes are made
	done    []Change
}

// do does the changes of a plan. Before the first change it records the levels that will be managed, and after the last
// one the managed levels.
func (r *run) do(ctx context.Context, plan *Plan) error {
	r.set.Pending, r.set.Manager, r.managed = nil, plan.Manager, map[zlimit.Level]bool{}
	for _, level := range r.set.Levels {
		r.managed[level] = true
	}
	for _, c := range plan.Changes {
		if c.Action == Create || c.Action == Update || c.Action == Adopt {
			r.set.Pending = append(r.set.Pending, c.After.Level)
		}
	}
	if err := r.lock.Record(ctx, r.set); err != nil {
		return err
	}
	var failed error
	for _, c := range plan.Changes {
		if failed = r.change(ctx, c); failed != nil {
			failed = fmt.Errorf("%v: %w", c.After.Level, failed)
			break
		}
		r.done = append(r.done, c)
		if r.reported != nil {
			r.reported(c)
		}
	}
	if failed == nil {
		r.set.Pending, r.set.Hash = nil, plan.Hash
	}
	if errors.Is(failed, zlimit.ErrLockLost) { // and with it the right to record anything
		return failed
	}
	r.set.LastApplied, r.set.Levels = r.now().UTC(), slices.SortedFunc(maps.Keys(r.managed), zlimit.Level.Compare)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout+time.Duration(len(r.set.Levels))*recordOneLevel)
	defer cancel()
	return errors.Join(failed, r.lock.Record(late, r.set))
}

// change does one change. The level then is in the managed set, or is not any more. It stays pending until all changes
// are done, since a write that was not answered may happen.
func (r *run) change(ctx context.Context, c Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	written := c.Action == Forget || c.Action == Adopt && c.Before.Managed
	if !written {
		if _, err := r.lock.Replace(hooks.Manage(ctx, r.set.Manager), c.Before, c.After); err != nil {
			return err
		}
	}
	if delete(r.managed, c.After.Level); c.Action != Delete && c.Action != Forget {
		r.managed[c.After.Level] = true
	}
	return nil
}

// check returns ErrStale, with the differences, unless the plan is still right, or is applied already.
func (p *Plan) check(now *Plan) error {
	if p.ID != now.ID {
		return fmt.Errorf("%w: it is for namespace %s (%s), not for %s (%s)", ErrStale, p.Namespace, p.ID, now.Namespace, now.ID)
	}
	if p.From != now.From && now.From != "" {
		return fmt.Errorf("%w: the levels were managed by %s, and are managed by %s now", ErrStale, cmp.Or(p.From, "no one else"), now.From)
	}
	if now.Empty() {
		return nil
	}
	planned, left := p.byLevel(), now.byLevel()
	for _, c := range now.Changes {
		old := planned[c.After.Level]
		switch {
		case old == nil:
			return fmt.Errorf("%w: %v was not to change, and is stored as version %d now", ErrStale, c.After.Level, c.Before.Version)
		case old.Before.Version != c.Before.Version || !old.Before.Config.Same(&c.Before.Config):
			return fmt.Errorf("%w: %v was version %d, and is version %d now", ErrStale, c.After.Level, old.Before.Version, c.Before.Version)
		case old.Action != c.Action || !old.After.Config.Same(&c.After.Config):
			return fmt.Errorf("%w: %v was to %s, and is to %s now", ErrStale, c.After.Level, old.Action, c.Action)
		}
	}
	for _, c := range p.Changes {
		if left[c.After.Level] == nil {
			return fmt.Errorf("%w: %v has nothing to change any more", ErrStale, c.After.Level)
		}
	}
	return nil
}

func (p *Plan) byLevel() map[zlimit.Level]*Change {
	all := make(map[zlimit.Level]*Change, len(p.Changes))
	for i := range p.Changes {
		all[p.Changes[i].After.Level] = &p.Changes[i]
	}
	return all
}
