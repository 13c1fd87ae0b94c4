package stack_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestStatus looks at a stack, at one with an alarm and drift, and at one of which little can be found out.
func TestStatus(t *testing.T) {
	s := cfn.NewService()
	if _, err := manager(s).Status(t.Context(), "limits", true); !errors.Is(err, stack.ErrNotFound) {
		t.Errorf("Status() of no stack = %v", err)
	}
	deploy(t, s, fresh(), stack.Hooks{})
	st, err := manager(s).Status(t.Context(), "limits", true)
	if err != nil || st.Status != "UPDATE_COMPLETE" || st.Deployed != zlimit.Version || st.Table == nil || !st.Table.Protected || st.Table.Items != 1234 ||
		st.Stream == nil || st.Stream.State != "Enabled" || st.Stream.Lag.Seconds() != 1.5 || st.Dead == nil || *st.Dead != 0 ||
		len(st.Alarms) != 9 || len(st.Drift) > 0 || len(st.Failed) > 0 {
		t.Errorf("Status() = %+v, %v", st, err)
	}
	s.Ringing["limits-aggregator-lag"] = true
	s.Drifted["Log"] = "RetentionInDays"
	st, err = manager(s).Status(t.Context(), "limits", true)
	if err != nil || !slices.Contains(st.Alarms, stack.AlarmStatus{Name: "limits-aggregator-lag", State: "ALARM"}) {
		t.Errorf("Status() = %+v, %v, want an alarm", st, err)
	}
	compare.Equal(t, "drift", []stack.Drift{{Resource: "Log", Status: "MODIFIED", Properties: []string{"RetentionInDays"}}}, st.Drift)
	for name, want := range map[string]string{
		"DescribeTable": "table: ", "ListEventSourceMappings": "stream: ", "GetMetricStatistics": "stream: lag: ", "GetQueueAttributes": "dead letters: ",
		"DescribeAlarms": "alarms: ", "DetectStackDrift": "drift: ", "DescribeStackResources": "list the resources",
	} {
		s.Call = func(_ int, call string, after bool) error {
			if call == name && !after {
				return cfn.Fault("AccessDenied", "not you")
			}
			return nil
		}
		st, err := manager(s).Status(t.Context(), "limits", true)
		if err != nil || len(st.Failed) != 1 || !strings.Contains(st.Failed[0], want) || !strings.Contains(st.Failed[0], "not you") {
			t.Errorf("Status() without %s = %+v, %v, want one failed look-up with %q", name, st, err, want)
		}
	}
}

// TestFindings covers one thing wrong at a time, each of which an operator should look at, and then none.
func TestFindings(t *testing.T) {
	letters := int64(3)
	for want, spoil := range map[string]func(*stack.Status){
		"":                                          func(*stack.Status) {},
		"the stack is UPDATE_ROLLBACK_COMPLETE":     func(s *stack.Status) { s.Status = "UPDATE_ROLLBACK_COMPLETE" },
		"the stack is REVIEW_IN_PROGRESS":           func(s *stack.Status) { s.Status = "REVIEW_IN_PROGRESS" },
		"table limits is UPDATING":                  func(s *stack.Status) { s.Table.Status = "UPDATING" },
		"table limits has no stream":                func(s *stack.Status) { s.Table.Stream = false },
		"the mapping of the aggregator is Disabled": func(s *stack.Status) { s.Stream.State = "Disabled" },
		"dead letters: 3":                           func(s *stack.Status) { s.Dead = &letters },
		"alarm lag is raised":                       func(s *stack.Status) { s.Alarms[0].State = "ALARM" },
		"Log was changed past CloudFormation: MODIFIED": func(s *stack.Status) {
			s.Drift = []stack.Drift{{Resource: "Log", Status: "MODIFIED"}}
		},
	} {
		st := &stack.Status{
			Status: "UPDATE_COMPLETE", Table: &stack.TableStatus{Name: "limits", Status: "ACTIVE", Stream: true},
			Stream: &stack.StreamStatus{State: "Enabled"}, Dead: new(int64),
			Alarms: []stack.AlarmStatus{{Name: "lag", State: "OK"}, {Name: "new", State: "INSUFFICIENT_DATA"}},
		}
		spoil(st)
		if got := strings.Join(st.Findings(), "; "); got != want {
			t.Errorf("Findings() = %q, want %q", got, want)
		}
	}
	if got := (&stack.Status{Status: "CREATE_COMPLETE", Table: &stack.TableStatus{Status: "ACTIVE"}}).Findings(); len(got) > 0 {
		t.Errorf("Findings() without an aggregator = %q", got)
	}
}

