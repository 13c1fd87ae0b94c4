package zlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Acquire consumes the amounts of the request, of all limits or of none. It returns a lease, to settle once the real cost is known. A
// lease that needs no settling may be dropped.
//
// Its errors are:
//   - an [*ExceededError] if a limit falls short;
//   - [ErrNoLimits] if no level has limits for the request;
//   - a [*ValidationError] if the request breaks a rule or names an unknown limit;
//   - an [*UnavailableError] in an outage, unless the failure policy allows the request;
//   - an [*ItemError] if an item of the table cannot be read;
//   - [ErrContended] if other writers were faster in every attempt;
//   - [ErrClock] if the time is not known as exactly as slots need it;
//   - the context's error if the context has ended.
//
// If the entity cascades to a parent, both are charged in parallel, and the strictest limit decides. If one falls short, the other gets its
// tokens back. A parent is charged for the limits of the request that it has, possibly none.
//
// For each bucket, Acquire costs:
//   - one conditional write, of one write unit, if this process has used the bucket before. Many requests of one bucket that arrive
//     together share writes, see [WithCoalescing];
//   - one more write after a lost race;
//   - a batch read first, of three read units, if this process has not seen the bucket;
//   - nothing for a rejection, if this process has seen the bucket within the time of [WithRejectionCache]. Otherwise a rejection costs
//     the failed write, or a consistent read if the last image of the bucket predicted it;
//   - one more write if limits have changed: the first request that meets the old limits pays it, admitted or rejected.
func (l *RateLimiter) Acquire(ctx context.Context, r Request) (*Lease, error) {
	return l.acquire(ctx, OpAcquire, r, 0)
}

// acquire is [RateLimiter.Acquire] for a caller that waits so long for missing tokens.
func (l *RateLimiter) acquire(ctx context.Context, op string, r Request, wait time.Duration) (*Lease, error) {
	if l.closed.Load() {
		return nil, ErrClosed
	}
	lease := &Lease{limiter: l}
	var err error
	if lease.amounts, err = r.validate(lease.amountSpace[:0]); err != nil {
		return nil, err
	}
	var remembered *rememberedRequest
	if r.ID != "" {
		if remembered, err = l.remember(op, &r, lease.amounts); err != nil {
			return nil, err
		}
	}
	watch := l.watch()
	request := l.request(&r)
	request.Amounts, request.Wait = lease.amounts, wait
	if remembered != nil {
		request.Once = &remembered.once
	}
	until := time.Duration(0) // the end of the wait
	if wait > 0 {
		until = l.engine.Waits.After(wait)
		err = l.takeUntil(ctx, &r, &request, lease, until, wait)
	} else {
		err = l.takeInTime(ctx, &r, &request, lease)
	}
	if op == OpWait && wait > 0 {
		var slept bool
		if slept, err = l.takeAtEdges(ctx, &r, &request, lease, until, wait, err); slept {
			watch = l.watch()
		}
	}
	if err == nil && remembered != nil {
		if remembered.settleAs(lease); lease.Repeated() { // it is neither counted nor reported again
			if watcher := l.options.hooks.Leases; watcher != nil {
				watcher.Opened(lease, r.Entity, r.Resource)
			}
			return lease, nil
		}
	}
	if err == nil {
		l.stats.admitted.Add(1)
		if watcher := l.options.hooks.Leases; watcher != nil {
			watcher.Opened(lease, r.Entity, r.Resource)
		}
		l.watchBudgets(ctx, lease)
	} else {
		lease, err = l.admitOrFail(ctx, op, &r, 1, err)
	}
	if err == nil && lease.unknown && wait > 0 {
		l.waitForUnknown(ctx, &request, lease, until)
	}
	l.emitDecision(ctx, watch, op, &request, lease, err)
	return lease, err
}

// request returns a request in the form of the engine, without its amounts.
func (l *RateLimiter) request(r *Request) protocol.Request {
	request := protocol.Request{Entity: r.Entity, Resource: r.Resource, Priority: r.Priority}
	if len(r.Limits) > 0 {
		request.Own = l.cache.own(l.engine.Memory.Bucket(r.Entity, r.Resource), r.Limits)
	}
	return request
}

