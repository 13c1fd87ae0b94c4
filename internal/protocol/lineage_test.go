package protocol

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/layout"
)

// In TestOwnerBy, the bucket of a wider resource shows a later move. Its parent counts. Whether the parent is charged follows from the
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
