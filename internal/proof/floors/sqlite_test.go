package floors

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLinksSQLite asks what programs link: SQLite those alone that import it.
func TestLinksSQLite(t *testing.T) {
	for _, test := range []struct {
		name string
		want bool
	}{
		{"zlimit", false},
		{"zlimit/blocking", false},
		{"zlimit/zlimittest", false},
		{"aggregator", false},
		{"httplimit", false},
		{"zlimit/sqlite", true},
		{"cmd/zlimit", true},
	} {
		output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+test.name).CombinedOutput()
		if err != nil {
			t.Fatalf("go list -deps %s: %v\n%s", test.name, err, output)
		}
		deps := strings.Fields(string(output))
		if len(deps) < 100 {
			t.Fatalf("%s: go list gives %d packages, want all dependencies", test.name, len(deps))
		}
		var linked []string
		for _, dep := range deps {
			if strings.HasPrefix(dep, "modernc.org/") || dep == "database/sql" {
				linked = append(linked, dep)
			}
		}
		if got := linked != nil; got != test.want {
			t.Errorf("%s links of SQLite %v, want any: %v", test.name, linked, test.want)
		}
	}
}
