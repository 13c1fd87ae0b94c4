package migrate

import (
	"context"
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
	free time.Time // when what was spent is paid for
}

// spend notes units that a call took, and waits until what was spent before them is paid for.
func (p *pace) spend(ctx context.Context, units float64) error {
	if p.rate <= 0 || units <= 0 {
		return nil
	}
	p.mu.Lock()
	now := p.now()
	if p.free.Before(now) {
		p.free = now
	}
	left := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(units / p.rate * float64(time.Second)))
	p.mu.Unlock()
	if left <= 0 {
		return nil
	}
	return p.sleep(ctx, left)
}

// call makes a call that does no harm when it is made twice, counts its units, and keeps to the pace.
func (m *Migration) call(ctx context.Context, t *table.Table, counts Counts, do func(context.Context) error) error {
	var units store.Units
	err := t.Patiently(store.CountUnits(ctx, &units), do)
	counts[CountReadUnits] += int64(units.Read * 1000)
	counts[CountWriteUnits] += int64(units.Write * 1000)
	if err != nil {
		return err
	}
	return m.pace.spend(ctx, units.Read+units.Write)
}

// query returns all items that a query finds in the source.
func (m *Migration) query(ctx context.Context, q store.Query, counts Counts) (items []expr.Item, err error) {
	for {
		var page store.Page
		err = m.call(ctx, m.source, counts, func(ctx context.Context) (err error) {
			page, err = m.config.Source.Query(ctx, q)
			return err
		})
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if q.Continue = page.Next; page.Next == nil {
			return items, nil
		}
	}
}

// read returns items as a store has them, in the order of the keys.
func (m *Migration) read(ctx context.Context, t *table.Table, keys []store.Key, counts Counts) (items []expr.Item, err error) {
	for len(keys) > 0 {
		chunk := keys[:min(len(keys), store.MaxRead)]
		keys = keys[len(chunk):]
		var found []expr.Item
		err = m.call(ctx, t, counts, func(ctx context.Context) (err error) {
			found, err = t.Store().Read(ctx, chunk, true)
			return err
		})
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
	}
	return items, nil
}

// scan returns a page of the source.
func (m *Migration) scan(ctx context.Context, s store.Scan, counts Counts) (page store.Page, err error) {
	err = m.call(ctx, m.source, counts, func(ctx context.Context) (err error) {
		page, err = m.scanner.Scan(ctx, s)
		return err
	})
	return page, err
}

// scanTarget goes through the items of the target, page by page.
func (m *Migration) scanTarget(ctx context.Context, do func([]expr.Item) error) error {
	scanner, ok := m.config.Target.(store.Scanner)
	if !ok {
		return store.ErrNoScan
	}
	for s := (store.Scan{Consistent: true}); ; {
		var page store.Page
		err := m.call(ctx, m.target, Counts{}, func(ctx context.Context) (err error) {
			page, err = scanner.Scan(ctx, s)
			return err
		})
		if err == nil {
			err = do(page.Items)
		}
		if s.Continue = page.Next; err != nil || page.Next == nil {
			return err
		}
	}
}
