package bench

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestHistogram holds quantiles to those of a sorted list, and steps to all that was counted.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(20*time.Second)), 1, 200).Draw(t, "durations")
		var h histogram
		for _, d := range all {
			h.add(time.Duration(d))
		}
		slices.Sort(all)
		for _, part := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
			rank := max(int(part*float64(len(all))+0.5), 1)
			exact, got := time.Duration(all[rank-1]), h.quantile(part)
			if got < exact-time.Microsecond || got > exact+exact/cellsPerOctave+time.Microsecond {
				t.Fatalf("quantile(%v) = %v, want %v and at most an eighth more", part, got, exact)
			}
		}
		n := int64(0)
		for _, s := range h.shown() {
			n += s.Count
		}
		if n != h.count || h.min != time.Duration(all[0]) || h.max != time.Duration(all[len(all)-1]) {
			t.Fatalf("the steps hold %d of %d, from %v to %v", n, h.count, h.min, h.max)
		}
	})
}
