package api

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// settle serves POST /v1/settle.
func (h *handler) settle(c *call, q *client.SettleRequest) (any, error) {
	claims, err := h.open(c, q.Lease)
	if err != nil {
		return nil, err
	}
	if len(q.Also) >= len(claims.Leases) {
		return nil, invalid("also", strconv.Itoa(len(q.Also))+" values", fmt.Sprintf("must have at most %d, as the request of the lease", len(claims.Leases)-1))
	}
	actual := make([]zlimit.Amounts, len(claims.Leases))
	for i, s := range append([]client.Settlement{q.Settlement}, q.Also...) {
		prefix := ""
		if i > 0 {
			prefix = "also[" + strconv.Itoa(i-1) + "]."
		}
		if actual[i], err = settled(&s, prefix, &claims.Leases[i]); err != nil {
			return nil, err
		}
	}
	return h.settleAll(c, claims, actual)
}

// settled returns what a lease has consumed in all. It holds only limits of which something is said.
func settled(s *client.Settlement, prefix string, lease *leasetoken.Lease) (zlimit.Amounts, error) {
	actual := zlimit.Amounts{}
	maps.Copy(actual, s.Actual)
	for name, change := range s.Adjust {
		at := prefix + "adjust[" + name + "]"
		taken, ok := lease.Amounts[name]
		_, twice := s.Actual[name]
		switch {
		case twice:
			return nil, invalid(at, strconv.FormatInt(change, 10), "must be left out for a limit of actual")
		case !ok:
			return nil, invalid(at, strconv.FormatInt(change, 10), "must be of a limit that the lease has taken")
		case change < -taken:
			return nil, invalid(at, strconv.FormatInt(change, 10), fmt.Sprintf("must not return more than the lease has taken, %d", taken))
		case change > maxInteger-taken:
			return nil, invalid(at, strconv.FormatInt(change, 10), fmt.Sprintf("must be at most %d together with what the lease has taken, %d", int64(maxInteger), taken))
		}
		actual[name] = taken + change
	}
	for name, n := range s.Actual {
		if _, ok := lease.Amounts[name]; !ok {
			return nil, invalid(prefix+"actual["+name+"]", strconv.FormatInt(n, 10), "must be of a limit that the lease has taken")
		}
	}
	return actual, nil
}

// A leaseRequest is about a lease, for some time from now.
type leaseRequest struct {
	Lease string `json:"lease"`
	For   string `json:"for"`
}

// rollback serves POST /v1/rollback.
func (h *handler) rollback(c *call, q *leaseRequest) (any, error) {
	claims, err := h.open(c, q.Lease)
	if err != nil {
		return nil, err
	}
	actual := make([]zlimit.Amounts, len(claims.Leases))
	for i := range actual {
		actual[i] = claims.Leases[i].Nothing()
	}
	return h.settleAll(c, claims, actual)
}

// open returns what the lease of a request says.
func (h *handler) open(c *call, lease string) (*leasetoken.Claims, error) {
	return h.Tokens.Open(lease, c.namespace, c.caller.Name, h.Now())
}

// settleAll settles the leases of a token, each exactly once. A call that fails in between is repeated as a whole: leases with the same
// amounts are done.
func (h *handler) settleAll(c *call, claims *leasetoken.Claims, actual []zlimit.Amounts) (any, error) {
	reply := &client.Settled{Settled: make([]client.Charge, 0, len(actual))}
	name := claims.Leases[0].Token
	slots := strings.HasPrefix(name, slotsPrefix)
	if slots {
		if err := h.keeper.settle(c.r.Context(), name, claims, actual); err != nil {
			return nil, err
		}
		h.Held.Settled(name)
	}
	for i, lease := range claims.Leases {
		if !slots { // which are settled together
			err := c.limiter.Settle(c.r.Context(), lease.Token, actual[i])
			if err == nil || errors.Is(err, zlimit.ErrSettled) { // by another replica
				h.Held.Settled(lease.Token)
			}
			if err != nil {
				return nil, err
			}
		}
		consumed := maps.Clone(lease.Amounts)
		maps.Copy(consumed, actual[i])
		reply.Settled = append(reply.Settled, client.Charge{Entity: lease.Entity, Resource: lease.Resource, Consume: consumed})
	}
	return reply, nil
}

// heartbeat serves POST /v1/heartbeat. It makes no call of the store: the leases of the token last longer than the token.
func (h *handler) heartbeat(c *call, q *leaseRequest) (any, error) {
	claims, err := h.open(c, q.Lease)
	if err != nil {
		return nil, err
	}
	longer, err := leaseTime("for", q.For)
	if err != nil {
		return nil, err
	}
	now := h.Now()
	if claims.Expires = now.Add(longer); claims.Expires.After(claims.Last) {
		claims.Expires = claims.Last
	}
	if name := claims.Leases[0].Token; strings.HasPrefix(name, slotsPrefix) {
		if err := h.keeper.extend(name, claims.Expires.Sub(now)); err != nil {
			return nil, err
		}
	}
	text, err := h.Tokens.Sign(claims)
	if err != nil {
		return nil, err
	}
	h.Held.Extend(claims)
	return &client.Extended{Lease: text, ExpiresAt: claims.Expires.UTC(), LastUntil: claims.Last.UTC()}, nil
}
