package page

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/internal/forecast"
	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
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
	book.complete = done.To
	if !q.present() {
		return nil
	}
	rejected, err := p.rejectedOf(ctx, oneResource(q.resource), 24*time.Hour)
	if err != nil {
		return err
	}
	if q.entity != "" {
		f, err := p.forecastOf(ctx, q, q.entity)
		if err != nil {
			return err
		}
		if f != nil {
			book.forecast, book.budget, book.available, book.ends = *f, float64(f.Capacity), float64(f.Available), f.ResetsAt
		}
	}
	err = each8(len(book.groups), func(i int) (err error) {
		g := &book.groups[i]
		for of, n := range rejected {
			if of.entity == g.entity && of.limit == q.limit {
				g.refused += n
			}
		}
		g.forecast, err = p.forecastOf(ctx, q, g.entity)
		return err
	})
	if q.entity == "" {
		book.together()
	}
	book.extend(q)
	return err
}

// together adds up the budgets of everyone, if all who use the limit have one.
func (b *ledger) together() {
	var budget, available float64
	for i := range b.groups {
		f := b.groups[i].forecast
		if f == nil && sum(b.groups[i].days[b.offset:]) > 0 || b.left > 0 {
			return
		}
		if f != nil {
			budget, available, b.ends = budget+float64(f.Capacity), available+float64(f.Available), f.ResetsAt
		}
	}
	b.budget, b.available = budget, available
}

// forecastOf returns the forecast of an entity's own monthly budget; nil if it has none.
func (p *page) forecastOf(ctx context.Context, q *usageQuery, entity string) (*zlimit.Forecast, error) {
	if q.resource == everyone { // budgets are of one resource
		return nil, nil //nolint:nilnil // as below
	}
	all, err := p.Limiter.Usage.Forecast(ctx, entity, q.resource)
	if err != nil && !isNoLimits(err) {
		return nil, err
	}
	for i := range all {
		f := &all[i]
		if f.Entity == entity && f.Limit == q.limit && f.ResetsAt.Sub(q.now) <= 31*24*time.Hour && !f.ResetsAt.Before(q.to.Add(-time.Hour)) {
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
		r, ok, err := hindsight.Raised(ctx, p.Limiter, s, q.now)
		if ok {
			f.Capacity -= s.Limit.Capacity - r.Least
		}
		return err
	}
	return nil
}

// tooEarly reports whether amounts by day are of too few days for a forecast.
func (b *ledger) tooEarly(q *usageQuery, days []float64) bool {
	today := b.offset + int(q.passed())
	used := 0
	for _, v := range days[max(today-forecastDays, 0):today] {
		if v > 0 {
			used++
		}
	}
	return used < leastForecast
}

// An outlook is how a budget ends.
type outlook int

const (
	outlookUsedUp outlook = iota
	outlookEndsEarly
	outlookTooEarly
	outlookLasts
)

// outlook decides for the headline and for every row how a budget ends, from what was used by day.
func (b *ledger) outlook(q *usageQuery, f *zlimit.Forecast, days []float64) outlook {
	switch {
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
	today := b.offset + int(q.passed())
	first := max(today-forecastDays, 0)
	if b.early = b.tooEarly(q, b.total); b.early {
		return
	}
	weekday := func(day int) time.Weekday { return q.from.AddDate(0, 0, day-b.offset).Weekday() }
	fit := forecast.Fit(b.total[first:today], weekday(today-1))
	scale := 1.0
	if b.forecast.PerDay > 0 && fit.PerDay() > 0 { // the forecast of the budget has the level, and this one the shape
		scale = b.forecast.PerDay / fit.PerDay()
	}
	rate := func(day int) float64 { return scale * fit.On(weekday(day)) }
	variance := 0.0
	for day := first; day < today; day++ {
		d := b.total[day] - rate(day)
		variance += d * d / float64(today-first)
	}
	spent := sum(b.total[b.offset:])
	at := spent
	for day := today; day < b.offset+q.days(); day++ {
		part := 1.0
		if day == today {
			part = 1 - (q.passed() - float64(int(q.passed())))
		}
		at += rate(day) * part
		b.path = append(b.path, at)
		b.spread = append(b.spread, sqrt(variance*(float64(len(b.path)-1)+part)))
	}
	if n := len(b.path); n > 0 {
		b.likely = b.path[n-1]
		b.atEnd = [2]float64{max(b.likely-b.spread[n-1], spent), b.likely + b.spread[n-1]}
	}
}
