package bucket

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// lawZones have clocks that skip hours and show them twice, also at midnight, by half an hour, and minutes that began at half ones.
var lawZones = []string{
	"UTC", "Europe/Berlin", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "Africa/Monrovia",
}

// aboutAChange returns a time within hours of a change of clocks in a zone after another time, or that time where there is none.
func aboutAChange(t *testing.T, zone string, after int64, random *rand.Rand) int64 {
	t.Helper()
	in := check.Call(time.LoadLocation(zone)).Must(t, "time.LoadLocation()")
	_, end := time.UnixMilli(after).In(in).ZoneBounds()
	if end.IsZero() {
		return after
	}
	return end.UnixMilli() + random.Int64N(8*3_600_000) - 4*3_600_000
}

// TestLawOfAllYears compares chains with a walk in exact numbers, from 1970 to 2040, a third of them about changes of clocks. It does so
// where the chain is cut short, and where it is not. A quota resets at the first instant of a period, after the window changed.
func TestLawOfAllYears(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	last := time.Date(2040, time.December, 31, 0, 0, 0, 0, time.UTC).UnixMilli()
	changes, resets := 0, 0
	for range 3000 {
		zone := lawZones[random.IntN(len(lawZones))]
		w, err := calendar.ParseWindows(lawWindows[random.IntN(len(lawWindows))], zone)
		check.Fatal(t, "calendar.ParseWindows()", err)
		p := Params{
			Name: "a", Capacity: 1 + random.Int64N(1<<(1+random.IntN(18))), RefillAmount: 1 + random.Int64N(1<<(1+random.IntN(18))),
			RefillPeriod: []int64{1000, 7777, 60_000, 3_600_000}[random.IntN(4)], Windows: w,
		}
		from := random.Int64N(last)
		if random.IntN(3) == 0 {
			if at := aboutAChange(t, zone, from, random); at != from {
				from = max(at, 0)
				changes++
			}
		}
		to := from + random.Int64N(1<<(10+random.IntN(14)))
		s := State{RefilledAt: from, Shards: 1}
		tokens := []int64{p.Capacity / 8, p.Capacity/8 - random.Int64N(4*p.Capacity+1)}[random.IntN(2)]
		tokens = min(tokens, s.capacity(p.Name, p.rule(), from))
		if random.IntN(3) == 0 {
			if p.Times, err = calendar.Parse([]string{"30 2 * * *", "0 0 * * *", "*/20 * * * *"}[random.IntN(3)], zone); err != nil {
				t.Fatalf("calendar.Parse() = %v", err)
			}
			p.RefillAmount, p.RefillPeriod = 0, 1000
		}
		l := Limit{
			Name: p.Name, Tokens: tokens, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod,
			Rare: &Rare{Windows: p.Windows, Times: p.Times},
		}
		got := s.chain(&l, from, to, 0).of(tokens)
		if whole := s.chain(&l, from, to, math.MaxUint64).of(tokens); whole != got {
			t.Fatalf("%s, %+v: %d where the chain is cut short, and %d where it is not", zone, p, got, whole)
		}
		begins, at := from, tokens
		if p.Times != nil {
			for next := p.Times.Next(from); next <= to; next = p.Times.Next(next) {
				begins, at = next, s.capacity(p.Name, p.rule(), next)
				resets++
			}
		}
		want, stretches := naive(&p, at, begins, to, 0, 1)
		difference := new(big.Rat).Sub(rat(got), want)
		if difference.Abs(difference).Cmp(rat(stretches)) >= 0 {
			t.Fatalf("%s, from %v to %v: %d, want %s over %d stretches of %+v", zone, time.UnixMilli(from).UTC(), time.UnixMilli(to).UTC(), got,
				want.FloatString(3), stretches, p)
		}
	}
	if changes < 50 || resets < 50 {
		t.Errorf("%d chains are about changes of clocks, and %d edges were crossed", changes, resets)
	}
}
