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
		truth, total := map[int]int64{}, int64(0)
		counted := func() *Counter[int] {
			c := New[int](capacity)
			for range rapid.IntRange(0, 200).Draw(t, "calls") {
				key, n := rapid.IntRange(0, 20).Draw(t, "key"), rapid.Int64Range(1, 5).Draw(t, "n")
				c.Add(key, n)
				truth[key] += n
				total += n
			}
			return c
		}
		c := counted()
		merged := rapid.Bool().Draw(t, "merged")
		if merged {
			c.Merge(counted())
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
			if !listed[key] && !merged && n >= capacity && is*int64(capacity) > total {
				t.Fatalf("%d has %d of %d, and is not among %d", key, is, total, capacity)
			}
		}
	})
}

// TestMerge merges a counter that has displaced a key of the first one: its count may be higher by that.
func TestMerge(t *testing.T) {
	first, second := New[string](2), New[string](2)
	first.Add("a", 5)
	first.Add("d", 1)
	second.Add("a", 2)
	second.Add("b", 3)
	second.Add("c", 3) // displaces a
	first.Merge(second)
	top, _ := first.Top(2)
	for _, c := range top {
		if c.Key == "a" && (c.Count < 7 || c.Count-c.Error > 7) {
			t.Errorf("Top() = %+v, want an a of 7 within its bounds", top)
		}
	}
}
