package provision_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestKilledAnywhere kills a run that creates, changes, adopts and deletes at each of its calls, before and after it is
// carried out. The next run finishes: with the same file, and with one that has nothing of it. The record of what is managed is one
// item, and then in parts.
func TestKilledAnywhere(t *testing.T) {
	t.Run("one item", func(t *testing.T) { killedAnywhere(t, func(*testing.T, *testbed) {}) })
	t.Run("parts", func(t *testing.T) { killedAnywhere(t, divideRecord) })
}

// divideRecord splits the record of managed levels into parts.
func divideRecord(t *testing.T, w *testbed) {
	t.Helper()
	var many zlimit.ManagedSet
	for i := range 256 {
		many.Pending = append(many.Pending, zlimit.Level{Entity: fmt.Sprintf("%0255d", i), Resource: "gpt-4"})
	}
	ctx := context.Background()
	check.Fatal(t, "Managed.Run()", w.limiter("setup", nil).Managed.Run(ctx, func(ctx context.Context, r *zlimit.ManagedRun) error {
		return errors.Join(r.Record(ctx, many), r.Record(ctx, zlimit.ManagedSet{}))
	}))
}

func killedAnywhere(t *testing.T, prepare func(*testing.T, *testbed)) {
	const first = "resources: { a: { limits: { rpm: { rate: 1/s } } }, b: { limits: { rpm: { rate: 2/s } } } }\n"
	const second = "system: { on_unavailable: allow }\nresources: { b: { limits: { rpm: { rate: 3/s } } }, c: { limits: { rpm: { rate: 4/s } } } }\n" +
		"entities: { x: { limits: { rpm: { rate: 5/s } } } }\n"
	const third = "resources: { d: { limits: { rpm: { rate: 1/s } } } }\n"
	ctx := context.Background()
	calls := 0
	for _, after := range []bool{false, true} {
		for _, then := range []string{second, third} {
			for at := 1; ; at++ {
				w := newTestbed(t)
				prepare(t, w)
				if _, _, err := w.provisioner("deploy", nil).Apply(ctx, load(t, first), nil); err != nil {
					t.Fatalf("Apply() = %v", err)
				}
				operator := w.limiter("olga", nil)
				if err := errors.Join(change(ctx, operator, zlimit.Level{Resource: "c"}, 7, zlimit.PolicyInherit), change(ctx, operator, zlimit.Level{Resource: "keep"}, 7, zlimit.PolicyInherit)); err != nil {
					t.Fatalf("change() = %v", err)
				}
				hook, died := mortal(at, after)
				_, _, err := w.provisioner("victim", hook).Apply(ctx, load(t, second), nil)
				if !died() {
					check.Fatal(t, "Apply()", err)
					calls = max(calls, at-1)
					break
				}
				if _, _, err := w.provisioner("deploy", nil).Apply(ctx, load(t, then), nil); err != nil && !errors.Is(err, zlimit.ErrLocked) {
					t.Errorf("killed at call %d: the next run = %v, want it done or ErrLocked", at, err)
				}
				w.clock.sleep(61 * time.Second)
				if _, _, err := w.provisioner("deploy", nil).Apply(ctx, load(t, then), nil); err != nil {
					t.Fatalf("killed at call %d: the run after the lock has expired = %v", at, err)
				}
				stored := w.stored()
				want := "namespace: default\n"
				if then == second {
					want += "system:\n  on_unavailable: allow\nresources:\n  b:\n    limits:\n      rpm: 3/s\n  c:\n    limits:\n      rpm: 4/s\n" +
						"  keep:\n    limits:\n      rpm: 7:1/min\nentities:\n  x:\n    limits:\n      rpm: 5/s\n"
				} else {
					want += "resources:\n"
					if strings.Contains(stored, "  c:\n") { // the victim did not come to it, and olga's stays
						want += "  c:\n    limits:\n      rpm: 7:1/min\n"
					}
					want += "  d:\n    limits:\n      rpm: 1/s\n  keep:\n    limits:\n      rpm: 7:1/min\n"
				}
				if diff := cmp.Diff(want, stored); diff != "" {
					t.Fatalf("killed at call %d, after %v, then:\n%s\nwhat is stored differs (-want +got):\n%s", at, after, then, diff)
				}
			}
		}
	}
	if calls < 15 {
		t.Errorf("the run makes %d calls, want each of at least 15 tried", calls)
	}
}

