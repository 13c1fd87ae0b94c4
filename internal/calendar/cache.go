package calendar

import "sync"

// decoded are the times that [Parse] and [Decode] returned of late.
var decoded = cache{entries: map[[2]string]*Times{}}

// maxDecoded bounds the times that are kept: a deployment has a few.
const maxDecoded = 1024

// A cache is safe for concurrent use.
type cache struct {
	mu      sync.RWMutex
	entries map[[2]string]*Times // by compact form and zone
}

// get returns the times of a key, nil for none.
func (c *cache) get(key [2]string) *Times {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[key]
}

// keep returns the times that are kept and equal the given ones. These are kept where there are none. A full cache begins
// anew.
func (c *cache) keep(t *Times) *Times {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [2]string{t.text, t.place}
	if kept := c.entries[key]; kept != nil {
		return kept
	}
	if len(c.entries) >= maxDecoded {
		clear(c.entries)
	}
	c.entries[key] = t
	return t
}