// TestList lists stacks by their tag, over pages; the others are left out.
func TestList(t *testing.T) {
	s := cfn.NewService()
	for _, name := range []string{"one", "two", "three", "four", "ZAEL-old", "strange"} {
		deploy(t, s, stack.Options{Name: name, Settings: map[string]string{"aggregator": "false"}}, stack.Hooks{})
	}
	s.SetTag("ZAEL-old", "zlimit:stack", "")
	s.SetTag("strange", "zlimit:stack", "")
	list, err := manager(s).List(t.Context())
	var names []string
	for _, l := range list {
		names = append(names, l.Name)
	}
	if want := []string{"ZAEL-old", "four", "one", "three", "two"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("List() = %v, %v, want %v", names, err, want)
	}
	s.Call = func(int, string, bool) error { return cfn.Fault("AccessDenied", "not you") }
	if _, err := manager(s).List(t.Context()); err == nil {
		t.Error("List() without permission = nil")
	}
}

func TestCheck(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	for deployed, want := range map[string]stack.Verdict{zlimit.Version: stack.VerdictCompatible, "0.1.0": stack.VerdictUpgradable, "": stack.VerdictUpgradable, "99.0.0": stack.VerdictTooOld} {
		s.SetTag("limits", "zlimit:version", deployed)
		if c, err := manager(s).Check(t.Context(), "limits"); err != nil || c.Verdict != want || !c.Aggregator {
			t.Errorf("Check() of version %q = %+v, %v, want %s", deployed, c, err, want)
		}
	}
}

func yes(*stack.Deletion) (bool, error) { return true, nil }
func ignore(stack.Event)                {}

// TestDelete deletes a stack, and keeps its data; then deploys on the table that was kept, and deletes all.
func TestDelete(t *testing.T) {
	s := cfn.NewService()
	m := manager(s)
	deploy(t, s, fresh(), stack.Hooks{})
	var asked *stack.Deletion
	no := func(d *stack.Deletion) (bool, error) { asked = d; return false, nil }
	if _, err := m.Delete(t.Context(), "limits", false, no, ignore); !errors.Is(err, stack.ErrDeclined) || s.Status("limits") == "" || asked.Items != 1234 {
		t.Errorf("Delete() declined = %v, %+v", err, asked)
	}
	d, err := m.Delete(t.Context(), "limits", false, yes, ignore)
	if err != nil || s.Status("limits") != "" || !slices.Equal(s.Kept["AWS::DynamoDB::Table"], []string{"limits"}) || len(s.Objects) != 2 || s.Deleted["limits"] {
		t.Errorf("Delete() = %+v, %v; kept %v", d, err, s.Kept)
	}
	deploy(t, s, fresh(), stack.Hooks{})
	s.Objects["limits-bucket/audit/1"] = nil
	if _, err := m.Delete(t.Context(), "limits", true, yes, ignore); err != nil || !s.Deleted["limits"] || !s.Deleted["limits-bucket"] || len(s.Objects) > 0 {
		t.Errorf("Delete() with data = %v; deleted %v, objects %v", err, s.Deleted, s.Objects)
	}
	if _, err := m.Delete(t.Context(), "limits", false, yes, ignore); !errors.Is(err, stack.ErrNotFound) {
		t.Errorf("Delete() of no stack = %v", err)
	}
}

// TestDeleteCrashes kills the process at every call of a deletion with data, before and after it: the next one ends it.
func TestDeleteCrashes(t *testing.T) {
	for kill := 1; ; kill += step() {
		for _, after := range []bool{false, true} {
			s := cfn.NewService()
			deploy(t, s, fresh(), stack.Hooks{})
			first, dead := s.Calls(), false
			s.Call = func(n int, _ string, then bool) error {
				if n >= first+kill && (then || !after || n > first+kill) {
					dead = true
				}
				if dead {
					return errKilled
				}
				return nil
			}
			_, err := manager(s).Delete(t.Context(), "limits", true, yes, ignore)
			if err == nil {
				if kill < 20 {
					t.Errorf("a deletion has %d calls", kill)
				}
				return
			}
			s.Call = nil
			_, err = manager(s).Delete(t.Context(), "limits", true, yes, ignore)
			if err != nil && !errors.Is(err, stack.ErrNotFound) || s.Status("limits") != "" || !s.Deleted["limits"] || !s.Deleted["limits-bucket"] {
				t.Fatalf("killed at call %d (after it: %t): the next Delete() = %v; deleted %v", kill, after, err, s.Deleted)
			}
		}
	}
}

// TestDeleteFails makes a resource refuse to go.
func TestDeleteFails(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	s.Fail["Log"] = "in use"
	var failed *stack.FailedError
	if _, err := manager(s).Delete(t.Context(), "limits", false, yes, ignore); !errors.As(err, &failed) || failed.Resource != "Log" {
		t.Errorf("Delete() = %v", err)
	}
	delete(s.Fail, "Log")
	if _, err := manager(s).Delete(t.Context(), "limits", false, yes, ignore); err != nil {
		t.Errorf("the next Delete() = %v", err)
	}
}
