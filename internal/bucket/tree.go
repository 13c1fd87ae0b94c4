package bucket

import "math/bits"

// The shards of a split bucket are the leaves of a binary tree, each with a count of its own. Shard s of n splits into shards s and s+n of
// 2n, independently of the others. It covers the hashes that are s modulo n.

// Origin returns the shard that a shard, other than 0, split off from: its number without the highest bit.
func Origin(shard int) int { return shard &^ (1 << (bits.Len(uint(shard)) - 1)) }

// Branch returns the shard that split off from another one towards a hash other than its own. The number of that shard
// is the hash up to the lowest bit that differs.
func Branch(hash, from int) int {
	differ := uint(hash ^ from)
	return hash & (1<<(bits.TrailingZeros(differ)+1) - 1)
}

// Branches appends the shards that split off from a shard, which is one of count: the tree has no others below it.
func Branches(to []int, shard, count int) []int {
	for bit := 1 << bits.Len(uint(shard)); bit < count; bit <<= 1 {
		to = append(to, shard+bit)
	}
	return to
}

// Sibling returns the lower and the higher of the two shards of count that one split made.
func Sibling(shard, count int) (low, high int) {
	low = shard &^ (count / 2)
	return low, low | count/2
}
