package floors

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// stores are the stores that a program links by import, each with the prefixes of the packages that come with it.
var stores = map[string][]string{
	"SQLite":   {"modernc.org/"},
	"DynamoDB": {"github.com/aws/"},
}

// TestLinksStores checks that a program links SQLite and the AWS SDK only if it imports them.
func TestLinksStores(t *testing.T) {
	for _, test := range []struct {
		name string
		want []string
	}{
		{"zlimit", nil},
		{"zlimit/blocking", nil},
		{"zlimit/zlimittest", nil},
		{"httplimit", nil},
		{"internal/edge/rpc", nil}, // what grpclimit and connectlimit share
		{"gen/zlimitgen", nil},
		{"cmd/zlimit/demo", nil},
		{"zlimit/sqlite", []string{"SQLite"}},
		{"zlimit/dynamo", []string{"DynamoDB"}},
		{"aggregator", []string{"DynamoDB"}},
		{"cmd/zlimit", []string{"DynamoDB", "SQLite"}},
	} {
		output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+test.name).CombinedOutput()
		if err != nil {
			t.Fatalf("go list -deps %s: %v\n%s", test.name, err, output)
		}
		deps := strings.Fields(string(output))
		if len(deps) < 80 {
			t.Fatalf("go list -deps %s = %d packages, want all dependencies", test.name, len(deps))
		}
		var linked []string
		for store, prefixes := range stores {
			if slices.ContainsFunc(deps, func(dep string) bool {
				return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(dep, prefix) })
			}) {
				linked = append(linked, store)
			}
		}
		slices.Sort(linked)
		if !slices.Equal(linked, test.want) {
			t.Errorf("%s links the stores %q, want %q", test.name, linked, test.want)
		}
	}
}
