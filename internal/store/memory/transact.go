package memory

import (
	"context"
	"slices"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Transact locks the shards of all keys, decides all writes, and does them if all conditions hold. It waits for other
// transactions, so that it never conflicts with one.
func (s *Store) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	const op = "transact"
	t, err := s.begin(ctx)
	if err != nil {
		return nil, failure(op, err)
	}
	if err := store.ValidateTransaction(writes); err != nil {
		return nil, failure(op, err)
	}
	for i := range writes {
		if err := validate(&writes[i]); err != nil {
			return nil, invalid(op, err)
		}
	}
	defer t.lockAll(writes)()
	results := make([]store.Result, len(writes))
	changes := make([]change, len(writes))
	all := true
	for i := range writes {
		c, err := t.decide(&t.shards[t.place(writes[i].Key.PK)], &writes[i])
		if err != nil {
			return nil, invalid(op, err)
		}
		changes[i], results[i].Applied = c, c.Applied
		if !c.Applied {
			all, results[i].Item = false, c.record.image()
		}
	}
	if all {
		for i := range changes {
			s.apply(t, &changes[i])
		}
	}
	return results, nil
}

// lockAll locks the shards of the keys of writes, each once and in their order, and returns what unlocks them.
func (t *table) lockAll(writes []store.Write) (unlock func()) {
	places := make([]int, len(writes))
	for i := range writes {
		places[i] = t.place(writes[i].Key.PK)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	for _, place := range places {
		t.shards[place].mu.Lock()
	}
	return func() {
		for _, place := range places {
			t.shards[place].mu.Unlock()
		}
	}
}
