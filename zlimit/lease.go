package zlimit

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Lease holds the tokens and slots of an admitted request. The tokens were taken when the request was admitted. The
// lease corrects them once the real cost is known, on every bucket that was charged. It is safe for concurrent use.
//
// A lease acts once. After Commit or Rollback every method that would change something returns [ErrLeaseClosed], and so
// do the methods of the zero value. A dropped lease keeps its tokens taken, and loses recorded corrections.
//
// No method waits for store calls of another method, except that a Commit waits for another Commit, and a Rollback for
// another Rollback. A Commit or Rollback settles the amounts taken and recorded when it begins. A concurrent
// [Lease.Consume] then returns its tokens, and fails with [ErrLeaseClosed].
type Lease struct {
	limiter *RateLimiter

	mu       sync.Mutex       // guards what follows; not held during a call of the store
	receipt  protocol.Receipt // of the tokens taken; never changes once settling has begun
	amounts  []bucket.Amount  // taken of the entity itself, in millitokens, and unchanged from then on
	rest     *restOfLease     // nil until a part of it is needed
	number   uint64           // for observers; 0 without one, and never changes
	phase    leasePhase
	degraded bool // never changes
	unknown  bool // of a degraded one: its amounts may have been taken; never changes

	amountSpace [2]bucket.Amount
}

// A restOfLease has the parts of a lease that a request without corrections and slots does not need.
type restOfLease struct {
	pending    []bucket.Amount     // recorded by Adjust and Release, to be written by Commit; unchanged once settling has begun
	settlement protocol.Settlement // corrections still to be written, once settling has begun; of the goroutine that settles
	settling   chan struct{}       // closed when the goroutine that settles is done; nil when none does
	losing     sync.Once           // closes lost
	shared     *sharedLease        // of a request with an ID; nil for others, and never changes
	lost       chan struct{}       // what Lost returns if several slots are held; nil until the first call
}

// pending returns the recorded corrections. The lease is locked.
func (le *Lease) pending() []bucket.Amount {
	if le.rest == nil {
		return nil
	}
	return le.rest.pending
}

// more returns the rest of the lease, to be changed. The lease is locked.
func (le *Lease) more() *restOfLease {
	if le.rest == nil {
		le.rest = new(restOfLease)
	}
	return le.rest
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

// Statuses returns the state of the limits of the request's resource, for the entity and for the parents that it
// cascades to. It uses the buckets as this process last saw them. For a fresh lease, that is the state after its own
// write. Requested is the amount of the lease. It makes no call, and returns none for a lease that is [Lease.Degraded]
// or [Lease.Repeated].
func (le *Lease) Statuses() Statuses { return le.AppendStatuses(nil) }

// AppendStatuses appends what [Lease.Statuses] returns to a list. It allocates nothing where the list has room, and the
// bucket is not split.
func (le *Lease) AppendStatuses(to Statuses) Statuses {
	le.mu.Lock()
	defer le.mu.Unlock()
	if shared := le.shared(); le.limiter == nil || le.degraded || shared != nil && shared.read {
		return to
	}
	le.limiter.engine.Statuses(&le.receipt, func(l protocol.LevelStatus) { to = appendStatuses(to, &l) })
	return to
}

// Consumed returns the net consumption in tokens: the amounts taken, with the corrections recorded so far.
func (le *Lease) Consumed() Amounts {
	le.mu.Lock()
	defer le.mu.Unlock()
	consumed := make(Amounts, len(le.amounts))
	for _, amounts := range [2][]bucket.Amount{le.amounts, le.pending()} {
		for _, a := range amounts {
			consumed[a.Limit] += a.Tokens / millis
		}
	}
	return consumed
}

// Consume takes more tokens, of all limits or of none, with the checks, errors and cost of [RateLimiter.Acquire].
// Unlike Acquire, it takes nothing, without an error, if c names no limit. Concurrent calls take independently.
// When the lease is settled meanwhile, Consume gives its tokens back, and returns [ErrLeaseClosed].
func (le *Lease) Consume(ctx context.Context, c Consumption) error {
	var space [4]bucket.Amount
	amounts, err := amountsOf(space[:0], "consume", c, 0)
	if err != nil {
		return err
	}
	if err := le.asksNoSlots("consume", amounts); err != nil {
		return err
	}
	request, err := le.asks(c, amounts)
	if err != nil || le.degraded {
		return err
	}
	watch := le.limiter.watch()
	more := new(protocol.Receipt)
	if err = le.limiter.engine.Take(ctx, &request, more); err == nil {
		if err = le.consumed(more, amounts); err != nil {
			le.limiter.engine.Undo(ctx, more)
		}
	}
	err = requestError(ctx, OpConsume, err)
	if rejected := new(*ExceededError); errors.As(err, rejected) {
		le.limiter.rejected(request.Entity, request.Resource, *rejected, 1)
	}
	if err == nil {
		le.limiter.watchBudgets(ctx, le)
	}
	le.limiter.emitDecision(ctx, watch, OpConsume, &request, le, err)
	return err
}

// asks returns a request for more of the lease's limits.
func (le *Lease) asks(c Consumption, amounts []bucket.Amount) (protocol.Request, error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	switch {
	case le.limiter == nil, le.phase != leaseOpen:
		return protocol.Request{}, ErrLeaseClosed
	case le.limiter.closed.Load():
		return protocol.Request{}, ErrClosed
	case le.degraded:
		return protocol.Request{}, nil
	}
	if err := le.isFor(c); err != nil {
		return protocol.Request{}, err
	}
	if le.shared() != nil {
		return protocol.Request{}, &ValidationError{Field: "consume", Value: "", Reason: "is not for the lease of a request with an id; Adjust charges more"}
	}
	if _, err := bucket.Sum(le.amounts, amounts); err != nil {
		return protocol.Request{}, publicError(OpConsume, err)
	}
	return le.receipt.Request(amounts), nil
}

// consumed notes the tokens of a Consume. It returns an error when the lease began to settle before, or when the sum
// with the tokens of others cannot be counted.
func (le *Lease) consumed(more *protocol.Receipt, amounts []bucket.Amount) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.phase != leaseOpen {
		return ErrLeaseClosed
	}
	total, err := bucket.Sum(le.amounts, amounts)
	if err != nil {
		return err
	}
	if err := le.receipt.Add(more); err != nil {
		return err
	}
	le.amounts = total
	return nil
}

