package quota_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImportCostsNothing: a program that imports the package links neither the
// SQLite engine nor anything of the distributed limiter.
func TestImportCostsNothing(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/zlimit/zlimit-go/quota").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list gave %d packages, want all dependencies", len(deps))
	}
	shared := []string{"github.com/zlimit/zlimit-go/internal/tool/atomicfile", "github.com/zlimit/zlimit-go/internal/document"}
	for _, dep := range deps {
		if slices.Contains(shared, dep) {
			continue
		}
		for _, banned := range []string{"modernc.org", "aws", "database/sql", "zlimit-go/zlimit", "zlimit-go/internal", "zlimit-go/quota/quotasqlite"} {
			if strings.Contains(dep, banned) {
				t.Errorf("dependencies have %s, want nothing of %s", dep, banned)
			}
		}
	}
}
