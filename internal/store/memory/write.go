package memory

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Write does one write, under the lock of the shard of its key. It allocates the new item, and nothing else for an update
// that leaves the keys of the indexes alone.
func (s *Store) Write(ctx context.Context, w store.Write) (store.Result, error) {
	const op = "write"
	t, err := s.begin(ctx)
	if err != nil {
		return store.Result{}, failure(op, err)
	}
	if err := validate(&w); err != nil {
		return store.Result{}, invalid(op, err)
	}
	sh := t.lock(w.Key.PK)
	defer sh.mu.Unlock()
	c, err := t.decide(sh, &w)
	switch {
	case err != nil:
		return store.Result{}, invalid(op, err)
	case !c.Applied:
		return store.Result{Item: c.record.image()}, nil
	}
	s.apply(t, &c)
	return store.Result{Applied: true, Item: c.Next[:len(c.Next):len(c.Next)]}, nil
}

// validate returns an error for a write that no item makes right.
func validate(w *store.Write) error {
	if err := w.Validate(); err != nil {
		return err
	}
	return w.Key.Validate()
}

// A change is a write that was decided on the stored item. It cannot fail any more.
type change struct {
	store.Plan

	kind   store.Kind
	key    store.Key
	shard  *shard  // locked
	record *record // of the item, nil for none
	bound  int     // of the size of the next item
}

// decide evaluates a write on the stored item.
func (t *table) decide(sh *shard, w *store.Write) (change, error) {
	c := change{kind: w.Kind, key: w.Key, shard: sh, record: sh.find(w.Key)}
	var old expr.Item
	if c.record != nil {
		old = c.record.item
	}
	var err error
	if c.Plan, err = t.schema.Plan(w, old); err != nil || c.Next == nil {
		return c, err
	}
	// The item is measured when it might have grown too large: to add up what updates may add is quicker.
	if w.Kind == store.Update && old != nil {
		if c.bound = c.record.bound + store.Growth(w.Expr); c.bound <= store.MaxItem {
			return c, nil
		}
	}
	c.bound, err = store.CheckSize(c.Next)
	return c, err
}

// apply makes the item what the change says.
func (s *Store) apply(t *table, c *change) {
	r := c.record
	if c.kind == store.Check || r == nil && c.Next == nil {
		return
	}
	s.note(t, c.key, r, c.Next, false)
	switch {
	case c.Next == nil:
		t.remove(r)
	case r == nil:
		t.insert(c.shard, c.key, c.Next, c.bound)
	default:
		if c.Moves {
			t.index(c.shard.partitions[r.key.PK], r, c.Next)
		}
		r.item, r.bound = c.Next, c.bound
	}
}

// Delete deletes each item by itself.
func (s *Store) Delete(ctx context.Context, keys []store.Key) error {
	const op = "delete"
	t, err := s.begin(ctx)
	if err != nil {
		return failure(op, err)
	}
	distinct, err := store.DistinctKeys(keys)
	if err != nil {
		return failure(op, err)
	}
	for _, k := range distinct {
		sh := t.lock(k.PK)
		if r := sh.find(k); r != nil {
			s.note(t, k, r, nil, false)
			t.remove(r)
		}
		sh.mu.Unlock()
	}
	return nil
}
