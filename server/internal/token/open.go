package token

import (
	"encoding/base64"
	"strings"
	"sync"
	"time"
)

// Open are the leases that this process has handed to clients as tokens. A lease leaves them when this process settles it, and otherwise
// at its end: no process knows what another one has settled. The nil value has no leases. It is safe for concurrent use.
type Open struct {
	now func() time.Time

	mu     sync.Mutex
	leases map[string][]OpenLease // by the ID of their lease
	tidied time.Time
}

// An OpenLease is a lease that is not settled yet.
type OpenLease struct {
	Namespace, Entity, Resource string
	Amounts                     map[string]int64 // taken, by limit, in tokens
	Expires                     time.Time
}

const (
	mostOpen  = 65536 // more are not remembered
	tidyEvery = 10 * time.Second
)

// NewOpen returns no leases. A nil clock is [time.Now].
func NewOpen(now func() time.Time) *Open {
	if now == nil {
		now = time.Now
	}
	return &Open{now: now, leases: map[string][]OpenLease{}}
}

// Add remembers the leases of a token that was signed.
func (o *Open) Add(c *Claims) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.now(); len(o.leases) >= mostOpen && now.Sub(o.tidied) >= tidyEvery {
		o.tidied = now
		o.tidy(now)
	}
	added := map[string][]OpenLease{}
	for _, l := range c.Leases {
		id := leaseID(l.Token)
		added[id] = append(added[id], OpenLease{c.Namespace, l.Entity, l.Resource, l.Amounts, c.Expires})
	}
	for id, leases := range added {
		if len(o.leases) < mostOpen {
			o.leases[id] = leases
		}
	}
}

// Extend gives the leases of a token another end, if this process has handed them out.
func (o *Open) Extend(c *Claims) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range c.Leases {
		of := o.leases[leaseID(l.Token)]
		for i := range of {
			of[i].Expires = c.Expires
		}
	}
}

// Settled forgets the leases of a token of package zlimit.
func (o *Open) Settled(token string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.leases, leaseID(token))
}

// Of returns the open leases of a resource.
func (o *Open) Of(namespace, resource string) []OpenLease {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tidy(o.now())
	var all []OpenLease
	for _, leases := range o.leases {
		for _, l := range leases {
			if l.Namespace == namespace && l.Resource == resource {
				all = append(all, l)
			}
		}
	}
	return all
}

// tidy forgets the leases whose end has come. They are locked.
func (o *Open) tidy(now time.Time) {
	for id, leases := range o.leases {
		if !now.Before(leases[0].Expires) {
			delete(o.leases, id)
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
