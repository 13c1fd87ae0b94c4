package bucket

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestDebtsKeepTheirItem asks what a write for a waiting caller needs of an item that expires. The item has to last until the deepest debt that
// the write may leave is paid, and the limit is full.
func TestDebtsKeepTheirItem(t *testing.T) {
	limit := Limit{Name: "rpm", Tokens: -3000, Capacity: 10_000, RefillAmount: 1000, RefillPeriod: 1000}
	c := Config{Params: []Params{limit.params()}, Freshness: 500, ExpiryFactor: 1}
	s := State{Shards: 1, RefilledAt: waitNow, ExpiresAt: seconds(waitNow) + 1000, Limits: []Limit{
		limit, {Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000},
	}}
	var plan Plan
	d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 1000}}, Wait: 60_000}
	if plan.Decide(&s, &c, &d, waitNow); plan.Kind != Spend {
		t.Fatalf("Decide() = %v", plan.Kind)
	}
	if least := int64(waitNow + 60_000 + 10_000); plan.Now < least {
		t.Errorf("the item may expire %d ms before the last one of the queue is due, and the limit full", least-plan.Now)
	}
	if !c.Covers([]*State{&s}, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 1000}}, Wait: 4000}, waitNow) {
		t.Error("a look finds no place for a caller that waits long enough")
	}
	if c.Covers([]*State{&s}, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 1000}}, Wait: 3999}, waitNow) {
		t.Error("a look finds a place for a caller that does not wait long enough")
	}
}

// TestPlaceOutlastsItsDebt settles more than a full limit holds, beside a limit that is used up. The item has to last until that is paid.
func TestPlaceOutlastsItsDebt(t *testing.T) {
	full := Limit{Name: "tpm", Tokens: 10_000, Capacity: 10_000, RefillAmount: 1000, RefillPeriod: 1000}
	short := Limit{Name: "rpm", Tokens: -3000, Capacity: 10_000, RefillAmount: 1000, RefillPeriod: 1000}
	c := Config{Params: []Params{short.params(), full.params()}, ExpiryFactor: 1}
	s := State{Shards: 1, RefilledAt: waitNow - 500, Limits: []Limit{
		short, full, {Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000},
	}}
	d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 1}, {Limit: "tpm", Tokens: 50_000}}, Unchecked: true}
	for lasts, want := range map[int64]Kind{100: Spend, 40: Advance} {
		s.ExpiresAt = seconds(waitNow) + lasts
		var plan Plan
		if plan.Decide(&s, &c, &d, waitNow); plan.Kind != want {
			t.Errorf("Decide() for an item that lasts %d s = %v, want a %v", lasts, plan.Kind, want)
		}
	}
}

// TestFullShardsPassRefundsOn gives tokens back to a shard that is full, beside a limit that is used up. What does not fit belongs to other
// shards, so the plan reports that.
func TestFullShardsPassRefundsOn(t *testing.T) {
	full := Limit{Name: "tpm", Tokens: 10_000, Capacity: 20_000, RefillAmount: 2000, RefillPeriod: 1000}
	short := Limit{Name: "rpm", Tokens: -3000, Capacity: 20_000, RefillAmount: 2000, RefillPeriod: 1000}
	units := Limit{Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000}
	c := Config{Params: []Params{short.params(), full.params()}}
	d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: -1}, {Limit: "tpm", Tokens: -1000}}, Unchecked: true}
	for shards, want := range map[int]Kind{1: Spend, 2: Advance} {
		s := State{Shards: shards, RefilledAt: waitNow - 500, Limits: []Limit{short, full, units}}
		s.Limits[1].Tokens = full.Capacity / int64(shards)
		var plan Plan
		if plan.Decide(&s, &c, &d, waitNow); plan.Kind != want || plan.Overflows != (shards > 1) {
			t.Errorf("Decide() for one of %d shards = %v, overflows: %t; want a %v", shards, plan.Kind, plan.Overflows, want)
		}
	}
}

// TestSpendOfMoreThanALimitHolds takes more than a limit can hold, of an item that has so much nonetheless: manually, or from before
// a window. No write without a refill takes that.
func TestSpendOfMoreThanALimitHolds(t *testing.T) {
	half := check.Call(calendar.ParseWindows("* * * * * x0.5", "UTC")).Must(t, "calendar.ParseWindows()")
	for name, test := range map[string]struct {
		windows        *calendar.Windows
		tokens, amount int64
		spends         bool
	}{
		"all that it holds":              {nil, 10_000, 10_000, true},
		"more than it holds":             {nil, 20_000, 10_001, false},
		"all that it holds in a window":  {half, 10_000, 5000, true},
		"more than it holds in a window": {half, 10_000, 5001, false},
	} {
		limit := Limit{Name: "rpm", Tokens: test.tokens, Capacity: 10_000, RefillAmount: 1000, RefillPeriod: 1000}
		if test.windows != nil {
			limit.Change(func(r *Rare) { r.Windows = test.windows })
		}
		c := Config{Params: []Params{limit.params()}, Freshness: 500}
		s := State{Shards: 1, RefilledAt: waitNow, Limits: []Limit{
			limit, {Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000},
		}}
		var plan Plan
		plan.Decide(&s, &c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: test.amount}}}, waitNow)
		if (plan.Kind == Spend) != test.spends {
			t.Errorf("%s: Decide() = %v", name, plan.Kind)
		}
	}
}
