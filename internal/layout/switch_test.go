package layout

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestSpendAsksForNoSwitch plans the write of a request from an image of a bucket that served requests. Another program
// may disable the bucket without a generation, or an operator may stamp it. The write of a settlement asks for less.
func TestSpendAsksForNoSwitch(t *testing.T) {
	const now = 1_700_000_000_000
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	item := func(change ...expr.Attribute) expr.Item {
		return itemAt(k, now, 40_000, append([]expr.Attribute{{Name: "cg", Value: expr.N(now - 1000)}}, change...)...)
	}
	state := check.Call(ReadState(item())).Must(t, "ReadState()")
	config := state.Own()
	config.Freshness = 500
	for _, settles := range []bool{false, true} {
		var plan bucket.Plan
		demand := bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: 1000}}, Unchecked: settles, Settles: settles}
		if plan.Decide(&state, config, &demand, now); plan.Kind != bucket.Spend {
			t.Fatalf("settles %t: planned to %v", settles, plan.Kind)
		}
		w := check.Call(k.Write(&plan, Lineage{})).Must(t, "Write()")
		for _, test := range []struct {
			name   string
			change expr.Attribute
			holds  bool
		}{
			{"as it was", expr.Attribute{Name: "b_rpm_tk", Value: expr.N(40_000)}, true},
			{"disabled by another program", expr.Attribute{Name: "disabled", Value: expr.Bool(true)}, settles},
			{"marked", expr.Attribute{Name: "cg", Value: expr.N(now)}, false},
		} {
			if got := w.Expr.Holds(item(test.change)); got != test.holds {
				t.Errorf("settles %t, %s: the write holds: %t, want %t", settles, test.name, got, test.holds)
			}
		}
	}
}
