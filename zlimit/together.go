package zlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/protocol"
)

// AcquireAll consumes the amounts of several requests, of all of them or of none. It returns a lease for each request, in their order. It
// is for work that uses several resources, such as a step of an agent that asks two models and a tool, for one entity or several.
//
// Each bucket is charged once, with the sum of what the requests take from it, also if several of them share a parent or a wider resource.
// Two requests may be of one entity and resource. A rejection takes nothing, and is an [*ExceededError] with the limits of all buckets.
// Its statuses name entity and resource, and Requested is the sum.
//
// A call admits at most 16 requests, of at most 64 buckets. All of them must have the same [Request.Priority]. They may bring limits of
// their own, see [Request.Limits]: all requests of one bucket bring the same ones, or none do. Otherwise AcquireAll returns a
// [*ValidationError], as it does for a list without requests. Soft limits, shadow limits, slots and bypasses work as in
// [RateLimiter.Acquire]. In an outage the requests are admitted uncounted if the failure policy of each of them allows it.
//
// With [MaxWait], rejected requests wait until all limits should have enough, and are tried again until it ends. They hold
// nothing meanwhile and have no place in a queue: callers of [RateLimiter.Wait] at the same limits come first. Each attempt costs what a
// call without a wait costs, and there are at most ten a second. Without MaxWait, AcquireAll does not wait.
//
// Other errors are the same as for [RateLimiter.Acquire]; a [*ValidationError] names the request by its index. For each bucket it costs
// what Acquire costs, whatever the number of requests: one write, all in parallel. Observers and [RateLimiter.Stats] count each request.
func (l *RateLimiter) AcquireAll(ctx context.Context, requests []Request, opts ...WaitOption) (*Leases, error) {
	if l.closed.Load() {
		return nil, ErrClosed
	}
	wait := time.Duration(0)
	if len(opts) > 0 {
		var err error
		if wait, err = waitOf(ctx, opts); err != nil {
			return nil, err
		}
	}
	if n := len(requests); n == 0 || n > protocol.MaxRequests {
		reason := fmt.Sprintf("must be from 1 to %d", protocol.MaxRequests)
		return nil, &ValidationError{Field: "number of requests", Value: strconv.Itoa(n), Reason: reason}
	}
	leases, parts := &Leases{each: make([]*Lease, len(requests))}, make([]*protocol.Request, len(requests))
	receipts := make([]*protocol.Receipt, len(requests))
	for i, r := range requests {
		lease := &Lease{limiter: l}
		var err error
		if lease.amounts, err = r.validate(lease.amountSpace[:0]); err == nil {
			err = r.validateBeside(&requests[0])
		}
		if err != nil {
			return nil, ofRequest(i, err)
		}
		for j := range i {
			if err := r.validateLimitsBeside(parts[j], requests[j].Limits); err != nil {
				return nil, ofRequest(i, err)
			}
		}
		part := l.request(&r)
		part.Amounts = lease.amounts
		leases.each[i], parts[i], receipts[i] = lease, &part, &lease.receipt
	}
	watch, all, joint := l.watch(), protocol.Together(parts), &Lease{limiter: l}
	policy := l.policyOfAll(parts, requests)
	err := l.takeAll(ctx, &policy, &all, joint, wait)
	if err == nil {
		all.Portion(&joint.receipt, receipts)
		l.stats.admitted.Add(uint64(len(requests)))
	} else {
		policy = l.policyOfAll(parts, requests)
		err = l.admitAllOrFail(ctx, &policy, leases, err)
	}
	for i, lease := range leases.each {
		if watcher := l.options.hooks.Leases; watcher != nil && err == nil && !lease.degraded {
			watcher.Opened(lease, parts[i].Entity, parts[i].Resource)
		}
		if err == nil {
			l.watchBudgets(ctx, lease)
		}
		l.emitDecision(ctx, watch, OpAcquireAll, parts[i], lease, err)
	}
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// takeAll takes the amounts of several requests. Where limits reject them, it sleeps until all should have enough, and tries again for as long
// as the caller waits.
func (l *RateLimiter) takeAll(ctx context.Context, policy *Request, all *protocol.Request, joint *Lease, wait time.Duration) error {
	if wait == 0 {
		return l.takeInTime(ctx, policy, all, joint)
	}
	if !l.engine.Begin() {
		return ErrClosed
	}
	defer l.engine.End()
	until := l.engine.Waits.After(wait)
	var last *protocol.RejectedError
	for {
		err := l.takeUntil(ctx, policy, all, joint, until, wait)
		if last != nil && isUndecided(err) {
			return last
		}
		unclear := errors.As(err, new(*protocol.ClockError)) && ctx.Err() == nil
		if !unclear && !errors.As(err, &last) {
			return err
		}
		rest := until - l.engine.Waits.Elapsed()
		pause := clockPause
		if !unclear {
			pause = max(last.Wait(), leastPause)
		}
		if pause > rest {
			return err
		}
		l.stats.waiting.Add(1)
		failure := l.engine.Waits.SleepUnlessChanged(ctx, pause+stagger(policy.Entity, l.now().UnixNano(), min(leastPause, rest-pause)), last)
		l.stats.waiting.Add(-1)
		if failure != nil {
			l.stats.abandoned.Add(1)
			return failure
		}
		joint.receipt = protocol.Receipt{}
	}
}

// leastPause is the least time between two tries of several requests.
const leastPause = 100 * time.Millisecond

// validateBeside checks what a request may have beside another one.
func (r *Request) validateBeside(first *Request) error {
	if r.ID != "" {
		return &ValidationError{Field: "id", Value: r.ID, Reason: "must be empty for requests that are admitted together"}
	}
	if r.Priority != first.Priority {
		return &ValidationError{Field: "priority", Value: r.Priority, Reason: "must be that of the first request, " + strconv.Quote(first.Priority)}
	}
	return nil
}

// validateLimitsBeside checks the limits of a request beside those that an earlier one brings.
func (r *Request) validateLimitsBeside(earlier *protocol.Request, limits []Limit) error {
	if r.Entity != earlier.Entity || r.Resource != earlier.Resource || len(r.Limits)+len(limits) == 0 {
		return nil
	}
	if slices.Equal(inOrder(r.Limits), inOrder(limits)) {
		return nil
	}
	differ := &protocol.OwnLimitsError{Entity: r.Entity, Resource: r.Resource}
	return &ValidationError{Field: "limits", Value: differ.Entity + "/" + differ.Resource, Reason: differ.Rule()}
}

// ofRequest adds the request to an error about input.
func ofRequest(i int, err error) error {
	if invalid, ok := errors.AsType[*ValidationError](err); ok {
		return &ValidationError{Field: fmt.Sprintf("requests[%d] %s", i, invalid.Field), Value: invalid.Value, Reason: invalid.Reason, missing: invalid.missing}
	}
	return err
}

// policyOfAll returns a request with the failure policy of several: the strictest one.
func (l *RateLimiter) policyOfAll(parts []*protocol.Request, requests []Request) Request {
	all := Request{Entity: parts[0].Entity, Resource: parts[0].Resource, OnUnavailable: PolicyAllow}
	for i, part := range parts {
		one := *part // a goroutine that the caller has left may still use the part
		if !l.allows(requests[i].OnUnavailable, &one) {
			all.OnUnavailable = PolicyBlock
		}
	}
	return all
}

// admitAllOrFail is [RateLimiter.admitOrFail] for several requests, whose leases are degraded if they are admitted.
func (l *RateLimiter) admitAllOrFail(ctx context.Context, policy *Request, leases *Leases, err error) error {
	admitted, failure := l.admitOrFail(ctx, OpAcquireAll, policy, len(leases.each), err)
	if failure == nil {
		for _, lease := range leases.each {
			lease.amounts, lease.degraded, lease.unknown = nil, true, admitted.unknown
		}
		return nil
	}
	for i := range leases.each {
		leases.each[i] = nil
	}
	if part, ok := errors.AsType[*protocol.PartError](err); ok {
		return ofRequest(part.At, failure)
	}
	return failure
}

// Leases are the leases of requests that [RateLimiter.AcquireAll] admitted together. They may be settled one by one, or
// by the methods of Leases, which skip settled ones. It is safe for concurrent use.
type Leases struct{ each []*Lease }

// Of returns the lease of a request by its index among the requests. It panics if there is none.
func (ls *Leases) Of(request int) *Lease { return ls.each[request] }

// Commit is [Lease.Commit] for all leases that are still open, in parallel. It costs as much as these commits. It
// returns [ErrLeaseClosed] if none is open. After another error, a Commit writes the rest as for a lease.
func (ls *Leases) Commit(ctx context.Context) error { return ls.settle(ctx, (*Lease).Commit) }

// Rollback is [Lease.Rollback] for all leases that are still open, as Commit is.
func (ls *Leases) Rollback(ctx context.Context) error { return ls.settle(ctx, (*Lease).Rollback) }

func (ls *Leases) settle(ctx context.Context, settle func(*Lease, context.Context) error) error {
	errs := make([]error, len(ls.each))
	var group errgroup.Group
	for i, lease := range ls.each {
		group.Go(func() error {
			errs[i] = settle(lease, ctx)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	closed := 0
	for i, err := range errs {
		if errors.Is(err, ErrLeaseClosed) {
			errs[i] = nil
			closed++
		}
	}
	if closed == len(errs) {
		return ErrLeaseClosed
	}
	return protocol.Joined(errs...)
}
