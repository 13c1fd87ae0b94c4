package bucket

import (
	"math/big"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// limitOf is a limit that holds tokens, in millitokens, and refills one millitoken per millisecond.
func limitOf(name string, capacity, tokens, consumed int64) Limit {
	return Limit{Name: name, Capacity: capacity, Tokens: tokens, Consumed: consumed, RefillAmount: 1000, RefillPeriod: 1000}
}

func paramsOf(name string, capacity int64) Params {
	return Params{Name: name, Capacity: capacity, RefillAmount: 1000, RefillPeriod: 1000}
}

func wcu(tokens, consumed int64) Limit {
	return Limit{Name: WriteUnits, Capacity: 1000_000, Tokens: tokens, Consumed: consumed, RefillAmount: 1000_000, RefillPeriod: 1000}
}

// TestConfigReachesTheItem shows what an advance makes of an item whose limits are configured differently (I8).
func TestConfigReachesTheItem(t *testing.T) {
	const now = 10_000
	for _, test := range []struct {
		name   string
		before []Limit
		config Config
		demand []Amount
		want   []Limit
	}{
		{
			name:   "a raised limit keeps the balance",
			before: []Limit{limitOf("a", 5000, 1000, 7)},
			config: Config{Params: []Params{paramsOf("a", 9000)}},
			want:   []Limit{limitOf("a", 9000, 1500, 7)},
		},
		{
			name:   "a raised limit that was full for long starts from there",
			before: []Limit{limitOf("a", 5000, 4900, 7)},
			config: Config{Params: []Params{paramsOf("a", 9000)}},
			demand: []Amount{{Limit: "a", Tokens: 1000}},
			want:   []Limit{limitOf("a", 9000, 4000, 1007)},
		},
		{
			name:   "a lowered limit clamps the balance",
			before: []Limit{limitOf("a", 5000, 4000, 7)},
			config: Config{Params: []Params{paramsOf("a", 3000)}},
			demand: []Amount{{Limit: "a", Tokens: 1000}},
			want:   []Limit{limitOf("a", 3000, 2000, 1007)},
		},
		{
			name:   "what flowed in at the old rate counts at the old rate",
			before: []Limit{{Name: "a", Capacity: 5000, Tokens: 0, RefillAmount: 2000, RefillPeriod: 1000}},
			config: Config{Params: []Params{paramsOf("a", 5000)}},
			want:   []Limit{limitOf("a", 5000, 1000, 0)},
		},
		{
			name:   "a new limit starts full",
			before: []Limit{limitOf("a", 5000, 0, 7)},
			config: Config{Params: []Params{paramsOf("a", 5000), paramsOf("b", 2000)}},
			demand: []Amount{{Limit: "b", Tokens: 500}},
			want:   []Limit{limitOf("a", 5000, 500, 7), limitOf("b", 2000, 1500, 500)},
		},
		{
			name:   "a limit that is configured no more goes",
			before: []Limit{limitOf("a", 5000, 0, 7), limitOf("b", 2000, 1500, 500)},
			config: Config{Params: []Params{paramsOf("a", 5000)}},
			want:   []Limit{limitOf("a", 5000, 500, 7)},
		},
		{
			name:   "a partial config leaves other limits, refilled",
			before: []Limit{limitOf("a", 5000, 0, 7), limitOf("b", 2000, 1000, 500)},
			config: Config{Params: []Params{paramsOf("a", 9000)}, Partial: true},
			want:   []Limit{limitOf("a", 9000, 500, 7), limitOf("b", 2000, 1500, 500)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored := &item{&State{Limits: append(slices.Clone(test.before), wcu(0, 0)), RefilledAt: now - 500, Shards: 1}}
			for _, status := range test.config.Statuses(nil, []*State{stored.state}, &Demand{}, now) {
				taken, _ := (&Demand{Amounts: test.demand}).of(status.Name)
				i := slices.IndexFunc(test.want, func(l Limit) bool { return l.Name == status.Name })
				if want := test.want[i].Tokens + taken; status.Available != want {
					t.Errorf("Statuses() says %d of %s, want %d", status.Available, status.Name, want)
				}
			}
			var plan Plan
			plan.Decide(stored.image(), &test.config, &Demand{Amounts: test.demand}, now)
			if plan.Kind != Advance || !stored.apply(&plan) {
				t.Fatalf("Decide = %v %+v, want an advance that applies", plan.Kind, plan.Steps)
			}
			want := append(slices.Clone(test.want), wcu(499_000, 1000))
			byName := func(a, b Limit) int { return int(a.Name[0]) - int(b.Name[0]) }
			if diff := cmp.Diff(slices.SortedFunc(slices.Values(want), byName), slices.SortedFunc(slices.Values(stored.state.Limits), byName)); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if !test.config.Matches(stored.state) {
				t.Error("the item does not match the config after the advance")
			}
		})
	}
}

// TestExpiry checks that an item never expires before it is as full as the one that would replace it, debts included.
func TestExpiry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t, []string{"rpm", "tpm"})
		c.ExpiryFactor = rapid.Int64Range(1, 7).Draw(t, "times to fill")
		now := int64(1_700_000_000_000)
		stored := &item{}
		image := stored.image()
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			now += rapid.Int64Range(0, 5000).Draw(t, "elapsed")
			if rapid.Bool().Draw(t, "looks") {
				image = stored.image()
			}
			d := drawDemand(t, &c)
			var plan Plan
			plan.Decide(image, &c, &d, now)
			if !stored.apply(&plan) {
				image = stored.image()
				continue
			}
			expiry := stored.state.ExpiresAt
			if expiry == maxExpiry {
				continue
			}
			if expiry <= 0 {
				t.Fatalf("the item expires at %d, want a time", expiry)
			}
			for _, l := range stored.state.Limits {
				if full := stored.state.chain(&l, stored.state.RefilledAt, expiry*1000, 0).of(l.Tokens); l.Name != WriteUnits && full < l.Capacity {
					t.Fatalf("%s has %d of %d when the item expires", l.Name, full, l.Capacity)
				}
			}
		}
		if stored.state == nil || c.ExpiryFactor == 0 {
			return
		}
		c.ExpiryFactor = 0
		var plan Plan
		plan.Decide(stored.image(), &c, &Demand{}, now)
		if !stored.apply(&plan) || stored.state.ExpiresAt != 0 {
			t.Fatalf("an item of the entity's own limits expires at %d, want never", stored.state.ExpiresAt)
		}
	})
}