// TestAppliesDoNotInterleave runs applies of different files at the same time, some of which sleep in the middle until their
// lock has expired, with operators between them. The writes of a run stand together.
func TestAppliesDoNotInterleave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		w := newTestbed(t)
		var mu sync.Mutex
		var order []string // who wrote
		runs := rapid.IntRange(2, 4).Draw(t, "runs")
		var done sync.WaitGroup
		errs := make([]error, runs)
		for i := range runs {
			levels := drawLevels(t, fmt.Sprintf("file %d", i))
			sleeps := rapid.IntRange(0, 25).Draw(t, "sleeps at")
			who := fmt.Sprintf("run-%d", i)
			calls := 0
			hook := func(before bool, _ []store.Write) error {
				if calls++; before && calls == sleeps {
					w.clock.sleep(90 * time.Second)
				}
				return nil
			}
			p := provision.New(w.spied(who, hook, func(_ store.Key, do func() bool) {
				mu.Lock()
				defer mu.Unlock()
				if do() {
					order = append(order, who)
				}
			}), zlimit.DefaultNamespace, w.clock.now)
			done.Go(func() {
				for range 200 {
					_, _, errs[i] = p.Apply(ctx, levels, nil)
					if !errors.Is(errs[i], zlimit.ErrLocked) {
						break
					}
					time.Sleep(50 * time.Microsecond)
				}
				for _, harmless := range []error{zlimit.ErrLocked, zlimit.ErrLockLost, zlimit.ErrLevelChanged} {
					if errors.Is(errs[i], harmless) {
						errs[i] = nil
					}
				}
			})
		}
		operator := w.limiter("olga", nil)
		for range 3 {
			check.Fatal(t, "change()", change(ctx, operator, rapid.SampledFrom(places()).Draw(t, "manually"), 2, zlimit.PolicyBlock))
		}
		done.Wait()
		check.Fatal(t, "the runs", errors.Join(errs...))
		seen := map[string]bool{}
		for i, who := range slices.Compact(order) {
			if seen[who] {
				t.Fatalf("the writes of %s do not stand together, at %d of %v", who, i, order)
			}
			seen[who] = true
		}
		// Whatever happened, the next run leaves the namespace as its file says.
		w.clock.sleep(2 * time.Minute)
		levels := drawLevels(t, "last file")
		if _, _, err := w.provisioner("deploy", nil).Apply(ctx, levels, nil); err != nil {
			t.Fatalf("Apply() = %v", err)
		}
		if plan, err := w.provisioner("deploy", nil).Plan(ctx, levels); err != nil || !plan.Empty() {
			t.Fatalf("the last plan is %v, %v", actions(plan), err)
		}
	})
}

// TestPausedRun: a run that wakes up after its lock has expired, and after another one has ended, writes nothing more.
func TestPausedRun(t *testing.T) {
	ctx := context.Background()
	w := newTestbed(t)
	levels := load(t, two)
	for at := 5; ; at++ {
		calls, slept := 0, false
		paused := w.provisioner("paused", func(before bool, _ []store.Write) error {
			if before {
				calls++
			}
			if before && calls == at {
				slept = true
				w.clock.sleep(61 * time.Second)
				if _, _, err := w.provisioner("other", nil).Apply(ctx, load(t, "system: { on_unavailable: allow }\n"), nil); err != nil {
					t.Fatalf("Apply() = %v", err)
				}
			}
			return nil
		})
		_, _, err := paused.Apply(ctx, levels, nil)
		if !slept {
			break
		}
		if err == nil && !strings.Contains(w.stored(), "  a:") { // it had ended already
			continue
		}
		if !errors.Is(err, zlimit.ErrLockLost) && !errors.Is(err, zlimit.ErrLevelChanged) {
			t.Errorf("paused at call %d: Apply() = %v, want ErrLockLost", at, err)
		}
		if want := "namespace: default\nsystem:\n  on_unavailable: allow\n"; w.stored() != want {
			t.Errorf("paused at call %d: what is stored is\n%s", at, w.stored())
		}
	}
}

// TestLongRun renews its lock.
func TestLongRun(t *testing.T) {
	w := newTestbed(t)
	var text strings.Builder
	text.WriteString("entities:\n")
	for i := range 40 {
		fmt.Fprintf(&text, "  e%d: { limits: { rpm: { rate: 1/s } } }\n", i)
	}
	slow := w.provisioner("slow", func(before bool, writes []store.Write) error {
		if before && len(writes) > 2 {
			w.clock.sleep(5 * time.Second)
		}
		return nil
	})
	start := w.clock.now()
	other := 0
	slow.OnProgress(nil, func(provision.Change) {
		err := w.limiter("other", nil).Managed.Run(context.Background(), func(context.Context, *zlimit.ManagedRun) error { return nil })
		if !errors.Is(err, zlimit.ErrLocked) {
			t.Errorf("after %v another run gets the lock: %v", w.clock.now().Sub(start), err)
		}
		other++
	})
	if _, done, err := slow.Apply(context.Background(), load(t, text.String()), nil); err != nil || len(done) != 40 || other != 40 {
		t.Errorf("Apply() = %d changes, %v", len(done), err)
	}
	if took := w.clock.now().Sub(start); took < 3*time.Minute {
		t.Errorf("it took %v, want more than the lock's minute", took)
	}
}

