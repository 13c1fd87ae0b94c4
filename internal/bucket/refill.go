package bucket

import (
	"math"
	"math/bits"
)

// Refill returns the millitokens that are refilled after from and up to to: R(to) − R(from) with R(t) = ⌊t·amount/period⌋ over epoch
// milliseconds. The form telescopes: over any sequence of instants the refills add up to R(last) − R(first). So however often a bucket is
// refilled, and however many limits share a stamp, no refill drifts or is lost. Refill is 0 if to is not after from, and saturates at the
// largest int64. amount and period must be positive.
func Refill(from, to, amount, period int64) int64 { return signed(flow(from, to, amount, period)) }

// flow is [Refill] that saturates at the largest uint64. That fills up the deepest debt.
func flow(from, to, amount, period int64) uint64 {
	if to <= from {
		return 0
	}
	// With elapsed = to − from the difference is ⌊(elapsed·amount + (from·amount mod period)) / period⌋.
	hi, lo := bits.Mul64(uint64(to)-uint64(from), uint64(amount))
	lo, carry := bits.Add64(lo, remainder(from, amount, period), 0)
	hi += carry
	if hi >= uint64(period) {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(hi, lo, uint64(period))
	return quotient
}

// raised returns a balance plus the refill, saturated. It is exact even for a debt that is deeper than the largest int64.
func raised(tokens int64, inflow uint64) int64 {
	if inflow > uint64(math.MaxInt64)-uint64(tokens) {
		return math.MaxInt64
	}
	return int64(uint64(tokens) + inflow)
}

// signed returns a refill as an int64, saturated.
func signed(inflow uint64) int64 { return int64(min(inflow, math.MaxInt64)) }

// remainder returns t·amount mod period, in [0, period).
func remainder(t, amount, period int64) uint64 {
	t %= period
	if t < 0 {
		t += period
	}
	hi, lo := bits.Mul64(uint64(t), uint64(amount%period))
	return bits.Rem64(hi, lo, uint64(period))
}

// timeToRefill returns the smallest number of milliseconds after from in which at least want millitokens are refilled. It is the inverse of
// [Refill]: ⌈(want·period − (from·amount mod period)) / amount⌉. It saturates at the largest int64.
func timeToRefill(from int64, want uint64, amount, period int64) int64 {
	hi, lo := bits.Mul64(want, uint64(period))
	lo, borrow := bits.Sub64(lo, remainder(from, amount, period), 0)
	if borrow > hi {
		return 0 // want is 0
	}
	hi -= borrow
	if hi >= uint64(amount) {
		return math.MaxInt64
	}
	quotient, rest := bits.Div64(hi, lo, uint64(amount))
	if rest > 0 {
		quotient++ // no overflow: quotient·amount < 2^128 − 2^64
	}
	return int64(min(quotient, math.MaxInt64))
}

// add returns a + b, saturated.
func add(a, b int64) int64 {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}

// sub returns a − b, saturated.
func sub(a, b int64) int64 {
	difference := a - b
	switch {
	case b < 0 && difference < a:
		return math.MaxInt64
	case b > 0 && difference > a:
		return math.MinInt64
	default:
		return difference
	}
}

// Share returns what shard number shard of shards owns of a total. The first total mod shards of them own one
// millitoken more, so that the shares add up to the total.
func Share(total int64, shard, shards int) int64 {
	if shards <= 1 {
		return total
	}
	share := total / int64(shards)
	if int64(shard) < total%int64(shards) {
		share++
	}
	return share
}
