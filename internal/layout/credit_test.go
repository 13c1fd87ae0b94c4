package layout

import (
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestPlaceAsks plans spends of a limit that is used up and of one that has been full since the stamp, or is full with what is given back. The
// write holds while the second one has been full by its reading. It takes that limit to the ceiling less the amount, so that the same take does
// not hold again.
func TestPlaceAsks(t *testing.T) {
	const now, stamp = 1_700_000_000_000, 1_700_000_000_000 - 600 // in which 6 tokens flow in
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	item := func(tpm int64) expr.Item {
		n := func(name string, value int64) expr.Attribute { return expr.Attribute{Name: name, Value: expr.N(value)} }
		return itemAt(k, stamp, -2000, n("b_tpm_tk", tpm), n("b_tpm_cp", 100_000), n("b_tpm_ra", 10_000), n("b_tpm_rp", 1000))
	}
	type holding struct {
		name  string
		tpm   int64
		holds bool
	}
	amounts := func(tokens int64) []bucket.Amount {
		return []bucket.Amount{{Limit: "rpm", Tokens: tokens}, {Limit: "tpm", Tokens: tokens}}
	}
	for _, test := range []struct {
		name   string
		demand bucket.Demand
		level  int64 // of the full limit after the write
		items  []holding
	}{
		{"take", bucket.Demand{Amounts: amounts(1000)}, 93_000, []holding{
			{"full at the stamp", 100_000, true},
			{"full by the reading", 94_000, true},
			{"not full by the reading", 93_999, false},
			{"after the write", 93_000, false},
		}},
		{"take of a caller that waits", bucket.Demand{Amounts: amounts(1000), Wait: 500}, 93_000, []holding{
			{"full by the reading", 94_000, true},
			{"not full by the reading", 93_999, false},
		}},
		{"refund", bucket.Demand{Amounts: amounts(-1000), Unchecked: true}, 94_000, []holding{
			{"full at the stamp", 100_000, true},
			{"full with the refund", 93_000, true},
			{"not full with the refund", 92_999, false},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := check.Call(ReadState(item(100_000))).Must(t, "ReadState()")
			config := state.Own()
			config.Freshness = 100
			var plan bucket.Plan
			plan.Decide(&state, config, &test.demand, now)
			at := slices.IndexFunc(plan.Steps, func(s bucket.Step) bool { return s.Kind == bucket.Place })
			if plan.Kind != bucket.Spend || at < 0 {
				t.Fatalf("Decide() = %v %+v, want a spend of a limit that was full", plan.Kind, plan.Steps)
			}
			if level := plan.Steps[at].Values[1]; level != test.level {
				t.Errorf("the limit is left with %d, want %d", level, test.level)
			}
			w := check.Call(k.Write(&plan, Lineage{})).Must(t, "Write()")
			for _, h := range test.items {
				if got := w.Expr.Holds(item(h.tpm)); got != h.holds {
					t.Errorf("%s: the write holds: %t, want %t", h.name, got, h.holds)
				}
			}
		})
	}
}

// TestPlaceLeavesFloors asks for more of a full limit than a floor leaves, beside a limit that is used up.
func TestPlaceLeavesFloors(t *testing.T) {
	const now, stamp = 1_700_000_000_000, 1_700_000_000_000 - 600
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	n := func(name string, value int64) expr.Attribute { return expr.Attribute{Name: name, Value: expr.N(value)} }
	state, err := ReadState(itemAt(k, stamp, -2000, n("b_tpm_tk", 100_000), n("b_tpm_cp", 100_000), n("b_tpm_ra", 10_000), n("b_tpm_rp", 1000)))
	check.Fatal(t, "ReadState()", err)
	config := state.Own()
	for i := range config.Params {
		if config.Params[i].Name == "tpm" {
			config.Params[i].Floors = "batch=20"
		}
	}
	for tokens, want := range map[int64]bucket.Kind{80_000: bucket.Spend, 80_001: bucket.Reject} {
		var plan bucket.Plan
		demand := bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: 1000}, {Limit: "tpm", Tokens: tokens}}, Priority: "batch"}
		if plan.Decide(&state, config, &demand, now); plan.Kind != want {
			t.Errorf("Decide() of %d of 100000 with a floor of 20 percent = %v %+v, want a %v", tokens, plan.Kind, plan.Steps, want)
		}
	}
}
