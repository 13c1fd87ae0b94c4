package memory

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Write does one write, under the lock of the shard of its key. An update that leaves the keys of the indexes alone
// allocates nothing where the results of earlier writes were released, and the new item otherwise.
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
	case c.Applied:
		s.apply(t, &c)
		item, loan := c.next.lend()
		return store.Result{Applied: true, Item: item, Forms: c.Forms, Loan: loan}, nil
	case c.record == nil:
		return store.Result{}, nil
	default:
		item, loan := c.record.lend()
		return store.Result{Item: item, Forms: c.record.forms, Loan: loan}, nil
	}
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
	shard  *shard   // locked
	record *record  // of the item, nil for none
	next   *version // with the next item, nil for none
	bound  int      // of the size of the next item
}

// decide evaluates a write on the stored item.
func (t *table) decide(sh *shard, w *store.Write) (change, error) {
	c := change{kind: w.Kind, key: w.Key, shard: sh, record: sh.find(w.Key)}
	old, forms := c.record.formed()
	next := sh.fresh()
	var err error
	if c.Plan, err = t.schema.Plan(w, old, forms, next.item); err != nil || c.Next == nil {
		sh.reuse(next)
		return c, err
	}
	c.next, next.item, next.forms = next, c.Next, c.Forms
	// The item is measured when it might have grown too large: to add up what updates may add is quicker.
	if w.Kind == store.Update && old != nil {
		if c.bound = c.record.bound + store.Growth(&w.Expr); c.bound <= store.MaxItem {
			return c, nil
		}
	}
	c.bound, err = store.CheckSize(c.Next)
	return c, err
}

func (s *Store) apply(t *table, c *change) {
	r := c.record
	if c.kind == store.Check || r == nil && c.next == nil {
		return
	}
	s.note(t, c.key, r, c.next, false)
	switch {
	case c.next == nil:
		t.remove(r)
	case r == nil:
		t.insert(c.shard, c.key, c.next, c.bound)
	default:
		if c.Moves {
			t.index(c.shard.partitions[r.key.PK], r, c.next.item)
		}
		c.shard.reuse(r.version)
		r.version, r.bound = c.next, c.bound
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
