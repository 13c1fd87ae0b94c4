package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/server/client"
	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A settlement is what a charge of a lease has consumed.
type settlement struct{ actual, adjust zlimit.Amounts }

func (s *settlement) fields() fields {
	return fields{"actual": amounts(&s.actual, 0), "adjust": amounts(&s.adjust, -maxInteger)}
}

// settle serves POST /v1/settle.
func (h *handler) settle(c *call) (any, error) {
	all := make([]settlement, 1)
	known := all[0].fields()
	var also []settlement
	known["also"] = list(maxRequests-1, func(path string, raw json.RawMessage) error {
		var s settlement
		err := readObject(path, raw, s.fields())
		also = append(also, s)
		return err
	})
	claims, err := h.lease(c, known)
	if err != nil {
		return nil, err
	}
	if all = append(all, also...); len(all) > len(claims.Leases) {
		return nil, invalid("also", strconv.Itoa(len(also))+" values", fmt.Sprintf("must have at most %d, as the request of the lease", len(claims.Leases)-1))
	}
	actual := make([]zlimit.Amounts, len(claims.Leases))
	for i := range all {
		path := ""
		if i > 0 {
			path = "also[" + strconv.Itoa(i-1) + "]"
		}
		if actual[i], err = all[i].of(path, &claims.Leases[i]); err != nil {
			return nil, err
		}
	}
	return h.settleAll(c, claims, actual)
}

// of returns what a lease has consumed in all. It holds only limits of which something is said.
func (s *settlement) of(path string, lease *token.Lease) (zlimit.Amounts, error) {
	actual := zlimit.Amounts{}
	maps.Copy(actual, s.actual)
	for name, change := range s.adjust {
		at := member(path, "adjust["+name+"]")
		taken, ok := lease.Amounts[name]
		_, twice := s.actual[name]
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
	for name, n := range s.actual {
		if _, ok := lease.Amounts[name]; !ok {
			return nil, invalid(member(path, "actual["+name+"]"), strconv.FormatInt(n, 10), "must be of a limit that the lease has taken")
		}
	}
	return actual, nil
}

// rollback serves POST /v1/rollback.
func (h *handler) rollback(c *call) (any, error) {
	claims, err := h.lease(c, fields{})
	if err != nil {
		return nil, err
	}
	actual := make([]zlimit.Amounts, len(claims.Leases))
	for i := range actual {
		actual[i] = claims.Leases[i].Nothing()
	}
	return h.settleAll(c, claims, actual)
}

// lease reads the body of a request about a lease, and returns what the lease says.
func (h *handler) lease(c *call, known fields, required ...string) (*token.Claims, error) {
	var text string
	known["lease"] = secret(&text)
	if err := c.read(known, append([]string{"lease"}, required...)...); err != nil {
		return nil, err
	}
	return h.Tokens().Open(text, c.namespace, c.caller.Name, h.Now())
}

// settleAll settles the leases of a token, each exactly once. A call that fails in between is repeated as a whole: leases with the same
// amounts are done.
func (h *handler) settleAll(c *call, claims *token.Claims, actual []zlimit.Amounts) (any, error) {
	reply := &client.Settled{Settled: make([]client.Charge, 0, len(actual))}
	name := claims.Leases[0].Token
	slots := strings.HasPrefix(name, slotsPrefix)
	if slots {
		if err := h.keeper.settle(c.r.Context(), name, claims, actual); err != nil {
			return nil, err
		}
		h.Open.Settled(name)
	}
	for i, lease := range claims.Leases {
		if !slots { // which are settled together
			err := c.limiter.Settle(c.r.Context(), lease.Token, actual[i])
			if err == nil || errors.Is(err, zlimit.ErrSettled) { // by another replica
				h.Open.Settled(lease.Token)
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
func (h *handler) heartbeat(c *call) (any, error) {
	var longer time.Duration
	claims, err := h.lease(c, fields{"for": leaseTime(&longer)}, "for")
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
	text, err := h.Tokens().Sign(claims)
	if err != nil {
		return nil, err
	}
	h.Open.Extend(claims)
	return &client.Extended{Lease: text, ExpiresAt: claims.Expires.UTC(), LastUntil: claims.Last.UTC()}, nil
}
