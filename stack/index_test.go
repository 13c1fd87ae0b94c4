package stack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/stack"
)

// lacking returns a service with a stack whose table has some of the global indexes alone, as an earlier template made it.
func lacking(t *testing.T, has ...string) *cfn.Service {
	t.Helper()
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	table := s.Stack("limits").Resources["Table"].Properties
	table["GlobalSecondaryIndexes"] = slices.DeleteFunc(slices.Clone(table["GlobalSecondaryIndexes"].([]any)), func(x any) bool {
		return !slices.Contains(has, fmt.Sprint(x.(map[string]any)["IndexName"]))
	})
	table["AttributeDefinitions"] = slices.DeleteFunc(slices.Clone(table["AttributeDefinitions"].([]any)), func(a any) bool {
		name := fmt.Sprint(a.(map[string]any)["AttributeName"])
		return strings.HasPrefix(name, "GSI") && !slices.Contains(has, name[:len("GSI1")])
	})
	return s
}

func indexes(s *cfn.Service) (names []string) {
	for _, x := range s.Stack("limits").Resources["Table"].Properties["GlobalSecondaryIndexes"].([]any) {
		names = append(names, fmt.Sprint(x.(map[string]any)["IndexName"]))
	}
	return names
}

// TestIndexesOneByOne adds the indexes that a table lacks, each in an update of its own: DynamoDB refuses two. The plan names
// all of them, and is confirmed once.
func TestIndexesOneByOne(t *testing.T) {
	all := []string{"GSI1", "GSI2", "GSI3", "GSI4"}
	for _, has := range [][]string{{"GSI1"}, {"GSI4", "GSI2"}, {"GSI1", "GSI2", "GSI4"}, all} {
		s := lacking(t, has...)
		var plans []*stack.Plan
		d := deploy(t, s, fresh(), stack.Hooks{Confirm: func(p *stack.Plan) (bool, error) { plans = append(plans, p); return true, nil }})
		if got := indexes(s); !slices.Equal(got, all) || d.Changed != (len(has) < len(all)) {
			t.Fatalf("from %v: the table has %v, changed %t", has, got, d.Changed)
		}
		if len(has) == len(all) {
			continue
		}
		later := 0
		for _, c := range plans[0].Changes {
			if c.Later && c.Resource == "Table" && c.Action == stack.ActionModify {
				later++
			}
		}
		if len(plans) != 1 || later != len(all)-len(has)-1 {
			t.Errorf("from %v: %d plans, the first one with %d indexes for later: %+v", has, len(plans), later, plans[0].Changes)
		}
	}
}

// TestIndexesAfterCrash ends a deployment at each of its calls: the next one adds what is left.
func TestIndexesAfterCrash(t *testing.T) {
	for at := 1; ; at += step() {
		s := lacking(t, "GSI1")
		dead, calls := false, 0
		s.Call = func(_ int, _ string, after bool) error {
			if !after {
				calls++
			}
			if dead = dead || calls == at; dead {
				return cfn.Fault("Killed", "the deployment has ended")
			}
			return nil
		}
		_, err := manager(s).Deploy(t.Context(), fresh(), stack.Hooks{})
		if s.Call = nil; !dead {
			if err != nil || at < 10 {
				t.Fatalf("Deploy() = %v after %d calls", err, at)
			}
			return
		}
		deploy(t, s, fresh(), stack.Hooks{})
		if got := indexes(s); len(got) != 4 {
			t.Fatalf("ended at call %d: the table has %v", at, got)
		}
	}
}
