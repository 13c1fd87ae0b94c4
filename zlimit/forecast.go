package zlimit

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/forecast"
)

// began returns when the period of a quota began; false for a limit without a period, or without an open one.
func (s *Status) began() (time.Time, bool) {
	switch {
	case s.ResetsAt.IsZero():
		return time.Time{}, false
	case s.Limit.Session > 0:
		return s.ResetsAt.Add(-s.Limit.Session), true
	}
	times, err := calendar.Parse(s.Limit.Resets, s.Limit.Zone)
	if err != nil {
		return time.Time{}, false
	}
	at, ok := times.Last(s.ResetsAt.UnixMilli() - 1)
	return time.UnixMilli(at).UTC(), ok
}

// isBudget reports whether the limit is an amount that is used up: a quota, a session quota or a prepaid limit.
func (s *Status) isBudget() bool { return s.Limit.Resets != "" || s.Limit.Session > 0 }

// UsedUp returns when a quota is used up if consumption continues at the average rate since the period began. It returns the zero time and
// false if the period ends first, and for a limit without an open period. It takes into account that unused tokens of a grant are lost at
// its end, and tokens above the capacity of a window when it begins. A prepaid limit has no average rate: UsedUp only reports that it is
// used up already, or when a grant ends. It makes no call. [UsageService.Forecast] knows the consumption of earlier days.
func (s Status) UsedUp(now time.Time) (at time.Time, ok bool) {
	rate := 0.0
	if began, open := s.began(); open {
		if used, elapsed := float64(s.holds()-s.Available), now.Sub(began).Hours()/24; used > 0 && elapsed > 0 {
			rate = used / elapsed
		}
	}
	return s.UsedUpAt(now, rate)
}

// UsedUpAt is [Status.UsedUp] at a rate, in tokens a day.
func (s Status) UsedUpAt(now time.Time, perDay float64) (at time.Time, ok bool) {
	if !s.isBudget() || s.ResetsAt.IsZero() && !s.Limit.isPrepaid() {
		return time.Time{}, false
	}
	return s.usedUp(forecast.Flat(perDay), now)
}

// usedUp returns when a budget is used up at a rate, before it resets.
func (s *Status) usedUp(rate forecast.Rate, now time.Time) (at time.Time, ok bool) {
	before := s.ResetsAt
	if s.Limit.isPrepaid() {
		before = time.Time{}
	}
	return rate.UsedUp(now, float64(s.Available), before, s.ceiling())
}

// ceiling returns the most that a budget can have at later times of its period: it falls when a grant ends, and in windows. It is nil if
// nothing falls.
func (s *Status) ceiling() forecast.Ceiling {
	windows, err := calendar.ParseWindows(s.Limit.Windows, s.Limit.Zone)
	if s.Limit.Windows == "" || err != nil {
		windows = nil
	}
	grantEnds := s.Granted > 0 && !s.GrantEnds.IsZero()
	if windows == nil && !grantEnds {
		return nil
	}
	return func(at time.Time) (most float64, until time.Time) {
		change, _, to := windows.At(at.UnixMilli())
		if to != calendar.Never {
			until = time.UnixMilli(to)
		}
		capacity := s.Limit.Capacity * millis
		if change != nil {
			capacity, _, _ = change.Of(capacity, 0, 0)
		}
		most = float64(capacity/millis + s.Carried + s.Granted)
		switch {
		case !grantEnds:
		case !at.Before(s.GrantEnds):
			most = min(most-float64(s.Granted), float64(s.AfterGrant))
		case until.IsZero() || s.GrantEnds.Before(until):
			until = s.GrantEnds
		}
		return most, until
	}
}

// A Forecast is when a budget is used up: a quota, a session quota or a prepaid limit.
type Forecast struct {
	Entity    string    `json:"entity"`
	Resource  string    `json:"resource"`
	Limit     string    `json:"limit"`
	Available int64     `json:"available"` // tokens
	Capacity  int64     `json:"capacity"`  // with grants, and with what was carried into the period
	ResetsAt  time.Time `json:"resets_at,omitzero"`
	// PerDay is the consumption of a day, on average, in tokens; Today is that of the last 24 hours.
	PerDay float64 `json:"per_day"`
	Today  float64 `json:"last_24_hours"`
	// UsedUp is when nothing is left of the budget at PerDay: it is used up, or a grant ends. It is the zero time if that is not before
	// ResetsAt, or within ten years.
	UsedUp time.Time `json:"used_up,omitzero"`
	// Earliest and Latest are the same at the higher and the lower one of PerDay and Today.
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// Weekdays reports that each weekday has a rate of its own, since that fits the last weeks better.
	Weekdays bool `json:"weekdays,omitzero"`
}

// forecastDays is the number of days that a forecast follows from.
const forecastDays = 28

