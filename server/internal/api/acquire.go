package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// An acquisition is the body of POST /v1/acquire.
type acquisition struct {
	client.AcquireRequest

	requests []zlimit.Request // the first one, and the ones of also
	wait     time.Duration
	lease    time.Duration // 0 for a charge that stands
	key      string        // the name of the idempotency key for the limiter; "" without
}

// complete checks what the form of the request does not say, and makes the requests of the limiter.
func (a *acquisition) complete(c *call) (err error) {
	for _, charge := range append([]client.Charge{{Entity: a.Entity, Resource: a.Resource, Consume: a.Consume}}, a.Also...) {
		if err := c.mayName(charge.Entity); err != nil {
			return err
		}
		a.requests = append(a.requests, zlimit.Request{Entity: charge.Entity, Resource: charge.Resource, Consume: zlimit.Amounts(charge.Consume), Priority: a.Priority})
	}
	a.wait = time.Duration(a.MaxWaitMS) * time.Millisecond
	if a.lease, err = leaseTime("lease", a.Lease); err != nil {
		return err
	}
	if a.key, err = c.idempotencyKey(); err == nil && a.key != "" && len(a.Also) > 0 {
		return invalid("Idempotency-Key", c.r.Header.Get("Idempotency-Key"), "must be left out of a request with also, which is not remembered")
	}
	a.requests[0].ID = a.key
	return err
}

// leaseTime returns how long a lease can be settled.
func leaseTime(path, text string) (time.Duration, error) {
	d, err := time.ParseDuration(cmp.Or(text, "0s"))
	if err != nil || d > maxLease {
		return 0, invalid(path, text, "must be whole seconds, minutes or hours from 1s to 24h, such as 10m")
	}
	return d, nil
}

var printable = regexp.MustCompile(`^[ -~]+$`)

// idempotencyKey returns the name by which the limiter remembers the field Idempotency-Key of a caller; "" without it. Two callers
// with the same key are apart.
func (c *call) idempotencyKey() (string, error) {
	const name = "Idempotency-Key"
	values := c.r.Header.Values(name)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(values) > 1 || len(key) > 255 || !printable.MatchString(key) {
		return "", invalid(name, key, "must be one text of 1 to 255 printable ASCII characters")
	}
	sum := sha256.Sum256([]byte(c.caller.Name + "\x00" + key))
	return "http-" + hex.EncodeToString(sum[:20]), nil
}

// acquire serves POST /v1/acquire.
func (h *handler) acquire(c *call, a *acquisition) (any, error) {
	err := a.complete(c)
	if err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	if a.wait > 0 {
		select {
		case h.waiting <- struct{}{}:
			defer func() { <-h.waiting }()
		default:
			return nil, busy("too_many_waiting", "Too many requests wait", "Retry, without max_wait_ms if that is possible.")
		}
		var stop context.CancelFunc
		ctx, stop = Until(ctx, h.Draining)
		defer stop()
	}
	leases, err := a.take(ctx, c.limiter)
	if err != nil {
		if ctx.Err() != nil && c.r.Context().Err() == nil { // the caller would have waited longer
			return nil, busy("draining", "The server is draining", "Retry: another replica serves the request.")
		}
		return nil, err
	}
	return h.acquired(c, a, leases)
}

// busy returns a refusal that another try may not meet. Nothing was consumed.
func busy(code, title, detail string) error {
	return &refusal{client.Problem{Status: http.StatusServiceUnavailable, Code: code, Title: title, Detail: detail, Outcome: "none"}}
}

// take acquires the requests, all or none.
func (a *acquisition) take(ctx context.Context, limiter *zlimit.RateLimiter) (leases []*zlimit.Lease, err error) {
	var lease *zlimit.Lease
	switch {
	case len(a.requests) > 1:
		var opts []zlimit.WaitOption
		if a.wait > 0 {
			opts = append(opts, zlimit.MaxWait(a.wait))
		}
		all, err := limiter.AcquireAll(ctx, a.requests, opts...)
		for i := range a.requests {
			if err == nil {
				leases = append(leases, all.Of(i))
			}
		}
		return leases, err
	case a.wait > 0 && a.key == "":
		lease, err = limiter.Wait(ctx, a.requests[0], zlimit.MaxWait(a.wait))
	default:
		lease, err = acquireRepeatedly(ctx, limiter, a)
	}
	return []*zlimit.Lease{lease}, err
}

// minPause is the least time between two tries of a request with an idempotency key that waits.
const minPause = 100 * time.Millisecond

