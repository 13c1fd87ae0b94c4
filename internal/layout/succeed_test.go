package layout

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// In TestSuccessorAsks, an item changes after it was seen: by a refill, by a split, by an operator, by a new edge, or in a balance. The writes
// of its successor do not hold then.
func TestSuccessorAsks(t *testing.T) {
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	seen := func() *bucket.State {
		return &bucket.State{
			RefilledAt: 1_700_000_000_000, ValidUntil: 1_700_000_100_000, Shards: 2, Notes: &bucket.Notes{Generation: 7},
			Limits: []bucket.Limit{{Name: "rpm", Tokens: 5000, Capacity: 9000, RefillAmount: 9000, RefillPeriod: 1000}},
		}
	}
	writes, err := (&Successor{Key: BucketKey{NS: "ns", Entity: "new", Resource: "r"}, From: k, Is: seen()}).Writes(Lineage{})
	check.Fatal(t, "Writes()", err)
	for change, edit := range map[string]func(*bucket.State){
		"":           func(*bucket.State) {},
		"refill":     func(s *bucket.State) { s.RefilledAt++ },
		"split":      func(s *bucket.State) { s.Shards = 4 },
		"generation": func(s *bucket.State) { s.Notes.Generation++ },
		"edge":       func(s *bucket.State) { s.ValidUntil++ },
		"balance":    func(s *bucket.State) { s.Limits[0].Tokens-- },
	} {
		is := seen()
		edit(is)
		if holds := writes[0].Expr.Holds(k.Item(is, Lineage{}).Encode()); holds != (change == "") {
			t.Errorf("after a change of %q, the write of the successor holds: %t", change, holds)
		}
	}
}
