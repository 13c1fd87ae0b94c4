package protocol

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/table"
)

// noChance returns the middle of what may be drawn.
func noChance(n int) int { return n / 2 }

// TestPace throttles looks at several times, and asks when the next one may begin.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name  string
		at    []time.Duration // of throttles
		until []time.Duration // after each of them
	}{
		{"once", []time.Duration{0}, []time.Duration{100 * ms}},
		{"by calls that were under way", []time.Duration{0, 10 * ms, 99 * ms}, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"again and again", []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 5100 * ms}, []time.Duration{100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 5100 * ms, 7100 * ms}},
		{"now and then", []time.Duration{0, time.Hour}, []time.Duration{100 * ms, time.Hour + 100*ms}},
	} {
		p := pace{bounds: &ofLooks}
		for i, at := range test.at {
			p.throttle(at, noChance)
			until := time.Duration(p.until.Load())
			if diff := until - test.until[i]; diff < -100*ms || diff > ms {
				t.Errorf("%s: no look before %v after the throttle at %v, want %v", test.name, until, at, test.until[i])
			}
		}
	}
}

// TestPaceFades lets looks succeed later and later: they may follow each other faster, and at last at once.
func TestPaceFades(t *testing.T) {
	p := pace{bounds: &ofLooks}
	for at := time.Duration(1); p.pause < ofLooks.most; at = time.Duration(p.until.Load()) {
		p.throttle(at, noChance)
	}
	last := ofLooks.most + 1
	for _, later := range []time.Duration{0, ofLooks.fade, 3 * ofLooks.fade} {
		at := p.throttled + later
		p.renew(at, noChance)
		if length := time.Duration(p.until.Load()) - at; length >= last || length <= 0 {
			t.Errorf("a pause of %v after %v, want less than %v", length, later, last)
		} else {
			last = length
		}
	}
	if length := p.length(p.throttled + 10*ofLooks.fade); length != 0 {
		t.Errorf("a pause of %v after all that time", length)
	}
}

// TestCloseEndsPauses closes an engine while a goroutine waits for a pace: it goes on immediately.
func TestCloseEndsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Table: table.New(nil, table.Options{IntN: noChance}), Buckets: 1})
		p := pace{bounds: &ofWrites}
		p.throttle(e.core.sinceStart(), noChance)
		if !e.Begin() {
			t.Fatal("Begin() = false")
		}
		go func() {
			defer e.End()
			e.core.rest(t.Context(), &p, 0)
		}()
		synctest.Wait()
		began := time.Now()
		if e.Close(); time.Since(began) > 0 {
			t.Errorf("Close() took %v", time.Since(began))
		}
		e.core.rest(t.Context(), &p, 0)
		if time.Since(began) > 0 {
			t.Errorf("after Close() a pause took %v", time.Since(began))
		}
	})
}
