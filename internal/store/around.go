package store

import (
	"context"
	"iter"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// An Around is a store whose calls a function makes. Setup, Ping and Close go to the store itself. Of its other interfaces, an Around
// has Expire alone.
type Around struct {
	Store
	// Call makes the call do, or returns why it does not. The operation is "read", "write", "transact", "query" or "delete". The
	// partitions are the partitions of its keys, which may repeat.
	Call func(ctx context.Context, operation string, partitions iter.Seq[string], do func(context.Context) error) error
}

// Read implements [Store].
func (a Around) Read(ctx context.Context, keys []Key, consistent bool) (items []expr.Item, err error) {
	err = a.Call(ctx, "read", partitionsOf(keys), func(ctx context.Context) (err error) {
		items, err = a.Store.Read(ctx, keys, consistent)
		return err
	})
	return items, err
}

// Query implements [Store].
func (a Around) Query(ctx context.Context, q Query) (page Page, err error) {
	err = a.Call(ctx, "query", partitionsOf([]Key{{PK: q.PK}}), func(ctx context.Context) (err error) {
		page, err = a.Store.Query(ctx, q)
		return err
	})
	return page, err
}

// Write implements [Store].
func (a Around) Write(ctx context.Context, w Write) (result Result, err error) {
	err = a.Call(ctx, "write", partitionsOf([]Key{w.Key}), func(ctx context.Context) (err error) {
		result, err = a.Store.Write(ctx, w)
		return err
	})
	return result, err
}

// Transact implements [Store].
func (a Around) Transact(ctx context.Context, writes []Write) (results []Result, err error) {
	keys := make([]Key, len(writes))
	for i := range writes {
		keys[i] = writes[i].Key
	}
	err = a.Call(ctx, "transact", partitionsOf(keys), func(ctx context.Context) (err error) {
		results, err = a.Store.Transact(ctx, writes)
		return err
	})
	return results, err
}

// Delete implements [Store].
func (a Around) Delete(ctx context.Context, keys []Key) error {
	return a.Call(ctx, "delete", partitionsOf(keys), func(ctx context.Context) error { return a.Store.Delete(ctx, keys) })
}

// Expire implements [Expirer]. It does nothing where the store deletes expired items by itself.
func (a Around) Expire(ctx context.Context, now int64) error {
	if expirer, ok := a.Store.(Expirer); ok {
		return expirer.Expire(ctx, now)
	}
	return nil
}

func partitionsOf(keys []Key) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, k := range keys {
			if !yield(k.PK) {
				return
			}
		}
	}
}
