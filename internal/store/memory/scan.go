package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

var _ store.Scanner = (*Store)(nil)

// Scan reads a page of the table in the order of its keys. It looks through all keys for each page.
func (s *Store) Scan(ctx context.Context, q store.Scan) (store.Page, error) {
	const op = "scan"
	t, err := s.begin(ctx)
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		return store.Page{}, failure(op, err)
	}
	after := store.KeyOf(expr.Item(q.Continue))
	var found []expr.Item
	t.each(func(r *record) {
		if t.place(r.key.PK)%max(1, q.Segments) == q.Segment && compareKeys(r.key, after) > 0 {
			found = append(found, r.image())
		}
	})
	slices.SortFunc(found, func(a, b expr.Item) int { return compareKeys(store.KeyOf(a), store.KeyOf(b)) })
	page := store.Page{}
	if limit := (&store.Query{Limit: q.Limit}).PageLimit(); len(found) >= limit {
		found = found[:limit]
		page.Next = store.Cursor(store.KeyOf(found[limit-1]).Join(nil))
	}
	page.Items = slices.DeleteFunc(found, func(item expr.Item) bool { return !strings.HasPrefix(store.KeyOf(item).PK, q.Prefix) })
	return page, nil
}

// Estimate counts all items.
func (s *Store) Estimate(ctx context.Context) (items, bytes int64, err error) {
	t, err := s.begin(ctx)
	if err != nil {
		return 0, 0, failure("estimate", err)
	}
	t.each(func(r *record) {
		items++
		bytes += int64(store.Size(r.stored()))
	})
	return items, bytes, nil
}

// each calls do for all records. It locks one shard at a time.
func (t *table) each(do func(*record)) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for _, r := range sh.records {
			do(r)
		}
		sh.mu.Unlock()
	}
}

func compareKeys(a, b store.Key) int {
	return cmp.Or(strings.Compare(a.PK, b.PK), strings.Compare(a.SK, b.SK))
}