// Adjust records a correction of the consumption, in tokens: positive for more, negative for less. [Lease.Commit]
// writes it without a check, so it may leave a limit in debt, and never fails for lack of tokens. Adjust returns a
// [*ValidationError] for a limit that the resource does not have, and for a correction that would make an amount of the
// lease negative. It does no I/O.
func (le *Lease) Adjust(c Consumption) error { return le.adjust("adjust", c, -maxTokens, 1) }

// Release records that tokens were not needed. It is [Lease.Adjust] with the opposite sign.
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
	pending, err := bucket.Sum(le.pending(), amounts)
	if err != nil {
		return publicError(field, err)
	}
	total, err := bucket.Sum(le.amounts, pending)
	if err != nil {
		return publicError(field, err)
	}
	if err := le.hasNoSlots(field, amounts); err != nil {
		return err
	}
	for _, a := range amounts {
		name := field + "[" + a.Limit + "]"
		if !le.receipt.IsEmpty() && !le.receipt.Has(a.Limit) {
			return unknownLimit(name, amountText(a.Limit, sign*a.Tokens/millis), le.receipt.Limits())
		}
		if !le.degraded && bucket.Of(total, a.Limit) < 0 {
			reason := "would leave the lease with less than nothing"
			return &ValidationError{Field: name, Value: amountText(a.Limit, sign*a.Tokens/millis), Reason: reason}
		}
	}
	le.more().pending = pending
	return nil
}

// asksNoSlots is hasNoSlots for a caller that has not locked the lease.
func (le *Lease) asksNoSlots(field string, amounts []bucket.Amount) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.hasNoSlots(field, amounts)
}

// hasNoSlots returns an error for amounts of slots, which a lease holds from its beginning to its end. The lease is locked.
func (le *Lease) hasNoSlots(field string, amounts []bucket.Amount) error {
	for _, a := range amounts {
		if a.Tokens != 0 && le.receipt.HasSlots(a.Limit) {
			return &ValidationError{
				Field: field + "[" + a.Limit + "]", Value: amountText(a.Limit, a.Tokens/millis),
				Reason: "is of slots, which a lease holds until it ends; another request takes more of them",
			}
		}
	}
	return nil
}

// isFor returns an error for a consumption of another resource. The lease is locked.
func (le *Lease) isFor(c Consumption) error {
	if le.degraded { // and knows none
		return nil
	}
	return checkResource(c, le.receipt.Resource())
}

// Lost returns a channel that is closed when the lease loses a slot. That happens when the store was not reached for
// nearly two terms of [Slots], the bucket was deleted, or the limiter was closed. Work that the slot guards has to end
// then. The channel is never closed for a lease without slots, a [Lease.Degraded] one, or one settled before. It does
// no I/O.
func (le *Lease) Lost() <-chan struct{} {
	le.mu.Lock()
	defer le.mu.Unlock()
	holds := le.receipt.Holds()
	switch {
	case len(holds) == 1:
		return holds[0].Lost()
	case le.more().lost != nil:
		return le.rest.lost
	}
	le.rest.lost = make(chan struct{})
	for _, h := range holds {
		go func(lost chan struct{}, once *sync.Once) {
			select {
			case <-h.Lost():
				once.Do(func() { close(lost) })
			case <-h.Gone():
			}
		}(le.rest.lost, &le.rest.losing)
	}
	return le.rest.lost
}

