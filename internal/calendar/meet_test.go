package calendar

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestHolds finds windows that earlier ones leave no minute.
func TestHolds(t *testing.T) {
	for _, test := range []struct {
		windows string
		want    []bool // outside first
	}{
		{"*/2 * * * * x2; */2 * * * * x3", []bool{true, true, false}},
		{"0-29 * * * * x2; 30-59 * * * * x3; 15-45 * * * * x4", []bool{false, true, true, false}},
		{"* * 29 2 * x2; 0 * 29 2 * x3; * * * 2 * x4", []bool{true, true, false, true}},
		{"* * * * 1-5 x2; * * * * 6,0 x3", []bool{false, true, true}},
	} {
		w := check.Call(ParseWindows(test.windows, "Europe/Berlin")).Must(t, "ParseWindows()")
		for i, want := range test.want {
			if got := w.Holds(i - 1); got != want {
				t.Errorf("%s: Holds(%d) = %t", test.windows, i-1, got)
			}
		}
	}
}

// TestMeet looks for minutes at which windows of two limits hold.
func TestMeet(t *testing.T) {
	for _, test := range []struct {
		a, b, zone string
		want       bool
	}{
		{"0-29 * * * * x2", "30-59 * * * * x2", "UTC", false},
		{"0-29 * * * * x2", "29-59 * * * * x2", "UTC", true},
		{"0-29 * * * * x2", "30-59 * * * * x2", "Europe/Berlin", true}, // of another zone
		{"* * * * 1 x2", "* * 29 2 * x2", "UTC", true},
		{"* 1-5 * 1 * x2", "* * * 2-12 * x2", "UTC", false},
	} {
		a := check.Call(ParseWindows(test.a, "UTC")).Must(t, "ParseWindows()")
		b := check.Call(ParseWindows(test.b, test.zone)).Must(t, "ParseWindows()")
		if got := Meet([]*Windows{a, b}, func(_, window int) bool { return window == 0 }); got != test.want {
			t.Errorf("Meet(%q, %q) = %t", test.a, test.b, got)
		}
	}
}
