package protocol

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/layout"
)

// TestOwnerBy has the bucket of a wider resource tell of a later move. The parent is the later one, and whether it is charged is said for the
// request's own resource.
func TestOwnerBy(t *testing.T) {
	levels := []level{
		{limits: &Limits{Lineage: layout.Lineage{Parent: "one", Generation: 1}}},
		{limits: &Limits{Lineage: layout.Lineage{Cascade: true, Parent: "two", Generation: 2}}},
	}
	if got := lineageBy(levels); got.Cascade || got.Parent != "two" || got.Generation != 2 {
		t.Errorf("lineageBy() = %+v", got)
	}
	levels[0].limits.Lineage.Cascade, levels[1].limits.Lineage.Cascade = true, false
	if got := lineageBy(levels); !got.Cascade || got.Parent != "two" {
		t.Errorf("lineageBy() = %+v", got)
	}
}
