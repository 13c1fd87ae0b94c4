package bucket

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCreditIsExact has several clients take of one item on credit: within a second, from images that are old, by writes that arrive late and in
// any order, with clocks a little apart and some refunds. The item has at any time what ideal buckets have that see the same writes, each at
// the latest time by which a write of the limit was judged. No rejection by the item itself is without a cause. A refund that was judged before
// that time may leave what flows in between the two beyond the capacity, until the next write as of that time.
//
// [TestExact] has idle times and greater differences of clocks, in which a stamp is seldom young enough for credit.
func TestCreditIsExact(t *testing.T) {
	type held struct {
		plan   Plan
		demand Demand
		at     int64
		by     *client
		image  *State
	}
	onCredit, late, placed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var c Config
		for _, name := range []string{"rpm", "tpm", "rpd"}[:rapid.IntRange(1, 3).Draw(t, "limits")] {
			c.Params = append(c.Params, Params{
				Name:         name,
				Capacity:     rapid.Int64Range(1, 12).Draw(t, "capacity") * 1000,
				RefillAmount: rapid.Int64Range(1, 40).Draw(t, "refill") * 1000,
				RefillPeriod: rapid.SampledFrom([]int64{997, 1000, 3000}).Draw(t, "period"),
			})
		}
		clients := make([]client, rapid.IntRange(2, 3).Draw(t, "clients"))
		for i := range clients {
			clients[i].skew = rapid.Int64Range(-50, 50).Draw(t, "skew")
		}
		now := int64(1_700_000_000_000)
		stored, buckets := &item{}, map[string]*ideal{}
		var under []held
		arrive := func(h held) {
			before := stored.image()
			applied := stored.apply(&h.plan)
			if !applied || before == nil || h.by.image == nil || before.RefilledAt != h.by.image.RefilledAt {
				h.by.image = stored.image()
			}
			if !applied {
				if h.plan.Writes() && reflect.DeepEqual(h.image, before) {
					t.Fatalf("the %v made from the item itself fails on it: %+v", h.plan.Kind, h.plan.Steps)
				}
				return
			}
			if h.plan.OnCredit {
				if onCredit++; !reflect.DeepEqual(h.image, before) {
					late++
				}
				if slices.ContainsFunc(h.plan.Steps, func(s Step) bool { return s.Kind == Place }) {
					placed++
				}
			}
			for _, p := range c.Params {
				if buckets[p.Name] == nil {
					buckets[p.Name] = &ideal{Params: p, level: rat(p.Capacity), at: stored.state.RefilledAt}
				}
				compare(t, stored.state, buckets[p.Name], &h.plan, &h.demand, h.at)
			}
		}
		for range rapid.IntRange(10, 80).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Int64Range(0, 40), rapid.Int64Range(0, 40), rapid.Int64Range(0, 400)).Draw(t, "elapsed")
			for len(under) > 0 && rapid.Bool().Draw(t, "arrives") {
				i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
				h := under[i]
				under = append(under[:i:i], under[i+1:]...)
				arrive(h)
			}
			by := &clients[rapid.IntRange(0, len(clients)-1).Draw(t, "client")]
			if rapid.IntRange(0, 3).Draw(t, "looks") == 0 {
				by.image = stored.image()
			}
			h := held{at: now + by.skew, by: by, image: by.image}
			h.demand.Unchecked = rapid.IntRange(0, 5).Draw(t, "settles") == 0
			for _, p := range c.Params {
				if least := int64(0); rapid.Bool().Draw(t, "asks "+p.Name) {
					if h.demand.Unchecked {
						least = -3
					}
					amount := rapid.Int64Range(least, 3).Draw(t, "amount") * 1000
					h.demand.Amounts = append(h.demand.Amounts, Amount{Limit: p.Name, Tokens: min(amount, p.Capacity)})
				}
			}
			h.plan.Decide(by.image, &c, &h.demand, h.at)
			if h.plan.Kind == Reject && reflect.DeepEqual(by.image, stored.image()) {
				checkRejection(t, stored.image(), buckets, &c, &h.demand, h.at)
			}
			if rapid.Bool().Draw(t, "late") {
				under = append(under, h)
			} else {
				arrive(h)
			}
		}
		for _, h := range under {
			arrive(h)
		}
	})
	if onCredit == 0 || late == 0 || placed == 0 {
		t.Errorf("%d writes on credit were done, %d of them from an old image, and %d took from a limit that was full", onCredit, late, placed)
	}
}
