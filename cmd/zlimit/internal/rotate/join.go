package rotate

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// join puts the new entity in the place of the old one: its parent and its children. All of them are refused yet.
func (r *rotator) join(ctx context.Context) error {
	if err := r.keepClosed(ctx); err != nil {
		return err
	}
	if r.old.ParentID != "" {
		if _, err := r.l.Entities.SetParent(ctx, r.done.To, r.old.ParentID); err != nil {
			return err
		}
	}
	children, err := r.children(ctx)
	if err != nil {
		return err
	}
	for _, child := range children {
		r.report("moving child " + child)
		if _, err := r.l.Entities.SetParent(ctx, child, r.done.To); err != nil {
			return err
		}
		r.done.Children = append(r.done.Children, child)
	}
	return nil
}

// open makes the buckets of both entities the same, copies limits, and lets the new one serve requests, bucket by bucket. What is used of
// the new one stays, whatever a run that was interrupted has come to. Limits that change meanwhile are copied in the end.
func (r *rotator) open(ctx context.Context) error {
	if err := r.keepClosed(ctx); err != nil {
		return err
	}
	if err := r.recallEnabled(); err != nil { // another run may have noted them
		return err
	}
	closed, err := r.carry(ctx)
	if err != nil {
		return err
	}
	if closed {
		if err := r.keepCharges(ctx); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{r.copyLevels, r.copySwitches, r.copyLevels} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// keepClosed suspends the old entity again where somebody lets it serve requests since the rotation was interrupted.
func (r *rotator) keepClosed(ctx context.Context) error {
	levels, err := r.levels(ctx, r.done.From)
	if err != nil {
		return err
	}
	closed := levels[""].Switch == zlimit.SwitchDisabled
	for _, stored := range levels {
		closed = closed && stored.Switch != zlimit.SwitchEnabled
	}
	if closed {
		return nil
	}
	r.note("%s was served during the rotation, and is suspended again", r.done.From)
	return r.close(ctx)
}

// A term is a time by which all processes know what the rotation has changed.
type term struct {
	Everywhere time.Time `json:"everywhere,omitzero"`
	Served     time.Time `json:"served,omitzero"`
}

func (r *rotator) children(ctx context.Context) (ids []string, err error) {
	for child, err := range r.l.Entities.Children(ctx, r.done.From) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, child.ID)
	}
	return ids, nil
}

// planChildren reports the children that will be moved.
func (r *rotator) planChildren(ctx context.Context) (err error) {
	r.done.Children, err = r.children(ctx)
	r.done.Children = append([]string{}, r.done.Children...)
	return err
}
