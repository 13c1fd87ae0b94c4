package scale

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// readSome is one call. It returns the indexes of the remaining keys, and the limit that it met.
func (t *Table) readSome(
	ctx context.Context, keys []store.Key, wanted []int, items []expr.Item, consistent bool,
) (left []int, limit *met, err error) {
	t.travel(1)
	asked := make([]store.Key, len(wanted))
	for at, i := range wanted {
		asked[at] = keys[i]
	}
	if err := t.arrive(ctx, "BatchGetItem", false, asked...); err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	now := time.Now()
	for _, i := range wanted {
		if m := t.mayRead(keys[i], now); m != nil {
			left, limit = append(left, i), m
			continue
		}
		found, err := t.items.Read(context.WithoutCancel(ctx), keys[i:i+1], true)
		if err != nil {
			t.mu.Unlock()
			return nil, nil, err
		}
		item := found[0]
		if !consistent {
			item = t.lagging(keys[i], item, now)
		}
		t.chargeRead(keys[i], item, consistent)
		items[i] = item
	}
	t.mu.Unlock()
	t.travel(1)
	return left, limit, nil
}

// write is one attempt of a write.
func (t *Table) write(ctx context.Context, w store.Write) (store.Result, error) {
	const op = "UpdateItem"
	t.travel(1)
	if err := t.arrive(ctx, op, true, w.Key); err != nil {
		return store.Result{}, err
	}
	t.mu.Lock()
	result, err := t.apply(ctx, &w, op)
	lost := err == nil && t.random.Float64() < t.Lost
	if lost {
		t.used.Lost++
	}
	t.mu.Unlock()
	if lost {
		return store.Result{}, silent(ctx, op, true)
	}
	t.travel(1)
	return result, err
}

// apply does a write, or returns why not. mu is held.
func (t *Table) apply(ctx context.Context, w *store.Write, op string) (store.Result, error) {
	if t.held[w.Key] > 0 {
		t.used.Conflicts++
		return store.Result{}, &store.Error{Op: op, Err: store.ErrConflict}
	}
	now := time.Now()
	old, plan, entries, err := t.plan(ctx, w)
	if err != nil {
		return store.Result{}, err
	}
	if m := t.mayWrite(w.Key, entries, now); m != nil {
		if isSnapshot(w.Key) {
			t.used.Snapshots.Throttled++
		}
		return store.Result{}, m.err(op)
	}
	t.used.Writes++
	t.charge(w.Key, unitsOf(old, plan.Next), entries)
	if !plan.Applied {
		t.used.Failed++
		if isSnapshot(w.Key) {
			t.used.Snapshots.Failed++
		}
		return store.Result{Item: old}, nil
	}
	t.remember(w.Key, old, plan.Next, now)
	if old == nil && isSnapshot(w.Key) {
		t.used.Snapshots.Begun++
	}
	return t.items.Write(context.WithoutCancel(ctx), *w)
}

// plan returns the effect of a write on an item. mu is held.
func (t *Table) plan(ctx context.Context, w *store.Write) (old expr.Item, plan store.Plan, entries []entry, err error) {
	found, err := t.items.Read(context.WithoutCancel(ctx), []store.Key{w.Key}, true)
	if err != nil {
		return nil, plan, nil, err
	}
	if plan, err = t.schema.Plan(w, found[0], nil, nil); err != nil {
		return nil, plan, nil, &store.Error{Op: "UpdateItem", Invalid: true, Err: err}
	}
	if plan.Applied && w.Kind != store.Check && (plan.Moves || w.Kind == store.Delete || t.projected(found[0])) {
		entries = t.entries(found[0], plan.Next)
	}
	return found[0], plan, entries, nil
}

// projected reports whether an index holds the whole item, so that every change of it is one of the index.
func (t *Table) projected(item expr.Item) bool {
	for i := range t.schema.Indexes {
		if x := &t.schema.Indexes[i]; !x.Local && !x.KeysOnly {
			if _, ok := item.Lookup(x.PK); ok {
				return true
			}
		}
	}
	return false
}

// transact is one attempt of a transaction. It holds the items for a while, and then does all writes or none. Each
// costs twice as much as a plain write, also in a cancelled transaction.
func (t *Table) transact(ctx context.Context, writes []store.Write, op string) ([]store.Result, error) {
	t.travel(2)
	keys := make([]store.Key, len(writes))
	for i := range writes {
		keys[i] = writes[i].Key
	}
	if err := t.arrive(ctx, op, true, keys...); err != nil {
		return nil, err
	}
	if err := t.begin(ctx, writes, op); err != nil {
		t.travel(2)
		return nil, err
	}
	time.Sleep(t.Hold)
	t.mu.Lock()
	for i := range writes {
		if t.held[writes[i].Key]--; t.held[writes[i].Key] == 0 {
			delete(t.held, writes[i].Key)
		}
	}
	results, err := t.commit(ctx, writes)
	t.mu.Unlock()
	t.travel(2)
	return results, err
}

// begin holds the items of a transaction, unless another one does, or one is throttled.
func (t *Table) begin(ctx context.Context, writes []store.Write, op string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used.Transactions++
	now := time.Now()
	for i := range writes {
		if t.held[writes[i].Key] > 0 {
			t.used.Conflicts++
			t.pay(writes)
			return &store.Error{Op: op, Err: store.ErrConflict}
		}
	}
	for i := range writes {
		_, _, entries, err := t.plan(ctx, &writes[i])
		if err != nil {
			return err
		}
		if m := t.mayWrite(writes[i].Key, entries, now); m != nil {
			throttled := m.err(op)
			throttled.Throttles = nil // the reasons of a cancelled transaction name none
			return throttled
		}
	}
	for i := range writes {
		t.held[writes[i].Key]++
	}
	return nil
}

// pay charges writes that are not done. mu is held.
func (t *Table) pay(writes []store.Write) {
	for i := range writes {
		t.charge(writes[i].Key, 2*unitsOf(), nil)
	}
}

// commit does the writes of a transaction, or returns whose condition failed. mu is held.
func (t *Table) commit(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	results := make([]store.Result, len(writes))
	all := true
	olds, nexts, changed := make([]expr.Item, len(writes)), make([]expr.Item, len(writes)), make([][]entry, len(writes))
	for i := range writes {
		old, plan, entries, err := t.plan(ctx, &writes[i])
		if err != nil {
			return nil, err
		}
		olds[i], nexts[i], changed[i] = old, plan.Next, entries
		if results[i].Applied = plan.Applied; !plan.Applied {
			all, results[i].Item = false, old
		}
	}
	if !all {
		t.used.Failed += uint64(len(writes))
		t.pay(writes)
		return results, nil
	}
	now := time.Now()
	for i := range writes {
		t.used.Writes++
		t.charge(writes[i].Key, 2*unitsOf(olds[i]), changed[i])
		t.remember(writes[i].Key, olds[i], nexts[i], now)
	}
	return t.items.Transact(context.WithoutCancel(ctx), writes)
}

// Query reads a page. It costs what its items cost together, and is never throttled.
func (t *Table) Query(ctx context.Context, q store.Query) (store.Page, error) {
	t.travel(1)
	if err := t.arrive(ctx, "Query", false, store.Key{PK: q.PK}); err != nil {
		return store.Page{}, err
	}
	page, err := t.items.Query(ctx, q)
	t.mu.Lock()
	size := 0
	for _, item := range page.Items {
		size += store.Size(item)
	}
	units := float64(size/4096 + 1)
	if !q.Consistent {
		units /= 2
	}
	t.used.ReadUnits += units
	t.mu.Unlock()
	t.travel(1)
	return page, err
}
