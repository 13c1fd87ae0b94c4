package stack_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/stack"
)

// TestCrashes kills the process at every call, before and after the call is carried out. The next process comes to the same
// stack, and neither table nor bucket was replaced.
func TestCrashes(t *testing.T) {
	want := cfn.NewService()
	for _, o := range life {
		deploy(t, want, o, stack.Hooks{})
	}
	total := want.Calls()
	if total < 50 {
		t.Fatalf("%d calls", total)
	}
	for kill := 1; kill <= total; kill += step() {
		for _, after := range []bool{false, true} {
			s := cfn.NewService()
			dead := false
			s.Call = func(n int, _ string, then bool) error {
				if n >= kill && (then || !after || n > kill) {
					dead = true
				}
				if dead {
					return errKilled
				}
				return nil
			}
			for _, o := range life {
				_, err := manager(s).Deploy(t.Context(), o, stack.Hooks{})
				if errors.Is(err, errKilled) { // the next process
					s.Call, dead = nil, false
					_, err = manager(s).Deploy(t.Context(), o, stack.Hooks{})
				}
				if err != nil {
					t.Fatalf("killed at call %d (after it: %t): the next Deploy() = %v", kill, after, err)
				}
			}
			if diff := cmp.Diff(want.Stack("limits").Resources, s.Stack("limits").Resources); diff != "" || len(s.Replaced) > 0 {
				t.Fatalf("killed at call %d (after it: %t), replaced %v (-want +got):\n%s", kill, after, s.Replaced, diff)
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want.Objects)), slices.Sorted(maps.Keys(s.Objects))); diff != "" {
				t.Fatalf("killed at call %d: objects (-want +got):\n%s", kill, diff)
			}
		}
	}
	t.Logf("killed at %d calls, before and after", (total+step()-1)/step())
}
