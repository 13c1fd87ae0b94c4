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
	// Call makes the call do, or returns why it does not.
	Call func(ctx context.Context, c *Call, do func(context.Context) error) error
}

// A Call is a call of a store. It has either keys, writes, or a query.
type Call struct {
	Operation string  // "read", "write", "transact", "query" or "delete"
	Keys      []Key   // of a read, or of a deletion
	Writes    []Write // of a transaction; a write has one
	Query     *Query
}

// Partitions yields the partitions of the keys of a call, which may repeat.
func (c *Call) Partitions() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range c.Keys {
			if !yield(c.Keys[i].PK) {
				return
			}
		}
		for i := range c.Writes {
			if !yield(c.Writes[i].Key.PK) {
				return
			}
		}
		if c.Query != nil {
			yield(c.Query.PK)
		}
	}
}

// Read implements [Store].
func (a Around) Read(ctx context.Context, keys []Key, consistent bool) (items []expr.Item, err error) {
	err = a.Call(ctx, &Call{Operation: "read", Keys: keys}, func(ctx context.Context) (err error) {
		items, err = a.Store.Read(ctx, keys, consistent)
		return err
	})
	return items, err
}

// Query implements [Store].
func (a Around) Query(ctx context.Context, q Query) (page Page, err error) {
	err = a.Call(ctx, &Call{Operation: "query", Query: &q}, func(ctx context.Context) (err error) {
		page, err = a.Store.Query(ctx, q)
		return err
	})
	return page, err
}

// Write implements [Store].
func (a Around) Write(ctx context.Context, w Write) (result Result, err error) {
	err = a.Call(ctx, &Call{Operation: "write", Writes: []Write{w}}, func(ctx context.Context) (err error) {
		result, err = a.Store.Write(ctx, w)
		return err
	})
	return result, err
}

// Transact implements [Store].
func (a Around) Transact(ctx context.Context, writes []Write) (results []Result, err error) {
	err = a.Call(ctx, &Call{Operation: "transact", Writes: writes}, func(ctx context.Context) (err error) {
		results, err = a.Store.Transact(ctx, writes)
		return err
	})
	return results, err
}

// Delete implements [Store].
func (a Around) Delete(ctx context.Context, keys []Key) error {
	return a.Call(ctx, &Call{Operation: "delete", Keys: keys}, func(ctx context.Context) error { return a.Store.Delete(ctx, keys) })
}

// Expire implements [Expirer]. It does nothing where the store deletes expired items by itself.
func (a Around) Expire(ctx context.Context, now int64) error {
	if expirer, ok := a.Store.(Expirer); ok {
		return expirer.Expire(ctx, now)
	}
	return nil
}
