package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSkew: keys are drawn as often as Zipf's law says.
func TestSkew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for skew, want := range map[float64]float64{0: 0.1, 1: 0.3414} {
		p := newKeyPicker(10, skew)
		first := 0
		for range 100_000 {
			if p.draw(random) == "bench-00000" {
				first++
			}
		}
		if got := float64(first) / 100_000; math.Abs(got-want) > 0.01 {
			t.Errorf("with skew %v the first of 10 keys is drawn in %v of all, want %v", skew, got, want)
		}
	}
}
