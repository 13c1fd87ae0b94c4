package zlimit

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/protocol"
)

// A Scoped is a limiter of one entity and one resource, with the methods of a [golang.org/x/time/rate.Limiter]. [RateLimiter.For] makes it,
// at no cost. It is safe for concurrent use. WaitN and Limit are the methods that many clients and gRPC middleware expect of a limiter.
//
// Each method takes a number of tokens of every limit: of the limits given to For, or else of the stored limits of the entity and the
// resource. So it is for limits that count the same thing, such as calls a second and calls a day. If one limit counts requests and
// another tokens, use [RateLimiter.Acquire], which takes an amount for each. The tokens are spent: only [Scoped.ReserveN] can give them
// back.
//
// Like a limiter of x/time/rate, a Scoped cannot hold slots. If slots are among the limits given to For, each method returns a
// [*ValidationError]. Stored [Slots] are ignored: to hold one, use [RateLimiter.Acquire] or [RateLimiter.Wait].
//
// Numbers of tokens are positive. Errors and costs are the same as for [RateLimiter.Acquire] and [RateLimiter.Wait].
type Scoped struct {
	limiter          *RateLimiter
	entity, resource string
	limits           []Limit
	waits            []WaitOption
}

// For returns a limiter for one entity and one resource. If limits are given, they replace the stored ones.
func (l *RateLimiter) For(entity, resource string, limits ...Limit) *Scoped {
	return &Scoped{limiter: l, entity: entity, resource: resource, limits: slices.Clone(limits)}
}

// MaxWait returns the same limiter whose waits are bounded, as by the function [MaxWait]. [RateLimiter.Wait] says what
// else bounds them.
func (s *Scoped) MaxWait(d time.Duration) *Scoped {
	bounded := *s
	bounded.waits = []WaitOption{MaxWait(d)}
	return &bounded
}

// Allow is [Scoped.AllowN] of one token.
func (s *Scoped) Allow(ctx context.Context) (bool, error) { return s.AllowN(ctx, 1) }

// AllowN takes n tokens and returns true, or returns false without an error if a limit has too few.
func (s *Scoped) AllowN(ctx context.Context, n int) (bool, error) {
	err := s.limitN(ctx, n)
	if errors.As(err, new(*ExceededError)) {
		return false, nil
	}
	return err == nil, err
}

// Limit takes one token, or returns an [*ExceededError], which reports when one will be available.
func (s *Scoped) Limit(ctx context.Context) error { return s.limitN(ctx, 1) }

func (s *Scoped) limitN(ctx context.Context, n int) error {
	lease, err := s.take(ctx, OpAcquire, n, s.limiter.Acquire)
	return spend(ctx, lease, err)
}

// Wait is [Scoped.WaitN] of one token.
func (s *Scoped) Wait(ctx context.Context) error { return s.WaitN(ctx, 1) }

// WaitN waits until n tokens are available, and takes them, in one queue across all processes. See [RateLimiter.Wait].
func (s *Scoped) WaitN(ctx context.Context, n int) error {
	if _, err := waitOf(ctx, s.waits); err != nil {
		return err
	}
	lease, err := s.take(ctx, OpWait, n, func(ctx context.Context, r Request) (*Lease, error) {
		return s.limiter.Wait(ctx, r, s.waits...)
	})
	return spend(ctx, lease, err)
}

// Reserve is [Scoped.ReserveN] of one token.
func (s *Scoped) Reserve(ctx context.Context) (*Reservation, error) { return s.ReserveN(ctx, 1) }

// ReserveN takes n tokens that may not be available yet, and reports when they will be. See [RateLimiter.Reserve].
func (s *Scoped) ReserveN(ctx context.Context, n int) (*Reservation, error) {
	if _, err := waitOf(ctx, s.waits); err != nil {
		return nil, err
	}
	lease, err := s.take(ctx, OpReserve, n, func(ctx context.Context, r Request) (*Lease, error) {
		reservation, err := s.limiter.Reserve(ctx, r, s.waits...)
		if err != nil {
			return nil, err
		}
		return reservation.lease, nil
	})
	if err != nil {
		return nil, err
	}
	return &Reservation{lease, OpReserve}, nil
}

// spend keeps the tokens of a lease taken.
func spend(ctx context.Context, lease *Lease, err error) error {
	if err != nil {
		return err
	}
	return lease.Commit(ctx) // there is nothing to correct, so that nothing is written
}

// take takes n tokens of each limit that holds. Stored limits may change between the look at them and the request. A
// request that names a removed limit is built again.
func (s *Scoped) take(ctx context.Context, op string, n int, take func(context.Context, Request) (*Lease, error)) (*Lease, error) {
	r := Request{Entity: s.entity, Resource: s.resource, Limits: s.limits}
	if n < 1 {
		return nil, &ValidationError{Field: "n", Value: strconv.Itoa(n), Reason: "must be at least 1"}
	}
	for _, l := range s.limits {
		if l.Term != 0 {
			return nil, &ValidationError{
				Field: "limits[" + l.Name + "]", Value: l.String(), Reason: "is of slots, which a lease holds until it ends: Acquire and Wait return one",
			}
		}
	}
	if len(s.limits) > 0 {
		r.Consume = each(n, len(s.limits), func(i int) string { return s.limits[i].Name })
		return take(ctx, r)
	}
	if s.limiter.closed.Load() {
		return nil, ErrClosed
	}
	if err := r.validateNames(); err != nil {
		return nil, err
	}
	for {
		watch := s.limiter.watch()
		before, err := s.limiter.engine.Stored(ctx, s.entity, s.resource)
		if err != nil { // an outage follows the failure policy
			lease, err := s.limiter.admitOrFail(ctx, op, &r, 1, err)
			s.limiter.emitDecision(ctx, watch, op, &protocol.Request{Entity: s.entity, Resource: s.resource}, lease, err)
			return lease, err
		}
		r.Consume = each(n, len(before), func(i int) string { return before[i].Name })
		lease, err := take(ctx, r)
		if !errors.As(err, new(*ValidationError)) {
			return lease, err
		}
		if now, failed := s.limiter.engine.Stored(ctx, s.entity, s.resource); failed != nil || sameNames(before, now) {
			return lease, err
		}
	}
}

// each returns an amount of a number of limits.
func each(n, limits int, name func(int) string) Amounts {
	amounts := make(Amounts, limits)
	for i := range limits {
		amounts[name(i)] = int64(n)
	}
	return amounts
}

func sameNames(a, b []bucket.Params) bool {
	return slices.EqualFunc(a, b, func(x, y bucket.Params) bool { return x.Name == y.Name })
}
