package stack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// ofVersion makes what a stack was deployed as a release of another version, with a template that lacks the dashboard.
func ofVersion(t *testing.T, s *cfn.Service, version string, at time.Time) {
	t.Helper()
	const key = "limits-bucket/releases/"
	var r map[string]any
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal(s.Objects[key+zlimit.Version+".json"], &r))
	before, after, _ := strings.Cut(r["template"].(string), "\n Dashboard:\n")
	_, after, found := strings.Cut(after, "F: !Ref AggregatorFunction}\n")
	if !found {
		t.Fatal("the template has no dashboard")
	}
	r["version"], r["template"], r["deployed_at"] = version, before+"\n"+after, at
	text := check.Call(json.Marshal(r)).Must(t, "json.Marshal()")
	s.Objects[key+version+".json"] = text
}

// TestWayBack deploys a version with other code, and goes back to the one before. Template and code are the former
// ones, and settings stay as they are. Then the later version is deployed again.
func TestWayBack(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	ofVersion(t, s, "0.9.0", time.Unix(0, 0))
	bad := fresh()
	bad.Code, bad.Settings = &stack.Code{Zip: []byte("a bad zip"), Architecture: "arm64"}, map[string]string{"memory": "1024"}
	deploy(t, s, bad, stack.Hooks{})
	function := func() (key, memory string) {
		p := s.Stack("limits").Resources["AggregatorFunction"].Properties
		return fmt.Sprint(at(p, "Code", "S3Key")), fmt.Sprint(p["MemorySize"])
	}
	if key, _ := function(); key != bad.Code.Key() {
		t.Fatalf("the code is %s", key)
	}
	if versions, err := manager(s).Versions(t.Context(), "limits"); err != nil || !slices.Contains(versions, "0.9.0") || len(versions) != 2 {
		t.Errorf("Versions() = %v, %v", versions, err)
	}

	clients, oldest := s.Clients(), "0.9.0"
	clients.Oldest = func(context.Context, string) (string, error) { return oldest, nil }
	setups := 0
	clients.Setup = func(context.Context, string, string, time.Duration) error { setups++; return nil }
	m := stack.New(clients, stack.WithPoll(0))
	back := stack.Options{Name: "limits", Version: "0.9.0"}
	oldest = "0.9.1"
	if _, err := m.Deploy(t.Context(), back, stack.Hooks{}); err == nil || !strings.Contains(err.Error(), "table limits is for versions from 0.9.1 on") {
		t.Errorf("Deploy() of a version that the table does not admit = %v", err)
	}
	oldest = "0.9.0"
	if _, err := m.Deploy(t.Context(), stack.Options{Name: "limits", Version: "0.8.0"}, stack.Hooks{}); !errors.Is(err, stack.ErrNoRelease) || !strings.Contains(err.Error(), "0.9.0") {
		t.Errorf("Deploy() of a version that never was = %v, want ErrNoRelease and those that there are", err)
	}
	if plan, err := m.Plan(t.Context(), back, stack.Hooks{}); err != nil || len(plan.Changes) != 2 {
		t.Errorf("Plan() of the way back = %+v, %v, want the function changed and the dashboard removed", plan, err)
	}
	for range 2 { // it can be repeated
		if _, err := m.Deploy(t.Context(), back, stack.Hooks{}); err != nil {
			t.Fatalf("Deploy() = %v", err)
		}
		if key, memory := function(); key != code.Key() || memory != "1024" || slices.Contains(s.Stack("limits").IDs(), "Dashboard") || s.Tag("limits", "zlimit:version") != "0.9.0" {
			t.Errorf("back at 0.9.0 the code is %s, the memory %s, the stack %v", key, memory, s.Stack("limits").IDs())
		}
	}
	if setups > 0 || len(s.Replaced) > 0 {
		t.Errorf("on the way back the table was set up %d times, and %v replaced", setups, s.Replaced)
	}
	if _, err := m.Deploy(t.Context(), bad, stack.Hooks{}); err != nil || s.Tag("limits", "zlimit:version") != zlimit.Version || setups != 1 {
		t.Errorf("Deploy() of the later version again = %v", err)
	}
}

// TestDowngrade deploys an earlier version over a later one, which is refused unless it is allowed and the table admits it.
func TestDowngrade(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	s.SetTag("limits", "zlimit:version", "99.0.0")
	clients, oldest := s.Clients(), "99.0.0"
	clients.Oldest = func(context.Context, string) (string, error) { return oldest, nil }
	m := stack.New(clients, stack.WithPoll(0))
	o := fresh()
	if _, err := m.Deploy(t.Context(), o, stack.Hooks{}); err == nil || !strings.Contains(err.Error(), "or allow the downgrade") {
		t.Errorf("Deploy() over a later version = %v", err)
	}
	o.AllowDowngrade = true
	if _, err := m.Deploy(t.Context(), o, stack.Hooks{}); err == nil || !strings.Contains(err.Error(), "for versions from 99.0.0 on") {
		t.Errorf("Deploy() on a table for later versions = %v", err)
	}
	oldest = zlimit.Version
	if _, err := m.Deploy(t.Context(), o, stack.Hooks{}); err != nil || s.Tag("limits", "zlimit:version") != zlimit.Version {
		t.Errorf("Deploy() that is allowed = %v", err)
	}
}

