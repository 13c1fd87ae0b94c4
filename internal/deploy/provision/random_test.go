package provision_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// names of what random files are about: few, so that they meet.
var (
	resources = []string{"a", "b", "c"}
	entities  = []string{"x", "y"}
)

// drawLevels draws what a file declares; it may be nothing.
func drawLevels(t *rapid.T, label string) []zlimit.Stored {
	var levels []zlimit.Stored
	for _, at := range places() {
		if !rapid.Bool().Draw(t, label+" has "+at.String()) {
			continue
		}
		l := zlimit.Stored{Level: at}
		l.Config.OnUnavailable = rapid.SampledFrom([]zlimit.FailurePolicy{zlimit.PolicyInherit, zlimit.PolicyBlock, zlimit.PolicyAllow}).Draw(t, label+" policy")
		if n := rapid.Int64Range(0, 3).Draw(t, label+" rpm"); n > 0 || l.Config.OnUnavailable == zlimit.PolicyInherit {
			l.Config.Limits = []zlimit.Limit{{Name: "rpm", Capacity: max(n, 1), RefillAmount: 1, RefillPeriod: time.Minute}}
		}
		levels = append(levels, l)
	}
	return levels
}

// places are all levels that tests use, in order.
func places() []zlimit.Level {
	all := []zlimit.Level{{}}
	for _, r := range resources {
		all = append(all, zlimit.Level{Resource: r})
		for _, e := range entities {
			all = append(all, zlimit.Level{Entity: e, Resource: r}, zlimit.Level{Entity: e})
		}
	}
	slices.SortFunc(all, zlimit.Level.Compare)
	return slices.Compact(all)
}

// change is what an operator does manually.
func change(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level, n int64, policy zlimit.FailurePolicy) error {
	c := zlimit.Config{Limits: []zlimit.Limit{{Name: "rpm", Capacity: n, RefillAmount: 1, RefillPeriod: time.Minute}}, OnUnavailable: policy}
	if n == 0 {
		return l.Limits.Delete(ctx, at)
	}
	return l.Limits.Set(ctx, at, c)
}

func notAdopt(c provision.Change) bool { return c.Action != provision.Adopt }

// TestRandomFiles applies random files, one after another. Between them operators change levels and runs are killed.
// The model knows which levels are managed. After a run that ends well the plan is empty, and the file's levels are as
// the file says. What was never in a file is as it was.
func TestRandomFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		w := newTestbed(t)
		operator := w.limiter("olga", nil)
		managed := map[zlimit.Level]bool{} // surely
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(0, 2).Draw(t, "changes by hand") {
				at := rapid.SampledFrom(places()).Draw(t, "at")
				if err := change(ctx, operator, at, rapid.Int64Range(0, 3).Draw(t, "to"), zlimit.FailurePolicy(rapid.IntRange(0, 2).Draw(t, "policy"))); err != nil {
					t.Fatalf("change() = %v", err)
				}
			}
			levels := drawLevels(t, "file")
			before := w.contents()
			if at := rapid.IntRange(0, 30).Draw(t, "killed at"); at > 0 {
				hook, died := mortal(at, rapid.Bool().Draw(t, "after"))
				wrote := map[zlimit.Level]bool{}
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
					declared := slices.IndexFunc(levels, func(l zlimit.Stored) bool { return l.Level == at })
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
				t.Fatalf("Apply() = %v", err)
			}
			plan, err := w.provisioner("reader", nil).Plan(ctx, levels)
			if err != nil || !plan.Empty() {
				t.Fatalf("after apply the plan is %v, %v", actions(plan), err)
			}
			want := maps.Clone(before)
			for at := range managed {
				delete(want, at)
			}
			managed = map[zlimit.Level]bool{}
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
