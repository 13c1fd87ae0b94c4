package zlimit

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A stopwatch measures how long an event takes. Its zero value measures nothing, for a limiter without an observer.
type stopwatch struct{ began time.Time }

// watch starts a stopwatch if there is an observer for the duration.
func (l *RateLimiter) watch() stopwatch {
	if l.options.observer == nil {
		return stopwatch{}
	}
	return stopwatch{time.Now()} //nolint:forbidigo // durations are by the clock of the machine
}

// emit completes an event, and passes it to the observer, if there is one.
func (l *RateLimiter) emit(ctx context.Context, s stopwatch, e Event) {
	if l.options.observer == nil {
		return
	}
	e.Time = l.now()
	if !s.began.IsZero() {
		e.Duration = time.Since(s.began)
	}
	if e.Result == "" {
		e.Result = ResultOf(e.Err)
	}
	if e.Result == ResultRejected {
		e.Err = nil // which is a result
	}
	l.options.observer(ctx, e)
}

// emitDecision reports a request that was decided. The lease is the new one of the request, or the one that asked for
// more.
func (l *RateLimiter) emitDecision(ctx context.Context, s stopwatch, op string, r *protocol.Request, lease *Lease, err error) {
	if l.options.observer == nil {
		return
	}
	e := Event{
		Kind: EventDecision, Operation: op, Entity: r.Entity, Resource: r.Resource, Amounts: tokensOf(r.Amounts), Err: err,
	}
	if lease != nil {
		if lease.number == 0 { // it is new, and known to this goroutine alone
			lease.number = leasesTold.Add(1)
		}
		lease.mu.Lock()
		id := lease.id()
		lease.mu.Unlock()
		e.Lease, e.LeaseID = lease.number, hex.EncodeToString(id[:])
	}
	var exceeded *ExceededError
	switch {
	case errors.As(err, &exceeded):
		e.Statuses = exceeded.Statuses
		strictest := &exceeded.Statuses[0]
		e.Limit, e.LimitEntity, e.Ancestor = strictest.Limit.Name, strictest.Entity, strictest.Ancestor
	case err != nil:
	case lease.degraded:
		e.Result, e.Wait = ResultDegraded, l.remaining(lease)
	default:
		e.Wait = l.remaining(lease)
		e.Statuses = lease.AppendStatuses(e.Statuses)
	}
	l.emit(ctx, s, e)
}

// The operations of [EventSlots].
const (
	OpTakeSlots     = "take slots"
	OpGiveSlotsBack = "give slots back"
	OpLoseSlots     = "lose slots"
)

// emitSlots reports slots that were taken, released or lost.
func (l *RateLimiter) emitSlots(ctx context.Context, c protocol.SlotChange) {
	if l.options.observer == nil {
		return
	}
	op := [...]string{protocol.SlotsTaken: OpTakeSlots, protocol.SlotsGivenBack: OpGiveSlotsBack, protocol.SlotsLost: OpLoseSlots}[c.Fate]
	l.emit(ctx, stopwatch{}, Event{
		Kind: EventSlots, Operation: op, Entity: c.Entity, Resource: c.Resource, Amounts: []Amount{{c.Limit, c.Slots}},
	})
}

// leasesTold counts the leases of the process that were reported to observers.
var leasesTold atomic.Uint64

// process identifies this process in the IDs of leases.
var process = sync.OnceValue(func() (id [8]byte) {
	_, _ = rand.Read(id[:]) // which never fails
	return id
})

// id returns the ID of the lease, by which it is settled once. Its events have this ID, too. A lease without events gets
// one when it is handed on. The lease is locked, or settled.
func (le *Lease) id() (id [16]byte) {
	switch shared := le.shared(); {
	case shared != nil:
		return shared.id
	case le.number == 0:
		_, _ = rand.Read(id[:]) // which never fails
	default:
		of := process()
		copy(id[:], of[:])
		binary.BigEndian.PutUint64(id[len(of):], le.number)
	}
	return id
}

// tokensOf returns amounts in tokens.
func tokensOf(amounts []bucket.Amount) []Amount {
	tokens := make([]Amount, len(amounts))
	for i, a := range amounts {
		tokens[i] = Amount{a.Limit, a.Tokens / millis}
	}
	return tokens
}

// observed returns a store that reports each of its calls.
func (l *RateLimiter) observed(s store.Store) store.Store {
	return store.Around{Store: s, Call: func(ctx context.Context, c *store.Call, do func(context.Context) error) error {
		var units store.Units
		watch := l.watch()
		err := do(store.CountUnits(ctx, &units))
		l.emit(ctx, watch, Event{
			Kind: EventStore, Operation: c.Operation, Err: publicError(c.Operation, err), ReadUnits: units.Read, WriteUnits: units.Write,
		})
		return err
	}}
}
