package dashboard

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// A usageBody is the screen that answers whether a budget lasts, who is the cause, and what is spent but not settled.
type usageBody struct {
	*usageQuery
	*book

	Held          float64 // by calls under way
	Today         float64
	Outlook       ledger.Outlook // of the budget; "" without one
	Verdicts      ledger.Verdicts
	Cause         ledger.Cause
	Chart         charts
	Key           []keyItem
	Rows          []budgetRow
	Against       string // the month before
	CSV           string
	Everyone      string   // the address of the usage of all
	Before, After string   // the addresses of the months before and after; "" for the future
	Tops          []string // everyone, and entities without a parent
	Hidden        url.Values
}

// RefusedBy is how often the limit refused in 24 hours.
func (b *usageBody) RefusedBy() (n int64) {
	for i := range b.Groups {
		n += b.refused[b.Groups[i].Entity]
	}
	return n
}

func (p *page) usage(ctx context.Context, given url.Values) (view, error) {
	q, err := p.usageQuery(ctx, given)
	if err != nil || q.Resource == "" {
		return nothing, err
	}
	of, err := p.bookOf(ctx, q)
	if err != nil {
		return view{}, err
	}
	held, err := p.heldBy(ctx, q, of)
	return view{At: of.at, Body: usageOf(q, of, held)}, err
}

// usageOf says what a month has, with amounts of calls under way by group.
func usageOf(q *usageQuery, of *book, held map[string]float64) *usageBody {
	body := &usageBody{usageQuery: q, book: of, Against: q.From.AddDate(0, 0, -1).Format("January"), CSV: q.url("/usage.csv", q.Entity), Everyone: q.url("/usage", everyone)}
	for _, n := range held {
		body.Held += n
	}
	if q.Present() {
		body.Today = of.Total[of.Before+int(q.Passed())]
	}
	body.Outlook = of.Outlook(&of.Forecast, of.Total)
	if q.Entity == "" {
		body.Verdicts = of.Verdicts()
	}
	body.Cause = of.Cause()
	body.rows(held)
	body.Chart = drawUsage(q, of.Month)
	before, after := *q, *q
	before.From, after.From = q.From.AddDate(0, -1, 0), q.To()
	body.Before = before.url("/usage", q.Entity)
	if q.To().Before(q.Now) {
		body.After = after.url("/usage", q.Entity)
	}
	body.Hidden = url.Values{"resource": {q.Resource}, "limit": {q.Limit}, "month": {q.From.Format("2006-01")}}
	if len(q.Tops) > 1 || q.Entity == "" || !slices.Contains(q.Tops, q.Entity) {
		body.Tops = append([]string{everyone}, q.Tops...)
		for i := range of.Groups { // some of which have no bucket any more
			if name := of.Groups[i].Entity; q.Entity == "" && !slices.Contains(body.Tops, name) {
				body.Tops = append(body.Tops, name)
			}
		}
		if q.Entity != "" && !slices.Contains(body.Tops, q.Entity) {
			body.Tops = append(body.Tops, q.Entity)
		}
	}
	return body
}

// Clock writes a time of the zone.
func (q *usageQuery) Clock(t time.Time, layout string) string { return t.In(q.Zone).Format(layout) }

// Begun is how many days of the month have begun.
func (q *usageQuery) Begun() int { return int(q.Passed() + 0.999) }

// PerDay is an amount of a month as an even pace.
func (q *usageQuery) PerDay(n float64) float64 { return n / float64(q.Days()) }

// Tick is where today is in the month.
func (q *usageQuery) Tick() float64 { return min(q.Passed()/float64(q.Days()), 0.995) }