// Do acquires, calls fn, and settles the lease. It commits when fn returns nil, and rolls back when fn returns an error
// or panics. The error of fn comes first in what Do returns, and can be found with [errors.Is] and [errors.As]. In an
// outage, [UnavailableError.Op] distinguishes a request that was not admitted ([OpAcquire]) from one whose work is done and not
// settled ([OpCommit]). It costs what [RateLimiter.Acquire] and [Lease.Commit] or [Lease.Rollback] cost.
func (l *RateLimiter) Do(ctx context.Context, r Request, fn func(context.Context, *Lease) error) error {
	if fn == nil {
		return &ValidationError{Field: "function", Value: "nil", Reason: "must not be nil"}
	}
	lease, err := l.Acquire(ctx, r)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // fn panics, or ends its goroutine
			_ = lease.Rollback(ctx) // the panic goes on; the outcome is counted in Stats
		}
	}()
	err = fn(ctx, lease)
	done = true
	if err != nil {
		return settled(err, lease.Rollback(ctx))
	}
	return settled(nil, lease.Commit(ctx))
}

// settled joins the error of a function with that of settling its lease. The function may have settled the lease
// itself.
func settled(err, settling error) error {
	if settling == nil || errors.Is(settling, ErrLeaseClosed) {
		return err
	}
	return errors.Join(err, settling)
}

// admitOrFail returns the lease or the error of a request that failed with err, which counts as a number of them. An outage follows the
// failure policy.
func (l *RateLimiter) admitOrFail(ctx context.Context, op string, r *Request, requests int, err error) (*Lease, error) {
	err = requestError(ctx, op, err)
	if exceeded, ok := errors.AsType[*ExceededError](err); ok {
		l.rejected(r.Entity, r.Resource, exceeded, requests)
		return nil, err
	}
	var outage *UnavailableError
	if !errors.As(err, &outage) {
		return nil, err
	}
	unknown := uint64(0)
	if outage.Unknown {
		unknown = 1
	}
	policy := r.OnUnavailable
	if policy == PolicyInherit {
		policy = l.policyOf(r.Entity, r.Resource)
	}
	if policy != PolicyAllow {
		l.stats.unavailable.Add(uint64(requests))
		l.outage.note(ctx, outageCounts{failed: 1, unknown: unknown}, err)
		return nil, err
	}
	l.stats.degraded.Add(uint64(requests))
	l.outage.note(ctx, outageCounts{allowed: 1, unknown: unknown}, err)
	return &Lease{limiter: l, degraded: true, unknown: outage.Unknown}, nil
}

// requestError returns the public error of a request that failed. An error of a context is the caller's, if its context has ended, whatever else
// failed meanwhile. Otherwise a bound of the limiter ended the request, which is an outage, unless the store refused another call of it.
func requestError(ctx context.Context, op string, err error) error {
	if isDecision(err) {
		return publicError(op, err)
	}
	switch ended := endOf(ctx); {
	case ended != nil && errors.Is(err, ended):
		return fmt.Errorf("zlimit: %s: %w", op, err)
	case ended == nil && !unavailable(err) && !slices.ContainsFunc(store.ErrorsIn(err), isRefusal):
		err = &store.Error{
			Op: "decide", Unavailable: true, Unknown: protocol.IsUnknown(err), Err: fmt.Errorf("%w: %w", errUndecided, errNoTime),
		}
	}
	return publicError(op, err)
}

// isRefusal reports whether the store refused a call, such as one that lacks a permission, and neither an outage nor the end of a context failed it.
func isRefusal(e *store.Error) bool {
	return !e.Unavailable && !errors.Is(e, context.Canceled) && !errors.Is(e, context.DeadlineExceeded)
}

// policyOf returns the failure policy of an entity and a resource, by the limits in memory. The first level with a
// policy decides, and otherwise the limiter.
func (l *RateLimiter) policyOf(entity, resource string) FailurePolicy {
	for _, c := range l.ns.levelsOf(entity, resource) {
		known, ok := l.configs.GetIfPresent(c.key)
		if !ok && c.source == SourceSystem { // forgotten, except its values
			known = &cachedLevel{Config: Config{OnUnavailable: FailurePolicy(l.policy.Load())}}
		}
		if known != nil && known.OnUnavailable != PolicyInherit {
			return known.OnUnavailable
		}
	}
	return l.options.policy
}

