package calendar

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

var (
	cyclePatterns = []string{
		"0-29 * * * *", "*/7 3,15 * * *", "* 9-17 * * 1-5", "30 2 * * *", "* * 1-7 * *", "0 0 29 2 *", "* * * 6-8 *", "0 0 1 * 1", "* * */2 * 0", "59 23 * * 0", "* * 1-31 * 6",
		"0 0 * 2 *",
	}
	cycleZones = []string{"UTC", "Europe/Berlin", "America/New_York", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata"}
)

// TestCycle looks at random times of a cycle whether windows and times do the same one length later.
func TestCycle(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	compared, bounded := 0, 0
	for range 6000 {
		pattern, zone := cyclePatterns[random.IntN(len(cyclePatterns))], cycleZones[random.IntN(len(cycleZones))]
		w := check.Call(ParseWindows(pattern+" x2", zone)).Must(t, "ParseWindows()")
		times, _ := Parse(pattern, zone) // some patterns are of all minutes
		at := begin + random.Int64N(18*366*24*3_600_000)
		if place := check.Call(time.LoadLocation(zone)).Must(t, "time.LoadLocation()"); random.IntN(2) == 0 {
			if set, _ := time.UnixMilli(at).In(place).ZoneBounds(); !set.IsZero() {
				at = set.UnixMilli() + random.Int64N(2)*random.Int64N(7_200_000) // after clocks were set
			}
		}
		in := w.Cycle(at)
		if in.Until <= at {
			t.Fatalf("%s in %s: the cycle at %d ends at %d", pattern, zone, at, in.Until)
		}
		if times != nil {
			in = in.And(times.Cycle(at))
		}
		from, until := max(at, in.From), min(in.Until, at+60*24*3_600_000)
		if bounded++; in.Until == Never {
			bounded--
		}
		if until-in.Length <= from {
			continue
		}
		compared++
		one := from + random.Int64N(until-in.Length-from)
		if random.IntN(2) == 0 {
			one = min(one, from+random.Int64N(2)*random.Int64N(7_200_000))
		}
		two := one + in.Length
		differ := func(a, b int64) bool { return a != b && min(a, b) < in.Until-two } // in the cycle
		a, _, endA := w.At(one)
		if b, _, endB := w.At(two); (a == nil) != (b == nil) || differ(endA-one, endB-two) {
			t.Fatalf("%s in %s: windows at %d and %d differ: until %d and %d", pattern, zone, one, two, endA, endB)
		}
		if times == nil {
			continue
		}
		if a, b := times.Next(one), times.Next(two); differ(a-one, b-two) {
			t.Fatalf("%s in %s: times after %d and %d differ: %d and %d", pattern, zone, one, two, a, b)
		}
	}
	if compared < 1000 || bounded < 1000 {
		t.Errorf("%d compared, %d cycles end", compared, bounded)
	}
}

// TestTurn covers how long it takes until all days have come that patterns distinguish.
func TestTurn(t *testing.T) {
	const year = 366 * 24 * 3_600_000
	for _, test := range []struct {
		pattern, zone string
		years         int64
	}{
		{"* 9-17 * * *", "UTC", 1},
		{"* 9-17 * * 1-5", "UTC", 1},
		{"* 9-17 * * *", "Europe/Berlin", 2},
		{"* * 1-7 * *", "UTC", 1},
		{"* * 29 * *", "UTC", 9},
		{"* * 28-29 * *", "UTC", 1},
		{"* * 29 3 *", "UTC", 1},
		{"* * 1 * 1", "UTC", 13},
	} {
		w := check.Call(ParseWindows(test.pattern+" x2", test.zone)).Must(t, "ParseWindows()")
		if got := w.Days().Turn() / year; got != test.years {
			t.Errorf("%s in %s: %d years, want %d", test.pattern, test.zone, got, test.years)
		}
	}
}
