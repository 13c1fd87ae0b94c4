package bucket

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestRoom counts how often a bucket can admit demands.
func TestRoom(t *testing.T) {
	c := &Config{Params: []Params{
		{Name: "rpm", Capacity: 100_000, RefillAmount: 60_000, RefillPeriod: 60_000},
		{Name: "tpm", Capacity: 1_000_000, RefillAmount: 1_000_000, RefillPeriod: 60_000},
	}}
	at := func(shards, rpm, tpm int64) *State {
		return &State{RefilledAt: 60_000, Shards: int(shards), Limits: []Limit{
			{Name: "rpm", Capacity: 100_000, RefillAmount: 60_000, RefillPeriod: 60_000, Tokens: rpm},
			{Name: "tpm", Capacity: 1_000_000, RefillAmount: 1_000_000, RefillPeriod: 60_000, Tokens: tpm},
		}}
	}
	one, both := []Amount{{Limit: "rpm", Tokens: 1000}}, []Amount{{Limit: "rpm", Tokens: 1000}, {Limit: "tpm", Tokens: 50_000}}
	for _, test := range []struct {
		name      string
		shards    []*State
		amounts   []Amount
		now, over int64
		want      int64
	}{
		{"what it has", []*State{at(1, 8000, 0)}, one, 60_000, 0, 8},
		{"nothing", []*State{at(1, 0, 0)}, one, 60_000, 0, 0},
		{"a debt", []*State{at(1, -5000, 0)}, one, 60_000, 0, 0},
		{"what flowed in", []*State{at(1, 0, 0)}, one, 65_000, 0, 5},
		{"what flows in", []*State{at(1, 2000, 0)}, one, 60_000, 10_000, 12},
		{"what flows into a full one", []*State{at(1, 100_000, 0)}, one, 60_000, 10_000, 110},
		{"of the scarcest limit", []*State{at(1, 90_000, 120_000)}, both, 60_000, 0, 2},
		{"of all shards", []*State{at(2, 3000, 0), at(2, 4000, 0)}, one, 60_000, 0, 7},
		{"a new one", nil, both, 60_000, 0, 20},
		{"what is given back", []*State{at(1, 0, 0)}, Negated(one), 60_000, 0, math.MaxInt64},
	} {
		if got := c.Room(test.shards, &Demand{Amounts: test.amounts}, test.now, test.over); got != test.want {
			t.Errorf("%s: Room() = %d, want %d", test.name, got, test.want)
		}
	}
}

// In TestWaitsAreEnough, shards have stamps of clocks that differ. The wait of a status is enough if no other caller takes
// anything.
func TestWaitsAreEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const now = 1_700_000_000_000
		p := Params{
			Name: "tpm", Capacity: rapid.Int64Range(1, 60).Draw(t, "capacity") * 1000,
			RefillAmount: rapid.Int64Range(1, 90).Draw(t, "refill") * 1000, RefillPeriod: rapid.SampledFrom([]int64{1000, 7000, 60_000}).Draw(t, "period"),
		}
		c := &Config{Params: []Params{p}, Lead: 5000}
		shards := make([]*State, rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "shards"))
		for i := range shards {
			s := &State{Shard: i, Shards: len(shards), RefilledAt: now + rapid.Int64Range(-20_000, c.Lead).Draw(t, "stamp")}
			most := s.share(p.Name, p.Capacity)
			s.Limits = []Limit{{
				Name: p.Name, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod,
				Tokens: most - max(rapid.Int64Range(-most, 2*most).Draw(t, "missing"), 0),
			}}
			shards[i] = s
		}
		d := &Demand{Amounts: []Amount{{Limit: p.Name, Tokens: rapid.Int64Range(1, p.Capacity).Draw(t, "demand")}}}
		wait := c.Statuses(nil, shards, d, now)[0].Wait
		if (wait == 0) != c.Covers(shards, d, now) {
			t.Fatalf("Wait = %d, Covers() = %t", wait, wait != 0)
		}
		if !c.Covers(shards, d, now+wait) {
			t.Fatalf("%d ms are too few", wait)
		}
	})
}

