package bucket

import (
	"slices"
	"testing"
)

func TestTreeOfShards(t *testing.T) {
	for hash := range 64 {
		for from := range 64 {
			if from == hash {
				continue
			}
			b := Branch(hash, from)
			n := 1
			for n <= b {
				n *= 2
			}
			if hash%n != b || b == from {
				t.Errorf("Branch(%d, %d) = %d", hash, from, b)
			}
		}
	}
	for shard, want := range map[int]int{1: 0, 2: 0, 3: 1, 6: 2, 7: 3, 31: 15} {
		if got := Origin(shard); got != want {
			t.Errorf("Origin(%d) = %d, want %d", shard, got, want)
		}
	}
	for _, test := range []struct {
		shard, count int
		want         []int
	}{{0, 1, nil}, {0, 8, []int{1, 2, 4}}, {1, 8, []int{3, 5}}, {5, 8, nil}, {2, 16, []int{6, 10}}} {
		if got := Branches(nil, test.shard, test.count); !slices.Equal(got, test.want) {
			t.Errorf("Branches(%d of %d) = %v, want %v", test.shard, test.count, got, test.want)
		}
	}
	if low, high := Sibling(6, 8); low != 2 || high != 6 {
		t.Errorf("Sibling(6, 8) = %d, %d, want 2, 6", low, high)
	}
}

// TestMergesWith merges shards that one split made, and no others.
func TestMergesWith(t *testing.T) {
	shard := func(number, count int, names ...string) *State {
		s := &State{Shard: number, Shards: count}
		for _, name := range append([]string{WriteUnits}, names...) {
			s.Limits = append(s.Limits, Limit{Name: name, Capacity: 10, RefillAmount: 10, RefillPeriod: 1000})
		}
		s.Limits[0].Capacity, s.Limits[0].RefillAmount = WriteCapacity, WriteCapacity
		return s
	}
	for _, test := range []struct {
		what       string
		low, other *State
		want       bool
	}{
		{"two shards of two", shard(0, 2, "rpm"), shard(1, 2, "rpm"), true},
		{"siblings of four", shard(1, 4, "rpm"), shard(3, 4, "rpm"), true},
		{"siblings of four that both split again", shard(1, 8, "rpm"), shard(3, 8, "rpm"), false},
		{"siblings, one of which split again", shard(1, 4, "rpm"), shard(3, 8, "rpm"), false},
		{"the higher one first", shard(3, 4, "rpm"), shard(1, 4, "rpm"), false},
		{"other limits", shard(1, 4, "rpm"), shard(3, 4, "tpm"), false},
		{"a whole bucket", shard(0, 1, "rpm"), shard(0, 1, "rpm"), false},
	} {
		if got := test.low.MergesWith(test.other); got != test.want {
			t.Errorf("MergesWith() of %s = %v, want %v", test.what, got, test.want)
		}
	}
}
