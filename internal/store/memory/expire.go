package memory

import (
	"context"
	"sync"
)

// sweepItems is the number of items that one call of Expire looks at.
const sweepItems = 16

// A sweep is where Expire goes on.
type sweep struct {
	mu     sync.Mutex // taken before the locks of shards
	shard  int
	record int // in the records of the shard
}

// Expire looks at a few items and deletes those whose time of expiry is not after now, in epoch seconds. The next call
// goes on where this one ended. A call for each new item thus keeps the expired ones to a fraction of all.
func (s *Store) Expire(ctx context.Context, now int64) error {
	t, err := s.begin(ctx)
	if err != nil {
		return failure("expire", err)
	}
	at := &t.sweep
	at.mu.Lock()
	defer at.mu.Unlock()
	for seen, visited := 0, 0; seen < sweepItems && visited <= tableShards; {
		sh := &t.shards[at.shard]
		sh.mu.Lock()
		for ; at.record < len(sh.records) && seen < sweepItems; seen++ {
			if r := sh.records[at.record]; s.schema.ExpiredAt(r.item, now) {
				s.note(t, r.key, r, nil, true)
				t.remove(r) // puts another record in its place
			} else {
				at.record++
			}
		}
		if at.record >= len(sh.records) {
			at.shard, at.record = (at.shard+1)%tableShards, 0
			visited++
		}
		sh.mu.Unlock()
	}
	return nil
}
