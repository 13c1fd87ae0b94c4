package rotate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestWaitGoesOn interrupts a rotation while it waits: the next run waits for the rest, and for the whole time where the old ID was served meanwhile.
func TestWaitGoesOn(t *testing.T) {
	errStopped := errors.New("stopped")
	for _, c := range []struct {
		name      string
		between   time.Duration
		meanwhile func(w *world, l *zlimit.RateLimiter)
		want      time.Duration
	}{
		{"at once", 0, nil, keptFor},
		{"later", 40 * time.Second, nil, keptFor - 40*time.Second},
		{"after the wait", keptFor, nil, 0},
		{"on a clock that is behind", -time.Hour, nil, keptFor},
		{"served meanwhile", 40 * time.Second, func(w *world, l *zlimit.RateLimiter) {
			check.Call(l.Limits.Enable(w.t.Context(), at("acme", ""), nil)).Must(w.t, "Enable()")
		}, keptFor},
		{"served and suspended meanwhile", 40 * time.Second, func(w *world, l *zlimit.RateLimiter) {
			check.Call(l.Limits.Enable(w.t.Context(), at("acme", ""), nil)).Must(w.t, "Enable()")
			check.Call(l.Limits.Disable(w.t.Context(), at("acme", ""), nil)).Must(w.t, "Disable()")
		}, keptFor},
	} {
		w := inMemory(t)
		l := w.limiter(w.s)
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), at("acme", ""), parsed(t, "t=1000/month@UTC")))
		waited := time.Duration(0)
		run := func(err error) (*Rotation, error) {
			waited = 0
			return Run(t.Context(), l, "acme", "acme-2", func(string) {}, func() time.Time { return w.now }, func(_ context.Context, d time.Duration) error {
				waited += d
				return err
			})
		}
		plan := func() int64 {
			t.Helper()
			planned := check.Call(Plan(t.Context(), l, "acme", "acme-2", func() time.Time { return w.now })).Must(t, "Plan()")
			return planned.Wait
		}
		if got := plan(); got != 65 {
			t.Errorf("%s: the plan waits %d seconds, want 65", c.name, got)
		}
		if _, err := run(errStopped); !errors.Is(err, errStopped) || waited != keptFor {
			t.Fatalf("%s: Run() waits %v and ends with %v", c.name, waited, err)
		}
		w.now = w.now.Add(c.between)
		if c.meanwhile != nil {
			c.meanwhile(w, l)
		}
		if got := plan(); got != int64(c.want/time.Second) {
			t.Errorf("%s: the plan of the next run waits %d seconds, want %v", c.name, got, c.want)
		}
		check.Call(run(nil)).Must(t, c.name+": Run()")
		if waited != c.want {
			t.Errorf("%s: the next run waits %v, want %v", c.name, waited, c.want)
		}
		e := check.Call(l.Entities.Get(t.Context(), "acme-2")).Must(t, "Get()")
		if e.Metadata[SinceKey] != "" {
			t.Errorf("%s: the record of a rotation that is done has %s", c.name, SinceKey)
		}
		check.Fatal(t, "Close()", l.Close())
	}
}
