package sqlite

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Delete deletes the items in one transaction, all or none.
func (s *Store) Delete(ctx context.Context, keys []store.Key) error {
	const op = "delete"
	distinct, err := store.DistinctKeys(keys)
	if err != nil {
		return failure(op, err)
	}
	return s.update(ctx, op, true, func(ctx context.Context, c *conn) (bool, error) {
		for _, k := range distinct {
			_, rowid, logging, err := c.load(ctx, k)
			if err == nil && rowid != 0 {
				err = s.remove(ctx, c, k, rowid, logging, false)
			}
			if err != nil {
				return false, err
			}
		}
		return true, nil
	})
}
