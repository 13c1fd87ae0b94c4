package bucket

import (
	"math/rand/v2"
	"testing"
)

// TestAlike adds up lists that are alike: no limit of a sum has amounts of both signs, however many lists are added. Lists that only
// take are alike, and so are those that only give back.
func TestAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	draw := func() (list []Amount) {
		for _, name := range []string{"a", "b", "c"} {
			if random.IntN(2) == 0 {
				list = append(list, Amount{Limit: name, Tokens: random.Int64N(3) - 1})
			}
		}
		return list
	}
	shared := 0
	for range 20_000 {
		group := [][]Amount{draw()}
		for range 8 {
			if next := draw(); Alike(next, group[0]) {
				group = append(group, next)
			}
		}
		signs := map[string]int64{}
		for _, list := range group {
			for _, a := range list {
				if signs[a.Limit]*a.Tokens < 0 {
					t.Fatalf("%v are added up", group)
				}
				if a.Tokens != 0 {
					signs[a.Limit] = a.Tokens
				}
			}
		}
		shared += len(group) - 1
	}
	if shared < 20_000 {
		t.Errorf("%d lists are added to others", shared)
	}
	for _, sign := range []int64{1, -1} {
		if !Alike([]Amount{{Limit: "a", Tokens: sign}}, []Amount{{Limit: "b", Tokens: 2 * sign}, {Limit: "a", Tokens: 3 * sign}}) {
			t.Errorf("lists of sign %d are not alike", sign)
		}
	}
}
