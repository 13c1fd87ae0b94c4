package zlimit

import (
	"context"
	"errors"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A stopwatch measures what an event is about; its zero value measures nothing, for a limiter without an observer.
type stopwatch struct{ began time.Time }

// watch starts a stopwatch if an observer is told of what it measures.
func (l *RateLimiter) watch() stopwatch {
	if l.options.observer == nil {
		return stopwatch{}
	}
	return stopwatch{time.Now()} //nolint:forbidigo // durations are by the clock of the machine
}

// tell completes an event, and tells it to the observer, if there is one.
func (l *RateLimiter) tell(ctx context.Context, s stopwatch, e Event) {
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

// tellDecision tells of a request that was decided: the lease is the one that it got, or that it asked for more.
func (l *RateLimiter) tellDecision(ctx context.Context, s stopwatch, op string, r *protocol.Request, lease *Lease, err error) {
	if l.options.observer == nil {
		return
	}
	e := Event{
		Kind: EventDecision, Operation: op, Entity: r.Entity, Resource: r.Resource, Amounts: tokensOf(r.Amounts), Err: err,
	}
	var exceeded *ExceededError
	switch {
	case errors.As(err, &exceeded):
		e.Statuses = exceeded.Statuses
		e.Limit = exceeded.Statuses[0].Limit.Name
	case err != nil:
	case lease.degraded:
		e.Result = ResultDegraded
	default:
		e.Statuses = statusesOfLevels(l.engine.Statuses(&lease.receipt))
	}
	l.tell(ctx, s, e)
}

// tokensOf returns amounts in tokens.
func tokensOf(amounts []bucket.Amount) []Amount {
	tokens := make([]Amount, len(amounts))
	for i, a := range amounts {
		tokens[i] = Amount{a.Limit, a.Tokens / millis}
	}
	return tokens
}

// An observedStore tells of each of its calls.
type observedStore struct {
	store.Store
	l *RateLimiter
}

func (s observedStore) tell(ctx context.Context, w stopwatch, op string, err error) {
	s.l.tell(ctx, w, Event{Kind: EventStore, Operation: op, Err: publicError(op, err)})
}

func (s observedStore) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	w := s.l.watch()
	items, err := s.Store.Read(ctx, keys, consistent)
	s.tell(ctx, w, "read", err)
	return items, err
}

func (s observedStore) Write(ctx context.Context, write store.Write) (store.Result, error) {
	w := s.l.watch()
	result, err := s.Store.Write(ctx, write)
	s.tell(ctx, w, "write", err)
	return result, err
}

func (s observedStore) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	w := s.l.watch()
	results, err := s.Store.Transact(ctx, writes)
	s.tell(ctx, w, "transact", err)
	return results, err
}

func (s observedStore) Query(ctx context.Context, q store.Query) (store.Page, error) {
	w := s.l.watch()
	page, err := s.Store.Query(ctx, q)
	s.tell(ctx, w, "query", err)
	return page, err
}

func (s observedStore) Delete(ctx context.Context, keys []store.Key) error {
	w := s.l.watch()
	err := s.Store.Delete(ctx, keys)
	s.tell(ctx, w, "delete", err)
	return err
}

// Expire deletes expired items where the store does not do so by itself.
func (s observedStore) Expire(ctx context.Context, now int64) error {
	if expirer, ok := s.Store.(store.Expirer); ok {
		return expirer.Expire(ctx, now)
	}
	return nil
}
