package calendar

import "sync"

// decoded are the times that [Parse] and [Decode] returned recently, and decodedWindows the windows.
var (
	decoded        = cache[Times]{entries: map[[2]string]*Times{}}
	decodedWindows = cache[Windows]{entries: map[[2]string]*Windows{}}
)

// maxDecoded bounds the size of each cache: a deployment has a few entries.
const maxDecoded = 1024

// A cache is safe for concurrent use.
type cache[T any] struct {
	mu      sync.RWMutex
	entries map[[2]string]*T // by compact form and zone
}

// get returns the value of a key, nil for none.
func (c *cache[T]) get(key [2]string) *T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[key]
}

// keep returns the kept value of a key. If there is none, it keeps the given one. A full cache is emptied.
func (c *cache[T]) keep(key [2]string, t *T) *T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.entries[key]; kept != nil {
		return kept
	}
	if len(c.entries) >= maxDecoded {
		clear(c.entries)
	}
	c.entries[key] = t
	return t
}