// takeUntil is [RateLimiter.takeInTime] for a caller that waits for so long, until a reading of the engine's Elapsed. Lost races, reads and
// throttles are part of the wait. A request that is not decided a few round trips after that time is contended if the
// store answered, and meets an outage otherwise.
func (l *RateLimiter) takeUntil(ctx context.Context, r *Request, request *protocol.Request, lease *Lease, until, wait time.Duration) error {
	bounded, end := l.engine.Waits.Bound(ctx, until)
	defer end()
	err := l.takeInTime(bounded, r, request, lease)
	var clock *protocol.ClockError
	switch {
	case endOf(ctx) != nil || endOf(bounded) == nil && store.OutcomeOf(err) != store.Ended:
		return err
	case errors.As(err, &clock):
		return clock.OfTheClock()
	case isDecision(err):
		return err
	case errors.As(err, new(*protocol.UndecidedError)):
		return fmt.Errorf("%w: %w within %v", protocol.ErrContended, errUndecided, wait)
	default:
		return undecided(protocol.IsUnknown(err), wait)
	}
}

// takeInTime takes the amounts of a request, within the decision timeout.
func (l *RateLimiter) takeInTime(ctx context.Context, r *Request, request *protocol.Request, lease *Lease) error {
	if l.table.Immediate() || ctx.Err() != nil {
		return l.engine.Take(ctx, request, &lease.receipt)
	}
	bound, allows := l.options.decision, l.allows(r.OnUnavailable, request)
	if bound == 0 && allows {
		bound = allowDecision
	}
	if stalled := l.engine.Stalled(request); stalled != nil {
		err := l.takeStalled(ctx, bound, allows, *request, lease)
		switch {
		case errors.As(err, new(*protocol.RejectedError)) && l.engine.TriesStalled(stalled):
			l.engine.LookAt(ctx, stalled)
			return err
		case isDecision(err) || !errors.Is(err, table.ErrWithheld) || !l.engine.TriesStalled(stalled):
			return err
		}
		ctx = protocol.Persist(ctx)
		if lease.receipt = (protocol.Receipt{}); allows {
			return l.takeOrLeave(ctx, bound, true, *request, lease)
		}
	}
	if deadline, ok := ctx.Deadline(); bound == 0 || ok && time.Until(deadline) <= bound {
		return l.engine.Take(ctx, request, &lease.receipt)
	}
	if l.table.Refusal(ctx) != nil {
		l.late.passed()
		return l.engine.Take(ctx, request, &lease.receipt)
	}
	refused, tried := l.late.judge(bound)
	switch {
	case refused:
		return errTooSlow(false, bound)
	case allows:
		return l.takeOrLeave(ctx, bound, tried, *request, lease)
	}
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := l.engine.Take(bounded, request, &lease.receipt)
	var clock *protocol.ClockError
	switch {
	case isDecision(err):
		l.late.decided()
	case errors.As(err, &clock) && ctx.Err() == nil:
		return clock.OfTheClock()
	case endOf(ctx) == nil && (bounded.Err() != nil || store.OutcomeOf(err) == store.Ended):
		l.late.late()
		return undecided(protocol.IsUnknown(err), bound)
	}
	return err
}

// takeStalled takes the amounts of a request without a call, since the store has throttled all calls of one of its buckets. So a rejection that
// is known stands.
func (l *RateLimiter) takeStalled(ctx context.Context, bound time.Duration, allows bool, request protocol.Request, lease *Lease) error {
	ctx = table.Withhold(ctx)
	if !allows {
		return l.engine.Take(ctx, &request, &lease.receipt)
	}
	return l.takeOrLeave(ctx, bound, false, request, lease)
}

// isDecision reports whether a request was decided, and did not meet an outage or the end of its time.
func isDecision(err error) bool {
	switch store.OutcomeOf(err) {
	case store.Ended, store.Unavailable, store.Throttled, store.Unknown:
		return false
	default:
		return true
	}
}

// errUndecided is in the chain of the error of a request that was not decided within a time.
var errUndecided = errors.New("not decided")

// errNoTime says that a request gave up before its context ended.
var errNoTime = errors.New("no time was left for another call")

