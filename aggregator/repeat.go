package aggregator

import (
	"sync"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Lambda goes on from the first failed change, and repeats the applied ones behind it. Each repeated change would cost
// a failed write, and a full index would cause ever more of them. A function therefore remembers the changes applied
// behind a failed change, while its process lives. Nothing depends on it.

// A memory has changes that were applied and come again. It is safe for concurrent use.
type memory struct {
	mu      sync.Mutex
	applied map[repeated]struct{}
}

// A repeated is a change that comes again.
type repeated struct {
	pk, sk   string
	sequence store.Sequence
}

// mostRepeated bounds a memory, at some 200 bytes for each. A batch of Lambda has at most 10,000 changes.
const mostRepeated = 50_000

func repeatedOf(c *store.Change) repeated { return repeated{c.Key.PK, c.Key.SK, place(c)} }

// unknown returns the changes that are not known to be applied, and their places among the others.
func (m *memory) unknown(changes []store.Change) (left []store.Change, places []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range changes {
		if _, known := m.applied[repeatedOf(&changes[i])]; !known {
			left, places = append(left, changes[i]), append(places, i)
		}
	}
	return left, places
}

// note notes the changes that come again, from the first failed one on, and the applied ones among them.
func (m *memory) note(changes []store.Change, failed map[int]error, first int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range changes {
		k := repeatedOf(&changes[i])
		switch {
		case i < first || failed[i] != nil:
			delete(m.applied, k)
		default:
			if m.applied == nil || len(m.applied) == mostRepeated {
				m.applied = map[repeated]struct{}{}
			}
			m.applied[k] = struct{}{}
		}
	}
}
