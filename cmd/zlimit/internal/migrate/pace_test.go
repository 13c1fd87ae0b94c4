package migrate

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestPace: units are spent at the requested rate.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := check.Call(newMigration(Config{Rate: 100, Target: newStore(t)})).Must(t, "newMigration()")
		began := time.Now()
		for range 50 {
			check.Fatal(t, "rest()", m.calls.rest(t.Context(), m.calls.pace.owe(10)))
		}
		if took := time.Since(began); took != 49*100*time.Millisecond {
			t.Errorf("500 units at 100 a second took %v, want the time of all but the last call", took)
		}
		m.calls.pace.rate = 0
		if err := m.calls.rest(t.Context(), m.calls.pace.owe(1e9)); err != nil || time.Since(began) != 4900*time.Millisecond {
			t.Errorf("a run without a rate waits")
		}
	})
}

// TestUnits: all runs together count the units of every call.
func TestUnits(t *testing.T) {
	for way, newTestbed := range worlds {
		for _, release := range releases {
			synctest.Test(t, func(t *testing.T) {
				w := newTestbed(t, release)
				ctx := t.Context()
				first := &process{bills: true}
				compare := func(step string, got Counts, before, lost store.Units) {
					t.Helper()
					want := Counts{
						CountReadUnits:  int64(1000 * (before.Read + first.billed.Read - lost.Read)),
						CountWriteUnits: int64(1000 * (before.Write + first.billed.Write - lost.Write)),
					}
					for name, n := range want {
						if got[name] != n {
							t.Errorf("%s, %s, %s: %d %s, calls took %d", way, release, step, got[name], name, n)
						}
					}
				}
				m := check.Call(Start(ctx, w.config(first))).Must(t, "Start()")
				step := func(name string, err error) {
					t.Helper()
					if err != nil {
						t.Fatalf("%s, %s, %s: %v", way, release, name, err)
					}
					compare(name, m.Counts(), store.Units{}, store.Units{})
				}
				step("copy", m.Copy(ctx))
				w.change()
				step("catch up", m.CatchUp(ctx))
				v, err := m.Verify(ctx)
				if err == nil && !v.Exact() {
					err = ErrDiffers
				}
				step("verify", err)
				if err := m.restart(ctx); !errors.Is(err, ErrGap) {
					t.Fatalf("restart() = %v", err)
				}
				step("copy again", m.Copy(ctx))
				step("release", m.Release(ctx))

				last := store.Units{Write: 1} // of the record, which does not report its own
				_, counts, err := Find(ctx, Config{Target: w.target})
				check.Fatal(t, "Find()", err)
				compare("status", counts, store.Units{}, last)
				before := first.billed
				first = &process{bills: true}
				if m, err = Resume(ctx, w.config(first)); err != nil {
					t.Fatalf("Resume() = %v", err)
				}
				if _, err = m.Finish(ctx); err != nil {
					t.Fatalf("Finish() = %v", err)
				}
				compare("finish", m.Counts(), before, last)
			})
		}
	}
}

// TestRate: a run takes as long as the units of all its calls take at its rate. Other runs leave it alone while it
// waits.
func TestRate(t *testing.T) {
	const rate = 0.1
	synctest.Test(t, func(t *testing.T) {
		w, p := newTestbed(t, "0.9"), &process{bills: true}
		c := w.config(p)
		c.Rate = rate
		began := time.Now()
		m := check.Call(Start(t.Context(), c)).Must(t, "Start()")
		var copied atomic.Bool
		defer copied.Store(true)
		go func() {
			for !copied.Load() {
				if _, err := Start(t.Context(), w.config(&process{})); !copied.Load() && !errors.Is(err, ErrTaken) {
					t.Errorf("%v after its start, another run: %v, want ErrTaken", time.Since(began), err)
				}
			}
		}()
		check.Fatal(t, "Copy()", m.Copy(t.Context()))
		copied.Store(true)
		took, owed := time.Since(began), time.Until(m.calls.pace.free)
		want := time.Duration((p.billed.Read + p.billed.Write) / rate * float64(time.Second))
		if diff := took + owed - want; diff < -time.Millisecond || diff > time.Millisecond || took < 4*c.Term {
			t.Errorf("Copy() took %v, and owes %v; %.0f at %v units a second take %v", took, owed, p.billed, rate, want)
		}
	})
}
