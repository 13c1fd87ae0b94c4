package bucket

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestPartsInWindows runs random programs on the shards of a bucket with windows, beside the ideal bucket that is whole. Shards are taken
// from alone and together, split and merge. They admit nothing that the ideal bucket would not. As long as they are kept even, they
// never have less than an eighth of the largest capacity below it.
func TestPartsInWindows(t *testing.T) {
	resized := 0
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		p := windowed(t, random)
		p.Capacity, p.RefillAmount = 1_000_000+random.Int64N(1_000_000_000), 100_000+random.Int64N(100_000_000)
		c := Config{Params: []Params{p}}
		now := instant(random)
		shards := fullShards(&c, 1<<random.IntN(3), now)
		whole := rat((view{&c, shards.images(), now}).whole(&p).available())
		even := rapid.Bool().Draw(t, "even")
		slack, early, lost := int64(1+len(shards)), int64(0), int64(0) // by splits and merges, which move stamps by a millisecond
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			last := now
			switch random.IntN(4) {
			case 0: // about the beginning of a minute
				now = max(now, (now+30_000)/60_000*60_000+random.Int64N(200)-100)
			case 1:
				now += random.Int64N(min(2*p.rule().slowest(p.Capacity)/int64(len(shards))+1, 7_200_000))
			case 2:
				now += random.Int64N(2000)
			}
			var stretches int64
			whole, stretches = naiveFrom(&p, whole, last, now)
			slack += (stretches + 2) * 8
			at := random.IntN(len(shards))
			if random.IntN(4) == 0 {
				ahead := int64(0)
				p.rule().each(func(r rule) { ahead = max(ahead, r.refill/r.period+1) })
				early += ahead
				lost += shards.divide(t, &c, at, now)
				resized++
				at = min(at, len(shards)-1)
			}
			before := (view{&c, shards.images(), now}).whole(&p).available()
			off := new(big.Rat).Sub(rat(before), whole)
			if off.Cmp(rat(slack+early)) > 0 {
				t.Fatalf("the shards have %d, the ideal bucket %s", before, whole.FloatString(3))
			}
			if even && off.Neg(off).Cmp(rat(slack+lost+p.rule().most()/8)) > 0 {
				t.Fatalf("the shards have %d, the ideal bucket %s, of at most %d", before, whole.FloatString(3), p.rule().most())
			}
			d := Demand{Amounts: []Amount{{Limit: p.Name, Tokens: 1 + random.Int64N(p.rule().capacityAt(now)/int64(len(shards))*2)}}}
			amount := d.Amounts[0].Tokens
			admitted := shards.take(t, &c, at, &d, even, now)
			if admitted != (amount <= before) {
				t.Fatalf("a demand of %d on %d: admitted %v", amount, before, admitted)
			}
			if admitted {
				whole = new(big.Rat).Sub(whole, rat(amount))
			}
			for _, it := range shards {
				if l := it.state.find(p.Name); l.Tokens > it.state.share(p.Name, p.rule().capacityAt(it.state.RefilledAt)) {
					t.Fatalf("shard %d of %d has %d", it.state.Shard, it.state.Shards, l.Tokens)
				}
			}
		}
	})
	if resized < 20 {
		t.Errorf("%d shards were split or merged", resized)
	}
}
