package bucket

import "testing"

// TestDebtsKeepTheirItem asks what a write for a waiting caller needs of an item that expires. The item has to last until the deepest debt that
// the write may leave is paid, and the limit is full.
func TestDebtsKeepTheirItem(t *testing.T) {
	limit := Limit{Name: "rpm", Tokens: -3000, Capacity: 10_000, RefillAmount: 1000, RefillPeriod: 1000}
	c := Config{Params: []Params{limit.params()}, Freshness: 500, Lifetime: 1}
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