// TestExpiredItemsAdvance plans a write to an item past its time. The plan does not leave that time alone.
func TestExpiredItemsAdvance(t *testing.T) {
	c := Config{Params: []Params{paramsOf("a", 5000)}, ExpiryFactor: 7, Freshness: 1000}
	s := &State{Limits: []Limit{limitOf("a", 5000, 5000, 7), wcu(0, 0)}, RefilledAt: 60_000, ExpiresAt: 60}
	for at, want := range map[int64]Kind{59_999: Spend, 60_000: Advance} {
		var plan Plan
		if plan.Decide(s, &c, &Demand{Amounts: []Amount{{Limit: "a", Tokens: 1000}}}, at); plan.Kind != want {
			t.Errorf("Decide at %d with expiry at 60000 = %v, want %v", at, plan.Kind, want)
		}
	}
}

// TestDebtsCommute settles a bucket that is used up by processes with one image, as under load: neither comes before the other. A debt
// that the time of expiry may not outlast moves it.
func TestDebtsCommute(t *testing.T) {
	c := Config{Params: []Params{paramsOf("a", 5000)}, ExpiryFactor: 7, Freshness: 1000}
	of := func(expiry int64, shards int) *item {
		return &item{&State{Limits: []Limit{limitOf("a", 5000, 0, 0), wcu(0, 0)}, RefilledAt: 60_000, ExpiresAt: expiry, Shards: shards}}
	}
	more := Demand{Amounts: []Amount{{Limit: "a", Tokens: 1000}}, Unchecked: true, Settles: true}
	for _, test := range []struct {
		it      *item
		kind    Kind
		applied int // of five
	}{
		{of(10_000, 1), Spend, 2}, // the debt may be twice as deep as each plan says
		{of(0, 2), Spend, 5},
		{of(66, 1), Advance, 1},
	} {
		image, applied := test.it.image(), 0
		for range 5 {
			var plan Plan
			if plan.Decide(image, &c, &more, 60_500); plan.Kind != test.kind {
				t.Fatalf("a debt of an item that expires at %d = %v, want %v", image.ExpiresAt, plan.Kind, test.kind)
			}
			if test.it.apply(&plan) {
				applied++
			}
		}
		if l := test.it.state.find("a"); applied != test.applied || test.kind == Spend && l.Tokens != int64(-1000*applied) {
			t.Errorf("%d debts of 1,000 of %v applied, want %d; the balance is %d", applied, test.kind, test.applied, l.Tokens)
		}
	}
}

