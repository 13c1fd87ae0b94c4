package leasetoken

import (
	"encoding/base64"
	"strings"
	"sync"
	"time"
)

// Held are the leases that this process has handed to clients as tokens, up to 65,536. A lease leaves them when this process settles it, and
// otherwise at its end: no process knows what another one has settled. A nil *Held has no leases, and remembers none. It is safe for
// concurrent use.
type Held struct {
	now func() time.Time

	mu     sync.Mutex
	leases map[string][]HeldLease // by the ID of their lease
	tidied time.Time
}

// A HeldLease is a lease that is not settled yet.
type HeldLease struct {
	Namespace, Entity, Resource string
	Amounts                     map[string]int64 // taken, by limit, in tokens
	Expires                     time.Time
}

const (
	mostHeld  = 65536 // more are not remembered
	tidyEvery = 10 * time.Second
)

// NewHeld returns no leases. A nil clock is [time.Now].
func NewHeld(now func() time.Time) *Held {
	if now == nil {
		now = time.Now //nolint:forbidigo // as limiters have it
	}
	return &Held{now: now, leases: map[string][]HeldLease{}}
}

// Add remembers the leases of a token that was signed, until it expires. Beyond the greatest number it remembers none.
func (h *Held) Add(c *Claims) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); len(h.leases) >= mostHeld && now.Sub(h.tidied) >= tidyEvery {
		h.tidied = now
		h.tidy(now)
	}
	added := map[string][]HeldLease{}
	for _, l := range c.Leases {
		id := leaseID(l.Token)
		added[id] = append(added[id], HeldLease{c.Namespace, l.Entity, l.Resource, l.Amounts, c.Expires})
	}
	for id, leases := range added {
		if len(h.leases) < mostHeld {
			h.leases[id] = leases
		}
	}
}

// Extend gives the leases of a token the end that it says, if this process has handed them out.
func (h *Held) Extend(c *Claims) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range c.Leases {
		of := h.leases[leaseID(l.Token)]
		for i := range of {
			of[i].Expires = c.Expires
		}
	}
}

// Settled forgets the lease that a token of [zlimit.Lease.Token] is of.
func (h *Held) Settled(token string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.leases, leaseID(token))
}

// Of returns the leases of a resource that are not settled, in no order. It looks at all leases.
func (h *Held) Of(namespace, resource string) []HeldLease {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tidy(h.now())
	var all []HeldLease
	for _, leases := range h.leases {
		for _, l := range leases {
			if l.Namespace == namespace && l.Resource == resource {
				all = append(all, l)
			}
		}
	}
	return all
}

// tidy forgets the leases whose end has come. They are locked.
func (h *Held) tidy(now time.Time) {
	for id, leases := range h.leases {
		if !now.Before(leases[0].Expires) {
			delete(h.leases, id)
		}
	}
}

// leaseID returns what two tokens of one lease have in common: a request with an idempotency key has a token for each call. Such a token
// begins with a checksum and the ID of the lease. Other tokens are their own ID.
func leaseID(token string) string {
	const checksum, size = 4, 16
	text, ok := strings.CutPrefix(token, leasePrefix)
	if !ok {
		return token
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < checksum+size {
		return token
	}
	return string(data[checksum : checksum+size])
}
