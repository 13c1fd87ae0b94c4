package bucket

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMixedFleet draws what a mixed fleet does with a bucket. Other clients take from the balance as it is, and leave the
// stamp alone; they settle without any condition; and some create the item. Neither the balance nor what a reader makes
// of it is ever above the ideal bucket, split or not, as long as this program alone refills.
func TestMixedFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t, []string{"rpm", "tpm"})
		c.Mixed, c.ExpiryFactor, c.Freshness = true, 0, rapid.Int64Range(0, 5000).Draw(t, "freshness")
		it, now := &item{}, int64(1_000_000)
		ideals := map[string]*ideal{}
		for _, p := range c.Params {
			ideals[p.Name] = &ideal{Params: p, balance: rat(p.Capacity), at: now}
		}
		expect := func(what string) {
			t.Helper()
			for _, p := range c.Params {
				l := it.state.find(p.Name)
				if l == nil {
					continue
				}
				b := ideals[p.Name]
				b.refill(now)
				most := rat(1).Add(rat(1), b.balance) // refill is whole millitokens
				if read := c.standing(it.state, &p, now, now, 0).balance; rat(read).Cmp(most) >= 0 || rat(l.Tokens).Cmp(most) >= 0 {
					t.Fatalf("%s: %s has %d and reads as %d, the ideal bucket has %s", what, p.Name, l.Tokens, read, b.balance.FloatString(3))
				}
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 100_000_000)).Draw(t, "later")
			p := rapid.SampledFrom(c.Params).Draw(t, "limit")
			amount := rapid.Int64Range(1, p.Capacity).Draw(t, "amount")
			others := rapid.Bool().Draw(t, "others")
			switch {
			case others && it.state == nil: // a full item, without notes
				var plan Plan
				c.Mixed = false
				plan.Decide(nil, &c, &Demand{Amounts: []Amount{{Limit: p.Name, Tokens: amount}}}, now)
				c.Mixed = true
				it.apply(&plan)
				ideals[p.Name].consume(amount)
				expect("another client creates")
			case others:
				l := it.state.find(p.Name)
				settles := rapid.IntRange(0, 3).Draw(t, "settles") == 0
				if !settles && l.Tokens < amount {
					continue
				}
				l.Tokens, l.Consumed = l.Tokens-amount, l.Consumed+amount
				ideals[p.Name].refill(now)
				ideals[p.Name].consume(amount)
				expect("another client takes")
			default:
				var plan Plan
				image := it.image()
				d := Demand{Amounts: []Amount{{Limit: p.Name, Tokens: amount}}}
				if plan.Decide(image, &c, &d, now); plan.Kind == Reject && image != nil {
					d = Demand{}
					plan.Align(image, &c, now)
				}
				if plan.Kind == Spend {
					t.Fatal("Decide() plans to leave the stamp alone")
				}
				race := image != nil && rapid.IntRange(0, 3).Draw(t, "race") == 0 && it.state.find(p.Name).Tokens > 0
				if race { // another client comes between the look and the write
					it.state.find(p.Name).Tokens--
					it.state.find(p.Name).Consumed++
					ideals[p.Name].refill(now)
					ideals[p.Name].consume(1)
				}
				applied := it.apply(&plan)
				covers := slices.ContainsFunc(plan.Steps, func(s Step) bool { return s.Kind == Cover && s.Limit == p.Name })
				if applied == (race && (covers || plan.Kind == Create)) && plan.Writes() {
					t.Fatalf("the write is applied: %t, with another client in between: %t", applied, race)
				}
				if applied && len(d.Amounts) > 0 {
					ideals[p.Name].refill(now)
					ideals[p.Name].consume(amount)
				}
				if applied && !race && it.state.taken() {
					t.Fatal("something counts as taken by others after a refill")
				}
				expect("this program takes")
			}
		}
	})
}

