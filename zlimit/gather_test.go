package zlimit

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// TestApportion divides amounts at random: all of it is taken, no shard gives what it does not have while another one has
// it, and those that give are left at the same level, at which or below which all others are.
func TestApportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leaves := []bucket.State{{Shards: 1}}
		for range rapid.IntRange(0, 12).Draw(t, "splits") {
			s := &leaves[rapid.IntRange(0, len(leaves)-1).Draw(t, "leaf")]
			if s.Shards < maxShards {
				s.Shards *= 2
				leaves = append(leaves, bucket.State{Shard: s.Shard + s.Shards/2, Shards: s.Shards})
			}
		}
		n := len(leaves)
		most := rapid.SampledFrom([]int64{1e3, 1e9, 1e15, 4e18}).Draw(t, "magnitude")
		capacity := rapid.Int64Range(most/3, most).Draw(t, "capacity")
		images, levels := make([]*image, n), make([][]bucket.Status, n)
		there := int64(0)
		for i := range n {
			share := bucket.Share(capacity, leaves[i].Shard, leaves[i].Shards)
			has := share / 1000 * rapid.Int64Range(-1000, 1000).Draw(t, "thousandths")
			there = saturated(there, max(has, 0))
			images[i] = &image{State: leaves[i]}
			levels[i] = []bucket.Status{{Params: bucket.Params{Name: "a", Capacity: capacity}, Available: has}}
		}
		amount := max(capacity/1000*rapid.Int64Range(1, 1000).Draw(t, "thousandths"), 1)
		takes := apportion(images, levels, []bucket.Amount{{Limit: "a", Tokens: amount}})

		sum := int64(0)
		left := make([]float64, n) // parts of the share
		slack := make([]float64, n)
		for i := range takes {
			take, has, share := tokensOf(takes[i], "a"), levels[i][0].Available, float64(bucket.Share(capacity, leaves[i].Shard, leaves[i].Shards))
			sum += take
			if take < 0 || there >= amount && take > max(has, 0) {
				t.Errorf("shard %d gives %d of %d, and all have %d of %d", i, take, has, there, amount)
			}
			left[i] = float64(has-take) / share
			slack[i] = float64(n+1)/share + 1e-9
		}
		if sum != amount {
			t.Errorf("%d are taken, want %d", sum, amount)
		}
		for i := range takes {
			for j := range takes {
				if len(takes[i]) > 0 && left[i] < left[j]-slack[i]-slack[j] {
					t.Errorf("shard %d is left with %v of its share, and shard %d with %v", i, left[i], j, left[j])
				}
			}
		}
	})
}
