package zlimit

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/protocol"
)

// A Lease is what an admitted request holds. The tokens were taken when the request was admitted. The lease corrects
// them once the real cost is known, on every bucket that was charged. It is safe for concurrent use.
//
// A lease acts once. After Commit or Rollback every method that would change something returns [ErrLeaseClosed], and so
// do those of the zero value. A lease that is dropped without either leaves what was taken as it is, and loses what was
// only recorded.
type Lease struct {
	limiter *RateLimiter

	mu         sync.Mutex
	receipt    protocol.Receipt    // of what was taken
	amounts    []bucket.Amount     // taken of the entity itself, in millitokens
	pending    []bucket.Amount     // recorded by Adjust and Release, to be written by Commit
	settlement protocol.Settlement // what settling has still to write, once begun
	phase      leasePhase
	degraded   bool // never changes

	amountSpace [2]bucket.Amount
}

// A leasePhase is how far a lease has come.
type leasePhase uint8

const (
	leaseOpen leasePhase = iota
	leaseCommitting
	leaseRollingBack
	leaseClosed
)

// settleTimeout bounds the writes of a commit or a rollback, which outlive the caller's context.
const settleTimeout = 5 * time.Second

// Degraded reports whether the request was admitted uncounted, during an outage. Such a lease writes nothing.
func (le *Lease) Degraded() bool { return le.degraded }

// Statuses returns where the limits of the request's resource stand, of the entity and of the parents that it cascades
// to. It goes by the buckets as this process last saw them. For a lease that was just acquired, that is how its own
// write left them. Requested is what the lease took. It makes no call, and returns none for a lease that is
// [Lease.Degraded].
func (le *Lease) Statuses() Statuses { return le.AppendStatuses(nil) }

// AppendStatuses appends what [Lease.Statuses] returns to a list. It allocates nothing where the list has room, and the
// bucket is not divided.
func (le *Lease) AppendStatuses(to Statuses) Statuses {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.limiter == nil || le.degraded {
		return to
	}
	le.limiter.engine.Statuses(&le.receipt, func(entity, resource string, statuses []bucket.Status) {
		to = appendStatuses(to, entity, resource, statuses)
	})
	return to
}

// Consumed returns the net consumption in tokens: what was taken, with the corrections recorded so far.
func (le *Lease) Consumed() Amounts {
	le.mu.Lock()
	defer le.mu.Unlock()
	consumed := make(Amounts, len(le.amounts))
	for _, amounts := range [2][]bucket.Amount{le.amounts, le.pending} {
		for _, a := range amounts {
			consumed[a.Limit] += a.Tokens / millis
		}
	}
	return consumed
}

