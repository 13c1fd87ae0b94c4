package migrate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
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
		m := check.Call(Start(t.Context(), w.config(p))).Must(t, "Start()")
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
		behind = nil
		check.Fatal(t, "CatchUp()", m.CatchUp(t.Context()))
		if n := len(behind); n == 0 || behind[n-1] != 0 {
			t.Errorf("at the end of all changes it was behind by %v, want 0 at last", behind)
		}
		if v, err := m.Finish(t.Context()); err != nil || !v.Exact() {
			t.Fatalf("Finish() = %+v, %v", v, err)
		}
	})
}

// TestVerifyUnderTraffic compares the two while programs write one bucket before each call, add an entity, and delete another one. Only
// the bucket is not compared. An item that programs leave alone, and that is damaged in the target, still differs.
func TestVerifyUnderTraffic(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		t.Run(fmt.Sprint("damaged: ", damaged), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestbed(t, "0.7")
				p := &process{}
				var gone []store.Key // before the first page of the source, so that only the target has them
				for _, item := range fixture(t, "0.7") {
					if key := store.KeyOf(item); strings.HasSuffix(key.PK, "ENTITY#acme") {
						key.PK = strings.Replace(key.PK, "acme", "gone", 1)
						gone = append(gone, key)
						w.add(key.Join(withoutKey(item)))
					}
				}
				pages := 0
				m := check.Call(Start(t.Context(), w.config(p))).Must(t, "Start()")
				check.Fatal(t, "Copy()", m.Copy(t.Context()))
				check.Fatal(t, "CatchUp()", m.CatchUp(t.Context()))
				p.scans = func() {
					if pages++; pages == 1 {
						w.remove(gone...)
					}
				}
				if damaged {
					key := layout.EntityKey{NS: w.rules().NS, Entity: "acme"}.Key()
					_, err := w.target.Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: expr.Item{{Name: "name", Value: expr.S("Emca")}}})
					check.Fatal(t, "Write()", err)
				}
				w.changes = w.changes[len(w.changes)-4:] // entities that come and go
				p.writer = func() {
					w.write()
					w.touch()
					time.Sleep(10 * time.Millisecond)
				}
				p.killAt = p.calls + 10_000
				v := check.Call(m.Verify(t.Context())).Must(t, "Verify()")
				if len(w.changes) > 0 {
					t.Errorf("%d changes are left: they were to happen meanwhile", len(w.changes))
				}
				if v.Exact() == damaged || v.Written == 0 {
					t.Errorf("Verify() = %+v, want an exact copy: %t, and one bucket that is written", v, !damaged)
				}
			})
		})
	}
}
