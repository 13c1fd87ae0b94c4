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
