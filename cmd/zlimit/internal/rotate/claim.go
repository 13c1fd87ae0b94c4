package rotate

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// claim notes the new ID in the record of the old entity, before anything else is written: an entity has one rotation. It makes the record
// of an entity that has none. Of two concurrent rotations, one finds the note of the other one.
func (r *rotator) claim(ctx context.Context) (err error) {
	for {
		if err := r.unclaimed(); err != nil || r.old.Metadata[ToKey] != "" {
			return err
		}
		next := r.old
		next.Metadata = maps.Clone(next.Metadata)
		if next.Metadata == nil {
			next.Metadata = map[string]string{}
		}
		next.Metadata[ToKey] = r.done.To
		if !r.recorded {
			next, err = r.l.Entities.Create(ctx, next)
		} else {
			next, err = r.l.Entities.Update(ctx, next)
		}
		if err == nil {
			r.old, r.recorded = next, true
			return nil
		}
		if !errors.Is(err, zlimit.ErrEntityExists) && !errors.Is(err, zlimit.ErrEntityChanged) {
			return err
		}
		if r.old, err = r.l.Entities.Get(ctx, r.done.From); err != nil {
			return err
		}
		r.recorded = true
	}
}

// unclaimed returns an error if the old entity has another rotation.
func (r *rotator) unclaimed() error {
	to := r.old.Metadata[ToKey]
	if to == "" || to == r.done.To {
		return nil
	}
	reason := fmt.Sprintf("has the new ID %s already: rotate %s, or finish that rotation first", to, to)
	return &zlimit.ValidationError{Field: "old entity", Value: r.done.From, Reason: reason}
}

// taken returns the error of a new ID that is in use. An old entity whose rotation has begun needs the note of it removed for another ID.
func (r *rotator) taken(reason string) error {
	if r.old.Metadata[ToKey] != "" {
		reason += fmt.Sprintf(", after zlimit entity update %s --without %s", grammar.ShellWord(r.done.From), ToKey)
	}
	return &zlimit.ValidationError{Field: "new entity", Value: r.done.To, Reason: reason}
}

func (r *rotator) exists() error {
	return r.taken("exists, and is not the new ID of " + r.done.From + ": name one that does not exist")
}
