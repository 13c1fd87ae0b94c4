package bucket

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tree is a bucket of shards.
type tree []*item

// sum returns the tokens of a limit in all shards, and the shares of capacity and refill.
func (shards tree) sum(limit string) (tokens, capacity, refill int64) {
	for _, it := range shards {
		l := it.state.find(limit)
		tokens += l.Tokens
		capacity += it.state.share(limit, l.Capacity)
		refill += it.state.share(limit, l.RefillAmount)
	}
	return tokens, capacity, refill
}

// TestSplitsAndMergesConserve splits and merges shards in any order, on images that may be old, amid spends. The shares
// always add up to the limit, and tokens change by refill and demand alone (I7). With the clock stopped that is by the
// demand alone, except the millisecond by which each split moves the stamp.
func TestSplitsAndMergesConserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			Name: "rpm", Capacity: rapid.Int64Range(1, 1_000_000).Draw(t, "capacity"), RefillAmount: rapid.Int64Range(32, 100_000).Draw(t, "refill"),
			RefillPeriod: 1 << 40, // nothing flows in within the test
		}
		c := Config{Params: []Params{p}}
		now := int64(1 << 30)
		first := &item{}
		var plan Plan
		plan.Decide(nil, &c, &Demand{}, now)
		first.apply(&plan)
		shards := tree{first}
		expected := p.Capacity
		images := map[*item]*State{}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			it := shards[rapid.IntRange(0, len(shards)-1).Draw(t, "shard")]
			if images[it] == nil || rapid.Bool().Draw(t, "looks") {
				images[it] = it.image()
			}
			image := images[it]
			switch rapid.IntRange(0, 3).Draw(t, "operation") {
			case 0:
				if image.Shards >= 32 {
					continue
				}
				plan.Split(image)
				created := plan.Item
				created.Limits = slices.Clone(created.Limits)
				if it.apply(&plan) {
					shards = append(shards, &item{&created})
				}
			case 1:
				i := slices.IndexFunc(shards, func(o *item) bool {
					return o.state.Shards == it.state.Shards && o.state.Shard == it.state.Shard+it.state.Shards/2
				})
				if it.state.Shards == 1 || i < 0 {
					continue
				}
				other := shards[i]
				if plan.Merge(image, other.state, now); it.apply(&plan) {
					shards = slices.Delete(shards, i, i+1)
				}
			default:
				amount := rapid.Int64Range(-p.Capacity, p.Capacity).Draw(t, "amount")
				d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: amount}}, Unchecked: amount < 0 || rapid.Bool().Draw(t, "unchecked")}
				room := it.state.share("rpm", p.Capacity) - it.state.find("rpm").Tokens
				if plan.Decide(image, &c, &d, now); it.apply(&plan) {
					expected -= max(amount, -room) // what does not fit is lost
				}
			}
			tokens, capacity, refill := shards.sum("rpm")
			if tokens != expected || capacity != p.Capacity || refill != p.RefillAmount {
				t.Fatalf("%d shards have %d, shares %d and %d; want %d, %d and %d",
					len(shards), tokens, capacity, refill, expected, p.Capacity, p.RefillAmount)
			}
			for _, it := range shards {
				if l := it.state.find("rpm"); l.Tokens > it.state.share("rpm", l.Capacity) {
					t.Fatalf("shard %d of %d has %d, more than its share", it.state.Shard, it.state.Shards, l.Tokens)
				}
			}
		}
	})
}

// TestRefillAcrossSplits splits and merges an empty bucket ten thousand times while it is refilled. Each time the rates of shards are
// rounded again, up and down alike. What all of it comes to is at most a thirtieth of a millitoken each.
func TestRefillAcrossSplits(t *testing.T) {
	const changes, most = 10_000, 300
	for _, amount := range []int64{33, 7001, 60_000} {
		p := Params{Name: "rpm", Capacity: 1 << 40, RefillAmount: amount, RefillPeriod: 60_000}
		c, r, began := Config{Params: []Params{p}}, rand.New(rand.NewPCG(1, 2)), int64(1<<40)
		first, plan, now := &item{}, Plan{}, began
		plan.Decide(nil, &c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: p.Capacity}}}, now)
		first.apply(&plan)
		shards := tree{first}
		for n := 0; n < changes || len(shards) > 1; {
			now += 1 + r.Int64N(20_000)
			for _, it := range shards { // all are refilled
				if plan.Decide(it.image(), &c, &Demand{Unchecked: true}, now); plan.Writes() {
					it.apply(&plan)
				}
			}
			it := shards[r.IntN(len(shards))]
			other := slices.IndexFunc(shards, func(o *item) bool {
				return o.state.Shards == it.state.Shards && o.state.Shard == it.state.Shard+it.state.Shards/2
			})
			switch {
			case it.state.Shards < 4 && r.IntN(2) == 0:
				plan.Split(it.image())
				created := plan.Item
				if created.Limits = slices.Clone(created.Limits); it.apply(&plan) {
					shards, n = append(shards, &item{&created}), n+1
				}
			case other >= 0 && it.state.Shards > 1:
				if plan.Merge(it.image(), shards[other].state, now); it.apply(&plan) {
					shards, n = slices.Delete(shards, other, other+1), n+1
				}
			}
		}
		s := shards[0].state
		want := new(big.Int).Mul(big.NewInt(s.RefilledAt-began), big.NewInt(amount))
		if off := s.find("rpm").Tokens - want.Div(want, big.NewInt(p.RefillPeriod)).Int64(); off < -most || off > most {
			t.Errorf("%d a minute: %d millitokens more than the refill after %d splits and merges, want at most %d more or less", amount, off, changes, most)
		}
	}
}

func TestPressure(t *testing.T) {
	for _, test := range []struct {
		tokens, age int64
		want        bool
	}{{0, 0, false}, {-1, 0, true}, {-500_000, 499, true}, {-500_000, 500, false}, {1000_000, 0, false}} {
		s := &State{Limits: []Limit{wcu(test.tokens, 0)}, RefilledAt: 1000}
		if got := s.Pressed(1000 + test.age); got != test.want {
			t.Errorf("Pressed() with %d write units, %d ms after = %v, want %v", test.tokens, test.age, got, test.want)
		}
	}
}