// TestInterrupted ends the context of a run. The run records its changes, and gives the lock back.
func TestInterrupted(t *testing.T) {
	w := newTestbed(t)
	ctx, cancel := context.WithCancel(context.Background())
	p := w.provisioner("deploy", nil)
	p.OnProgress(nil, func(provision.Change) { cancel() })
	_, done, err := p.Apply(ctx, load(t, two), nil)
	if !errors.Is(err, context.Canceled) || len(done) != 1 {
		t.Fatalf("Apply() = %v, %v, want one change and context.Canceled", done, err)
	}
	set, err := w.limiter("reader", nil).Managed.Set(context.Background())
	if err != nil || len(set.Levels) != 1 || set.Levels[0].Resource != "a" {
		t.Errorf("managed are %v, %v, want resource a", set.Levels, err)
	}
	if _, done, err := w.provisioner("deploy", nil).Apply(context.Background(), load(t, two), nil); err != nil || len(done) != 1 {
		t.Errorf("the next Apply() = %v, %v, want the other change", done, err)
	}
}

// TestManyLevels plans and applies a file of many levels, of which one changes afterwards.
func TestManyLevels(t *testing.T) {
	n := soak.Pick(5_000, 100_000)
	ctx := context.Background()
	w := newTestbed(t)
	p := w.provisioner("deploy", nil)
	levels := make([]zlimit.Stored, n)
	for i := range levels {
		levels[i] = zlimit.Stored{
			Level:  zlimit.Level{Entity: fmt.Sprintf("arn:aws:iam::123456789012:role/service-%06d", i), Resource: "gpt-4"},
			Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}},
		}
	}
	plan, err := p.Plan(ctx, levels)
	if err != nil || len(plan.Changes) != n {
		t.Fatalf("Plan() = %v, want %d changes", err, n)
	}
	if _, done, err := p.Apply(ctx, levels, plan); err != nil || len(done) != n {
		t.Fatalf("Apply() of a green plan = %d changes, %v, want %d", len(done), err, n)
	}
	if plan, err := p.Plan(ctx, levels); err != nil || !plan.Empty() {
		t.Fatalf("Plan() afterwards = %v, %v, want nothing to change", plan, err)
	}
	var writes []store.Write
	p = w.provisioner("deploy", func(before bool, w []store.Write) error {
		if before {
			writes = append(writes, w...)
		}
		return nil
	})
	if _, done, err := p.Apply(ctx, levels[1:], nil); err != nil || len(done) != 1 || done[0].Action != provision.Delete {
		t.Fatalf("Apply() without a level = %v, %v, want one deleted", done, err)
	}
	if len(writes) > 20 {
		t.Errorf("to delete one level an apply makes %d writes, want those of the level, of its part and of the lock", len(writes))
	}
}

// TestManagers applies for one manager after another: the second one takes levels over only where it says so.
func TestManagers(t *testing.T) {
	ctx := context.Background()
	w := newTestbed(t)
	by := func(manager string, take bool) *provision.Provisioner {
		p := w.provisioner("deploy", nil)
		p.ManagedBy(manager, take)
		return p
	}
	apply := func(p *provision.Provisioner, text string) error {
		_, _, err := p.Apply(ctx, load(t, text), nil)
		return err
	}
	const one = "resources: { a: { limits: { rpm: { rate: 1/s } } } }\n"
	if err := apply(w.provisioner("old", nil), two); err != nil { // a record of before names no manager
		t.Fatalf("apply() = %v", err)
	}
	check.Fatal(t, "apply()", apply(by("file:a.yaml", false), two))
	before := w.stored()
	var managed *provision.ManagedError
	if err := apply(by("file:b.yaml", false), one); !errors.As(err, &managed) || managed.Manager != "file:a.yaml" || w.stored() != before {
		t.Fatalf("Apply() by another manager = %v, want a ManagedError and nothing changed", err)
	}
	if _, err := by("file:b.yaml", false).Plan(ctx, load(t, one)); !errors.As(err, &managed) {
		t.Fatalf("Plan() by another manager = %v, want a ManagedError", err)
	}
	stale := check.Call(by("file:a.yaml", false).Plan(ctx, load(t, one))).Must(t, "Plan()")
	plan, err := by("file:b.yaml", true).Plan(ctx, load(t, two))
	if err != nil || plan.From != "file:a.yaml" || len(plan.Changes) > 0 || plan.Empty() {
		t.Fatalf("Plan() that takes over = %+v, %v, want no level changed, and not nothing", plan, err)
	}
	if _, _, err := by("file:b.yaml", true).Apply(ctx, load(t, two), plan); err != nil {
		t.Fatalf("Apply() = %v", err)
	}
	if _, _, err := by("file:a.yaml", false).Apply(ctx, load(t, one), stale); !errors.As(err, &managed) || managed.Manager != "file:b.yaml" {
		t.Errorf("Apply() of a plan of the manager before = %v, want a ManagedError", err)
	}
	if _, _, err := by("file:a.yaml", true).Apply(ctx, load(t, one), stale); !errors.Is(err, provision.ErrStale) {
		t.Errorf("Apply() that takes over what its plan did not = %v, want ErrStale", err)
	}
}
