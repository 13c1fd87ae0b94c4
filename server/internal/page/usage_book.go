package page

import (
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// A book is a month, with how often its limit refused entities in 24 hours.
type book struct {
	*ledger.Month
	refused map[string]int64
}

const usageKept = 20 * time.Second

// bookOf reads the month and the one before.
func (p *page) bookOf(ctx context.Context, q *usageQuery) (*book, time.Time, error) {
	return once(ctx, &p.feed, q.key(), usageKept, func(ctx context.Context) (b *book, err error) {
		b = &book{refused: map[string]int64{}}
		if b.Month, err = ledger.Read(ctx, p.Limiter, q.Query); err != nil || !q.Present() {
			return b, err
		}
		rejected, err := p.rejectedOf(ctx, oneResource(q.Resource), 24*time.Hour)
		for of, n := range rejected {
			if of.Limit == q.Limit {
				b.refused[of.Entity] += n
			}
		}
		return b, err
	})
}

// heldBy returns the amounts of calls under way, by group; amounts of others are below "".
func (p *page) heldBy(ctx context.Context, q *usageQuery, of *book, open []leasetoken.HeldLease) (map[string]float64, error) {
	by := map[string]float64{}
	groups := map[string]bool{}
	for _, g := range of.Groups {
		groups[g.Entity] = true
	}
	for _, h := range open {
		n := float64(h.Amounts[q.Limit])
		if n == 0 || !q.Present() {
			continue
		}
		lineage, err := p.feed.lineage(ctx, h.Entity)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(lineage, func(e string) bool { return groups[e] || e == q.Entity })
		switch {
		case at >= 0 && groups[lineage[at]]:
			by[lineage[at]] += n
		case q.Entity == "" || at >= 0:
			by[""] += n
		}
	}
	return by, nil
}