// In TestExpiryOfStaleImages, a process writes by an image from before others took of the item. The item outlasts what they owe
// together.
func TestExpiryOfStaleImages(t *testing.T) {
	settles := func(tokens int64) Demand {
		return Demand{Amounts: []Amount{{Limit: "a", Tokens: tokens}}, Unchecked: true, Settles: true}
	}
	nothing, slower := Demand{}, paramsOf("a", 5000)
	slower.RefillPeriod *= 10
	for _, test := range []struct {
		name           string
		tokens, expiry int64 // of the image
		others, own    Demand
		at             int64
		next           Params
	}{
		{"a spend", 3000, 66, settles(3000), settles(3000), 60_500, paramsOf("a", 5000)},
		{"a refill", 2000, 67, settles(2000), settles(6000), 62_500, paramsOf("a", 5000)},
		{"a refill that shortens the life", 1000, 90, settles(8000), nothing, 62_500, paramsOf("a", 5000)},
		{"a refill that another limit is taken of", 1000, 90, settles(8000), Demand{Amounts: []Amount{{Limit: "b", Tokens: 1000}}}, 62_500, paramsOf("a", 5000)},
		{"a slower refill", 1000, 90, settles(8000), nothing, 60_500, slower},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{Params: []Params{paramsOf("a", 5000), paramsOf("b", 5000)}, ExpiryFactor: 1, Freshness: 1000}
			it := &item{&State{
				Limits:     []Limit{limitOf("a", 5000, test.tokens, 0), limitOf("b", 5000, 5000, 0), wcu(0, 0)},
				RefilledAt: 60_000, ExpiresAt: test.expiry, Shards: 1,
			}}
			image := it.image()
			var plan Plan
			if plan.Decide(it.image(), &c, &test.others, 60_200); plan.Kind != Spend || !it.apply(&plan) {
				t.Fatalf("the others plan a %v that is not written", plan.Kind)
			}
			c.Params[0] = test.next
			for try := range 3 {
				if plan.Decide(image, &c, &test.own, test.at); it.apply(&plan) {
					break
				}
				if image = it.image(); try == 2 {
					t.Fatal("no plan is written")
				}
			}
			for _, l := range it.state.Limits[:2] {
				if full := it.state.chain(&l, it.state.RefilledAt, it.state.ExpiresAt*1000, 0).of(l.Tokens); full < l.Capacity {
					t.Errorf("%s has %d of %d when the item expires at %d", l.Name, full, l.Capacity, it.state.ExpiresAt)
				}
			}
		})
	}
}

