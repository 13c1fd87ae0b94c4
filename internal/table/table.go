// Package table makes the calls of a store: with a bound for each, pauses between tries, and counts of what became of
// them. It does not know the meaning of items.
package table

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Table is a store as limiters call it. It is safe for concurrent use.
type Table struct {
	store   store.Store
	gate    *store.Gate
	breaker *Breaker
	timeout time.Duration
	intN    func(int) int
	direct  bool // calls wait for nothing
	parted  bool // a single key has a limited write rate
	tries   tries
	yield   func(context.Context) error
	unknown atomic.Uint64
}

// Options are the configuration of a table. A field that is left out has its default.
type Options struct {
	Timeout time.Duration // of one call; required
	Gate    *store.Gate   // which calls wait at; tables may share one; nil lets any number through
	Breaker *Breaker      // refuses calls in outages; tables may share one; nil refuses none
	IntN    func(int) int // a source of random numbers in [0, n); nil for that of the system
	// Races is the number of tries of [Table.Optimistic]; 0 for [MaxAttempts].
	Races int
	// Tries is the number of tries of [Table.Patiently]; 0 for 7, which is up to 13 s.
	Tries int
	// Sleep waits between tries; nil for [wait.For].
	Sleep func(context.Context, time.Duration) error
	// Yield is called by a goroutine that another one woke; nil for nothing. Tests put such goroutines in an order.
	Yield func(context.Context) error
}

// New returns a table on a store.
func New(s store.Store, o Options) *Table {
	if o.IntN == nil {
		o.IntN = rand.IntN
	}
	_, direct := s.(store.Immediate)
	return &Table{
		store: s, gate: o.Gate, breaker: o.Breaker, timeout: o.Timeout, intN: o.IntN, direct: direct, parted: s != nil && s.Partitioned(), tries: newTries(&o),
		yield: o.Yield,
	}
}

// Store returns the store.
func (t *Table) Store() store.Store { return t.store }

// Partitioned reports whether a single key has a limited write rate, so that hot items are worth splitting.
func (t *Table) Partitioned() bool { return t.parted }

// Immediate reports whether calls wait for nothing.
func (t *Table) Immediate() bool { return t.direct }

// Usual returns how long a number of calls one after another nearly always take, 0 if that is not known yet.
func (t *Table) Usual(calls int) time.Duration {
	if t.breaker == nil {
		return 0
	}
	return t.breaker.traffic.took.of(calls)
}

// Timeout returns the bound of one call.
func (t *Table) Timeout() time.Duration { return t.timeout }

// IntN returns a random number in [0, n).
func (t *Table) IntN(n int) int { return t.intN(n) }

// Yield is called by a goroutine before it goes on, if another one woke it, or several may wake at the same moment.
func (t *Table) Yield(ctx context.Context) error {
	if t.yield == nil {
		return nil
	}
	return t.yield(ctx)
}

// Sleep waits for a time, or for the end of the context, whose error it then returns.
func (t *Table) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	return t.tries.sleep(ctx, d)
}

// Unknown returns the number of writes whose outcome is unknown.
func (t *Table) Unknown() uint64 { return t.unknown.Load() }

// Call makes one call of the store when it is its turn, within the table's timeout, and counts it when its outcome is
// unknown. The end of the timeout is an outage; the end of the caller's context is the caller's. A call that the breaker refuses
// is not made.
func (t *Table) Call(ctx context.Context, do func(context.Context) error) error {
	return t.call(ctx, "", do)
}

// Refusal returns an error if the breaker refuses calls with a context for now.
func (t *Table) Refusal(ctx context.Context) error { return t.breaker.Refusal(ctx) }

// RefusalOf is [Table.Refusal] for calls with a partition key.
func (t *Table) RefusalOf(ctx context.Context, pk string) error {
	if t.breaker == nil {
		return nil
	}
	return t.breaker.refusalOf(ctx, pk)
}

// call is [Table.Call] for items with a partition key.
func (t *Table) call(ctx context.Context, pk string, do func(context.Context) error) (err error) {
	if t.direct {
		return do(ctx)
	}
	if IsWithheld(ctx) {
		return ErrWithheld
	}
	ctx, end := graced(ctx)
	if end != nil {
		defer end()
	}
	if t.breaker == nil {
		err = t.gate.Do(ctx, t.timeout, do)
	} else {
		err = t.judged(ctx, pk, do)
	}
	if store.OutcomeOf(err) == store.Unknown {
		t.unknown.Add(1)
	}
	return err
}