// TestOldCode keeps the code of the last five versions and of the stack, and that of the last day.
func TestOldCode(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := cfn.NewService()
	m := stack.New(s.Clients(), stack.WithPoll(0), stack.WithClock(func() time.Time { return now }))
	with := func(zip string) stack.Options {
		return stack.Options{Name: "limits", Code: &stack.Code{Zip: []byte(zip), Architecture: "arm64"}}
	}
	step := func(o stack.Options) {
		t.Helper()
		if _, err := m.Deploy(t.Context(), o, stack.Hooks{}); err != nil {
			t.Fatalf("Deploy() = %v", err)
		}
	}
	s.Uploaded = now
	for i := range 8 {
		now = now.Add(time.Minute)
		step(with(fmt.Sprint("zip ", i)))
		ofVersion(t, s, fmt.Sprintf("0.1.%d", i), now)
	}
	s.Objects["limits-bucket/code/by-hand.zip"] = []byte("of somebody")
	step(with("zip of the same day"))
	zips := func() (n int) {
		for name := range s.Objects {
			if strings.HasPrefix(name, "limits-bucket/code/") {
				n++
			}
		}
		return n
	}
	if zips() != 10 {
		t.Errorf("%d zips are kept on the same day, want all 10", zips())
	}
	now = now.Add(48 * time.Hour)
	s.Objects["limits-bucket/releases/notes.txt"] = []byte("of somebody")
	step(with("a zip beside what is no release"))
	if zips() != 11 {
		t.Errorf("%d zips are kept beside what is no release, want all 11", zips())
	}
	delete(s.Objects, "limits-bucket/releases/notes.txt")
	step(with("the last zip"))
	versions, err := m.Versions(t.Context(), "limits")
	slices.Sort(versions)
	if diff := cmp.Diff([]string{"0.1.4", "0.1.5", "0.1.6", "0.1.7", zlimit.Version}, versions); diff != "" || err != nil {
		t.Errorf("Versions() differs: %v (-want +got):\n%s", err, diff)
	}
	if zips() != 6 { // of five versions, and what somebody has put there
		t.Errorf("%d zips are kept: %v", zips(), slices.Sorted(maps.Keys(s.Objects)))
	}
}

// TestSavedPlan executes a plan that went through JSON as long as it is the one of now.
func TestSavedPlan(t *testing.T) {
	s := cfn.NewService()
	o := fresh()
	o.Settings = map[string]string{"memory": "1024"}
	save := func(o stack.Options) *stack.Plan {
		t.Helper()
		plan := check.Call(manager(s).Plan(t.Context(), o, stack.Hooks{})).Must(t, "Plan()")
		text, err := json.Marshal(plan)
		saved := &stack.Plan{Mark: plan.Mark}
		if err == nil {
			err = json.Unmarshal(text, saved)
		}
		check.Fatal(t, "json.Marshal()", err)
		return saved
	}
	apply := func(o stack.Options, saved *stack.Plan) error {
		_, err := manager(s).Deploy(t.Context(), o, stack.Hooks{Confirm: func(p *stack.Plan) (bool, error) { return true, saved.Check(p) }})
		return err
	}
	first := save(o)
	check.Fatal(t, "a new stack", apply(o, first))
	if err := apply(o, first); err != nil {
		t.Errorf("the plan again, which is done: %v", err)
	}
	o.Settings["memory"] = "2048"
	plan := save(o)
	other := o
	other.Settings = map[string]string{"memory": "512"}
	deploy(t, s, other, stack.Hooks{})
	if err := apply(o, plan); !errors.Is(err, stack.ErrStale) {
		t.Errorf("a plan with the same changes, of another memory: %v, want ErrStale", err)
	}
	plan, other = save(o), o
	other.Code = &stack.Code{Zip: []byte("other code"), Architecture: "arm64"}
	if err := apply(other, plan); !errors.Is(err, stack.ErrStale) {
		t.Errorf("a plan with other code: %v, want ErrStale", err)
	}
	if key := s.Stack("limits").Resources["AggregatorFunction"].Properties["MemorySize"]; fmt.Sprint(key) != "512" {
		t.Errorf("plans that are refused have changed the memory to %v", key)
	}
	check.Error(t, "apply()", apply(o, save(o)))
}