// TestDeepestDebtEnds owes as much as 64 bits hold, and what is close to that. The bucket reports the time after which a
// request is admitted. A millisecond earlier the request is rejected. An advance at that time leaves the same balance as a
// sum of unbounded numbers.
func TestDeepestDebtEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const begin, asked = 1_700_000_000_000, 3000
		owed := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<40)).Draw(t, "short of the deepest")
		l := Limit{
			Name: "rpm", Tokens: math.MinInt64 + owed, Capacity: rapid.Int64Range(asked, 1<<40).Draw(t, "capacity"),
			RefillAmount: rapid.Int64Range(1<<30, 1<<40).Draw(t, "refill"), RefillPeriod: 1,
		}
		writes := Limit{Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000}
		s := &State{Limits: []Limit{l, writes}, RefilledAt: begin, Shards: 1}
		c, d := s.Own(), &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: asked}}}
		c.Mixed = rapid.Bool().Draw(t, "mixed")
		if c.Mixed {
			s.Limits[0].Rare, s.Limits[0].Consumed = &Rare{Known: 1}, 1
		}
		seen := begin + rapid.Int64Range(0, 1<<24).Draw(t, "seen")
		status := c.Statuses(nil, []*State{s}, d, seen)[0]
		if status.Wait == 0 {
			return
		}
		at := add(seen, status.Wait)
		if at == math.MaxInt64 {
			t.Fatalf("%d owed after %d ms: the wait is %d", status.Available, seen-begin, status.Wait)
		}
		if !c.Covers([]*State{s}, d, at) || c.Covers([]*State{s}, d, at-1) {
			t.Fatalf("owes %d, wait %d: admitted then %v, a millisecond before %v", l.Tokens, status.Wait,
				c.Covers([]*State{s}, d, at), c.Covers([]*State{s}, d, at-1))
		}
		flowed := new(big.Int).Mul(big.NewInt(at-begin), big.NewInt(l.RefillAmount))
		want := min(flowed.Add(flowed, big.NewInt(l.Tokens)).Int64(), l.Capacity) - asked
		var plan Plan
		plan.Decide(s, c, d, at)
		if plan.Kind != Advance {
			t.Fatalf("Decide() plans to %v, want an advance", plan.Kind)
		}
		balance := l.Tokens
		for _, step := range plan.Steps {
			switch {
			case step.Limit != "rpm":
			case step.Kind == Fill && balance >= step.Values[0]:
				balance = step.Values[1]
			case step.Kind == Credit && balance <= step.Values[0]:
				balance += step.Values[1]
			case step.Kind == Fill || step.Kind == Credit:
				t.Fatalf("%+v does not hold for %d", step, balance)
			default:
			}
		}
		if balance != want {
			t.Fatalf("an advance leaves %d, want %d", balance, want)
		}
	})
}

// TestDebtSaturates takes more than 64 bits hold beside a debt: the debt stays the deepest.
func TestDebtSaturates(t *testing.T) {
	for _, stamp := range []int64{1_700_000_000_000, 1_700_000_000_500} {
		s := &State{RefilledAt: stamp, Shards: 1, Limits: []Limit{
			{Name: "rpm", Tokens: -1 << 62, Capacity: 10_000, RefillAmount: 1000, RefillPeriod: 1000},
		}}
		c := s.Own()
		c.Freshness = 1000
		var plan Plan
		plan.Decide(s, c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: math.MaxInt64}}, Unchecked: true}, 1_700_000_000_500)
		balance := s.Limits[0].Tokens
		for _, step := range plan.Steps {
			if step.Kind == Credit && step.Limit == "rpm" {
				balance += step.Values[1]
			}
		}
		if plan.Kind != Advance || balance != math.MinInt64 {
			t.Errorf("%v leaves %d, want an advance to the deepest debt", plan.Kind, balance)
		}
	}
}