// judged makes a call unless the breaker refuses it, which may change while the call waits for its turn.
func (t *Table) judged(ctx context.Context, pk string, do func(context.Context) error) error {
	for {
		if err := ctx.Err(); err != nil { // an outage is no reason then
			return err
		}
		if err := t.breaker.refusalOf(ctx, pk); err != nil {
			return err
		}
		if err := t.inTurn(ctx, pk, do); !errors.Is(err, store.ErrLeft) {
			return err
		}
	}
}

// inTurn makes a call when it is its turn, unless the breaker refuses it then.
func (t *Table) inTurn(ctx context.Context, pk string, do func(context.Context) error) error {
	var sent sending
	made := false
	err := t.gate.Do(ctx, t.timeout, func(bounded context.Context) (err error) {
		if sent, err = t.breaker.sends(ctx, pk); err != nil {
			return err
		}
		made = true
		return do(bounded)
	})
	if made {
		t.breaker.ended(ctx, sent, pk, err)
	}
	return err
}

// Read returns items as the store has them, in the order of the keys, nil if there is none: one consistent batch read.
func (t *Table) Read(ctx context.Context, keys ...store.Key) (items []expr.Item, err error) {
	return t.read(ctx, keys, true)
}

// ReadEventually returns items as the store had them moments ago, at half the price.
func (t *Table) ReadEventually(ctx context.Context, keys ...store.Key) (items []expr.Item, err error) {
	return t.read(ctx, keys, false)
}

func (t *Table) read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	err = t.call(ctx, partition(keys), func(ctx context.Context) error {
		store.NoteSent(ctx)
		items, err = t.store.Read(ctx, keys, consistent)
		return err
	})
	return items, err
}

// partition returns the partition key of a read.
func partition(keys []store.Key) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0].PK
}

// ReadChunks is [Table.Read] for any number of keys, a call for every [store.MaxRead] of them.
func (t *Table) ReadChunks(ctx context.Context, keys []store.Key) (items []expr.Item, err error) {
	for chunk := range slices.Chunk(keys, store.MaxRead) {
		more, err := t.Read(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		items = append(items, more...)
	}
	return items, nil
}

// Write does one write.
func (t *Table) Write(ctx context.Context, w store.Write) (result store.Result, err error) {
	err = t.call(ctx, w.Key.PK, func(ctx context.Context) error {
		result, err = t.store.Write(ctx, w)
		return err
	})
	return result, err
}

// Transact does writes, all or none; false when a condition failed or another transaction was in the way.
func (t *Table) Transact(ctx context.Context, writes []store.Write) (applied bool, err error) {
	if len(writes) == 0 {
		return true, nil
	}
	results, err := t.TryTransact(ctx, writes)
	return results != nil && Applied(results), err
}

// TryTransact does writes, all or none, and returns what each of them found; nil when another transaction was in the way.
func (t *Table) TryTransact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	err = t.call(ctx, writes[0].Key.PK, func(ctx context.Context) error {
		results, err = t.store.Transact(ctx, writes)
		return err
	})
	if errors.Is(err, store.ErrConflict) {
		return nil, nil
	}
	return results, err
}

// Applied reports whether all writes of a transaction were done.
func Applied(results []store.Result) bool {
	return !slices.ContainsFunc(results, func(r store.Result) bool { return !r.Applied })
}

// Expire deletes some of the items that have expired, in a store without an expiry of its own. On other stores it does
// nothing.
func (t *Table) Expire(ctx context.Context, now time.Time) error {
	s, ok := t.store.(store.Expirer)
	if !ok {
		return nil
	}
	return t.Call(ctx, func(ctx context.Context) error { return s.Expire(ctx, now.Unix()) })
}

// Delete deletes items with any content, a call for every [store.MaxDelete] of them.
func (t *Table) Delete(ctx context.Context, keys []store.Key) error {
	for chunk := range slices.Chunk(keys, store.MaxDelete) {
		err := t.Patiently(ctx, func(ctx context.Context) error { return t.store.Delete(ctx, chunk) })
		if err != nil {
			return err
		}
	}
	return nil
}
