package stack_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/cfn"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestVersionsAreRaisedLast raises the versions of a table once the aggregator is there, and not when something failed.
func TestVersionsAreRaisedLast(t *testing.T) {
	s := cfn.NewService()
	var raised []string
	clients := s.Clients()
	clients.Setup = func(_ context.Context, table, aggregator string) error {
		if s.Status("limits") != "UPDATE_COMPLETE" || aggregator != "" && !slices.Contains(s.Stack("limits").IDs(), "Stream") {
			t.Errorf("versions are raised while the stack is %s with %v", s.Status("limits"), s.Stack("limits").IDs())
		}
		raised = append(raised, table+" "+aggregator)
		return nil
	}
	m := stack.New(clients, stack.WithPoll(0))
	deploy := func(o stack.Options) error {
		t.Helper()
		_, err := m.Deploy(t.Context(), o, stack.Hooks{})
		return err
	}
	s.Fail["Stream"] = "no capacity for you"
	var failed *stack.FailedError
	if err := deploy(fresh()); !errors.As(err, &failed) || len(raised) > 0 {
		t.Errorf("Deploy() = %v, and versions are raised: %v", err, raised)
	}
	delete(s.Fail, "Stream")
	for _, step := range []struct {
		options stack.Options
		want    string
	}{
		{fresh(), "limits " + zlimit.Version},
		{fresh(), "limits " + zlimit.Version}, // a run before may have ended too early
		{stack.Options{Name: "limits", Settings: map[string]string{"memory": "256"}}, "limits "},
		{stack.Options{Name: "limits", Settings: map[string]string{"aggregator": "false"}, Code: code}, "limits "},
	} {
		raised = nil
		if err := deploy(step.options); err != nil || !slices.Equal(raised, []string{step.want}) {
			t.Errorf("Deploy(%v) = %v, raised %q, want %q", step.options.Settings, err, raised, step.want)
		}
	}
}
