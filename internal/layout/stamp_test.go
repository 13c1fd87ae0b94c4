package layout

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestStepsThatSet compares the kinds of step that make a plan move the stamp with the clauses that set or remove attributes, as the
// schema declares them.
func TestStepsThatSet(t *testing.T) {
	for kind := range bucket.StepKinds {
		want := false
		switch {
		case kind == bucket.Put || kind == bucket.Remove: // a clause of noting, which asks nothing
			want = true
		case kind == bucket.Persist:
			want = advanceSets[advancePersist]
		case advanceSteps[kind] >= 0:
			want = advanceSets[advanceSteps[kind]]
		}
		if got := kind.Sets(); got != want {
			t.Errorf("step %d: Sets = %t, want %t as its clause %q has it", kind, got, want, advanceOperation.Clauses[max(advanceSteps[kind], 0)].Name)
		}
	}
	for _, clause := range noting.Clauses[len(advanceOperation.Clauses):] {
		if len(clause.Where) > 0 {
			t.Errorf("clause %s of a note asks for something", clause.Name)
		}
	}
}

// TestRepeatMovesTheStamp checks that a write that leaves the stamp as it was repeats no levels: another one may use the same stamp.
func TestRepeatMovesTheStamp(t *testing.T) {
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	for _, now := range []int64{1000, 1001} {
		w, err := k.WriteAt(k.Key(), &bucket.Plan{Kind: bucket.Advance, RefilledAt: 1000, Now: now}, Lineage{}, &Repeated{ReadAt: 5, Levels: "{}"})
		check.Fatal(t, "WriteAt()", err)
		item := check.Call(w.Expr.Apply(expr.Item{number("rf", 1000)})).Must(t, "Expr.Apply()")
		if got, want := item.Index("cl") >= 0, now > 1000; got != want {
			t.Errorf("a write of stamp %d on stamp 1000 repeats levels: %t, want %t", now, got, want)
		}
	}
}

// TestExpiryAsks checks that a write that prolongs an item asks for the time of expiry as it was seen.
func TestExpiryAsks(t *testing.T) {
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	w, err := k.Write(&bucket.Plan{Kind: bucket.Advance, RefilledAt: 1000, Now: 1000, Steps: []bucket.Step{{Kind: bucket.Expire, Values: [5]int64{50, 60}}}}, Lineage{})
	check.Fatal(t, "Write()", err)
	for ttl, want := range map[int64]bool{50: true, 51: false, 60: false} {
		if got := w.Expr.Holds(itemAt(k, 1000, 0, number("ttl", ttl))); got != want {
			t.Errorf("a write that was planned for ttl 50 holds at %d: %t", ttl, got)
		}
	}
}