// TestConfigChangesAmongStaleClients lets clients with old images and old configs write to one item. No balance is ever
// above the capacity that the item has. Every balance is that of an ideal bucket that sees the same changes.
func TestConfigChangesAmongStaleClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		configs := []Config{drawConfig(t, []string{"rpm", "tpm"}), drawConfig(t, []string{"rpm", "tpm"})}
		clients := make([]client, 3)
		now := int64(1_700_000_000_000)
		stored := &item{}
		buckets := map[string]*ideal{}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 100), rapid.Int64Range(0, 100_000)).Draw(t, "elapsed")
			by := &clients[rapid.IntRange(0, len(clients)-1).Draw(t, "client")]
			if rapid.Bool().Draw(t, "looks") {
				by.image = stored.image()
			}
			c := &configs[rapid.IntRange(0, 1).Draw(t, "config")]
			d := drawDemand(t, c)
			if d.Unchecked && by.image != nil { // settling leaves the limits as they are
				c = &Config{ExpiryFactor: by.image.ExpiresAt, Params: []Params{}}
				for _, l := range by.image.Limits[:2] {
					c.Params = append(c.Params, l.params())
				}
			}
			var plan Plan
			plan.Decide(by.image, c, &d, now)
			if !stored.apply(&plan) {
				by.image = stored.image()
				continue
			}
			by.image = stored.image()
			for _, l := range stored.state.Limits {
				if l.Tokens > l.Capacity {
					t.Fatalf("%s has %d of %d after %v %+v", l.Name, l.Tokens, l.Capacity, plan.Kind, plan.Steps)
				}
				if l.Name == WriteUnits {
					continue
				}
				b := buckets[l.Name]
				if b == nil {
					b = &ideal{Params: *c.of(l.Name), balance: rat(l.Capacity), at: stored.state.RefilledAt}
					buckets[l.Name] = b
				}
				at := stored.state.RefilledAt
				amount, _ := d.of(l.Name)
				if plan.OnCredit && amount != 0 { // of what has flowed in by the time of the write
					at = max(at, now)
				}
				b.refill(at)
				b.Params = l.params()
				b.clamp()
				b.consume(amount)
				has := rat(add(l.Tokens, Refill(stored.state.RefilledAt, b.at, b.RefillAmount, b.RefillPeriod)))
				// Each change of the rate may cost, or give, the fraction of a millitoken.
				if off := new(big.Rat).Sub(has, b.balance); off.Abs(off).Cmp(rat(1)) >= 0 {
					b.balance = has
					if off.Cmp(rat(2)) >= 0 {
						t.Fatalf("%s has %v at %d, which is off by %v: %d at %d after %v %+v", l.Name, has, b.at, off.FloatString(3), l.Tokens, stored.state.RefilledAt, plan.Kind, plan.Steps)
					}
				}
			}
		}
	})
}

// TestOwnKeepsTheExpiry refills an item again and again under its own config. The item expires as under the config
// that it was made by, whatever that is, also when others would have set it otherwise.
func TestOwnKeepsTheExpiry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{ExpiryFactor: rapid.Int64Range(0, 1000).Draw(t, "factor")}
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			capacity, amount := rapid.Int64Range(1, 1e9).Draw(t, "capacity"), rapid.Int64Range(1, 1e9).Draw(t, "refill")
			// At least a second to fill, since expiry is in whole seconds.
			period := max(1000, 1000*amount/capacity+1) + rapid.Int64Range(0, 1e8).Draw(t, "period")
			c.Params = append(c.Params, Params{Name: strconv.Itoa(i), Capacity: capacity, RefillAmount: amount, RefillPeriod: period})
		}
		now := rapid.Int64Range(0, 2e12).Draw(t, "now")
		d := Demand{Amounts: []Amount{{Limit: "0", Tokens: rapid.Int64Range(0, 2e9).Draw(t, "demand")}}, Unchecked: true}
		var p Plan
		p.Create(&c, &d, 0, 1, now)
		s := p.Item
		s.Limits = slices.Clone(s.Limits)
		for range 5 {
			if s.ExpiresAt == maxExpiry {
				return // which does not expire
			}
			if got := s.Own().ExpiryFactor; got != c.ExpiryFactor {
				t.Fatalf("Own() of %+v at %d has expiry factor %d, want %d", s, now, got, c.ExpiryFactor)
			}
			now += rapid.Int64Range(1, 1e7).Draw(t, "elapsed")
			p.Align(&s, s.Own(), now)
			var want Plan
			want.Align(&s, &c, now)
			if diff := cmp.Diff(want.Steps, p.Steps); diff != "" {
				t.Fatalf("a refill by the item's own config (-want +got):\n%s", diff)
			}
			s = after(&s, &p)
		}
	})
}

// after returns an item as a plan to refill it leaves it.
func after(s *State, p *Plan) State {
	next := *s
	next.Limits, next.RefilledAt = slices.Clone(s.Limits), p.Now
	for _, step := range p.Steps {
		switch l := next.find(step.Limit); step.Kind {
		case Credit:
			l.Tokens += step.Values[1]
		case Fill:
			l.Tokens = step.Values[1]
		case Count:
			l.Consumed += step.Values[0]
		case Put, Remove:
			next.put(&step)
		case Expire:
			next.ExpiresAt = step.Values[1]
		default:
		}
	}
	return next
}
