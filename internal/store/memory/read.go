package memory

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Read reads each item by itself. It always sees every write that returned before it.
func (s *Store) Read(ctx context.Context, keys []store.Key, _ bool) ([]expr.Item, error) {
	const op = "read"
	t, err := s.begin(ctx)
	if err != nil {
		return nil, failure(op, err)
	}
	if err := store.ValidateRead(keys); err != nil {
		return nil, failure(op, err)
	}
	items := make([]expr.Item, len(keys))
	for i, k := range keys {
		sh := t.lock(k.PK)
		items[i] = sh.find(k).image()
		sh.mu.Unlock()
	}
	return items, nil
}
