package migrate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestFinishWaits asks that a change during the quiet time is applied, and the time begins again.
func TestFinishWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.7")
		m := check.Call(Start(t.Context(), w.config(&process{}))).Must(t, "Start()")
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			w.touch()
		}()
		if _, err := m.Finish(t.Context()); err != nil {
			t.Fatalf("Finish() = %v", err)
		}
		if took := time.Since(began); took < 13*time.Second || took > 15*time.Second {
			t.Errorf("Finish() took %v, want 10 s from the last change", took)
		}
		w.check()
	})
}

// TestFinishVerifiesAgain makes a change while the tables are compared: what was compared is out of date.
func TestFinishVerifiesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, done := newTestbed(t, "0.7"), false
		p := &process{}
		m, err := Start(t.Context(), w.config(p))
		check.Fatal(t, "Start()", err)
		p.scans = func() {
			if !done {
				done = true
				w.touch()
			}
		}
		if _, err = m.Finish(t.Context()); err != nil || !done {
			t.Fatalf("Finish() = %v, after a change: %t", err, done)
		}
		w.check()
	})
}

// TestFinishOfABusySource: a source still being written is reported after a minute.
func TestFinishOfABusySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.7")
		m := check.Call(Start(t.Context(), w.config(&process{}))).Must(t, "Start()")
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Second):
					w.touch()
				}
			}
		}()
		began := time.Now()
		if _, err := m.Finish(t.Context()); !errors.Is(err, ErrBusy) || time.Since(began) > 70*time.Second {
			t.Errorf("Finish() = %v after %v, want ErrBusy after a minute", err, time.Since(began))
		}
		close(stop)
		if m.Phase() != Following {
			t.Errorf("phase %s", m.Phase())
		}
		if _, err := m.Finish(t.Context()); err != nil {
			t.Errorf("Finish() afterwards = %v", err)
		}
		w.check()
	})
}
