package page

import (
	"context"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

const (
	forecastDays  = 28
	leastForecast = 14 // days of usage
)

// foresee adds budgets, their forecasts, and refusals.
func (p *page) foresee(ctx context.Context, q *usageQuery, book *ledger) error {
	done, err := p.Limiter.Usage.Completeness(ctx)
	if err != nil {
		return err
	}
	book.Complete = done.To
	if !q.Present() {
		return nil
	}
	rejected, err := p.rejectedOf(ctx, oneResource(q.Resource), 24*time.Hour)
	if err != nil {
		return err
	}
	if q.Entity != "" {
		f, err := p.forecastOf(ctx, q, q.Entity)
		if err != nil {
			return err
		}
		if f != nil {
			book.Forecast, book.Budget, book.Available, book.Ends = *f, float64(f.Capacity), float64(f.Available), f.ResetsAt
		}
	}
	err = each8(len(book.Groups), func(i int) (err error) {
		g := &book.Groups[i]
		for of, n := range rejected {
			if of.Entity == g.Entity && of.Limit == q.Limit {
				g.Refused += n
			}
		}
		g.Forecast, err = p.forecastOf(ctx, q, g.Entity)
		return err
	})
	if q.Entity == "" {
		book.together()
	}
	book.extend(q)
	return err
}

// together adds up the budgets of everyone, if all who use the limit have one.
func (b *ledger) together() {
	var budget, available float64
	for i := range b.Groups {
		f := b.Groups[i].Forecast
		if f == nil && sum(b.Groups[i].days[b.offset:]) > 0 || b.Left > 0 {
			return
		}
		if f != nil {
			budget, available, b.Ends = budget+float64(f.Capacity), available+float64(f.Available), f.ResetsAt
		}
	}
	b.Budget, b.Available = budget, available
}

// forecastOf returns the forecast of an entity's own monthly budget; nil if it has none.
func (p *page) forecastOf(ctx context.Context, q *usageQuery, entity string) (*zlimit.Forecast, error) {
	if q.Resource == everyone { // budgets are of one resource
		return nil, nil //nolint:nilnil // as below
	}
	all, err := p.Limiter.Usage.Forecast(ctx, entity, q.Resource)
	if err != nil && !isNoLimits(err) {
		return nil, err
	}
	for i := range all {
		f := &all[i]
		if f.Entity == entity && f.Limit == q.Limit && f.ResetsAt.Sub(q.Now) <= 31*24*time.Hour && !f.ResetsAt.Before(q.To.Add(-time.Hour)) {
			return f, p.beforeRaise(ctx, q, f)
		}
	}
	return nil, nil //nolint:nilnil // no budget is no failure
}

// beforeRaise makes the capacity of a forecast that of the running period, where the budget was raised since.
func (p *page) beforeRaise(ctx context.Context, q *usageQuery, f *zlimit.Forecast) error {
	statuses, err := p.Limiter.Available(ctx, zlimit.AvailableQuery{Entity: f.Entity, Resource: f.Resource})
	if err != nil {
		return nil //nolint:nilerr // the forecast has what is known
	}
	for i := range statuses {
		s := &statuses[i]
		if s.Entity != f.Entity || s.Resource != f.Resource || s.Limit.Name != f.Limit {
			continue
		}
		r, ok, err := hindsight.Raised(ctx, p.Limiter, s, q.Now)
		if ok {
			f.Capacity -= s.Limit.Capacity - r.Least
		}
		return err
	}
	return nil
}

// tooEarly reports whether amounts by day are of too few days for a forecast.
func (b *ledger) tooEarly(q *usageQuery, days []float64) bool {
	today := b.offset + int(q.Passed())
	used := 0
	for _, v := range days[max(today-forecastDays, 0):today] {
		if v > 0 {
			used++
		}
	}
	return used < leastForecast
}

// An outlook is how a budget ends.
type outlook string

const (
	outlookUsedUp    outlook = "used up"
	outlookEndsEarly outlook = "ends early"
	outlookTooEarly  outlook = "too early"
	outlookLasts     outlook = "on pace"
)

// outlook decides for the headline and for every row how a budget ends, from what was used by day; "" without a forecast.
func (b *ledger) outlook(q *usageQuery, f *zlimit.Forecast, days []float64) outlook {
	switch {
	case f == nil:
		return ""
	case f.Available <= f.Capacity/2000:
		return outlookUsedUp
	case b.tooEarly(q, days):
		return outlookTooEarly
	case !f.UsedUp.IsZero():
		return outlookEndsEarly
	default:
		return outlookLasts
	}
}

// extend foresees the rest of the month: each day as its weekday in the last four weeks if that fits them better, or as the last seven days.
func (b *ledger) extend(q *usageQuery) {
	today := b.offset + int(q.Passed())
	first := max(today-forecastDays, 0)
	if b.Early = b.tooEarly(q, b.Total); b.Early {
		return
	}
	weekday := func(day int) time.Weekday { return q.From.AddDate(0, 0, day-b.offset).Weekday() }
	rates := zlimit.WeekdayRates(b.Total[first:today], weekday(today-1))
	scale := 1.0
	if perDay := sum(rates[:]) / 7; b.Forecast.PerDay > 0 && perDay > 0 { // the forecast of the budget has the level, and this one the shape
		scale = b.Forecast.PerDay / perDay
	}
	rate := func(day int) float64 { return scale * rates[weekday(day)] }
	variance := 0.0
	for day := first; day < today; day++ {
		d := b.Total[day] - rate(day)
		variance += d * d / float64(today-first)
	}
	spent := b.Spent()
	at := spent
	for day := today; day < b.offset+q.Days(); day++ {
		part := 1.0
		if day == today {
			part = 1 - (q.Passed() - float64(int(q.Passed())))
		}
		at += rate(day) * part
		b.path = append(b.path, at)
		b.spread = append(b.spread, math.Sqrt(max(variance*(float64(len(b.path)-1)+part), 0)))
	}
	if n := len(b.path); n > 0 {
		b.Likely = b.path[n-1]
		b.AtEnd = [2]float64{max(b.Likely-b.spread[n-1], spent), b.Likely + b.spread[n-1]}
	}
}
