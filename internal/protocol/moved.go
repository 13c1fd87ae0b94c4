package protocol

import (
	"context"
	"errors"
)

// A request may be refused since a parent refuses requests, while its entity has another parent by now. The entity's buckets show a move, but a
// refused request reads none of them, and an entity without limits has none. So such a refusal from memory is checked once a second, as
// every other one.

// climbAgain appends the levels of a request after that failed. It reads the records of the entities below a parent that refuses requests
// again, unless they were read a moment ago. Otherwise it returns the failure.
func (fs *families) climbAgain(ctx context.Context, r *Request, began int64, levels []level, failure error) ([]level, error) {
	var disabled *DisabledError
	if !errors.As(failure, &disabled) || disabled.Entity == r.Entity || !fs.rereadBelow(ctx, r, disabled.Entity) {
		return nil, failure
	}
	return fs.climb(ctx, r, began, levels)
}

// rereadBelow reads the stored limits of an entity and of its parents below another one again, with their records. It reports whether it read
// any.
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
			if err != nil { // the refusal stands, as that of a bucket which cannot be read
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
