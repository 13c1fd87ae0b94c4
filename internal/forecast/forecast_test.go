package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// monday is a Monday.
var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func TestUsedUp(t *testing.T) {
	workdays := Rate{days: [week]float64{0, 10, 10, 10, 10, 10, 0}, patterned: true}
	for _, test := range []struct {
		name   string
		rate   Rate
		now    time.Time
		amount float64
		before time.Time
		want   time.Time
	}{
		{"half a day", Flat(10), monday, 5, time.Time{}, monday.Add(12 * time.Hour)},
		{"from the middle of a day", Flat(10), monday.Add(18 * time.Hour), 5, time.Time{}, monday.Add(30 * time.Hour)},
		{"nothing is left", Flat(10), monday, 0, time.Time{}, monday},
		{"a debt", Flat(10), monday, -5, time.Time{}, monday},
		{"the period ends before", Flat(10), monday, 50, monday.AddDate(0, 0, 5), time.Time{}},
		{"just before the period ends", Flat(10), monday, 49, monday.AddDate(0, 0, 5), monday.Add(4*24*time.Hour + 21*time.Hour + 36*time.Minute)},
		{"after the period ends, on its last day", Flat(10), monday, 45, monday.AddDate(0, 0, 4).Add(5 * time.Hour), time.Time{}},
		{"nothing is consumed", Flat(0), monday, 50, time.Time{}, time.Time{}},
		{"more is given back than taken", Flat(-1), monday, 50, time.Time{}, time.Time{}},
		{"after a weekend", workdays, monday, 55, time.Time{}, monday.AddDate(0, 0, 7).Add(12 * time.Hour)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := test.rate.UsedUp(test.now, test.amount, test.before, nil)
			if ok == test.want.IsZero() || !got.Equal(test.want) {
				t.Errorf("UsedUp() = %v, %v, want %v", got, ok, test.want)
			}
		})
	}
}

// year returns days of consumption from a Monday on: with a weekly pattern, growth, and noise.
func year(r *rand.Rand, weekend, growth, noise float64) (days []float64) {
	for i := range 120 {
		n := 100 * math.Pow(growth, float64(i)/week) * math.Exp(noise*r.NormFloat64())
		if i%week >= 5 {
			n *= weekend
		}
		days = append(days, n)
	}
	return days
}

// TestError measures the error of forecasts of monthly budgets that last from three days to three weeks, over tenants of several
// characters. It is the table of the docs.
func TestError(t *testing.T) {
	for _, test := range []struct {
		name                   string
		weekend, growth, noise float64
		patterned              bool
		most                   float64 // days, on average
	}{
		{"even", 1, 1, 0.1, false, 0.6},
		{"working days", 0.1, 1, 0.1, true, 0.8},
		{"working days, noisy", 0.1, 1, 0.5, true, 3.5},
		{"growing by a tenth a week", 0.3, 1.1, 0.2, true, 2.5},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		errors, n, chosen := 0.0, 0, 0
		for range 200 {
			days := year(r, test.weekend, test.growth, test.noise)
			at := 42 + r.IntN(40)
			now := monday.AddDate(0, 0, at)
			lasts := 3 + 18*r.Float64()
			amount, left := 0.0, lasts // what is consumed until then
			for i := at; left > 0; i++ {
				amount += days[i] * min(left, 1)
				left--
			}
			rate := Fit(days[:at], now.AddDate(0, 0, -1).Weekday())
			if rate.Patterned() {
				chosen++
			}
			got, ok := rate.UsedUp(now, amount, time.Time{}, nil)
			if !ok {
				t.Fatalf("%s: no forecast", test.name)
			}
			errors += math.Abs(got.Sub(now).Hours()/24 - lasts)
			n++
		}
		mean := errors / float64(n)
		t.Logf("%s: %.2f days on average, patterned in %d of %d", test.name, mean, chosen, n)
		if mean > test.most {
			t.Errorf("%s: forecasts are wrong by %.2f days on average, want %.1f at most", test.name, mean, test.most)
		}
		if most := chosen > n/2; most != test.patterned {
			t.Errorf("%s: %d of %d forecasts have a pattern", test.name, chosen, n)
		}
	}
}

// TestFit covers few days, and days before the first use.
func TestFit(t *testing.T) {
	for _, test := range []struct {
		days []float64
		want float64
	}{{nil, 0}, {[]float64{0, 0, 0}, 0}, {[]float64{0, 0, 10}, 10}, {[]float64{100, 10, 10, 10, 10, 10, 10, 10}, 10}} {
		if got := Fit(test.days, time.Sunday); got.PerDay() != test.want || got.Patterned() {
			t.Errorf("Fit(%v) = %v a day, want %v", test.days, got.PerDay(), test.want)
		}
	}
}
