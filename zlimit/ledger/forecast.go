package ledger

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

const (
	forecastDays  = 28
	leastForecast = 14 // days of usage
)

// foresee adds budgets and their forecasts.
func (r *reader) foresee(ctx context.Context, m *Month) error {
	done, err := r.l.Usage.Completeness(ctx)
	if err != nil {
		return err
	}
	m.Complete = done.To
	if !r.Present() {
		return nil
	}
	if r.Entity != "" {
		f, err := r.forecastOf(ctx, r.Entity)
		if err != nil {
			return err
		}
		if f != nil {
			m.Forecast, m.Budget, m.Available, m.Ends = *f, float64(f.Capacity), float64(f.Available), f.ResetsAt
		}
	}
	err = each(len(m.Groups), func(i int) (err error) {
		m.Groups[i].Forecast, err = r.forecastOf(ctx, m.Groups[i].Entity)
		return err
	})
	if r.Entity == "" {
		m.together()
	}
	m.extend()
	return err
}

// together adds up the budgets of everyone, if all who use the limit have one.
func (m *Month) together() {
	var budget, available float64
	for i := range m.Groups {
		f := m.Groups[i].Forecast
		if f == nil && m.In(m.Groups[i].Days) > 0 || m.Left > 0 {
			return
		}
		if f != nil {
			budget, available, m.Ends = budget+float64(f.Capacity), available+float64(f.Available), f.ResetsAt
		}
	}
	m.Budget, m.Available = budget, available
}

// forecastOf returns the forecast of an entity's own monthly budget; nil if it has none.
func (r *reader) forecastOf(ctx context.Context, entity string) (*zlimit.Forecast, error) {
	if len(r.Resources) != 1 { // budgets are of one resource
		return nil, nil //nolint:nilnil // as below
	}
	all, err := r.l.Usage.Forecast(ctx, entity, r.Resources[0])
	if err != nil && !errors.Is(err, zlimit.ErrNoLimits) {
		return nil, err
	}
	for i := range all {
		f := &all[i]
		if f.Entity == entity && f.Limit == r.Limit && f.ResetsAt.Sub(r.Now) <= 31*24*time.Hour && !f.ResetsAt.Before(r.To().Add(-time.Hour)) {
			return f, r.beforeRaise(ctx, f)
		}
	}
	return nil, nil //nolint:nilnil // no budget is no failure
}

// beforeRaise makes the capacity of a forecast that of the running period, where the budget was raised since.
func (r *reader) beforeRaise(ctx context.Context, f *zlimit.Forecast) error {
	statuses, err := r.l.Available(ctx, zlimit.AvailableQuery{Entity: f.Entity, Resource: f.Resource})
	if err != nil {
		return nil //nolint:nilerr // the forecast has what is known
	}
	for i := range statuses {
		s := &statuses[i]
		if s.Entity != f.Entity || s.Resource != f.Resource || s.Limit.Name != f.Limit {
			continue
		}
		raise, ok, err := hindsight.Raised(ctx, r.l, s, r.Now)
		if ok {
			f.Capacity -= s.Limit.Capacity - raise.Least
		}
		return err
	}
	return nil
}

// extend foresees the rest of the month: each day as its weekday in the last four weeks if that fits them better, or as the last seven days.
func (m *Month) extend() {
	q := &m.Query
	today := m.Before + int(q.Passed())
	first := max(today-forecastDays, 0)
	if m.Early = m.tooEarly(m.Total); m.Early {
		return
	}
	weekday := func(day int) time.Weekday { return q.From.AddDate(0, 0, day-m.Before).Weekday() }
	rates := zlimit.WeekdayRates(m.Total[first:today], weekday(today-1))
	scale := 1.0
	if perDay := sum(rates[:]) / 7; m.Forecast.PerDay > 0 && perDay > 0 { // the forecast of the budget has the level, and this one the shape
		scale = m.Forecast.PerDay / perDay
	}
	rate := func(day int) float64 { return scale * rates[weekday(day)] }
	variance := 0.0
	for day := first; day < today; day++ {
		d := m.Total[day] - rate(day)
		variance += d * d / float64(today-first)
	}
	spent := m.Spent()
	at := spent
	for day := today; day < m.Before+q.Days(); day++ {
		part := 1.0
		if day == today {
			part = 1 - (q.Passed() - float64(int(q.Passed())))
		}
		at += rate(day) * part
		m.Path = append(m.Path, at)
		m.Spread = append(m.Spread, math.Sqrt(max(variance*(float64(len(m.Path)-1)+part), 0)))
	}
	if n := len(m.Path); n > 0 {
		m.Likely = m.Path[n-1]
		m.AtEnd = [2]float64{max(m.Likely-m.Spread[n-1], spent), m.Likely + m.Spread[n-1]}
	}
}
