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
