package zlimit_test

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestStatusUsedUp goes on at the rate of the period so far.
func TestStatusUsedUp(t *testing.T) {
	now := time.Date(2026, 3, 11, 0, 0, 0, 0, time.UTC) // ten days of the month are over
	ends := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name   string
		status zlimit.Status
		want   time.Time
	}{
		{"half is used", zlimit.Status{Limit: zlimit.Monthly("usd", 1000, "UTC"), Available: 500, ResetsAt: ends}, now.AddDate(0, 0, 10)},
		{"a third is used, which lasts to the end", zlimit.Status{Limit: zlimit.Monthly("usd", 1000, "UTC"), Available: 680, ResetsAt: ends}, time.Time{}},
		{"with a grant", zlimit.Status{Limit: zlimit.Monthly("usd", 1000, "UTC"), Granted: 1000, Available: 1000, ResetsAt: ends}, now.AddDate(0, 0, 10)},
		{"nothing is left", zlimit.Status{Limit: zlimit.Monthly("usd", 1000, "UTC"), ResetsAt: ends}, now},
		{"nothing is used", zlimit.Status{Limit: zlimit.Monthly("usd", 1000, "UTC"), Available: 1000, ResetsAt: ends}, time.Time{}},
		{"a session of which a day is over", zlimit.Status{Limit: zlimit.Session("usd", 1000, 96*time.Hour), Available: 500, ResetsAt: now.AddDate(0, 0, 3)}, now.AddDate(0, 0, 1)},
		{"no session", zlimit.Status{Limit: zlimit.Session("usd", 1000, 96*time.Hour), Available: 1000}, time.Time{}},
		{"a refill", zlimit.Status{Limit: zlimit.PerMinute("usd", 1000), Available: 500}, time.Time{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := test.status.UsedUp(now); ok == test.want.IsZero() || ok && !got.Equal(test.want) {
				t.Errorf("UsedUp() = %v, %v, want %v", got, ok, test.want)
			}
		})
	}
}

// TestForecast covers four weeks of usage on working days, and a day with twice as much.
func TestForecast(t *testing.T) {
	now := time.Date(2026, 3, 12, 12, 0, 0, 0, time.UTC) // a Thursday
	s := newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(func() time.Time { return now }))
	ns, err := l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	note := func(window string, start time.Time, tokens int64) {
		t.Helper()
		u := layout.UsageDelta{NS: ns.ID, Entity: "acme", Resource: "gpt", Window: window, Start: start, Events: 1}
		u.Consumed = []bucket.Amount{{Limit: "tpm", Tokens: 1000 * tokens}}
		w, err := u.Write()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Of(s).Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	midnight := now.Truncate(24 * time.Hour)
	for day := midnight.AddDate(0, 0, -28); day.Before(midnight.AddDate(0, 0, -1)); day = day.AddDate(0, 0, 1) {
		if weekday := day.Weekday(); weekday != time.Saturday && weekday != time.Sunday {
			note("daily", day, 100)
		}
	}
	for i := range 24 { // the day before today is not rolled up yet
		if i%6 == 0 {
			note("hourly", midnight.Add(time.Duration(i-24)*time.Hour), 25)
		}
	}
	note("hourly", midnight.Add(6*time.Hour), 150)
	limits := []zlimit.Limit{zlimit.Monthly("tpm", 1000, "UTC"), zlimit.PerMinute("rpm", 10)}
	if err := l.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: limits}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"tpm": 600}}); err != nil {
		t.Fatal(err)
	}
	got, err := l.Usage.Forecast(t.Context(), "acme", "gpt")
	if err != nil || len(got) != 1 {
		t.Fatalf("Forecast() = %v, %v, want that of the budget alone", got, err)
	}
	f := got[0]
	// 50 today, 100 on Friday, and 100 on each of Monday and Tuesday: the rest of 50 until the noon of Wednesday.
	if want := midnight.AddDate(0, 0, 6).Add(12 * time.Hour); !f.Weekdays || !f.UsedUp.Round(time.Hour).Equal(want) {
		t.Errorf("UsedUp = %v, with weekdays %v, want %v", f.UsedUp, f.Weekdays, want)
	}
	if f.Available != 400 || f.Capacity != 1000 || f.Today != 200 || f.PerDay < 71 || f.PerDay > 72 {
		t.Errorf("Forecast() = %+v", f)
	}
	if want := now.AddDate(0, 0, 2); !f.Earliest.Equal(want) || !f.Latest.Equal(f.UsedUp) {
		t.Errorf("from %v to %v, want from %v", f.Earliest, f.Latest, want)
	}
}

// In TestForecastOnFirstDay, there is usage of today alone. The rate is that of the last 24 hours.
func TestForecastOnFirstDay(t *testing.T) {
	now := time.Date(2026, 3, 12, 12, 0, 0, 0, time.UTC)
	s := newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(func() time.Time { return now }))
	ns, err := l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	u := layout.UsageDelta{
		NS: ns.ID, Entity: "acme", Resource: "gpt", Window: "hourly", Start: now.Add(-time.Hour), Events: 1,
		Consumed: []bucket.Amount{{Limit: "tpm", Tokens: 100_000}},
	}
	w, err := u.Write()
	if err == nil {
		_, err = store.Of(s).Write(t.Context(), w)
	}
	if err == nil {
		err = l.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("tpm", 1000, "UTC")}})
	}
	if err == nil {
		_, err = l.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"tpm": 100}})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Usage.Forecast(t.Context(), "acme", "gpt")
	if want := now.AddDate(0, 0, 9); err != nil || len(got) != 1 || got[0].PerDay < 99 || got[0].PerDay > 101 || !got[0].UsedUp.Round(time.Hour).Equal(want) {
		t.Errorf("Forecast() = %+v, %v, want 100 a day, and used up at %v", got, err, want)
	}
}
