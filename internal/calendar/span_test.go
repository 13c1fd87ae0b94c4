package calendar

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestLongest covers the longest stretches inside and outside of windows, in minutes.
func TestLongest(t *testing.T) {
	const day = 24 * 60
	for _, test := range []struct {
		windows, zone string
		window        int
		minutes       int64 // 0 for none that is known
	}{
		{"* 9-16 * * * x2", "UTC", 0, 8 * 60},
		{"* 9-16 * * * x2", "UTC", -1, 16 * 60},
		{"* 22-23,0-1 * * * x2", "UTC", 0, 4 * 60},
		{"0-9,50-59 * * * * x2", "UTC", 0, 20},
		{"* 1 * * * x2", "America/New_York", 0, 2 * 60}, // twice on a day in November
		{"* 9 * * * x2", "America/New_York", 0, 60},
		{"* * * * 1-5 x2", "UTC", 0, 5 * day},
		{"* * * * 1-5 x2", "UTC", -1, 2 * day},
		{"* * * * 0,6 x2", "UTC", 0, 2 * day},
		{"* * * * 6 x2", "America/New_York", 0, day + 60},
		{"* 9-16 * * 1-5 x2", "UTC", -1, 2*day + 16*60},
		{"* 9-16 1 * * x2", "UTC", 0, 8 * 60},
		{"* 9-16 1 * * x2", "UTC", -1, 0},
		{"* * * 6 * x2", "UTC", 0, 0},
		{"* * 1-31 * 6 x2; * 9 * * * x3", "UTC", 0, 0}, // either of the two
		{"* 9-16 1 * * x2; 0-29 * * * * x3", "UTC", -1, 30},
	} {
		w := check.Call(ParseWindows(test.windows, test.zone)).Must(t, "ParseWindows()")
		want := test.minutes * 60_000
		if want == 0 {
			want = Never
		}
		if got := w.Longest(test.window); got != want {
			t.Errorf("%s in %s: Longest(%d) = %d, want %d", test.windows, test.zone, test.window, got, want)
		}
	}
}

// TestMayHold asks whether windows may hold at times: those that clocks skip are when they go on.
func TestMayHold(t *testing.T) {
	for _, test := range []struct {
		windows, zone string
		window        int
		times         string
		may           bool
	}{
		{"* 9-16 * * * x2", "UTC", 0, "0 0 * * *", false},
		{"* 9-16 * * * x2", "UTC", 0, "0 0 * * *;0 9 * * *", true},
		{"* 9-16 * * * x2", "UTC", -1, "0 9 * * *", false},
		{"* 9-16 * * 1-5 x2", "UTC", -1, "0 9 * * *", true},
		{"* 9-16 * * 1-5 x2", "UTC", 0, "0 9 * * 0", true}, // days are not compared
		{"* 3 * * * x2", "UTC", 0, "30 2 * * *", false},
		{"* 3 * * * x2", "America/New_York", 0, "30 2 * * *", true},
		{"* 3 * * * x2", "America/New_York", 0, "30 1 * * *", false},
	} {
		w := check.Call(ParseWindows(test.windows, test.zone)).Must(t, "ParseWindows()")
		times := check.Call(Parse(test.times, test.zone)).Must(t, "Parse()")
		if got := w.MayHold(test.window, times); got != test.may {
			t.Errorf("%s in %s at %s: MayHold(%d) = %t, want %t", test.windows, test.zone, test.times, test.window, got, test.may)
		}
	}
}
