package provision_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestPlanAndApply(t *testing.T) {
	ctx := context.Background()
	w := newTestbed(t)
	p := w.provisioner("deploy", nil)
	operator := w.limiter("olga", nil)
	limits := []zlimit.Limit{zlimit.PerSecond("rpm", 1)}
	// An operator has already set the limits of a, those of c, and those of an entity.
	if err := errors.Join(operator.Limits.Set(ctx, zlimit.Level{Resource: "a"}, zlimit.Config{Limits: limits}), operator.Limits.Set(ctx, zlimit.Level{Resource: "c"}, zlimit.Config{Limits: limits}),
		operator.Limits.Set(ctx, zlimit.Level{Entity: "acme", Resource: "a"}, zlimit.Config{Limits: limits})); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	expect := func(step, text string, want ...string) *provision.Plan {
		t.Helper()
		plan, err := p.Plan(ctx, load(t, text))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		compare.Equal(t, fmt.Sprintf("%s: the plan differs", step), want, actions(plan))
		return plan
	}
	apply := func(text string) {
		t.Helper()
		if _, _, err := p.Apply(ctx, load(t, text), nil); err != nil {
			t.Fatalf("Apply() = %v", err)
		}
		expect("after apply", text)
	}
	plan := expect("first", two, "adopt resource a", "create resource b")
	if got := fmt.Sprint(plan.Unmanaged); got != "[resource c entity acme, resource a]" {
		t.Errorf("unmanaged = %s", got)
	}
	if plan.Changes[0].Drift != nil {
		t.Errorf("a level that was never managed has drifted: %+v", plan.Changes[0].Drift)
	}
	apply(two)

	w.clock.sleep(time.Hour)
	if err := operator.Limits.Set(ctx, zlimit.Level{Resource: "b"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rpm", 9)}}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	plan = expect("drifted", two, "update resource b")
	if d := plan.Changes[0].Drift; d == nil || d.By != "olga" || !d.At.Equal(w.clock.now()) {
		t.Errorf("drift = %+v, want that of olga at %v", d, w.clock.now())
	}
	apply(two)
	changed := strings.Replace(two, "2/s", "3/s", 1)
	if plan = expect("changed in the file", changed, "update resource b"); plan.Changes[0].Drift != nil {
		t.Errorf("a change of the file is a drift: %+v", plan.Changes[0].Drift)
	}
	w.clock.sleep(time.Second)
	check.Fatal(t, "Limits.Delete()", operator.Limits.Delete(ctx, zlimit.Level{Resource: "b"}))
	plan = expect("deleted by hand", changed, "create resource b")
	if d := plan.Changes[0].Drift; d == nil || d.By != "olga" {
		t.Errorf("drift of a deleted level = %+v, want that of olga", d)
	}
	const other = "system: { audit_retention_days: 30 }\n"
	expect("gone from the file", other, "create system", "delete resource a", "forget resource b")
	apply(other)
	const want = "namespace: default\nsystem:\n  audit_retention_days: 30\nresources:\n  c:\n    limits:\n      rpm: 1/s\n" +
		"entities:\n  acme:\n    resources:\n      a:\n        limits:\n          rpm: 1/s\n"
	compare.Equal(t, "what is stored differs", want, w.stored())
}

// TestSavedPlan: a plan is refused once a config version has moved, even where the limits are the same again.
func TestSavedPlan(t *testing.T) {
	ctx := context.Background()
	w := newTestbed(t)
	p, operator := w.provisioner("deploy", nil), w.limiter("olga", nil)
	levels := load(t, two)
	limits := []zlimit.Limit{zlimit.PerSecond("rpm", 5)}
	check.Fatal(t, "Limits.Set()", operator.Limits.Set(ctx, zlimit.Level{Resource: "a"}, zlimit.Config{Limits: limits}))
	plan := check.Call(p.Plan(ctx, levels)).Must(t, "Plan()")
	before := w.stored()
	check.Fatal(t, "Limits.Set()", operator.Limits.Set(ctx, zlimit.Level{Resource: "a"}, zlimit.Config{Limits: limits}))
	_, _, err := p.Apply(ctx, levels, plan)
	if !errors.Is(err, provision.ErrStale) || !strings.Contains(err.Error(), "resource a was version 1, and is version 2 now") {
		t.Errorf("Apply() of an old plan = %v, want ErrStale and the versions", err)
	}
	if w.stored() != before {
		t.Error("a refused plan changed something")
	}
	if plan, err = p.Plan(ctx, levels); err != nil {
		t.Fatalf("Plan() = %v", err)
	}
	if _, done, err := p.Apply(ctx, levels, plan); err != nil || len(done) != 2 {
		t.Errorf("Apply() of a fresh plan = %v, %v", done, err)
	}
	before = w.stored()
	if again, done, err := p.Apply(ctx, levels, plan); err != nil || !again.Empty() || len(done) > 0 || w.stored() != before {
		t.Errorf("Apply() of a plan again = %+v, %v, %v, want nothing to do", again, done, err)
	}
	check.Fatal(t, "Limits.Set()", operator.Limits.Set(ctx, zlimit.Level{Resource: "a"}, zlimit.Config{Limits: limits[:1]}))
	if _, _, err := p.Apply(ctx, levels, plan); !errors.Is(err, provision.ErrStale) {
		t.Errorf("Apply() of an applied plan after another change = %v, want ErrStale", err)
	}
	check.Error(t, "Validate()", plan.Validate())
	plan.Declared[0].Config.Limits[0].Capacity++
	if plan.Validate() == nil {
		t.Error("Validate() of a plan that was changed = nil")
	}
}
