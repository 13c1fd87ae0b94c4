package provision_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/provision"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A clock that tests move.
type clock struct{ millis atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.millis.Store(time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time        { return time.UnixMilli(c.millis.Load()).UTC() }
func (c *clock) sleep(d time.Duration) { c.millis.Add(d.Milliseconds()) }

// A spy is a store that a test looks into, and that may die. hook is asked before each call, and after it.
type spy struct {
	store.Store
	hook    func(before bool, writes []store.Write) error
	journal func(first store.Key, do func() bool) // nil for none
}

func (s *spy) around(writes []store.Write, do func() error) error {
	if s.hook == nil {
		return do()
	}
	if err := s.hook(true, writes); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.hook(false, writes)
}

func (s *spy) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	err = s.around(nil, func() error {
		items, err = s.Store.Read(ctx, keys, consistent)
		return err
	})
	return items, err
}

func (s *spy) Query(ctx context.Context, q store.Query) (page store.Page, err error) {
	err = s.around(nil, func() error {
		page, err = s.Store.Query(ctx, q)
		return err
	})
	return page, err
}

func (s *spy) Write(ctx context.Context, w store.Write) (result store.Result, err error) {
	err = s.around([]store.Write{w}, func() error {
		result, err = s.Store.Write(ctx, w)
		return err
	})
	return result, err
}

func (s *spy) Transact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	err = s.around(writes, func() error {
		do := func() bool {
			results, err = s.Store.Transact(ctx, writes)
			return err == nil && !slices.ContainsFunc(results, func(r store.Result) bool { return !r.Applied })
		}
		if s.journal == nil {
			do()
		} else {
			s.journal(writes[0].Key, do)
		}
		return err
	})
	return results, err
}

// A testbed is a store with its clock.
type testbed struct {
	tb    rapid.TB
	clock *clock
	store zlimit.Store
}