// Forecast returns when the budgets of an entity for a resource are used up, and the budgets of the parents that it cascades to. The rate
// is the average of the last seven days with usage, or of the last 24 hours if there was none before. If separate rates for each weekday
// fit the last four weeks better, Forecast uses these. It reads usage, so an aggregator must run. docs/budgets.md has the mean error of
// forecasts.
//
// It costs what [RateLimiter.Available] costs, and for each entity the reads of 28 days and 49 hours: some 16 to 20 read units. It is
// safe for concurrent use.
func (s *UsageService) Forecast(ctx context.Context, entity, resource string) ([]Forecast, error) {
	statuses, err := s.l.Available(ctx, AvailableQuery{Entity: entity, Resource: resource, Parents: true})
	if err != nil {
		return nil, err
	}
	type subject struct{ entity, resource string }
	histories := map[subject]*history{}
	forecasts := []Forecast{}
	now := s.l.now().UTC()
	for i := range statuses {
		status := &statuses[i]
		if !status.isBudget() {
			continue
		}
		of := subject{status.Entity, status.Resource}
		if histories[of] == nil {
			if histories[of], err = s.history(ctx, of.entity, of.resource, now); err != nil {
				return nil, err
			}
		}
		forecasts = append(forecasts, histories[of].forecast(status, now))
	}
	return forecasts, nil
}

// A history is what an entity consumed of a resource, day by day, by limit.
type history struct {
	last  time.Weekday
	days  map[string][]float64
	today map[string]float64 // in the last 24 hours
}

func (s *UsageService) history(ctx context.Context, entity, resource string, now time.Time) (*history, error) {
	midnight := WindowDaily.Start(now)
	h := &history{last: midnight.AddDate(0, 0, -1).Weekday(), days: map[string][]float64{}, today: map[string]float64{}}
	first := midnight.AddDate(0, 0, -forecastDays)
	add := func(day time.Time, consumed map[string]Quantity) {
		for limit, n := range consumed {
			if h.days[limit] == nil {
				h.days[limit] = make([]float64, forecastDays)
			}
			h.days[limit][int(day.Sub(first).Hours())/24] += n.Float64()
		}
	}
	yesterday := midnight.AddDate(0, 0, -1) // whose last hours may not be in its day yet
	q := UsageQuery{Entity: entity, Resource: resource, Window: WindowDaily, From: first, To: yesterday}
	for snapshot, err := range s.Snapshots(ctx, q) {
		if err != nil {
			return nil, err
		}
		add(snapshot.Start, snapshot.Consumed)
	}
	q.Window, q.From, q.To = WindowHourly, yesterday, now
	for snapshot, err := range s.Snapshots(ctx, q) {
		if err != nil {
			return nil, err
		}
		if snapshot.Start.Before(midnight) {
			add(yesterday, snapshot.Consumed)
		}
		if age := now.Sub(snapshot.Start); age <= 24*time.Hour {
			for limit, n := range snapshot.Consumed {
				h.today[limit] += n.Float64()
			}
		}
	}
	return h, nil
}

// forecast returns when the budget of a status is used up.
func (h *history) forecast(s *Status, now time.Time) Forecast {
	name := s.Limit.Name
	rate := forecast.Fit(h.days[name], h.last)
	if rate.PerDay() == 0 { // it is the first day
		rate = forecast.Flat(h.today[name])
	}
	f := Forecast{
		Entity: s.Entity, Resource: s.Resource, Limit: name, Available: s.Available, Capacity: s.holds(), ResetsAt: s.ResetsAt,
		PerDay: rate.PerDay(), Today: h.today[name], Weekdays: rate.Patterned(),
	}
	if s.Limit.isPrepaid() {
		f.ResetsAt = time.Time{}
	}
	at := func(r forecast.Rate) time.Time {
		end, _ := s.usedUp(r, now)
		return end
	}
	usual, today := at(rate), at(forecast.Flat(f.Today))
	f.UsedUp, f.Earliest, f.Latest = usual, usual, today
	if usual.IsZero() || !today.IsZero() && today.Before(usual) {
		f.Earliest, f.Latest = today, usual
	}
	return f
}

// WeekdayRates returns the consumption of each weekday, indexed by its number. days are the amounts of consecutive days, and last is the
// weekday of the last one. It computes the rate of [UsageService.Forecast] for amounts that a program has added up itself, such as sums
// over several entities: the average of the last seven days, or a rate for each weekday if that fits the last of at least three weeks
// better. It makes no call.
func WeekdayRates(days []float64, last time.Weekday) (rates [7]float64) {
	rate := forecast.Fit(days, last)
	for d := range rates {
		rates[d] = rate.On(time.Weekday(d))
	}
	return rates
}
