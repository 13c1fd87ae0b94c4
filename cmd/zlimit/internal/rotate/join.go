package rotate

import (
	"context"
)

// join puts the new entity in the place of the old one: its parent, its children, and its switches. These come last, since the new entity
// serves requests by them.
func (r *rotator) join(ctx context.Context) error {
	if err := r.copyLevels(ctx); err != nil {
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
	return r.copySwitches(ctx)
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
