package zlimit

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestEventIDs asks that IDs grow, whatever the clock says.
func TestEventIDs(t *testing.T) {
	var ids eventIDs
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	last := ""
	for i := range 5000 {
		now = now.Add(time.Duration(rand.N(5)-2) * time.Millisecond)
		at := now
		switch i {
		case 1000:
			at = time.Unix(-1, 0)
		case 4999:
			at = time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		id := ids.next(at)
		if id <= last || len(id) != 26 {
			t.Fatalf("ID %s at %v after %s", id, at, last)
		}
		last = id
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				id := ids.next(now)
				mu.Lock()
				if seen[id] {
					t.Errorf("ID %s twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
}
