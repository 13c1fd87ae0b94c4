package migrate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestCatchUpEnds applies changes of programs that write before each of its calls. It ends with every change that was made before it
// began, says how far behind it is meanwhile, and does not open the target.
func TestCatchUpEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.7")
		p := &process{}
		var behind []time.Duration
		w.tune = func(c *Config) {
			c.Report = func(p Progress) {
				if p.Phase == Following {
					behind = append(behind, p.Behind)
				}
			}
		}
		m, err := Start(t.Context(), w.config(p))
		check.Fatal(t, "Start()", err)
		check.Fatal(t, "Copy()", m.Copy(t.Context()))
		const before = 3*batchChanges + 7
		for range before {
			w.touch()
			time.Sleep(time.Millisecond)
		}
		p.writer = func() {
			w.touch()
			time.Sleep(10 * time.Millisecond)
		}
		p.killAt = p.calls + 10_000
		behind = nil
		check.Fatal(t, "CatchUp()", m.CatchUp(t.Context()))
		if n := m.Counts()[CountChanges]; n < before || n > before+batchChanges {
			t.Errorf("%d changes applied, want the %d before the call, and at most a page more", n, before)
		}
		if n := len(behind); n < 2 || behind[0] < time.Second || behind[n-1] > 100*time.Millisecond {
			t.Errorf("it was behind by %v, want by more than a second, and less and less until the end", behind)
		}
		for range 3 { // programs go on
			p.killAt = p.calls + 10_000
			check.Fatal(t, "CatchUp()", m.CatchUp(t.Context()))
		}
		p.killAt = p.calls + 100_000
		if v, err := m.Finish(t.Context()); !errors.Is(err, ErrBusy) {
			t.Fatalf("Finish() = %+v, %v, want ErrBusy", v, err)
		}
		p.writer = nil
		if v, err := m.Finish(t.Context()); err != nil || !v.Exact() {
			t.Fatalf("Finish() = %+v, %v", v, err)
		}
	})
}