// endOf returns the error of a context that has ended, also of one whose deadline has passed and that ends late on a busy machine.
func endOf(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && time.Until(deadline) <= 0 {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// undecided returns the outage of a request that was not decided within a time.
func undecided(unknown bool, bound time.Duration) error {
	return &store.Error{Op: "decide", Unavailable: true, Unknown: unknown, Err: fmt.Errorf("%w within %v", errUndecided, bound)}
}

// takeOrLeave is [RateLimiter.takeInTime] for a request that the failure policy admits. Work under way when the time is
// over goes on in the background, with the lease, which nothing else uses. So does a request that is tried while the
// store is too slow: it is not waited for. Slots that such work takes are given back, since no caller would.
func (l *RateLimiter) takeOrLeave(ctx context.Context, bound time.Duration, tried bool, request protocol.Request, lease *Lease) error {
	if !l.engine.Begin() {
		return ErrClosed
	}
	apart, cancel := detached(ctx, l.late.started.Add(l.late.now()+bound))
	done := make(chan error, 1)
	var ended atomic.Bool // by the caller that leaves, or by the work that is done
	ended.Store(tried)
	var asks atomic.Pointer[protocol.ClockError] // while the store's time is read
	request.Asks = &asks
	go func() {
		defer l.engine.End()
		defer cancel()
		began := l.late.now()
		err := l.engine.Take(apart, &request, &lease.receipt)
		if tried && isDecision(err) && l.late.now()-began <= bound {
			l.late.decided()
		}
		if !ended.CompareAndSwap(false, true) && err == nil {
			l.engine.GiveSlotsBack(ctx, &lease.receipt)
		}
		done <- err
	}()
	if tried {
		time.AfterFunc(settleTimeout, cancel)
		return errTooSlow(true, bound)
	}
	timer, since := time.NewTimer(bound), int64(0) // an answer that throttles have held up may come after the first time
	defer timer.Stop()
	asked := false // for the time, when the timer last fired: the request has all of its time after that
	for {
		select {
		case err := <-done:
			if isDecision(err) {
				l.late.decided()
			}
			return err
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // which apart has as well
				cancel()
			}
			return <-done
		case <-timer.C:
			clock := asks.Load()
			waits := asked || clock != nil || l.engine.IsStrained(&request, since)
			since = l.engine.NextEpoch()
			if asked = clock != nil; l.options.decision == 0 && waits && l.table.Refusal(ctx) == nil {
				timer.Reset(bound)
				continue
			}
			if !ended.CompareAndSwap(false, true) {
				timer.Reset(bound) // which done comes before
				continue
			}
			time.AfterFunc(settleTimeout, cancel)
			if clock != nil { // the store answers
				return clock
			}
			if l.engine.Stalled(&request) != nil { // which says nothing about other buckets
				return errStalled
			}
			l.late.late()
			return undecided(true, bound)
		}
	}
}

// A leftContext has the values of another one, and does not end with it. The caller waits for its work until a time.
type leftContext struct {
	context.Context //nolint:containedctx // that it is made of
	until           time.Time
}

// untilKey is the key of a leftContext, in itself and those that are made of it.
type untilKey struct{}

// Deadline implements [context.Context], as the next two: there is none.
func (*leftContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done returns nil.
func (*leftContext) Done() <-chan struct{} { return nil }

// Err returns nil.
func (*leftContext) Err() error { return nil }

// Value returns the context itself for its key.
func (c *leftContext) Value(key any) any {
	if key == (untilKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// detached returns a context with the values and the deadline of another one, which does not end with it. The caller waits until a time.
func detached(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	apart := &leftContext{ctx, until}
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(apart, deadline)
	}
	return context.WithCancel(apart)
}

// timeLeft returns the time that the caller of a request waits for work with a context, and false if there is no
// bound.
func timeLeft(ctx context.Context) (left time.Duration, ok bool) {
	deadline, ok := ctx.Deadline()
	if apart, is := ctx.Value(untilKey{}).(*leftContext); is && (!ok || apart.until.Before(deadline)) {
		deadline, ok = apart.until, true
	}
	return time.Until(deadline), ok
}

// allows reports whether a request with a policy is admitted in an outage, by the limits in memory. If it looks up the bucket, the request
// keeps it.
func (l *RateLimiter) allows(policy FailurePolicy, r *protocol.Request) bool {
	if policy == PolicyInherit {
		r.Bucket = l.engine.Memory.Bucket(r.Entity, r.Resource)
		if known := r.Bucket.Limits.Load(); known != nil {
			policy = known.Detail.(*resolved).policy
		} else {
			policy = l.policyOf(r.Entity, r.Resource)
		}
	}
	if policy == PolicyInherit {
		policy = l.options.policy
	}
	return policy == PolicyAllow
}
