package sqlite

import (
	"context"
	"fmt"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Delete deletes the items in one transaction, all or none.
func (s *Store) Delete(ctx context.Context, keys []store.Key) error {
	const op = "delete"
	known := make(map[store.Key]bool, len(keys))
	for _, k := range keys {
		if err := checkKey(k); err != nil {
			return failure(op, err)
		}
		known[k] = true
	}
	if len(known) > store.MaxDelete {
		return failure(op, fmt.Errorf("%d keys: at most %d", len(known), store.MaxDelete))
	}
	return s.update(ctx, op, true, func(ctx context.Context, c *conn) (bool, error) {
		for k := range known {
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
