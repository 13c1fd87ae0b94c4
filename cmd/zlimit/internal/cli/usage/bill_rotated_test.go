package usage

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/rotate"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestBillNotesRotations reads entities that replace others: in the range of a bill and outside, with a line in the bill and without.
func TestBillNotesRotations(t *testing.T) {
	from := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	q := billQuery{from: from, to: from.AddDate(0, 1, 0)}
	for id, created := range map[string]time.Time{"early": from.Add(-time.Second), "in": from, "unused": from, "late": q.to} {
		q.see(&zlimit.Entity{ID: id, CreatedAt: created, Metadata: map[string]string{rotate.FromKey: "old-" + id}})
	}
	q.see(&zlimit.Entity{ID: "other", CreatedAt: from})
	b := Bill{Lines: []BillLine{{Entity: "early"}, {Entity: "in"}, {Entity: "late"}, {Entity: "other"}}}
	b.noteRotations(q.rotated)
	want := []string{`in has the use of old-in before its rotation as well: "zlimit entity rotate old-in in" prints it as used`}
	if diff := cmp.Diff(want, b.Notes); diff != "" {
		t.Errorf("the notes of a bill (-want +got):\n%s", diff)
	}
}