func newTestbed(tb rapid.TB) *testbed {
	s, err := zlimit.Memory()
	if err != nil {
		tb.Fatal(err)
	}
	w := &testbed{tb, newClock(), s}
	if err := w.limiter("setup", nil).Setup(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return w
}

// limiter returns a limiter of a person or program, whose calls a hook sees.
func (w *testbed) limiter(who string, hook func(bool, []store.Write) error) *zlimit.RateLimiter {
	return w.spied(who, hook, nil)
}

func (w *testbed) spied(who string, hook func(bool, []store.Write) error, journal func(store.Key, func() bool)) *zlimit.RateLimiter {
	s := &spy{Store: w.store.Internal(), journal: journal}
	l, err := zlimit.New(context.Background(), door.Store(s).(zlimit.Store), zlimit.WithSetup(), zlimit.WithClock(w.clock.now),
		zlimit.WithPrincipal(who), zlimit.WithConfigTTL(0))
	if err != nil {
		w.tb.Fatal(err)
	}
	s.hook = hook
	return l
}

func (w *testbed) provisioner(who string, hook func(bool, []store.Write) error) *provision.Provisioner {
	return provision.New(w.limiter(who, hook), zlimit.DefaultNamespace, w.clock.now)
}

// load returns the levels of a document.
func load(tb rapid.TB, text string) []provision.Level {
	tb.Helper()
	d, err := declaration.Load("limits.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return provision.Declared(d)
}

// stored returns what is stored in the namespace, as a document.
func (w *testbed) stored() string {
	d, err := w.provisioner("reader", nil).Import(context.Background())
	if err != nil {
		w.tb.Fatal(err)
	}
	text, err := declaration.Format(d)
	if err != nil {
		w.tb.Fatal(err)
	}
	return string(text)
}

func actions(plan *provision.Plan) []string {
	var all []string
	for _, c := range plan.Changes {
		all = append(all, string(c.Action)+" "+c.After.Level.String())
	}
	return all
}

const two = "resources: { a: { limits: { rpm: { rate: 1/s } } }, b: { limits: { rpm: { rate: 2/s } } } }\n"

func TestPlanAndApply(t *testing.T) {
	ctx := context.Background()
	w := newTestbed(t)
	p := w.provisioner("deploy", nil)
	operator := w.limiter("olga", nil)
	limits := []zlimit.Limit{zlimit.PerSecond("rpm", 1)}
	// An operator has already set the limits of a, those of c, and those of an entity.
	if err := errors.Join(operator.Limits.SetResource(ctx, "a", limits), operator.Limits.SetResource(ctx, "c", limits),
		operator.Limits.SetEntity(ctx, "acme", "a", limits)); err != nil {
		t.Fatal(err)
	}
	expect := func(step, text string, want ...string) *provision.Plan {
		t.Helper()
		plan, err := p.Plan(ctx, load(t, text))
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if diff := cmp.Diff(want, actions(plan)); diff != "" {
			t.Errorf("%s: the plan differs (-want +got):\n%s", step, diff)
		}
		return plan
	}
	apply := func(text string) {
		t.Helper()
		if _, _, err := p.Apply(ctx, load(t, text), nil); err != nil {
			t.Fatal(err)
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
	if err := operator.Limits.SetResource(ctx, "b", []zlimit.Limit{zlimit.PerSecond("rpm", 9)}); err != nil {
		t.Fatal(err)
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
	if err := operator.Limits.DeleteResource(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	plan = expect("deleted by hand", changed, "create resource b")
	if d := plan.Changes[0].Drift; d == nil || d.By != "olga" {
		t.Errorf("drift of a deleted level = %+v, want that of olga", d)
	}
	const other = "system: { audit_retention_days: 30 }\n"
	expect("gone from the file", other, "create system", "delete resource a", "forget resource b")
	apply(other)
	const want = "namespace: default\nsystem:\n  audit_retention_days: 30\nresources:\n  c:\n    limits:\n      rpm: 1/s\n" +
		"entities:\n  acme:\n    resources:\n      a:\n        limits:\n          rpm: 1/s\n"
	if diff := cmp.Diff(want, w.stored()); diff != "" {
		t.Errorf("what is stored differs (-want +got):\n%s", diff)
	}
}

// TestSavedPlan: a plan is refused once a config version has moved, even where the limits are the same again.
func TestSavedPlan(t *testing.T) {
	ctx := context.Background()
	w := newTestbed(t)
	p, operator := w.provisioner("deploy", nil), w.limiter("olga", nil)
	levels := load(t, two)
	limits := []zlimit.Limit{zlimit.PerSecond("rpm", 5)}
	if err := operator.Limits.SetResource(ctx, "a", limits); err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(ctx, levels)
	if err != nil {
		t.Fatal(err)
	}
	before := w.stored()
	if err := operator.Limits.SetResource(ctx, "a", limits); err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Apply(ctx, levels, plan)
	if !errors.Is(err, provision.ErrStale) || !strings.Contains(err.Error(), "resource a was version 1, and is version 2 now") {
		t.Errorf("Apply() of an old plan = %v, want ErrStale and the versions", err)
	}
	if w.stored() != before {
		t.Error("a refused plan changed something")
	}
	if plan, err = p.Plan(ctx, levels); err != nil {
		t.Fatal(err)
	}
	if _, done, err := p.Apply(ctx, levels, plan); err != nil || len(done) != 2 {
		t.Errorf("Apply() of a fresh plan = %v, %v", done, err)
	}
	if _, _, err := p.Apply(ctx, levels, plan); !errors.Is(err, provision.ErrStale) {
		t.Errorf("Apply() of a plan again = %v, want ErrStale", err)
	}
	if err := plan.Validate(); err != nil {
		t.Error(err)
	}
	plan.Declared[0].Limits[0].Capacity++
	if plan.Validate() == nil {
		t.Error("Validate() of a plan that was changed = nil")
	}
}

// names of what random files are about: few, so that they meet.
var (
	resources = []string{"a", "b", "c"}
	entities  = []string{"x", "y"}
)

// drawLevels draws what a file declares; it may be nothing.
func drawLevels(t *rapid.T, label string) []provision.Level {
	var levels []provision.Level
	for _, at := range places() {
		if !rapid.Bool().Draw(t, label+" has "+at.String()) {
			continue
		}
		l := provision.Level{Level: at}
		l.OnUnavailable = rapid.SampledFrom([]string{"", "block", "allow"}).Draw(t, label+" policy")
		if n := rapid.Int64Range(0, 3).Draw(t, label+" rpm"); n > 0 || l.OnUnavailable == "" {
			l.Limits = []provision.Limit{{Name: "rpm", Capacity: max(n, 1), Refill: 1, Period: 60}}
		}
		levels = append(levels, l)
	}
	return levels
}

// places are all levels that tests use, in order.
func places() []zlimit.ConfigLevel {
	all := []zlimit.ConfigLevel{{}}
	for _, r := range resources {
		all = append(all, zlimit.ConfigLevel{Resource: r})
		for _, e := range entities {
			all = append(all, zlimit.ConfigLevel{Entity: e, Resource: r}, zlimit.ConfigLevel{Entity: e, Resource: zlimit.DefaultResource})
		}
	}
	slices.SortFunc(all, zlimit.ConfigLevel.Compare)
	return slices.Compact(all)
}

// change is what an operator does by hand.
func change(ctx context.Context, l *zlimit.RateLimiter, at zlimit.ConfigLevel, n int64, policy zlimit.FailurePolicy) error {
	c := zlimit.LevelConfig{Limits: []zlimit.Limit{{Name: "rpm", Capacity: n, RefillAmount: 1, RefillPeriod: time.Minute}}, OnUnavailable: policy}
	switch {
	case at.Source() == zlimit.SourceSystem && n == 0:
		return l.Limits.DeleteSystem(ctx)
	case at.Source() == zlimit.SourceSystem:
		return l.Limits.SetSystem(ctx, zlimit.SystemConfig{Limits: c.Limits, OnUnavailable: policy})
	case at.Entity == "" && n == 0:
		return l.Limits.DeleteResource(ctx, at.Resource)
	case at.Entity == "":
		return l.Limits.SetResourceConfig(ctx, at.Resource, c)
	case n == 0:
		return l.Limits.DeleteEntity(ctx, at.Entity, at.Resource)
	default:
		return l.Limits.SetEntityConfig(ctx, at.Entity, at.Resource, c)
	}
}

// A content is what is stored at a level: the capacity of its limit, 0 for none, and its policy.
type content struct {
	capacity int64
	policy   string
}

// contentOf returns what is stored once a level is.
func contentOf(l provision.Level) content {
	c := content{policy: l.OnUnavailable}
	if len(l.Limits) > 0 {
		c.capacity = l.Limits[0].Capacity
	}
	return c
}

// contents returns what is stored at each level that says something.
func (w *testbed) contents() map[zlimit.ConfigLevel]content {
	all := places()
	found, err := w.limiter("reader", nil).Managed.Read(context.Background(), all...)
	if err != nil {
		w.tb.Fatal(err)
	}
	stored := map[zlimit.ConfigLevel]content{}
	for i, at := range all {
		if found[i].IsZero() {
			continue
		}
		var c content
		if len(found[i].Limits) > 0 {
			c.capacity = found[i].Limits[0].Capacity
		}
		if policy := found[i].OnUnavailable; policy != zlimit.Inherit {
			c.policy = policy.String()
		}
		stored[at] = c
	}
	return stored
}

// levelAt returns the level that an item holds the config of.
func levelAt(key store.Key) (zlimit.ConfigLevel, bool) {
	if _, ok := layout.ParseSystemConfigKey(key); ok {
		return zlimit.ConfigLevel{}, true
	}
	if k, ok := layout.ParseResourceConfigKey(key); ok {
		return zlimit.ConfigLevel{Resource: k.Resource}, true
	}
	k, ok := layout.ParseEntityConfigKey(key)
	return zlimit.ConfigLevel{Entity: k.Entity, Resource: k.Resource}, ok
}

func notAdopt(c provision.Change) bool { return c.Action != provision.Adopt }

var errKilled = errors.New("killed")

// mortal returns the hook of a process that is killed at a call, before it is carried out or after.
func mortal(at int, after bool) (hook func(bool, []store.Write) error, died func() bool) {
	calls, dead := 0, false
	return func(before bool, _ []store.Write) error {
		if before {
			calls++
		}
		if dead = dead || calls == at && before != after; dead {
			return errKilled
		}
		return nil
	}, func() bool { return dead }
}

// TestRandomFiles applies random files, one after another. Between them operators change levels and runs are killed.
// The model knows which levels are managed. After a run that ends well the plan is empty, and the file's levels are as
// the file says. What was never in a file is as it was.
func TestRandomFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		w := newTestbed(t)
		operator := w.limiter("olga", nil)
		managed := map[zlimit.ConfigLevel]bool{} // surely
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(0, 2).Draw(t, "changes by hand") {
				at := rapid.SampledFrom(places()).Draw(t, "at")
				if err := change(ctx, operator, at, rapid.Int64Range(0, 3).Draw(t, "to"), zlimit.FailurePolicy(rapid.IntRange(0, 2).Draw(t, "policy"))); err != nil {
					t.Fatal(err)
				}
			}
			levels := drawLevels(t, "file")
			before := w.contents()
			if at := rapid.IntRange(0, 30).Draw(t, "killed at"); at > 0 {
				hook, died := mortal(at, rapid.Bool().Draw(t, "after"))
				wrote := map[zlimit.ConfigLevel]bool{}
				victim := w.spied("victim", hook, func(first store.Key, do func() bool) {
					if at, ok := levelAt(first); do() && ok {
						wrote[at] = true
					}
				})
				_, _, err := provision.New(victim, zlimit.DefaultNamespace, w.clock.now).Apply(ctx, levels, nil)
				if (err != nil) != died() {
					t.Fatalf("Apply() = %v, killed %v", err, died())
				}
				w.clock.sleep(2 * time.Minute) // its lock expires
				for at, n := range w.contents() {
					declared := slices.IndexFunc(levels, func(l provision.Level) bool { return l.Level == at })
					if declared >= 0 && contentOf(levels[declared]) == n {
						continue
					}
					if before[at] != n {
						t.Fatalf("a killed run made %v %v, which was %v, and is not declared", at, n, before[at])
					}
				}
				if rapid.Bool().Draw(t, "another file") {
					// What the dead run wrote, and this file does not have, is managed all the same.
					maps.Copy(managed, wrote)
					levels = drawLevels(t, "file")
					before = w.contents()
				}
			}
			if _, _, err := w.provisioner("deploy", nil).Apply(ctx, levels, nil); err != nil {
				t.Fatal(err)
			}
			plan, err := w.provisioner("reader", nil).Plan(ctx, levels)
			if err != nil || !plan.Empty() {
				t.Fatalf("after apply the plan is %v, %v", actions(plan), err)
			}
			want := maps.Clone(before)
			for at := range managed {
				delete(want, at)
			}
			managed = map[zlimit.ConfigLevel]bool{}
			for _, l := range levels {
				want[l.Level] = contentOf(l)
				managed[l.Level] = true
			}
			if diff := cmp.Diff(want, w.contents(), cmp.AllowUnexported(content{})); diff != "" {
				t.Fatalf("what is stored differs (-want +got):\n%s", diff)
			}
			if len(want) == 0 {
				continue
			}
			if plan, err = w.provisioner("reader", nil).Plan(ctx, load(t, w.stored())); err != nil || slices.ContainsFunc(plan.Changes, notAdopt) {
				t.Fatalf("the plan of what was imported is %v, %v, want levels to adopt alone", actions(plan), err)
			}
		}
	})
}

// TestKilledAnywhere kills a run that creates, changes, adopts and deletes at each of its calls, before and after it is
// carried out. The next run finishes: with the same file, and with one that has nothing of it.
func TestKilledAnywhere(t *testing.T) {
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
				if _, _, err := w.provisioner("deploy", nil).Apply(ctx, load(t, first), nil); err != nil {
					t.Fatal(err)
				}
				operator := w.limiter("olga", nil)
				if err := errors.Join(change(ctx, operator, zlimit.ConfigLevel{Resource: "c"}, 7, zlimit.Inherit), change(ctx, operator, zlimit.ConfigLevel{Resource: "keep"}, 7, zlimit.Inherit)); err != nil {
					t.Fatal(err)
				}
				hook, died := mortal(at, after)
				_, _, err := w.provisioner("victim", hook).Apply(ctx, load(t, second), nil)
				if !died() {
					if err != nil {
						t.Fatal(err)
					}
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

// TestAppliesDoNotInterleave runs applies of different files at once, some of which sleep in the middle until their lock has
// expired, with operators between them. The writes of a run stand together.
func TestAppliesDoNotInterleave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		w := newTestbed(t)
		var turn sync.Mutex
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
				turn.Lock()
				defer turn.Unlock()
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
			if err := change(ctx, operator, rapid.SampledFrom(places()).Draw(t, "by hand"), 2, zlimit.Block); err != nil {
				t.Fatal(err)
			}
		}
		done.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
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
			t.Fatal(err)
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
					t.Fatal(err)
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
	slow.Tell(nil, func(provision.Change) {
		_, err := w.limiter("other", nil).Managed.Lock(context.Background(), time.Minute)
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

// TestInterrupted: a run whose context ends records what it did, and gives the lock back.
func TestInterrupted(t *testing.T) {
	w := newTestbed(t)
	ctx, cancel := context.WithCancel(context.Background())
	p := w.provisioner("deploy", nil)
	p.Tell(nil, func(provision.Change) { cancel() })
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