// Consume takes more tokens, of all limits or of none, with the checks, errors and cost of [RateLimiter.Acquire]. Unlike
// Acquire, it takes nothing without an error where c names no limit.
func (le *Lease) Consume(ctx context.Context, c Consumption) error {
	var space [4]bucket.Amount
	amounts, err := amountsOf(space[:0], "consume", c, 0)
	if err != nil {
		return err
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	switch {
	case le.limiter == nil, le.phase != leaseOpen:
		return ErrLeaseClosed
	case le.limiter.closed.Load():
		return ErrClosed
	case le.degraded:
		return nil
	}
	if err := le.isFor(c); err != nil {
		return err
	}
	total, err := bucket.Sum(le.amounts, amounts)
	if err != nil {
		return publicError(OpConsume, err)
	}
	watch := le.limiter.watch()
	request := le.receipt.Request(amounts)
	more := new(protocol.Receipt)
	if err = le.limiter.engine.Take(ctx, &request, more); err == nil {
		if err = le.receipt.Add(more); err == nil {
			le.amounts = total
		} else {
			back := more.Return()
			err = errors.Join(err, le.limiter.engine.Settle(ctx, &back))
		}
	}
	err = publicError(OpConsume, err)
	if errors.As(err, new(*ExceededError)) {
		le.limiter.stats.rejected.Add(1)
	}
	le.limiter.tellDecision(ctx, watch, OpConsume, &request, le, err)
	return err
}

// Adjust records a correction of what was consumed, in tokens: positive for more, negative for less. [Lease.Commit]
// writes it unchecked, so that it may leave a limit in debt, and never fails for lack of tokens. Adjust returns a
// [*ValidationError] for a limit that the resource does not have. It also does so for a correction that would leave the
// lease with less than nothing. It does no I/O.
func (le *Lease) Adjust(c Consumption) error { return le.adjust("adjust", c, -maxTokens, 1) }

// Release records that tokens were not needed. It is [Lease.Adjust] with the signs turned around.
func (le *Lease) Release(c Consumption) error { return le.adjust("release", c, 0, -1) }

func (le *Lease) adjust(field string, c Consumption, least, sign int64) error {
	var space [4]bucket.Amount
	amounts, err := amountsOf(space[:0], field, c, least)
	if err != nil {
		return err
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.limiter == nil || le.phase != leaseOpen {
		return ErrLeaseClosed
	}
	if err := le.isFor(c); err != nil {
		return err
	}
	for i := range amounts {
		amounts[i].Tokens *= sign
	}
	pending, err := bucket.Sum(le.pending, amounts)
	if err != nil {
		return publicError(field, err)
	}
	total, err := bucket.Sum(le.amounts, pending)
	if err != nil {
		return publicError(field, err)
	}
	for _, a := range amounts {
		name := field + "[" + a.Limit + "]"
		if limits := le.receipt.Limits(); limits != nil && !limits.Config.Has(a.Limit) {
			return unknownLimit(name, strconv.FormatInt(sign*a.Tokens/millis, 10), limits.Config.Params)
		}
		if !le.degraded && bucket.Of(total, a.Limit) < 0 {
			reason := "would leave the lease with less than nothing"
			return &ValidationError{Field: name, Value: strconv.FormatInt(sign*a.Tokens/millis, 10), Reason: reason}
		}
	}
	le.pending = pending
	return nil
}

// isFor returns an error for a consumption of another resource. The lease is locked.
func (le *Lease) isFor(c Consumption) error {
	if le.degraded { // and knows none
		return nil
	}
	return checkResource(c, le.receipt.Resource())
}

// Commit writes the recorded corrections, and closes the lease. With nothing to correct it costs nothing. Otherwise it
// costs one write for each bucket that was charged, which goes on for up to 5 seconds after the context ends.
//
// An [*UnavailableError] whose Unknown is false means that at least one of the writes provably did not happen. The
// lease then stays open for another Commit, which does what is missing.
func (le *Lease) Commit(ctx context.Context) error { return le.settle(ctx, OpCommit, leaseCommitting) }

// Rollback returns all that was taken, drops what was recorded, and closes the lease. It costs one write for each bucket
// that was charged, and goes on and fails like [Lease.Commit].
func (le *Lease) Rollback(ctx context.Context) error {
	return le.settle(ctx, OpRollback, leaseRollingBack)
}

func (le *Lease) settle(ctx context.Context, op string, phase leasePhase) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.limiter == nil || le.phase != leaseOpen && le.phase != phase {
		return ErrLeaseClosed
	}
	if le.phase == leaseOpen {
		settlement := le.receipt.Correct(le.pending)
		if phase == leaseRollingBack {
			settlement = le.receipt.Return()
		}
		if le.limiter.closed.Load() && !settlement.Done() {
			return ErrClosed
		}
		le.phase, le.settlement = phase, settlement
		le.limiter.leases.settled(le)
	}
	if le.settlement.Done() {
		le.phase = leaseClosed
		return nil
	}
	if le.limiter.closed.Load() {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	watch := le.limiter.watch()
	err := publicError(op, le.limiter.engine.Settle(ctx, &le.settlement))
	if le.settlement.Done() {
		le.phase = leaseClosed
	}
	le.tellSettled(ctx, watch, op, err)
	return err
}

// tellSettled tells of corrections that were written, or failed.
func (le *Lease) tellSettled(ctx context.Context, s stopwatch, op string, err error) {
	if le.limiter.options.observer == nil {
		return
	}
	corrections := le.pending
	if op == OpRollback {
		corrections = bucket.Negated(le.amounts)
	}
	le.limiter.tell(ctx, s, Event{
		Kind: EventSettle, Operation: op, Entity: le.receipt.Entity(), Resource: le.receipt.Resource(),
		Amounts: tokensOf(corrections), Err: err,
	})
}
