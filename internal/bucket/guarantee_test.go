package bucket

import (
	"testing"

	"pgregory.net/rapid"
)

// In TestGuarantees, requests of three priorities take of a limit that guarantees parts to two of them. Each is admitted exactly if its
// part has its amount, or the rest has it besides the floor, and takes of one of them. All together they take what the limit says, and
// never more. A request that is refused learns the first millisecond at which it is admitted.
func TestGuarantees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			Name: "rpm", Capacity: rapid.Int64Range(100, 2000).Draw(t, "capacity"), RefillAmount: rapid.Int64Range(1, 300).Draw(t, "refill"), RefillPeriod: 1000,
			Floors: "low=20+10 lower=0+25",
		}
		c := Config{Params: p.Divide(), Freshness: rapid.SampledFrom([]int64{0, 300}).Draw(t, "freshness")}
		if got := c.Limits(); len(got) != 1 || got[0] != p {
			t.Fatalf("divided and joined it is %+v, want %+v", got, p)
		}
		stored, now, taken := &item{}, int64(waitNow), int64(0)
		for range rapid.IntRange(1, 25).Draw(t, "requests") {
			now += rapid.Int64Range(0, 5000).Draw(t, "later")
			asked := Demand{
				Amounts:  []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(1, p.Capacity/5).Draw(t, "amount")}},
				Priority: rapid.SampledFrom([]string{"", "low", "lower"}).Draw(t, "priority"),
			}
			amount, states := asked.Amounts[0].Tokens, []*State{}
			if s := stored.image(); s != nil {
				states = append(states, s)
			}
			common := &c.Params[0]
			own, rest, all := int64(-1), (view{&c, states, now}).available(common, nobody), int64(0)
			for i := range c.Params {
				has := (view{&c, states, now}).available(&c.Params[i], nobody)
				if all += has; isPartOf(c.Params[i].Name, "rpm", asked.Priority) && asked.Priority != "" {
					own = has
				}
			}
			if all > p.Capacity {
				t.Fatalf("the parts hold %d of %d", all, p.Capacity)
			}
			kept := p.Floors.kept(asked.Priority, common.Capacity)
			fits := own >= amount || rest-amount >= kept
			d := asked.Through(&c, states, now)
			if of := d.Amounts[0].Limit; IsPart(of) != (own >= amount) || LimitOf(of) != "rpm" {
				t.Fatalf("%d of %q are taken of %s, whose part has %d", amount, asked.Priority, of, own)
			}
			if again := d.Through(&c, states, now); again.Amounts[0] != d.Amounts[0] || asked.Amounts[0].Limit != "rpm" {
				t.Fatalf("a demand that was chosen is chosen anew as %v, %v asked", again.Amounts, asked.Amounts)
			}
			status := c.Statuses(nil, states, d, now)
			if len(status) != 1 || status[0].Capacity != p.Capacity || status[0].RefillAmount != p.RefillAmount || status[0].Available != all || status[0].Own != max(own, 0) {
				t.Fatalf("told %+v of %d tokens, %d of the own part", status, all, own)
			}
			if told := status[0]; told.Short == fits || (told.Available-told.Kept >= amount) != fits || c.Covers(states, &asked, now) != fits {
				t.Fatalf("%d of %q with %d and %d: told %+v, want %v", amount, asked.Priority, own, rest, told, fits)
			}
			if fitting := c.Fitting(states, []*Demand{&asked}, now)[0]; (fitting != nil) != fits || fits && fitting.Amounts[0] != d.Amounts[0] {
				t.Fatalf("%d of %q fit as %v, want %v", amount, asked.Priority, fitting, fits)
			}
			var plan Plan
			plan.Decide(stored.image(), &c, d, now)
			if plan.Writes() != fits {
				t.Fatalf("%d of %q with %d and %d: %v", amount, asked.Priority, own, rest, plan.Kind)
			}
			if fits {
				checkPassed(t, stored, &plan, &c, &asked, own, now)
				if !stored.apply(&plan) {
					t.Fatalf("the %v made from the item itself fails on it: %+v", plan.Kind, plan.Steps)
				}
				if taken += amount; taken > p.Capacity+p.RefillAmount*(now-waitNow)/1000+p.RefillAmount*c.Freshness/1000+3 {
					t.Fatalf("%d are taken in %d ms, which is more than the limit", taken, now-waitNow)
				}
				continue
			}
			admits := func(at int64) bool {
				plan.Decide(stored.image(), &c, asked.Through(&c, []*State{stored.image()}, at), at)
				return plan.Writes()
			}
			if wait := status[0].Wait; wait == Never {
				if amount <= common.Capacity-kept {
					t.Fatalf("%d of %q are told never", amount, asked.Priority)
				}
			} else if !admits(now+wait) || admits(now+wait-1) {
				t.Fatalf("%q is told to wait %d, which is not the first millisecond that admits it", asked.Priority, wait)
			}
		}
	})
}

