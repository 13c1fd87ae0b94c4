package zlimit_test

import (
	"math"
	"testing"

	"github.com/zlimit/zlimit-go/price"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestUSD covers limits in dollars of each kind, and amounts that no bucket holds.
func TestUSD(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	for text, limit := range map[string]zlimit.Limit{
		"usd=25/month@UTC":             zlimit.USD("usd", 25, zlimit.PerMonth),
		"usd=25/month@Europe/Berlin":   zlimit.USD("usd", 25, zlimit.PerMonth).In("Europe/Berlin"),
		"usd=7/week@UTC":               zlimit.USD("usd", 7, zlimit.PerWeek),
		"usd=9223372/d":                zlimit.USD("usd", 9_223_372, zlimit.PerDay),
		"usd=50:5/h":                   zlimit.USD("usd", 5, zlimit.PerHour, zlimit.Burst(50*int64(price.Dollar))),
		"budget=25000000000/month@UTC": zlimit.USD("budget", 25, zlimit.PerMonth),
	} {
		if limit.String() != text {
			t.Errorf("%+v is %s, want %s", limit, limit, text)
		}
		if err := l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{limit}}); err != nil {
			t.Errorf("Set(%s) = %v", limit, err)
		}
	}
	for _, dollars := range []int64{0, -1, math.MinInt64, 9_223_373, 1 << 40, math.MaxInt64} {
		err := l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.USD("usd", dollars, zlimit.PerMonth)}})
		if invalid(err).Field != "limits[usd] capacity" {
			t.Errorf("Set() of %d dollars = %v", dollars, err)
		}
	}
}