// TestOthersAreReadOnce goes through an idle bucket of which another client takes before this program does.
func TestOthersAreReadOnce(t *testing.T) {
	c := &Config{Mixed: true, Params: []Params{{Name: "rpm", Capacity: 100_000, RefillAmount: 100_000, RefillPeriod: 60_000}}}
	it, plan := &item{}, &Plan{}
	take := func(tokens, now int64) bool {
		plan.Decide(it.image(), c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: tokens * 1000}}}, now)
		return it.apply(plan)
	}
	if !take(1, 0) {
		t.Fatal("the first request is rejected")
	}
	const hour = 3600_000
	l := it.state.find("rpm")
	l.Tokens, l.Consumed = l.Tokens-80_000, l.Consumed+80_000 // at any time of the hour
	for _, step := range []struct {
		tokens, now int64
		ok          bool
	}{{21, hour, false}, {20, hour, true}, {1, hour, false}, {100, hour + 59_999, false}, {100, hour + 60_000, true}} {
		if got := take(step.tokens, step.now); got != step.ok {
			t.Errorf("take %d at %d ms = %t, want %t", step.tokens, step.now, got, step.ok)
		}
	}
}

// TestSplitMixedBucket splits an item of which another client took: neither shard gets the idle time twice.
func TestSplitMixedBucket(t *testing.T) {
	c := &Config{Params: []Params{{Name: "rpm", Capacity: 100_000, RefillAmount: 100_000, RefillPeriod: 60_000}}} // the notes alone say that the fleet is mixed
	s := &State{RefilledAt: 0, Shards: 1, Limits: []Limit{
		{Name: "rpm", Capacity: 100_000, RefillAmount: 100_000, RefillPeriod: 60_000, Tokens: 19_000, Consumed: 81_000, Rare: &Rare{Known: 1000}},
		{Name: WriteUnits, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000, Tokens: WriteCapacity},
	}}
	it, plan := &item{state: s}, &Plan{}
	plan.Split(it.image())
	second := plan.Item
	if !it.apply(plan) {
		t.Fatal("the split is not applied")
	}
	const hour = 3600_000
	if got := (view{c, []*State{it.state, &second}, hour}).whole(&c.Params[0]).available(); got > 20_000 || got < 0 {
		t.Errorf("both shards have %d an hour later, want at most the 20000 that were left of the full bucket", got)
	}
	if it.state.MergesWith(&second) {
		t.Error("shards of which others took are merged")
	}
}

// TestTakenBy distinguishes the changes of other clients from the changes of this program. This program may leave
// the stamp alone for a second, and its clocks may be seconds off.
func TestTakenBy(t *testing.T) {
	const stamp = 1_000_000
	of := func(consumed, writes, refilledAt int64, shards int) *State {
		return &State{RefilledAt: refilledAt, Shards: shards, Limits: []Limit{{Name: "rpm", Consumed: consumed}, {Name: WriteUnits, Consumed: writes}}}
	}
	before := of(5000, 1000, stamp, 1)
	for _, test := range []struct {
		name string
		next *State
		at   int64
		want bool
	}{
		{"a take a minute after the refill", of(6000, 2000, stamp, 1), stamp + 60_000, true},
		{"a correction, which counts no write", of(6000, 1000, stamp, 1), stamp + 60_000, true},
		{"a take that refills", of(6000, 2000, stamp+60_000, 1), stamp + 60_000, false},
		{"a take by a clock that is behind", of(6000, 2000, stamp, 1), stamp + 9999, false},
		{"something given back", of(4000, 2000, stamp, 1), stamp + 60_000, false},
		{"a write that takes nothing", of(5000, 2000, stamp, 1), stamp + 60_000, false},
		{"a split", of(6000, 2000, stamp, 2), stamp + 60_000, false},
		{"a time before the refill", of(6000, 2000, stamp, 1), stamp - 60_000, false},
	} {
		if got := before.TakenBy(test.next, test.at); got != test.want {
			t.Errorf("%s: TakenBy() = %t, want %t", test.name, got, test.want)
		}
	}
	created := of(5000, 1000, 0, 1)
	if (&State{}).TakenBy(created, stamp) {
		t.Error("a new item was taken from by another client")
	}
}
