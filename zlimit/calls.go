package zlimit

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/wait"
)

// transact does writes, all or none; false when a condition failed or another transaction was in the way.
func (l *RateLimiter) transact(ctx context.Context, writes []store.Write) (applied bool, err error) {
	if len(writes) == 0 {
		return true, nil
	}
	results, err := l.tryTransact(ctx, writes)
	return results != nil && allApplied(results), err
}

// tryTransact does writes, all or none, and returns what each of them found; nil when another transaction was in the
// way.
func (l *RateLimiter) tryTransact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	err = l.call(ctx, func(ctx context.Context) (err error) {
		results, err = l.store.Transact(ctx, writes)
		return err
	})
	if errors.Is(err, store.ErrConflict) {
		return nil, nil
	}
	return results, err
}

func allApplied(results []store.Result) bool {
	return !slices.ContainsFunc(results, func(r store.Result) bool { return !r.Applied })
}

// A reader is a batch read: [RateLimiter.readItems] or [RateLimiter.glance].
type reader func(ctx context.Context, keys ...store.Key) ([]expr.Item, error)

// readItems returns items as the store has them.
func (l *RateLimiter) readItems(ctx context.Context, keys ...store.Key) (items []expr.Item, err error) {
	err = l.call(ctx, func(ctx context.Context) error {
		items, err = l.store.Read(ctx, keys, true)
		return err
	})
	return items, err
}

// glance returns items as the store had them moments ago, at half the price.
func (l *RateLimiter) glance(ctx context.Context, keys ...store.Key) (items []expr.Item, err error) {
	err = l.call(ctx, func(ctx context.Context) error {
		items, err = l.store.Read(ctx, keys, false)
		return err
	})
	return items, err
}

// lookUp yields the items that a query of an index finds, in its order, as the table has them: an index may hold keys
// alone. Those that were deleted meanwhile are left out.
func (l *RateLimiter) lookUp(ctx context.Context, q store.Query, read reader) iter.Seq2[expr.Item, error] {
	return func(yield func(expr.Item, error) bool) {
		if q.Limit == 0 || q.Limit > store.MaxRead {
			q.Limit = store.MaxRead
		}
		for page, err := range l.pages(ctx, q) {
			var items []expr.Item
			if err == nil {
				items, err = read(ctx, primaryKeys(page)...)
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

// readChunks is readItems for any number of keys, a call for every [store.MaxRead] of them.
func (l *RateLimiter) readChunks(ctx context.Context, keys []store.Key) (items []expr.Item, err error) {
	for chunk := range slices.Chunk(keys, store.MaxRead) {
		more, err := l.readItems(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		items = append(items, more...)
	}
	return items, nil
}

// query yields the items of a query, page by page, and names the operation in its error.
func (l *RateLimiter) query(ctx context.Context, op string, q store.Query) iter.Seq2[expr.Item, error] {
	return func(yield func(expr.Item, error) bool) {
		for item, err := range l.items(ctx, q) {
			if !yield(item, wrap(op, err)) || err != nil {
				return
			}
		}
	}
}

// items yields the items of a query, page by page.
func (l *RateLimiter) items(ctx context.Context, q store.Query) iter.Seq2[expr.Item, error] {
	return func(yield func(expr.Item, error) bool) {
		for page, err := range l.pages(ctx, q) {
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

// pages yields the pages of a query, but for empty ones.
func (l *RateLimiter) pages(ctx context.Context, q store.Query) iter.Seq2[[]expr.Item, error] {
	return func(yield func([]expr.Item, error) bool) {
		for {
			var page store.Page
			err := l.call(ctx, func(ctx context.Context) (err error) {
				page, err = l.store.Query(ctx, q)
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

// deleteKeys deletes items, whatever they hold.
func (l *RateLimiter) deleteKeys(ctx context.Context, keys []store.Key) error {
	for chunk := range slices.Chunk(keys, store.MaxDelete) {
		err := l.patiently(ctx, func(ctx context.Context) error { return l.store.Delete(ctx, chunk) })
		if err != nil {
			return err
		}
	}
	return nil
}

// patience is the number of times that a call that may be repeated is, and firstPatience the first pause before that;
// each later one is twice as long.
const (
	patience      = 6
	firstPatience = 100 * time.Millisecond
)

// patiently makes a call that does no harm when it is made twice, and waits throttles and other outages out for a
// while.
func (l *RateLimiter) patiently(ctx context.Context, do func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := l.call(ctx, do)
		var failed *store.Error
		if attempt == patience || !errors.As(err, &failed) || !failed.Unavailable {
			return err
		}
		longest := firstPatience << attempt
		if err := wait.For(ctx, longest/2+time.Duration(door.Random(ctx, int64(longest/2)))); err != nil {
			return err
		}
	}
}

// patientWrite is [RateLimiter.patiently] for a write that does no harm when it is made twice.
func (l *RateLimiter) patientWrite(ctx context.Context, w store.Write) (result store.Result, err error) {
	err = l.patiently(ctx, func(ctx context.Context) (err error) {
		result, err = l.store.Write(ctx, w)
		return err
	})
	return result, err
}

// primaryKeys returns the primary keys of items.
func primaryKeys(items []expr.Item) []store.Key {
	keys := make([]store.Key, len(items))
	for i, item := range items {
		keys[i] = store.KeyOf(item)
	}
	return keys
}
