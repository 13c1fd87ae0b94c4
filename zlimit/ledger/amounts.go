package ledger

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Largest returns the names of amounts, the largest first.
func Largest(amounts map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(amounts), func(a, b string) int { return cmp.Or(cmp.Compare(amounts[b], amounts[a]), cmp.Compare(a, b)) })
}

// Rounded keeps two digits of an amount: a forecast has no more. What is not positive is 0.
func Rounded(v float64) float64 {
	if v <= 0 {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/power) * power
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func add(to, values []float64) {
	for i := range values {
		to[i] += values[i]
	}
}
