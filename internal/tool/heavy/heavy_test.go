package heavy

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBounds compares counts of random keys with the true ones: each is within its bounds, and a key that is left out has no more than
// the bound of others. The heaviest keys are never left out.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 8).Draw(t, "capacity")
		c, truth := New[int](capacity), map[int]int64{}
		total := int64(0)
		for range rapid.IntRange(0, 200).Draw(t, "calls") {
			key, n := rapid.IntRange(0, 20).Draw(t, "key"), rapid.Int64Range(1, 5).Draw(t, "n")
			c.Add(key, n)
			truth[key] += n
			total += n
		}
		if rapid.Bool().Draw(t, "merged") { // counts of two counters
			first, second := New[int](capacity), c
			first.Add(3, 2)
			truth[3] += 2
			total += 2
			first.Merge(second)
			c = first
		}
		if c.Total() != total {
			t.Fatalf("Total() = %d, want %d", c.Total(), total)
		}
		n := rapid.IntRange(1, 10).Draw(t, "n")
		top, others := c.Top(n)
		if len(top) > min(n, capacity) {
			t.Fatalf("Top(%d) of %d = %v", n, capacity, top)
		}
		listed := map[int]bool{}
		for i, e := range top {
			listed[e.Key] = true
			if is := truth[e.Key]; is > e.Count || is < e.Count-e.Error {
				t.Fatalf("%d was counted %d times, and has %d with an error of %d", e.Key, is, e.Count, e.Error)
			}
			if i > 0 && top[i-1].Count < e.Count {
				t.Fatalf("Top(%d) = %v, want the heaviest first", n, top)
			}
		}
		for key, is := range truth {
			if !listed[key] && is > others {
				t.Fatalf("%d was counted %d times, is not among %v, and others have at most %d", key, is, top, others)
			}
			if !listed[key] && n >= capacity && is*int64(capacity) > total {
				t.Fatalf("%d has %d of %d, and is not among %d", key, is, total, capacity)
			}
		}
	})
}
