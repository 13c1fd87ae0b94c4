package layout

import (
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
)

// TestPlaceAsks plans a spend from a limit that is used up and from one that has been full since the stamp. The write holds while the second
// one has been full by its reading, and takes that limit to the ceiling less the amount, so that the same write does not hold again.
func TestPlaceAsks(t *testing.T) {
	const now, stamp = 1_700_000_000_000, 1_700_000_000_000 - 600 // in which 6 tokens flow in
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	item := func(tpm int64) expr.Item {
		n := func(name string, value int64) expr.Attribute { return expr.Attribute{Name: name, Value: expr.N(value)} }
		return itemAt(k, stamp, -2000, n("b_tpm_tk", tpm), n("b_tpm_cp", 100_000), n("b_tpm_ra", 10_000), n("b_tpm_rp", 1000))
	}
	state, err := ReadState(item(100_000))
	if err != nil {
		t.Fatal(err)
	}
	config := state.Own()
	config.Freshness = 100
	var plan bucket.Plan
	demand := bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: 1000}, {Limit: "tpm", Tokens: 1000}}}
	plan.Decide(&state, config, &demand, now)
	at := slices.IndexFunc(plan.Steps, func(s bucket.Step) bool { return s.Kind == bucket.Place })
	if plan.Kind != bucket.Spend || at < 0 {
		t.Fatalf("Decide() = %v %+v, want a spend that takes from a limit that was full", plan.Kind, plan.Steps)
	}
	if level := plan.Steps[at].Values[1]; level != 93_000 {
		t.Errorf("the limit is left with %d, want 93000", level)
	}
	w, err := k.Write(&plan, Lineage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		tpm   int64
		holds bool
	}{
		{"full at the stamp", 100_000, true},
		{"full by the reading", 94_000, true},
		{"not full by the reading", 93_999, false},
		{"after the write", 93_000, false},
	} {
		if got := w.Expr.Holds(item(test.tpm)); got != test.holds {
			t.Errorf("%s: the write holds: %t, want %t", test.name, got, test.holds)
		}
	}
}
