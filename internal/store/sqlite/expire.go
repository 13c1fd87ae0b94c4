package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/zlimit/zlimit-go/internal/store"
)

// sweep is the number of items that one call of Expire looks at.
const sweepItems = 16

// Expire looks at a few items, in the order in which they were first stored. It deletes those whose time of expiry is
// not after now, in epoch seconds. The next call goes on where this one ended. A call for each new item thus keeps the
// expired ones to a fraction of all. It reads rows and writes only when it deletes.
func (s *Store) Expire(ctx context.Context, now int64) error {
	return s.update(ctx, "expire", true, func(ctx context.Context, c *conn) (bool, error) {
		next, err := c.query("SELECT rowid, item, pk, sk FROM items WHERE rowid > ? ORDER BY rowid LIMIT ?")
		if err != nil {
			return false, err
		}
		logging, err := c.logs(ctx)
		if err != nil {
			return false, err
		}
		type place struct {
			rowid int64
			key   store.Key
		}
		var expired []place
		seen, last := 0, s.swept
		err = next.rows(ctx, 4, func(row []driver.Value) error {
			seen++
			last, _ = row[0].(int64)
			item, err := itemOf(store.Key{}, row[1])
			if s.layout.ExpiredAt(item, now) {
				expired = append(expired, place{last, store.Key{PK: row[2].(string), SK: row[3].(string)}})
			}
			return err
		}, s.swept, int64(sweepItems))
		for i := 0; err == nil && i < len(expired); i++ {
			err = s.remove(ctx, c, expired[i].key, expired[i].rowid, logging, true)
		}
		if s.swept = last; seen < sweepItems {
			s.swept = 0
		}
		return len(expired) > 0, err
	})
}
