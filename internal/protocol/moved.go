package protocol

import (
	"context"
	"errors"
)

// If a parent is disabled, it rejects requests of an entity that may have been moved to another parent meanwhile. The entity's buckets show
// a move, but a rejected request does not read them, and an entity without limits has none. So such a rejection from memory is checked once
// a second, like every rejection of a disabled level.

// climbAgain appends the levels of a request again, after a first try failed because of a disabled parent. It first reads the records of
// the entities below that parent again. If they were read a moment ago, it returns the failure.
func (fs *families) climbAgain(ctx context.Context, r *Request, began int64, levels []level, failure error) ([]level, error) {
	var disabled *DisabledError
	if !errors.As(failure, &disabled) || disabled.Entity == r.Entity || !fs.rereadBelow(ctx, r, disabled.Entity) {
		return nil, failure
	}
	return fs.climb(ctx, r, began, levels)
}

// rereadBelow reads the stored limits and records again, of an entity and of its parents below a given one. It reports whether it read any.
func (fs *families) rereadBelow(ctx context.Context, r *Request, above string) (read bool) {
	entity := r.Entity
	for range MaxDepth {
		b := fs.memory.Bucket(entity, r.Resource)
		limits := b.Limits.Load()
		if limits == nil {
			return read
		}
		if age := fs.now() - limits.ReadAt; age < 0 || age >= disabledFor.Milliseconds() {
			latest, err := fs.options.Source.After(ctx, b, fs.NextEpoch())
			if err != nil { // the rejection stands, as for a bucket that cannot be read
				return read
			}
			limits, read = latest, true
		}
		if entity = limits.Lineage.Parent; entity == "" || entity == above {
			return read
		}
	}
	return read
}
