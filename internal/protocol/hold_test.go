package protocol

import "testing"

// noChance has a hold last for its whole pause.
func noChance(n int) int { return n / 2 }

// TestHold throttles a bucket at several intervals, and looks for how long it is held after each throttle.
func TestHold(t *testing.T) {
	const start = 1_000_000
	for _, test := range []struct {
		name  string
		at    []int64 // of throttles, milliseconds
		until []int64 // the hold after each of them; 0 for none
	}{
		{"once", []int64{0}, []int64{0}},
		{"now and then", []int64{0, 1000, 3000, 9000}, []int64{0, 0, 0, 0}},
		{"twice", []int64{0, 10}, []int64{0, 260}},
		{"while the clock stands still", []int64{0, 0, 0, 0}, []int64{0, 0, 0, 0}},
		{"by a clock that is set back", []int64{500, 400, 300}, []int64{0, 0, 0}},
		{"by calls that were under way", []int64{0, 10, 20, 200}, []int64{0, 260, 260, 260}},
		{"again and again", []int64{0, 10, 260, 760, 1760, 3760, 7760}, []int64{0, 260, 759, 1748, 3703, 7428, 11760}},
	} {
		var h hold
		for i, at := range test.at {
			h.throttle(start+at, noChance)
			until := h.until - start
			if h.until == 0 {
				until = 0
			}
			if diff := until - test.until[i]; diff < -40 || diff > 40 {
				t.Errorf("%s: held until %d after the throttle at %d, want %d", test.name, until, at, test.until[i])
			}
		}
	}
}

// TestHoldFades looks at a held bucket later and later: it is held for less, and at last not at all.
func TestHoldFades(t *testing.T) {
	var h hold
	for at := int64(1_000_000); h.pause < mostPause; at = max(h.until, at+1) {
		h.throttle(at, noChance)
	}
	last := int64(mostPause) + 1
	for _, later := range []int64{mostPause, 2 * fadeTime, 4 * fadeTime} {
		at := h.throttled + later
		h.look(at, noChance)
		if length := h.until - at; length >= last || !h.holds(h.until-1) || h.holds(h.until) {
			t.Errorf("held for %d ms after %d ms, want less than %d", length, later, last)
		} else {
			last = length
		}
	}
	if at := h.throttled + 10*fadeTime; true {
		if h.look(at, noChance); h.holds(at) || !h.wasExhausted(at) || h.wasExhausted(at+rateTime.Milliseconds()) {
			t.Errorf("held until %d at %d, exhausted at %d", h.until, at, h.exhausted)
		}
	}
}