// In TestPassedTogether, callers of one write pass a part, each on top of the callers before it, of whom some take of the part.
func TestPassedTogether(t *testing.T) {
	of := func(limit string, amount, passed int64) *Demand {
		d := Demand{Amounts: []Amount{{Limit: limit, Tokens: amount}}, Priority: "low"}
		if passed > 0 {
			d.beside = &beside{passed: []Amount{{Limit: "rpm/low", Tokens: passed}}}
		}
		return &d
	}
	for _, test := range []struct {
		line []*Demand
		want int64
	}{
		{[]*Demand{of("rpm", 5, 4), of("rpm", 3, 2)}, 2},
		{[]*Demand{of("rpm", 3, 2), of("rpm", 5, 4)}, 2},
		{[]*Demand{of("rpm/low", 4, 0), of("rpm", 3, 2)}, 6},
		{[]*Demand{of("rpm", 9, 8), of("rpm/low", 4, 0), of("rpm", 3, 2)}, 6},
	} {
		whole, err := Join(test.line)
		if most, ok := whole.passes("rpm/low", 0); err != nil || !ok || most != test.want {
			t.Errorf("%d callers pass a part with up to %d, %v, %v; want %d", len(test.line), most, ok, err, test.want)
		}
	}
}

// TestLostPartsKeepTheirDebt plans a write that takes a part from the item, after which the part falls further into
// debt. The write fails, so none of the debt is forgotten. Tokens given back meanwhile are no reason to fail.
func TestLostPartsKeepTheirDebt(t *testing.T) {
	divided := Params{Name: "rpm", Capacity: 100, RefillAmount: 1, RefillPeriod: 1_000_000, Floors: "low=0+10"}
	plain := divided
	plain.Floors = ""
	for _, test := range []struct {
		seen, later int64
		applies     bool
	}{{-5, -5, true}, {-5, -6, false}, {-5, 3, true}, {10, 0, true}, {10, -1, false}} {
		var plan Plan
		it := &item{}
		plan.Create(&Config{Params: divided.Divide()}, nobody, 0, 1, waitNow)
		it.apply(&plan)
		it.state.find("rpm/low").Tokens = test.seen
		plan.Decide(it.image(), &Config{Params: []Params{plain}}, nobody, waitNow)
		it.state.find("rpm/low").Tokens = test.later
		if applies := it.apply(&plan); applies != test.applies {
			t.Errorf("a part with %d, seen with %d: the write that takes it away applies: %v", test.later, test.seen, applies)
		}
		if l := it.state.find("rpm"); test.applies && l.Tokens != 90+min(test.seen, 0) {
			t.Errorf("a part with %d: the rest has %d, want %d", test.seen, l.Tokens, 90+min(test.seen, 0))
		}
	}
}

// checkPassed gives tokens back to the part of a demand after a plan that takes of the rest was made. The write holds just where the part still
// has too little: by its tokens alone for a spend, and with the refill for an advance and for a spend on credit.
func checkPassed(t *rapid.T, stored *item, plan *Plan, c *Config, asked *Demand, own, now int64) {
	amount := asked.Amounts[0].Tokens
	if plan.Kind == Create || own < 0 || own >= amount {
		return
	}
	later := &item{state: stored.image()}
	part := later.state.find(c.part("rpm", asked.Priority).Name)
	back := rapid.Int64Range(0, amount).Draw(t, "back")
	most := c.part("rpm", asked.Priority).Capacity
	if has := own + back; plan.Kind == Spend {
		part.Tokens += back
		if has > most {
			return
		}
		asked := part.Tokens
		if plan.OnCredit {
			asked = has
		}
		if applies := later.apply(plan); applies != (asked < amount) {
			t.Fatalf("%d are taken of the rest: %v, with %d of the part; %+v", amount, applies, asked, plan.Steps)
		}
	} else if has < most { // a full part fails by what an advance asks anyway
		part.Tokens += back
		if applies := later.apply(plan); applies != (has < amount) {
			t.Fatalf("%d are taken of the rest: %v, with %d of the part at %d; %+v", amount, applies, has, now, plan.Steps)
		}
	}
}

// TestPartsBeginEmpty divides a limit that is in use, and puts it together again: neither makes tokens.
func TestPartsBeginEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := Params{Name: "rpm", Capacity: 1000, RefillAmount: 100, RefillPeriod: 1000}
		divided := whole
		divided.Floors = "low=0+30"
		configs := []Config{{Params: whole.Divide()}, {Params: divided.Divide()}}
		stored, now, all := &item{}, int64(waitNow), int64(1000)
		for range rapid.IntRange(2, 10).Draw(t, "writes") {
			c := &configs[rapid.IntRange(0, 1).Draw(t, "config")]
			d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(0, 300).Draw(t, "amount")}}}
			var plan Plan
			if plan.Decide(stored.image(), c, &d, now); !plan.Writes() {
				continue
			}
			if !stored.apply(&plan) {
				t.Fatalf("the %v fails", plan.Kind)
			}
			left := int64(0)
			for _, l := range stored.image().Limits {
				if l.Name != WriteUnits {
					left += l.Tokens
				}
			}
			if all -= d.Amounts[0].Tokens; left > all {
				t.Fatalf("%d tokens are there of %d", left, all)
			}
		}
	})
}
