package bucket

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// In TestCarryApart, shards carry their own rests, each up to its part of the bound, in comparison with a bucket that is whole. They differ:
// this is why a bucket whose quota carries is not split.
func TestCarryApart(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 39))
	const sets = 20_000
	differ, minted := 0, 0
	for range sets {
		shards := 2 << r.IntN(3)
		amount := 1 + r.Int64N(100_000)
		bound := 1 + r.Int64N(3*amount)
		sum, apart := int64(0), int64(0)
		for s := range shards {
			share := Share(amount, s, shards)
			has := share - r.Int64N(share+1)
			if r.IntN(8) == 0 { // a lease that used more than it took
				has -= r.Int64N(share + 1)
			}
			sum += has
			apart += share + min(max(has, 0), Share(bound, s, shards))
		}
		switch whole := amount + min(max(sum, 0), bound); {
		case apart > whole:
			minted++
			differ++
		case apart < whole:
			differ++
		}
	}
	t.Logf("of %d sets, %d differ, and %d have more than the whole bucket", sets, differ, minted)
	if differ == 0 || minted == 0 {
		t.Error("shards carry their rests as the whole bucket does, and could be split")
	}
}

// carrying returns an item with a quota that carries, as a write has left it, and the config.
func carrying(t *testing.T, tokens, bound int64) (*State, *Config) {
	t.Helper()
	times := timesOf(t, "*/10 * * * *", "UTC")
	c := &Config{Params: []Params{{Name: "a", Capacity: 25_000, RefillPeriod: 1000, Times: times, Carry: bound}}}
	const at = 600_000
	s := &State{RefilledAt: at, ValidUntil: 2 * at, Limits: []Limit{
		{Name: "a", Tokens: tokens, Capacity: 25_000, RefillPeriod: 1000, Rare: &Rare{Times: times, Carry: bound}},
		{Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000},
	}}
	return s, c
}

// TestCarryAsks crosses an edge by one write, which asks for the balance that it has seen where what is carried depends on it.
func TestCarryAsks(t *testing.T) {
	for _, test := range []struct {
		name                    string
		tokens, later           int64 // of the image, and of the item
		bound                   int64
		periods                 int64
		holds                   bool
		want, carried, consumed int64
	}{
		{"a rest", 10_000, 10_000, 50_000, 1, true, 34_000, 10_000, 1000},
		{"a rest that others have used", 10_000, 9000, 50_000, 1, false, 0, 0, 0},
		{"a rest that others have given back to", 10_000, 11_000, 50_000, 1, false, 0, 0, 0},
		{"more than the bound", 20_000, 20_000, 5000, 1, true, 29_000, 5000, 1000},
		{"a debt", -10_000, -10_000, 50_000, 1, true, 24_000, 0, 1000},
		{"the deepest debt", math.MinInt64, math.MinInt64, 50_000, 1, true, 24_000, 0, 1000},
		{"two periods", 10_000, 10_000, 50_000, 2, true, 59_000, 35_000, 1000},
		{"ten periods", -10_000, -20_000, 50_000, 10, true, 74_000, 50_000, 1000}, // the bound is reached from any balance
	} {
		t.Run(test.name, func(t *testing.T) {
			image, c := carrying(t, test.tokens, test.bound)
			var plan Plan
			plan.Decide(image, c, &Demand{Amounts: []Amount{{Limit: "a", Tokens: 1000}}}, image.RefilledAt+test.periods*600_000)
			it := item{image}
			is := *image
			is.Limits = slices.Clone(image.Limits)
			is.Limits[0].Tokens = test.later
			it.state = &is
			if got := it.apply(&plan); got != test.holds {
				t.Fatalf("the write %v holds: %t, want %t", plan.Steps, got, test.holds)
			}
			if l := it.state.find("a"); test.holds && (l.Tokens != test.want || l.Carried() != test.carried || l.Consumed != test.consumed) {
				t.Errorf("the limit has %d, of which %d were carried, and counts %d, want %d, %d and %d", l.Tokens, l.Carried(), l.Consumed, test.want, test.carried, test.consumed)
			}
		})
	}
}