// Fence returns the fencing number of the slot that the lease holds, or the greatest one of several slots. Of two
// leases that held a slot of the same limit, the later one has the greater number. The guarded resource can remember
// the greatest number seen and reject lower ones: a lower number comes from a process that was suspended for longer
// than its lease. Fence is 0 for a lease without slots, and for a [Lease.Degraded] one. It does no I/O.
func (le *Lease) Fence() int64 {
	le.mu.Lock()
	defer le.mu.Unlock()
	fence := int64(0)
	for _, h := range le.receipt.Holds() {
		fence = max(fence, h.Fence())
	}
	return fence
}

// Commit writes the recorded corrections, gives back slots, and closes the lease. With nothing to correct or give back
// it costs nothing. Otherwise it costs one write for each charged bucket, and goes on for up to 5 seconds after the
// context ends.
//
// An [*UnavailableError] whose Unknown is false, an [*ItemError] or [ErrContended] means that at least one of the writes
// provably did not happen. The lease then stays open for another Commit, which writes the rest. A Commit that comes
// while another one writes waits for its end, up to 5 seconds.
func (le *Lease) Commit(ctx context.Context) error { return le.settle(ctx, OpCommit, leaseCommitting) }

// Rollback returns all tokens and slots, drops recorded corrections, and closes the lease. It costs one write for each
// bucket that was charged, and goes on and fails like [Lease.Commit].
func (le *Lease) Rollback(ctx context.Context) error {
	return le.settle(ctx, OpRollback, leaseRollingBack)
}

func (le *Lease) settle(ctx context.Context, op string, phase leasePhase) error {
	done, err := le.beginSettling(phase)
	if done == nil {
		return err
	}
	ctx = table.Insist(context.WithoutCancel(ctx))
	watch := le.limiter.watch()
	err = func() error {
		defer done()
		if shared := le.rest.shared; shared != nil {
			return le.settleShared(ctx, op, shared)
		}
		return publicError(op, le.limiter.engine.Settle(ctx, &le.rest.settlement))
	}()
	if outage, ok := errors.AsType[*UnavailableError](err); ok && outage.Unknown {
		le.limiter.stats.unsettled.Add(1)
	}
	if err == nil && op == OpCommit && le.rest.shared == nil {
		le.limiter.watchBudgets(ctx, le)
	}
	le.emitSettled(ctx, watch, op, err)
	return err
}

// beginSettling waits for the goroutine that settles the lease in the same way. The caller then writes the rest. It
// returns the function that ends the settling, or nil if nothing is to be written or the lease is settled otherwise.
func (le *Lease) beginSettling(phase leasePhase) (done func(), err error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	for le.phase == phase && le.rest != nil && le.rest.settling != nil {
		other := le.rest.settling
		le.mu.Unlock()
		<-other // which ends within settleTimeout
		le.mu.Lock()
	}
	if le.limiter == nil || le.phase != leaseOpen && le.phase != phase {
		return nil, ErrLeaseClosed
	}
	if le.phase == leaseOpen {
		var settlement protocol.Settlement
		shared := le.shared()
		switch {
		case shared != nil:
		case phase == leaseRollingBack:
			settlement = le.receipt.Return()
		default:
			settlement = le.receipt.Correct(le.pending())
		}
		if le.limiter.closed.Load() && (shared != nil || !settlement.Done()) {
			return nil, ErrClosed
		}
		if shared != nil {
			shared.unrecorded = true
		}
		if le.phase = phase; !settlement.Done() {
			le.more().settlement = settlement
		}
		if watcher := le.limiter.options.hooks.Leases; watcher != nil {
			watcher.Settled(le)
		}
	}
	if le.isSettled() {
		le.phase = leaseClosed
		return nil, nil
	}
	if le.limiter.closed.Load() {
		return nil, ErrClosed
	}
	settling := make(chan struct{})
	le.rest.settling = settling
	return func() {
		le.mu.Lock()
		defer le.mu.Unlock()
		if le.isSettled() {
			le.phase = leaseClosed
		}
		le.rest.settling = nil
		close(settling)
	}, nil
}

// isSettled reports whether nothing is to be written any more, once settling has begun. The lease is locked.
func (le *Lease) isSettled() bool {
	return le.rest == nil || le.rest.settlement.Done() && (le.rest.shared == nil || !le.rest.shared.unrecorded)
}

// emitSettled reports corrections that were written, or failed.
func (le *Lease) emitSettled(ctx context.Context, s stopwatch, op string, err error) {
	if le.limiter.options.observer == nil {
		return
	}
	corrections := le.pending()
	if op == OpRollback {
		corrections = slices.DeleteFunc(bucket.Negated(le.amounts), func(a bucket.Amount) bool { return le.receipt.HasSlots(a.Limit) })
	}
	id := le.id()
	le.limiter.emit(ctx, s, Event{
		Kind: EventSettle, Operation: op, Entity: le.receipt.Entity(), Resource: le.receipt.Resource(), Lease: le.number,
		LeaseID: hex.EncodeToString(id[:]), Amounts: tokensOf(corrections), Err: err,
	})
}
