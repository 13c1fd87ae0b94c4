package bucket

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// drawRate draws a refill from one millitoken in ten days to 10^15 millitokens per millisecond.
func drawRate(t *rapid.T) (amount, period int64) {
	amount = rapid.OneOf(rapid.Int64Range(1, 1_000_000), rapid.Int64Range(1, 1_000_000_000_000_000)).Draw(t, "amount")
	period = rapid.OneOf(rapid.Int64Range(1, 120_000), rapid.Int64Range(1, 864_000_000)).Draw(t, "period")
	return amount, period
}

func drawTime(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Int64Range(0, 100_000), rapid.Int64Range(1_600_000_000_000, 2_000_000_000_000),
		rapid.Int64Range(-100_000, 0)).Draw(t, label)
}

// cumulative returns ⌊t·amount/period⌋ in unbounded integers.
func cumulative(t, amount, period int64) *big.Int {
	product := new(big.Int).Mul(big.NewInt(t), big.NewInt(amount))
	return product.Div(product, big.NewInt(period)) // Euclidean, so the floor for a positive period
}

func TestRefillIsTheDifferenceOfTheCumulativeRefill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount, period := drawRate(t)
		from, to := drawTime(t, "from"), drawTime(t, "to")
		want := new(big.Int)
		if to > from {
			want.Sub(cumulative(to, amount, period), cumulative(from, amount, period))
		}
		if limit := big.NewInt(math.MaxInt64); want.Cmp(limit) > 0 {
			want = limit
		}
		if got := Refill(from, to, amount, period); got != want.Int64() {
			t.Fatalf("Refill(%d, %d, %d, %d) = %d, want %v", from, to, amount, period, got, want)
		}
	})
}

func TestRefillsAddUpHoweverOftenABucketIsRefilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(1, 1_000_000_000).Draw(t, "amount")
		period := rapid.Int64Range(1, 864_000_000).Draw(t, "period")
		now := drawTime(t, "start")
		start, sum := now, int64(0)
		for _, step := range rapid.SliceOfN(rapid.Int64Range(0, 5000), 1, 50).Draw(t, "steps") {
			sum += Refill(now, now+step, amount, period)
			now += step
		}
		if whole := Refill(start, now, amount, period); sum != whole {
			t.Fatalf("refills from %d to %d add up to %d, want %d", start, now, sum, whole)
		}
	})
}

func TestTimeToRefillIsTheFirstMillisecondThatIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount, period := drawRate(t)
		from := drawTime(t, "from")
		want := rapid.OneOf(rapid.Uint64Range(1, 1_000_000), rapid.Uint64Range(1, math.MaxInt64)).Draw(t, "want")
		wait := timeToRefill(from, want, amount, period)
		if wait > 1<<61 {
			t.Skip("beyond the time that int64 milliseconds can count from here")
		}
		if got := Refill(from, from+wait, amount, period); got < int64(want) {
			t.Fatalf("after %d ms %d has flowed in, want at least %d", wait, got, want)
		}
		if got := Refill(from, from+wait-1, amount, period); got >= int64(want) {
			t.Fatalf("a millisecond before %d ms %d has flowed in, want less than %d", wait, got, want)
		}
	})
}

func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(0, math.MaxInt64).Draw(t, "total")
		shards := rapid.IntRange(1, 32).Draw(t, "shards")
		sum, least, most := int64(0), int64(math.MaxInt64), int64(0)
		for shard := range shards {
			share := Share(total, shard, shards)
			sum += share
			least, most = min(least, share), max(most, share)
		}
		if sum != total || most-least > 1 {
			t.Fatalf("%d shards of %d add up to %d, from %d to %d", shards, total, sum, least, most)
		}
	})
}

func TestSaturatedArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		clamp := func(n *big.Int) int64 {
			switch {
			case n.Cmp(big.NewInt(math.MaxInt64)) > 0:
				return math.MaxInt64
			case n.Cmp(big.NewInt(math.MinInt64)) < 0:
				return math.MinInt64
			}
			return n.Int64()
		}
		if got, want := add(a, b), clamp(new(big.Int).Add(big.NewInt(a), big.NewInt(b))); got != want {
			t.Fatalf("add(%d, %d) = %d, want %d", a, b, got, want)
		}
		if got, want := sub(a, b), clamp(new(big.Int).Sub(big.NewInt(a), big.NewInt(b))); got != want {
			t.Fatalf("sub(%d, %d) = %d, want %d", a, b, got, want)
		}
	})
}
