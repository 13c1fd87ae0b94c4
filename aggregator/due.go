package aggregator

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// For each resource and hour with snapshots to roll up, there is a record. The aggregator that begins a snapshot writes the record before
// the changes count as done. So the hour is found even if that aggregator crashes.

// dueParts is the number of partitions that the records are spread over.
const dueParts = 16

// dueHourOf returns the key of the record of the hour of a snapshot.
func dueHourOf(s *snapshot) layout.DueHourKey {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(s.bucket.NS + "#" + s.bucket.Resource))
	return layout.DueHourKey{
		DuePart: int(sum.Sum32() % dueParts), WindowKey: layout.WindowKey(string(s.window), s.start), ID: s.bucket.NS, Resource: s.bucket.Resource,
	}
}

// notes are the records that this process has written. The zero value has none. It is safe for concurrent use.
type notes struct {
	mu   sync.Mutex
	keys map[layout.DueHourKey]bool
}

// maxNotes bounds the number of remembered records. A record that is forgotten is written again.
const maxNotes = 10_000

func (n *notes) has(k layout.DueHourKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.keys[k]
}

func (n *notes) add(k layout.DueHourKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keys == nil || len(n.keys) >= maxNotes {
		n.keys = map[layout.DueHourKey]bool{}
	}
	n.keys[k] = true
}

// noteAll ensures that hours have their records, and returns the hours without one. Each process makes one write per resource and hour.
func (hr *hourly) noteAll(ctx context.Context, hours []*hour) map[*hour]error {
	wanted := map[layout.DueHourKey][]*hour{}
	var keys []layout.DueHourKey
	for _, h := range hours {
		k := dueHourOf(h.snapshot)
		if hr.noted.has(k) {
			continue
		}
		if wanted[k] == nil {
			keys = append(keys, k)
		}
		wanted[k] = append(wanted[k], h)
	}
	var mu sync.Mutex
	failed := map[*hour]error{}
	inParallel(hr.options.concurrency, keys, func(k layout.DueHourKey) {
		err := hr.noteDue(ctx, k)
		if err == nil {
			hr.noted.add(k)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, h := range wanted[k] {
			failed[h] = err
		}
	})
	return failed
}

// noteDue writes the record of an hour. It replaces the record. A worker on the former record may have missed the snapshot, so it loses its
// claim, and cannot delete the record.
func (hr *hourly) noteDue(ctx context.Context, k layout.DueHourKey) error {
	record := layout.DueHour{Key: k}
	_, err := hr.table.PatientWrite(ctx, store.Write{Kind: store.Put, Key: k.Key(), Item: record.Encode()})
	if err != nil {
		return fmt.Errorf("aggregator: note that %s has to be rolled up: %w", k.WindowKey, err)
	}
	return nil
}
