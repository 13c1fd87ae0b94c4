package provision_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestScaled scales a level between the plan of a file and its apply: before the file manages it, and after. A provisioner that keeps scaled
// levels writes nothing, and says by what, by whom and when. It applies the file once the scaling is taken back, or was changed by another one.
func TestScaled(t *testing.T) {
	ctx := context.Background()
	for _, managed := range []bool{false, true} {
		w := newTestbed(t)
		p, operator := w.provisioner("deploy", nil), w.limiter("olga", nil)
		levels := load(t, two)
		at := zlimit.Level{Resource: "a"}
		multiply := func(factor string, perSecond int64) {
			w.clock.sleep(time.Second) // events of two processes have different times
			by := hooks.Scale(ctx, hooks.Scaling{Factor: factor, File: "before.yaml"})
			check.Fatal(t, "Set()", operator.Limits.Set(by, at, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rpm", perSecond)}}))
		}
		if managed {
			_, _, err := p.Apply(ctx, levels, nil)
			check.Fatal(t, "Apply()", err)
		} else {
			check.Fatal(t, "Set()", operator.Limits.Set(ctx, at, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rpm", 6)}}))
		}
		if plan, err := p.Plan(ctx, levels); err != nil || plan.Undoes() != nil {
			t.Fatalf("managed: %t: Plan() = %+v, %v", managed, plan.Undoes(), err)
		}
		multiply("3/2", 7)
		scaledAt := w.clock.now()
		w.clock.sleep(time.Second)
		keep := func(config *zlimit.Config) error {
			config.OnUnavailable = zlimit.PolicyAllow
			return nil
		}
		check.Fatal(t, "Update()", operator.Limits.Update(ctx, at, keep)) // which leaves the limits as they are
		p.KeepsScaled()
		before := w.stored()
		_, _, err := p.Apply(ctx, levels, nil)
		var scaled *provision.ScaledError
		want := provision.Scaling{Factor: "3/2", File: "before.yaml", By: "olga", At: scaledAt}
		if !errors.As(err, &scaled) || scaled.Levels != 1 || len(scaled.Scalings) != 1 || scaled.Scalings[0] != want {
			t.Errorf("managed: %t: Apply() = %v, want %+v", managed, err, want)
		}
		if w.stored() != before {
			t.Errorf("managed: %t: a refused apply changed something", managed)
		}
		multiply("1", 9)
		_, _, err = p.Apply(ctx, levels, nil)
		check.Error(t, "Apply() after factor 1", err)
		multiply("3/2", 7)
		w.clock.sleep(time.Second)
		check.Fatal(t, "Set()", operator.Limits.Set(ctx, at, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rpm", 8)}}))
		_, _, err = p.Apply(ctx, levels, nil)
		check.Error(t, "Apply() after another change", err)
	}
}
