package migrate

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A pace bounds the capacity units a second. It is safe for concurrent use.
type pace struct {
	rate  float64 // units a second; 0 for no bound
	now   func() time.Time
	sleep func(context.Context, time.Duration) error

	mu   sync.Mutex
	free time.Time // when the spent units are paid for
}

// owe notes the units of a call, and returns the time until the units before them are paid for.
func (p *pace) owe(units float64) time.Duration {
	if p.rate <= 0 || units <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.free.Before(now) {
		p.free = now
	}
	left := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(units / p.rate * float64(time.Second)))
	return left
}

// A tally counts units that belong to no part of the migration. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts Counts
}

func (t *tally) add(more Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = Counts{}
	}
	t.counts.Add(more)
}

func (t *tally) set(counts Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = counts
}

func (t *tally) get() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// unitCounts returns capacity units as counts.
func unitCounts(units store.Units) Counts {
	return Counts{CountReadUnits: int64(units.Read * 1000), CountWriteUnits: int64(units.Write * 1000)}
}

// Calls read the source and the target at a pace, and count capacity units.
type calls struct {
	config         *Config
	source, target *table.Table
	scanner        store.Scanner
	pace           *pace
	ledger         *ledger
}

// call makes a call that does no harm when it is made twice, counts its units, and keeps to the pace.
func (cl *calls) call(ctx context.Context, t *table.Table, counts Counts, do func(context.Context) error) error {
	var units store.Units
	err := t.Patiently(store.CountUnits(ctx, &units), do)
	counts.Add(unitCounts(units))
	left := cl.pace.owe(units.Read + units.Write)
	if err != nil {
		return err
	}
	return cl.rest(ctx, left)
}

// rest waits, and meanwhile signals to other runs that this one is alive.
func (cl *calls) rest(ctx context.Context, left time.Duration) error {
	for left > 0 {
		pause := min(left, cl.config.Term/8)
		if err := cl.config.Sleep(ctx, pause); err != nil {
			return err
		}
		left -= pause
		if err := cl.ledger.beat(ctx); err != nil {
			return err
		}
	}
	return nil
}

// query returns all items that a query finds in the source.
func (cl *calls) query(ctx context.Context, q store.Query, counts Counts) (items []expr.Item, err error) {
	for {
		var page store.Page
		err = cl.call(ctx, cl.source, counts, func(ctx context.Context) (err error) {
			page, err = cl.config.Source.Query(ctx, q)
			return err
		})
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if q.Continue = page.Next; page.Next == nil {
			return unlessRefused(items)
		}
	}
}

// read returns items as a store has them, in the order of the keys.
func (cl *calls) read(ctx context.Context, t *table.Table, keys []store.Key, counts Counts) (items []expr.Item, err error) {
	for len(keys) > 0 {
		chunk := keys[:min(len(keys), store.MaxRead)]
		keys = keys[len(chunk):]
		var found []expr.Item
		err = cl.call(ctx, t, counts, func(ctx context.Context) (err error) {
			found, err = t.Store().Read(ctx, chunk, true)
			return err
		})
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
	}
	if t == cl.source {
		return unlessRefused(items)
	}
	return items, nil
}

// scan returns a page of the source. Like all readers of the source it ends the run at a refused item.
func (cl *calls) scan(ctx context.Context, s store.Scan, counts Counts) (page store.Page, err error) {
	if page, err = cl.scanPage(ctx, s, counts); err == nil {
		_, err = unlessRefused(page.Items)
	}
	return page, err
}

// scanPage returns a page of the source with any content.
func (cl *calls) scanPage(ctx context.Context, s store.Scan, counts Counts) (page store.Page, err error) {
	err = cl.call(ctx, cl.source, counts, func(ctx context.Context) (err error) {
		page, err = cl.scanner.Scan(ctx, s)
		return err
	})
	return page, err
}

// scanTarget goes through the items of the target, page by page.
func (cl *calls) scanTarget(ctx context.Context, do func([]expr.Item) error) error {
	scanner, ok := cl.config.Target.(store.Scanner)
	if !ok {
		return store.ErrNoScan
	}
	for s := (store.Scan{Consistent: true}); ; {
		var page store.Page
		counts := Counts{}
		err := cl.call(ctx, cl.target, counts, func(ctx context.Context) (err error) {
			page, err = scanner.Scan(ctx, s)
			return err
		})
		cl.ledger.booked.add(counts)
		if err == nil {
			err = do(page.Items)
		}
		if s.Continue = page.Next; err != nil || page.Next == nil {
			return err
		}
	}
}
