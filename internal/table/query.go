package table

import (
	"context"
	"iter"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Pages yields the pages of a query, except empty ones.
func (t *Table) Pages(ctx context.Context, q store.Query) iter.Seq2[[]expr.Item, error] {
	return func(yield func([]expr.Item, error) bool) {
		for {
			var page store.Page
			err := t.Call(ctx, func(ctx context.Context) (err error) {
				page, err = t.store.Query(ctx, q)
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page.Items) > 0 && !yield(page.Items, nil) || page.Next == nil {
				return
			}
			q.Continue = page.Next
		}
	}
}

// Items yields the items of a query, page by page.
func (t *Table) Items(ctx context.Context, q store.Query) iter.Seq2[expr.Item, error] {
	return func(yield func(expr.Item, error) bool) {
		for page, err := range t.Pages(ctx, q) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// A Reader is a batch read: [Table.Read] or [Table.ReadEventually].
type Reader func(ctx context.Context, keys ...store.Key) ([]expr.Item, error)

// LookUp yields the items that a query of an index finds, in its order, as the table has them: an index may hold keys
// alone. Items that were deleted meanwhile are left out.
func (t *Table) LookUp(ctx context.Context, q store.Query, read Reader) iter.Seq2[expr.Item, error] {
	return func(yield func(expr.Item, error) bool) {
		if q.Limit == 0 || q.Limit > store.MaxRead {
			q.Limit = store.MaxRead
		}
		for page, err := range t.Pages(ctx, q) {
			var items []expr.Item
			if err == nil {
				items, err = read(ctx, Keys(page)...)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range items {
				if item != nil && !yield(item, nil) {
					return
				}
			}
		}
	}
}

// Keys returns the primary keys of items.
func Keys(items []expr.Item) []store.Key {
	keys := make([]store.Key, len(items))
	for i, item := range items {
		keys[i] = store.KeyOf(item)
	}
	return keys
}
