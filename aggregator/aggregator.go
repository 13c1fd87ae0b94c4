// Package aggregator works on the changes of a table:
//   - The aggregator sums up the consumption of entities into snapshots of usage.
//   - The aggregator also refills, splits and merges buckets ahead of the limiters.
//   - The aggregator also archives expired audit events.
//
// The aggregator runs as a Lambda function, see [Handler] and [Serve], or in any process, see [Aggregator.Run].
package aggregator

import (
	"context"
	cryptorand "crypto/rand"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Aggregator works on the changes of a table, in all its namespaces. It is safe for concurrent use, and holds nothing that must be
// closed. Any number of aggregators may work on the same changes: nothing is counted twice.
type Aggregator struct {
	base
	registry registry
	counter  counter
	adder    adder
	hourly   hourly
	roller   roller
	tender   tender
	// byHour makes a batch write snapshots of hours first. The hours that it finds decide which days and months it writes.
	byHour bool
	// repeats are applied changes that Lambda delivers again.
	repeats memory
	// consumer reads the changes for Run; nil if the store has no change stream.
	consumer *stream.Consumer
}

// A base has what the parts of an aggregator share. Each part uses only the parts before it in [Aggregator].
type base struct {
	table   *table.Table
	options options
	outages outageLog
}

// New returns an aggregator of the table of a store, which the caller closes. It makes no call.
func New(s zlimit.Store, opts ...Option) (*Aggregator, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if store.Of(s) == nil {
		return nil, invalid("store", "", "must come from DynamoDB with a client, SQLite or Memory")
	}
	a := &Aggregator{base: base{options: o}}
	a.table = a.tableOf(store.Of(s))
	a.byHour = a.table.Partitioned()
	a.registry = registry{base: &a.base}
	a.counter = counter{base: &a.base, made: time.Now()} //nolint:forbidigo // durations are by the clock of the machine
	a.adder = adder{base: &a.base, counter: &a.counter}
	a.hourly = hourly{base: &a.base, counter: &a.counter, adder: &a.adder, carries: a.byHour && o.rollingUp}
	a.roller = roller{base: &a.base, registry: &a.registry, adder: &a.adder, owner: o.name + "/" + cryptorand.Text()[:12]}
	a.tender = tender{base: &a.base, counter: &a.counter}
	a.consumer = a.newConsumer()
	return a, nil
}

// How calls of the store are made. If a call keeps failing, it is tried again with its batch.
const (
	callTimeout   = 5 * time.Second // of one call
	maxWriteTries = 4               // tries of a write that may be done twice
	resizeTries   = 3               // at a split or a merge, where others write
)

// tableOf returns a store as the aggregator calls it.
func (a *Aggregator) tableOf(s store.Store) *table.Table {
	return table.New(s, table.Options{Timeout: callTimeout, Tries: maxWriteTries, Races: resizeTries, Sleep: a.options.sleep})
}

// applyAdmitted is [Aggregator.apply] for a table that this client may use; otherwise every change fails.
func (a *Aggregator) applyAdmitted(ctx context.Context, changes []store.Change) []error {
	if err := a.registry.admit(ctx); err != nil {
		return slices.Repeat([]error{err}, len(changes))
	}
	return a.apply(ctx, changes)
}

// apply does the work for changes. It returns nil if all of it is done. Otherwise it returns an error for each change with work left, nil
// for the others.
//
// The changes of one item must arrive in the order of their sequences, without gaps. A change must not be applied before an earlier one
// that failed, not even in a later batch. Apart from that, changes may be divided into any batches, and may be repeated.
func (a *Aggregator) apply(ctx context.Context, changes []store.Change) []error {
	began := a.options.clock()
	b := newBatch(len(changes))
	counting, cancel := earlier(ctx) // hours begun by then must not be left unexamined
	defer cancel()
	if a.byHour {
		a.hourly.countHours(counting, a.counter.fold(changes, b, zlimit.WindowHourly), b)
	} else {
		a.counter.countAll(counting, a.counter.fold(changes, b, windows[:]...), b)
	}
	var group errgroup.Group
	group.SetLimit(a.options.concurrency)
	for day, entries := range a.expired(changes) {
		group.Go(func() error {
			err := a.archive(ctx, day, entries)
			for _, e := range entries {
				b.archived(e.index, err)
			}
			return nil
		})
	}
	_ = group.Wait() // what failed is in the batch
	_ = a.registry.forget(ctx, b)
	errs := b.outcome()
	if errs == nil && a.options.tending {
		a.tender.tend(ctx, changes, b)
	}
	a.observe(b, began)
	return errs
}

// observe reports a finished batch to the observer.
func (bs *base) observe(b *batch, began time.Time) {
	if bs.options.observer != nil {
		b.Took = bs.options.clock().Sub(began)
		bs.options.observer(b.Batch)
	}
}

// inParallel calls a function for each item, at most n at a time, and waits for all.
func inParallel[T any](n int, items []T, do func(T)) {
	var group errgroup.Group
	group.SetLimit(n)
	for _, item := range items {
		group.Go(func() error {
			do(item)
			return nil
		})
	}
	_ = group.Wait() // do returns nothing
}