// acquireRepeatedly acquires a request, and tries again while it may wait. A request with an ID has no place in a queue.
func acquireRepeatedly(ctx context.Context, limiter *zlimit.RateLimiter, a *acquisition) (*zlimit.Lease, error) {
	until := time.Now().Add(a.wait)
	for {
		lease, err := limiter.Acquire(ctx, a.requests[0])
		var exceeded *zlimit.ExceededError
		if !errors.As(err, &exceeded) || exceeded.RetryAfter() == zlimit.Never {
			return lease, err
		}
		pause := max(exceeded.RetryAfter(), minPause)
		if time.Now().Add(pause).After(until) {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err // nothing was consumed
		}
	}
}

// Until returns a context that ends when a channel is closed, too.
func Until(ctx context.Context, closed <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// acquired returns the reply to a request that was admitted, with a token of its leases. What was taken for a request that gets none is
// given back.
func (h *handler) acquired(c *call, a *acquisition, leases []*zlimit.Lease) (any, error) {
	reply := &client.Acquired{Limits: []client.Limit{}}
	for _, lease := range leases {
		reply.Degraded = reply.Degraded || lease.Degraded()
		reply.Repeated = reply.Repeated || lease.Repeated()
		reply.Fence = max(reply.Fence, lease.Fence())
		reply.Limits = append(reply.Limits, limitsOf(lease.Statuses(), c.caller)...)
	}
	now := h.Now()
	claims := &leasetoken.Claims{Namespace: c.namespace, Caller: c.caller.Name, Expires: now.Add(a.lease), Last: now.Add(maxLease)}
	switch {
	case a.lease > 0:
		if err := h.hand(claims, a, leases, reply.Fence > 0); err != nil {
			h.giveBack(c, leases, claims.Leases)
			return nil, err
		}
	case reply.Fence > 0:
		h.giveBack(c, leases, nil)
		return nil, invalid("lease", "", "must be given for slots, which are held until the lease is settled")
	default:
		for _, lease := range leases {
			if !lease.Repeated() { // it is settled by its first call, or stands
				_ = lease.Commit(c.r.Context()) // which writes nothing without corrections
			}
		}
		return reply, nil
	}
	text, err := h.Tokens.Sign(claims)
	if err != nil {
		h.giveBack(c, leases, claims.Leases)
		return nil, refuse(http.StatusUnprocessableEntity, "lease_too_long", "Lease too long", "The request charges too many buckets and limits for a lease.")
	}
	switch {
	case reply.Repeated: // its first call has handed the lease out
		h.Held.Extend(claims)
	case !reply.Degraded: // in an outage nothing was taken
		h.Held.Add(claims)
	}
	reply.Lease, reply.ExpiresAt, reply.LastUntil = text, claims.Expires.UTC(), claims.Last.UTC()
	return reply, nil
}

// hand makes leases the claims of a token. This process keeps those with slots, by a name that they have in common.
func (h *handler) hand(claims *leasetoken.Claims, a *acquisition, leases []*zlimit.Lease, slots bool) (err error) {
	name := ""
	if slots {
		var ok bool
		if name, ok = h.keeper.keep(leases, a.lease); !ok {
			return busy("too_many_slots", "Too many leases with slots", "Retry at another replica, or when others have settled.")
		}
	}
	for i, lease := range leases {
		of := leasetoken.Lease{Token: name, Entity: a.requests[i].Entity, Resource: a.requests[i].Resource, Amounts: lease.Consumed()}
		if !slots {
			// Each token of a lease is of the same time, so that its settlement is remembered for longer than any of them can be settled.
			if of.Token, err = lease.Token(maxLease); err != nil {
				return err
			}
		}
		claims.Leases = append(claims.Leases, of)
	}
	return nil
}

// giveBack returns what was taken for a request that gets no lease. The leases of some are tokens by now. What a repeated request has
// taken belongs to its first call.
func (h *handler) giveBack(c *call, leases []*zlimit.Lease, tokens []leasetoken.Lease) {
	for i, lease := range leases {
		if lease.Repeated() {
			continue
		}
		var err error
		if i < len(tokens) && !strings.HasPrefix(tokens[i].Token, slotsPrefix) {
			err = c.limiter.Settle(c.r.Context(), tokens[i].Token, tokens[i].Nothing())
		} else {
			err = lease.Rollback(c.r.Context())
		}
		if err != nil {
			h.Logger.WarnContext(c.r.Context(), "tokens of a request without a lease stay taken", "error", err)
		}
	}
}
