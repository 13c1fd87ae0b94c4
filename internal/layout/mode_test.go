package layout

import (
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestModesAsk plans writes that go beyond a limit: of a soft limit, for a request that a shadow limit would refuse, and of a bypass. Each asks
// that the item says so by now.
func TestModesAsk(t *testing.T) {
	const now, stamp = 1_700_000_000_000, 1_700_000_000_000 - 50
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	shade, soft := number("b_rpm_sh", 1), func(until int64) expr.Attribute { return number("b_rpm_soft", until) }
	amounts := []bucket.Amount{{Limit: "rpm", Tokens: 1000}}
	foreseen := (&bucket.Demand{Amounts: amounts}).Foreseen("rpm")
	bypassed := (&bucket.Demand{Amounts: amounts}).Bypassing()
	for name, test := range map[string]struct {
		demand bucket.Demand
		item   []expr.Attribute
		over   expr.Attribute // the item says that the time is over
		gone   string         // the item says it no longer
	}{
		"soft":   {bucket.Demand{Amounts: amounts}, []expr.Attribute{soft(now + 1)}, soft(now), "b_rpm_soft"},
		"shadow": {foreseen, []expr.Attribute{soft(now + 1), shade}, soft(now), "b_rpm_soft"},
		"bypass": {bypassed, []expr.Attribute{number("bypass", now+1)}, number("bypass", now), "bypass"},
	} {
		item := func(change ...expr.Attribute) expr.Item {
			return itemAt(k, stamp, -40_000, append(test.item[:len(test.item):len(test.item)], change...)...)
		}
		state := check.Call(ReadState(item())).Must(t, "ReadState()")
		config := state.Own()
		config.Freshness = 500
		var plan bucket.Plan
		if plan.Decide(&state, config, &test.demand, now); plan.Kind != bucket.Spend {
			t.Fatalf("%s: it is planned to %v", name, plan.Kind)
		}
		w := check.Call(k.Write(&plan, Lineage{})).Must(t, "Write()")
		if !w.Expr.Holds(item()) {
			t.Errorf("%s: the write does not hold for the item as it was", name)
		}
		if w.Expr.Holds(item(test.over)) {
			t.Errorf("%s: the write holds when the time is over", name)
		}
		left := item()
		left = append(left[:left.Index(test.gone)], left[left.Index(test.gone)+1:]...)
		if w.Expr.Holds(left) {
			t.Errorf("%s: the write holds for an item without %s", name, test.gone)
		}
		if name == "soft" {
			left := item()
			left = append(left[:left.Index("b_rpm_tk")], left[left.Index("b_rpm_tk")+1:]...)
			if w.Expr.Holds(left) {
				t.Error("soft: the write holds for an item without a balance")
			}
		}
		if plan.Decide(&state, config, &test.demand, now+1); plan.Kind != bucket.Advance {
			t.Errorf("%s: when the time is over, it is planned to %v", name, plan.Kind)
		}
	}
}

// TestEveryStepHasAClause looks at each kind of step. A plan with another one would end in a panic.
func TestEveryStepHasAClause(t *testing.T) {
	byHand := []bucket.StepKind{bucket.Put, bucket.Remove, bucket.HoldSlots, bucket.GiveSlots, bucket.Persist}
	for kind := range bucket.StepKinds {
		if spendSteps[kind] < 0 && advanceSteps[kind] < 0 && !slices.Contains(byHand, kind) {
			t.Errorf("steps of kind %d have no clause, in spend or advance", kind)
		}
	}
}
