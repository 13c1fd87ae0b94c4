package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// ErrStale says that a plan is not what would be planned now: what is stored, or what is managed, has changed since.
var ErrStale = errors.New("the plan is out of date")

// recordTimeout bounds the record of what was done, which a run writes also after it was interrupted.
const recordTimeout = 5 * time.Second

// Apply plans and does what is to change. It returns the plan, and with an error the changes that were done. Changes
// that it did are recorded in any case; a run that could not even do that is finished by the next one.
//
// While it runs no other run does: that is a [zlimit.LockedError]. If saved is not nil, the plan of now must be the
// same, or have nothing left to change, as after an apply of the same plan. Otherwise nothing is written and the error is
// [ErrStale].
func (p *Provisioner) Apply(ctx context.Context, declared []zlimit.Stored, saved *Plan) (plan *Plan, done []Change, err error) {
	err = p.limiter.Managed.Run(ctx, func(ctx context.Context, lock *zlimit.ManagedRun) error {
		r := &run{Provisioner: p, lock: lock}
		var err error
		if plan, r.set, err = p.plan(ctx, declared, false); err == nil && saved != nil {
			err = saved.check(plan)
		}
		if err == nil && p.planned != nil {
			p.planned(plan)
		}
		if err != nil || plan.Empty() {
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
	lock *zlimit.ManagedRun
	set  zlimit.ManagedSet // of what is managed
	done []Change
}

// do does the changes of a plan. Before the first it records which levels will be managed, after the last which are.
func (r *run) do(ctx context.Context, plan *Plan) error {
	r.set.Pending = nil
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
		if r.told != nil {
			r.told(c)
		}
	}
	if failed == nil {
		r.set.Pending, r.set.Hash = nil, plan.Hash
	}
	if errors.Is(failed, zlimit.ErrLockLost) { // and with it the right to record anything
		return failed
	}
	r.set.LastApplied = r.now().UTC()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
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
		if _, err := r.lock.Replace(ctx, c.Before, c.After); err != nil {
			return err
		}
	}
	r.set.Levels = slices.DeleteFunc(r.set.Levels, func(l zlimit.Level) bool { return l == c.After.Level })
	if c.Action != Delete && c.Action != Forget {
		r.set.Levels = append(r.set.Levels, c.After.Level)
	}
	return nil
}

// check returns ErrStale, with what has changed, unless the plan is the one of now, or is applied already.
func (p *Plan) check(now *Plan) error {
	if p.ID != now.ID {
		return fmt.Errorf("%w: it is for namespace %s (%s), not for %s (%s)", ErrStale, p.Namespace, p.ID, now.Namespace, now.ID)
	}
	if now.Empty() {
		return nil
	}
	for _, c := range now.Changes {
		old := p.of(c.After.Level)
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
		if now.of(c.After.Level) == nil {
			return fmt.Errorf("%w: %v has nothing to change any more", ErrStale, c.After.Level)
		}
	}
	return nil
}

// of returns the change of a level, nil for none.
func (p *Plan) of(level zlimit.Level) *Change {
	i := slices.IndexFunc(p.Changes, func(c Change) bool { return c.After.Level == level })
	if i < 0 {
		return nil
	}
	return &p.Changes[i]
}
