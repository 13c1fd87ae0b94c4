package rotate

import (
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestLevelsOfAResumedRun kills a rotation at each call. The next run lists the levels of the old entity, without its default, which the
// rotation has suspended.
func TestLevelsOfAResumedRun(t *testing.T) {
	resumed := 0
	for last := 1; ; last++ {
		s := check.Call(memory.New(layout.Table)).Must(t, "memory.New()")
		w := &world{t, s, zlimit.DefaultNamespace, noon, nil}
		l := w.limiter(s)
		check.Fatal(w.t, "Limits.Set()", l.Limits.Set(t.Context(), at("acme", "gpt"), parsed(t, "tpd=10/day@UTC")))
		m := faulttest.NewMortal(s)
		dying := w.limiter(m)
		m.Kill(last, faulttest.After)
		_, err := rotate(t.Context(), dying, "acme", "acme-2", func(string) {})
		_ = dying.Close()
		if err == nil {
			break
		}
		done := check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(w.t, "Run()")
		check.Fatal(w.t, "Close()", l.Close())
		if done.Resumed == stageJoining {
			resumed++
		}
		if want := []zlimit.Level{at("acme-2", "gpt")}; !done.Repeated && !slices.Equal(done.Levels, want) {
			t.Fatalf("killed at call %d: the next run lists %v, want %v", last, done.Levels, want)
		}
	}
	if resumed == 0 {
		t.Error("no run was killed after the old entity was suspended")
	}
}
