package bucket

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPlainCase decides on images whose shape is known, and on the same states without a shape: the plans are the same.
func TestPlainCase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const now = int64(1_700_000_000_000)
		c := drawConfig(t, []string{"rpm", "tpm", "rpd"}[:rapid.IntRange(1, 3).Draw(t, "limits")])
		c.Freshness = rapid.SampledFrom([]int64{0, 100}).Draw(t, "freshness")
		s := &State{RefilledAt: now - rapid.SampledFrom([]int64{0, 0, 0, 50, 5000, -50}).Draw(t, "age"), Shards: rapid.IntRange(0, 2).Draw(t, "shards")}
		var names []string
		for _, p := range append(slices.Clone(c.Params), writeUnits) {
			names = append(names, p.Name)
			s.Limits = append(s.Limits, Limit{
				Name: p.Name, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod, Life: 7,
				Tokens: rapid.Int64Range(-5, p.Capacity).Draw(t, "tokens"), Consumed: 1000,
			})
		}
		if c.ExpiryFactor > 0 && !s.sharded() {
			s.ExpiresAt = rapid.SampledFrom([]int64{1, now / 1000, now/1000 + 1, maxExpiry, maxExpiry, maxExpiry}).Draw(t, "expires")
		}
		if rapid.IntRange(0, 9).Draw(t, "noted") == 0 {
			s.Change(func(n *Notes) { n.Generation = 5 })
		}
		if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
			s.Limits[0].Capacity++
		}
		d := drawDemand(t, &c)
		if rapid.IntRange(0, 9).Draw(t, "of others") > 0 {
			d.Amounts, d.Unchecked = nil, false
			for i, p := range c.Params {
				has := max(s.Limits[i].Tokens, 0)
				d.Amounts = append(d.Amounts, Amount{Limit: p.Name, Tokens: rapid.SampledFrom([]int64{0, has / 2, has, has, has + 1, p.Capacity + 1}).Draw(t, "asks")})
			}
		}
		d.Wait = rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 100}).Draw(t, "wait")
		d.Settles = rapid.SampledFrom([]bool{false, false, true}).Draw(t, "settles")
		image := *s
		image.Shape = NewShape(names, true)
		for range 2 { // the second time, the shape knows that it matches
			var want, got Plan
			want.Decide(s, &c, &d, now)
			got.Decide(&image, &c, &d, now)
			want.stepSpace, got.stepSpace = [12]Step{}, [12]Step{}
			if !reflect.DeepEqual(want, got) {
				t.Fatalf("with a shape it is planned to %v: %+v\nwithout one to %v: %+v", got.Kind, got, want.Kind, want)
			}
			if w, g := s.Writes(), image.Writes(); w != g {
				t.Fatalf("Writes() = %d, want %d", g, w)
			}
		}
	})
}
