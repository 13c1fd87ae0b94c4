package zlimit_test

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
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
		{"a reset west of UTC", zlimit.Status{Limit: zlimit.Monthly("usd", 1000, "America/New_York"), Available: 687, ResetsAt: ends.Add(4 * time.Hour)}, time.Time{}},
		{"a session that ends on the same day", zlimit.Status{Limit: zlimit.Session("usd", 100, 96*time.Hour), Available: 37, ResetsAt: now.Add(30 * time.Hour)}, time.Time{}},
		{"a grant ends", zlimit.Status{Limit: zlimit.Monthly("usd", 60, "UTC"), Granted: 40, GrantEnds: now.AddDate(0, 0, 2), Available: 16, ResetsAt: ends}, now.AddDate(0, 0, 1).Add(21*time.Hour + 42*time.Minute + 51*time.Second)},
		{"a grant ends first", zlimit.Status{Limit: zlimit.Monthly("usd", 60, "UTC"), Granted: 40, GrantEnds: now.AddDate(0, 0, 1), Available: 16, ResetsAt: ends}, now.AddDate(0, 0, 1)},
		{"a grant ends beside the quota's own", zlimit.Status{Limit: zlimit.Monthly("usd", 60, "UTC"), Granted: 40, GrantEnds: now.AddDate(0, 0, 1), Available: 50, AfterGrant: 10, ResetsAt: ends}, now.AddDate(0, 0, 3)},
		{"a grant ends after the period", zlimit.Status{Limit: zlimit.Monthly("usd", 60, "UTC"), Granted: 40, GrantEnds: ends.AddDate(0, 0, 1), Available: 90, AfterGrant: 60, ResetsAt: ends}, time.Time{}},
		{"a window holds less", zlimit.Status{Limit: zlimit.Monthly("usd", 1000, "UTC").When("* * 12 * *", "to 10:"), Available: 900, ResetsAt: ends}, now.AddDate(0, 0, 2)},
		{"a grant of a prepaid limit ends", zlimit.Status{Limit: zlimit.Prepaid("usd", 60), Granted: 40, GrantEnds: now.AddDate(0, 0, 1), Available: 16}, now.AddDate(0, 0, 1)},
		{"a prepaid limit that lasts", zlimit.Status{Limit: zlimit.Prepaid("usd", 60), Available: 16}, time.Time{}},
		{"a prepaid limit that is used up", zlimit.Status{Limit: zlimit.Prepaid("usd", 60)}, now},
		{"a refill", zlimit.Status{Limit: zlimit.PerMinute("usd", 1000), Available: 500}, time.Time{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := test.status.UsedUp(now); ok == test.want.IsZero() || !got.Equal(test.want) {
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
	ns := check.Call(l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
	note := func(window string, start time.Time, tokens int64) {
		t.Helper()
		u := layout.UsageDelta{NS: ns.ID, Entity: "acme", Resource: "gpt", Window: window, Start: start, Events: 1}
		u.Consumed = []bucket.Amount{{Limit: "tpm", Tokens: 1000 * tokens}}
		w := check.Call(u.Write()).Must(t, "Write()")
		if _, err := store.Of(s).Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
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
	setLimits(t, l, zlimit.Level{Resource: "gpt"}, limits...)
	acquire(t, l, zlimit.Request{Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"tpm": 600}})
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
	ns := check.Call(l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
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
	check.Fatal(t, "Write()", err)
	got, err := l.Usage.Forecast(t.Context(), "acme", "gpt")
	if want := now.AddDate(0, 0, 9); err != nil || len(got) != 1 || got[0].PerDay < 99 || got[0].PerDay > 101 || !got[0].UsedUp.Round(time.Hour).Equal(want) {
		t.Errorf("Forecast() = %+v, %v, want 100 a day, and used up at %v", got, err, want)
	}
}

// TestForecastOfAGrant checks that a budget with nothing but a grant is used up when the grant ends, by statuses and by forecasts.
func TestForecastOfAGrant(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := t.Context(), newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.Session("usd", 60, 30*24*time.Hour), zlimit.Prepaid("credit", 5), zlimit.PerMinute("rpm", 60))
		acquire(t, l, ask(zlimit.Amounts{"usd": 60, "credit": 1, "rpm": 1}))
		ends := c.now().Add(36 * time.Hour)
		request := zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"usd": 40, "credit": 40}, Until: ends}
		if _, err := l.Limits.TopUp(ctx, request); err != nil {
			t.Fatalf("Limits.TopUp() = %v", err)
		}
		acquire(t, l, ask(zlimit.Amounts{"usd": 24}))
		c.sleep(24 * time.Hour)
		statuses := check.Call(l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})).Must(t, "Available()")
		usd, _ := statuses.Limit("usd")
		if at, ok := usd.UsedUpAt(c.now(), 3); usd.Available != 16 || usd.AfterGrant != 0 || !ok || !at.Equal(ends) {
			t.Errorf("UsedUpAt() = %v, %v of %+v, want %v", at, ok, usd, ends)
		}
		if at, ok := usd.UsedUpAt(c.now(), 64); !ok || !at.Equal(c.now().Add(6*time.Hour).Truncate(time.Second)) {
			t.Errorf("UsedUpAt() = %v, %v, want before the grant ends", at, ok)
		}
		credit, _ := statuses.Limit("credit")
		if at, ok := credit.UsedUp(c.now()); credit.Available != 44 || credit.AfterGrant != 4 || ok {
			t.Errorf("UsedUp() = %v, %v of %+v, want no time", at, ok, credit)
		}
		forecasts, err := l.Usage.Forecast(ctx, "key-1", "gpt-4")
		if err != nil || len(forecasts) != 2 || !forecasts[1].UsedUp.Equal(ends) || !forecasts[0].UsedUp.IsZero() {
			t.Errorf("Forecast() = %+v, %v, want that usd ends at %v", forecasts, err, ends)
		}
		c.sleep(ends.Sub(c.now()))
		if got := available(t, l, "usd"); got != 0 {
			t.Errorf("%d are there after the grant, want 0", got)
		}
		if got := available(t, l, "credit"); got != 4 {
			t.Errorf("%d are there after the grant, want 4", got)
		}
	})
}
