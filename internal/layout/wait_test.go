package layout

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestBorrowAsks plans the write of a request that waits, on an old image of a bucket in debt. The write's condition
// has everything by which the plan went. That is the depth of the queue, the number of shards, room for the refill
// since the stamp, and the stamp itself.
func TestBorrowAsks(t *testing.T) {
	const now, stamp = 1_700_000_000_000, 1_700_000_000_000 - 1000
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	item := func(change ...expr.Attribute) expr.Item { return itemAt(k, stamp, -40_000, change...) }
	state := check.Call(ReadState(item())).Must(t, "ReadState()")
	config := state.Own()
	config.Freshness = 500
	var plan bucket.Plan
	demand := bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: 1000}}, Wait: 60_000}
	if plan.Decide(&state, config, &demand, now); plan.Kind != bucket.Spend {
		t.Fatalf("a request that waits is planned to %v", plan.Kind)
	}
	w := check.Call(k.Write(&plan, Lineage{})).Must(t, "Write()")
	tokens := func(n int64) expr.Attribute { return expr.Attribute{Name: "b_rpm_tk", Value: expr.N(n)} }
	for _, test := range []struct {
		name   string
		change expr.Attribute
		holds  bool
	}{
		{"as it was", tokens(-40_000), true},
		{"the last place of the queue", tokens(-609_000), true}, // 600 tokens flow in during the wait, and 10 have since the stamp
		{"a queue that is full", tokens(-609_001), false},
		{"room for the refill since the stamp", tokens(90_000), true},
		{"no room for the refill", tokens(90_001), false},
		{"another stamp", expr.Attribute{Name: "rf", Value: expr.N(stamp + 1)}, false},
		{"more shards", expr.Attribute{Name: "shard_count", Value: expr.N(2)}, false},
	} {
		if got := w.Expr.Holds(item(test.change)); got != test.holds {
			t.Errorf("%s: the write holds: %t, want %t", test.name, got, test.holds)
		}
	}
}

// itemAt returns an item of a bucket of one shard with a limit rpm, and changes of it.
func itemAt(k BucketKey, stamp, tokens int64, change ...expr.Attribute) expr.Item {
	i := k.Key().Join(expr.Item{
		{Name: "rf", Value: expr.N(stamp)},
		{Name: "shard_count", Value: expr.N(1)},
		{Name: "b_rpm_tk", Value: expr.N(tokens)},
		{Name: "b_rpm_cp", Value: expr.N(100_000)},
		{Name: "b_rpm_ra", Value: expr.N(10_000)},
		{Name: "b_rpm_rp", Value: expr.N(1000)},
		{Name: "b_wcu_tk", Value: expr.N(bucket.WriteCapacity)},
		{Name: "b_wcu_cp", Value: expr.N(bucket.WriteCapacity)},
		{Name: "b_wcu_ra", Value: expr.N(bucket.WriteCapacity)},
		{Name: "b_wcu_rp", Value: expr.N(1000)},
	})
	for _, a := range change {
		i.Set(a.Name, a.Value)
	}
	return i
}

// TestOweAsks plans a correction that may leave a debt. It asks for the limit, which an operator may have removed, and for the number of
// shards.
func TestOweAsks(t *testing.T) {
	const now, stamp = 1_700_000_000_000, 1_700_000_000_000 - 100
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	state := check.Call(ReadState(itemAt(k, stamp, 50_000))).Must(t, "ReadState()")
	config := state.Own()
	config.Freshness = 500
	var plan bucket.Plan
	demand := bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: 1000}}, Unchecked: true}
	if plan.Decide(&state, config, &demand, now); plan.Kind != bucket.Spend || plan.Steps[1].Kind != bucket.Owe {
		t.Fatalf("a correction is planned to %v: %+v", plan.Kind, plan.Steps)
	}
	w := check.Call(k.Write(&plan, Lineage{})).Must(t, "Write()")
	gone := itemAt(k, stamp, 50_000)
	for at := 0; at < len(gone); at++ {
		if gone[at].Name == "b_rpm_tk" {
			gone = append(gone[:at:at], gone[at+1:]...)
		}
	}
	if !w.Expr.Holds(itemAt(k, stamp, -40_000)) || w.Expr.Holds(gone) {
		t.Errorf("with the limit the write holds: %t; without it: %t", w.Expr.Holds(itemAt(k, stamp, -40_000)), w.Expr.Holds(gone))
	}
}
