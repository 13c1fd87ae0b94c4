package layout

import (
	"errors"
	"math"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// quotaItem is an item with a quota whose figures hold until a time.
func quotaItem(until int64, more ...expr.Attribute) expr.Item {
	return BucketKey{NS: "ns", Entity: "e", Resource: "r"}.Key().Join(append(expr.Item{
		{Name: "rf", Value: expr.N(until - 1000)},
		{Name: "shard_count", Value: expr.N(1)},
		{Name: "sched_tz", Value: expr.S("Europe/Berlin")},
		{Name: "vu", Value: expr.N(until)},
		{Name: "b_day_tk", Value: expr.N(4000)},
		{Name: "b_day_cp", Value: expr.N(10_000)},
		{Name: "b_day_rp", Value: expr.N(1000)},
		{Name: "b_day_rsched", Value: expr.S("1m0h0")},
		{Name: "b_wcu_tk", Value: expr.N(0)},
		{Name: "b_wcu_cp", Value: expr.N(bucket.WriteCapacity)},
		{Name: "b_wcu_ra", Value: expr.N(bucket.WriteCapacity)},
		{Name: "b_wcu_rp", Value: expr.N(1000)},
	}, more...))
}

// A spend of an item without a generation and without edges asks that it has got neither. That of another item asks for both.
func TestSpendAsksForAPlainItem(t *testing.T) {
	plain := expr.Item{number("rf", 1_700_000_000_000), number("ttl", 1_900_000_000), number("b_rpm_tk", 5000), number("b_rpm_tc", 0)}
	for name, test := range map[string]struct {
		at, generation int64
	}{
		"plain":      {math.MaxInt64, 0},
		"with edges": {1_700_000_000_500, 0},
		"moved":      {math.MaxInt64, 50},
	} {
		p := bucket.Plan{
			Kind: bucket.Spend, RefilledAt: 1_700_000_000_000, Now: 1_700_000_000_000, At: test.at, Generation: test.generation,
			Steps: []bucket.Step{{Kind: bucket.Take, Limit: "rpm", Values: [5]int64{1000}}},
		}
		bound, err := bindSpend(&p)
		if err != nil {
			t.Fatalf("%s: bind: %v", name, err)
		}
		with := func(attributes ...expr.Attribute) bool {
			return bound.Holds(BucketKey{NS: "ns", Entity: "e", Resource: "r"}.Key().Join(append(plain, attributes...)))
		}
		valid, moved := number("vu", 1_700_000_001_000), number("cg", 50)
		if !with() {
			t.Errorf("%s: the write is refused on a plain item", name)
		}
		if got, want := with(valid), test.at != math.MaxInt64; got != want {
			t.Errorf("%s: the write holds on an item with an edge: %t, want %t", name, got, want)
		}
		if got, want := with(moved), test.generation == 50; got != want {
			t.Errorf("%s: the write holds on an item of a moved entity: %t, want %t", name, got, want)
		}
	}
}

// TestSpendAsksForThePeriod plans takes and refunds before a quota resets. They do not hold once it has, whether the item
// shows that or not.
func TestSpendAsksForThePeriod(t *testing.T) {
	const edge, next = 1_795_474_800_000, 1_795_561_200_000 // midnight in Berlin
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	state := check.Call(ReadState(quotaItem(edge))).Must(t, "ReadState()")
	config := state.Own()
	config.Freshness = 5000
	write := func(amount, now int64) store.Write {
		t.Helper()
		var plan bucket.Plan
		d := bucket.Demand{Amounts: []bucket.Amount{{Limit: "day", Tokens: amount}}, Unchecked: amount < 0}
		if plan.Decide(&state, config, &d, now); plan.Kind != bucket.Spend {
			t.Fatalf("%d at %d is planned to %v", amount, now, plan.Kind)
		}
		return check.Call(k.Write(&plan, Lineage{})).Must(t, "Write()")
	}
	take, refund := write(1000, edge-1), write(-1000, edge-1)
	for _, test := range []struct {
		name         string
		item         expr.Item
		take, refund bool
	}{
		{"as it was", quotaItem(edge), true, true},
		{"past its edge", quotaItem(edge - 1), false, false},
		{"in its next period", quotaItem(edge, expr.Attribute{Name: "rf", Value: expr.N(edge)}, expr.Attribute{Name: "vu", Value: expr.N(next)}), true, false},
		{"without an edge", quotaItem(edge, expr.Attribute{Name: "vu", Value: expr.Null()}), false, false},
	} {
		last := expr.Item{}
		for _, a := range test.item { // the later one of two holds
			last.Set(a.Name, a.Value)
		}
		if got := take.Expr.Holds(last); got != test.take {
			t.Errorf("a take holds for an item %s: %t", test.name, got)
		}
		if got := refund.Expr.Holds(last); got != test.refund {
			t.Errorf("a refund holds for an item %s: %t", test.name, got)
		}
	}
}

// TestTimesOfItems reads items as zae-limiter 0.17 writes them: limits that share their times, one without, and
// unreadable times.
func TestTimesOfItems(t *testing.T) {
	shared := func(of, own string) expr.Item {
		item := quotaItem(1000, expr.Attribute{Name: "rsched", Value: expr.S(of)})
		for _, a := range []expr.Attribute{
			{Name: "b_rpm_tk", Value: expr.N(0)},
			{Name: "b_rpm_cp", Value: expr.N(1000)},
			{Name: "b_rpm_ra", Value: expr.N(1000)},
			{Name: "b_rpm_rp", Value: expr.N(1000)},
			{Name: "b_rpm_rsched", Value: expr.S("-")},
		} {
			item.Set(a.Name, a.Value)
		}
		item.Set("b_day_rsched", expr.S(own))
		return item
	}
	timesOf := func(s *bucket.State, name string) *calendar.Times {
		for _, l := range s.Limits {
			if l.Name == name {
				return l.Times()
			}
		}
		return nil
	}
	s, err := ReadState(shared("1m0h0w1", ""))
	if err != nil || !s.Inherits() || timesOf(&s, "rpm") != nil || timesOf(&s, bucket.WriteUnits) != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	if got := timesOf(&s, "day"); got == nil || got.Compact() != "1m0h0w1" || got.Zone() != "Europe/Berlin" {
		t.Errorf("a limit without times of its own has %v", got)
	}
	if s, err := ReadState(shared("1m0h0w1", "1m0h0")); err != nil || timesOf(&s, "day").Compact() != "1m0h0" {
		t.Errorf("a limit with times of its own: %+v, %v", s, err)
	}
	var wrong *store.ItemError
	if _, err := ReadState(shared("1m99", "")); !errors.As(err, &wrong) || wrong.Attribute != "b_day_rsched" {
		t.Errorf("times with another field: %v", err)
	}
	var refused *RefusedError
	if s, err := ReadState(shared("1m0h0", "2m0h0")); !errors.As(err, &refused) || refused.Refused[0].Attribute != "b_day_rsched" || timesOf(&s, "day").Compact() != "1m0h0" {
		t.Errorf("times in a later version: %+v, %v", s, err)
	}
	unknown := shared("1m0h0", "")
	unknown.Set("sched_tz", expr.S("Europe/Bonn"))
	if _, err := ReadState(unknown); err == nil {
		t.Error("an item with an unknown zone is read")
	}
}
