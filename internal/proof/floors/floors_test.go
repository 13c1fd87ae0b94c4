// Package floors holds the import graph of the module to its floors. It has no code of its own.
package floors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/zlimit/zlimit-go/"

// floors are the folders of the module, from the ground up. A package imports packages of lower floors alone, never one
// of its own floor. A folder that ends in "/..." is one room: inside it all imports are allowed.
var floors = [][]string{
	{"internal/tool/...", "internal/expr", "internal/calendar", "internal/document", "internal/forecast", "client", "price"},
	{"internal/bucket", "internal/grammar"},
	{"internal/store", "internal/declaration", "quota/..."},
	{"internal/store/dynamo/wire", "internal/hooks"},
	{"internal/store/dynamo", "internal/store/sqlite", "internal/store/memory", "internal/stream", "internal/table", "internal/layout"},
	{"internal/protocol", "internal/stream/leases", "zlimit/dynamo", "zlimit/sqlite"},
	{"zlimit"},
	{"zlimit/blocking", "zlimit/zlimittest", "zlimit/leasetoken", "zlimit/recent", "zlimit/rotation", "internal/edge/...", "internal/deploy/...", "stack"},
	{"aggregator", "httplimit", "zlimit/hindsight"},
	{"zlimit/ledger"},
	{"cmd/zlimit/internal/local", "cmd/zlimit/internal/migrate", "cmd/zlimit/internal/rotate", "cmd/zlimit/internal/virtual"},
	{"cmd/zlimit/internal/cli/show"},
	{"cmd/zlimit/internal/cli/shell", "cmd/zlimit/internal/cli/budgets", "cmd/zlimit/internal/demo"},
	{
		"cmd/zlimit/internal/cli/bench", "cmd/zlimit/internal/cli/buckets", "cmd/zlimit/internal/cli/demo", "cmd/zlimit/internal/cli/entities",
		"cmd/zlimit/internal/cli/laptop", "cmd/zlimit/internal/cli/limits", "cmd/zlimit/internal/cli/migrations",
		"cmd/zlimit/internal/cli/namespaces", "cmd/zlimit/internal/cli/prices", "cmd/zlimit/internal/cli/quotas", "cmd/zlimit/internal/cli/resources",
		"cmd/zlimit/internal/cli/simulate", "cmd/zlimit/internal/cli/stacks", "cmd/zlimit/internal/cli/teams", "cmd/zlimit/internal/cli/usage",
	},
	{"cmd/zlimit/internal/cli"},
	{"cmd/zlimit", "cmd/zlimit/demo"},
}

// outside are folders that no package of the floors imports, with the floors that they may import. A proof may import
// all.
var outside = map[string][]string{
	"gen":                         {"internal/declaration", "internal/document", "internal/grammar"},
	"examples":                    {"zlimit", "zlimit/blocking", "quota"},
	"docs":                        {},
	"internal/proof":              nil,
	"cmd/zlimit/internal/release": {"internal/tool/materials", "stack", "zlimit"},
}

// A pkg is a package as go list prints it.
type pkg struct {
	ImportPath, Dir string
	Imports         []string
}

// listed returns the packages of the module, with what they import of it, except their tests.
func listed(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Imports", "./...")
	cmd.Dir = "../../.."
	var failure bytes.Buffer
	cmd.Stderr = &failure
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, failure.Bytes())
	}
	graph := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(output)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return graph
		} else if err != nil {
			t.Fatalf("Decode() = %v", err)
		}
		// The cache of test results depends on the files that the test itself opens, and knows nothing of go list's.
		for _, dir := range []string{p.Dir, filepath.Dir(p.Dir)} {
			if _, err := os.ReadDir(dir); err != nil {
				t.Fatalf("os.ReadDir() = %v", err)
			}
		}
		var ours []string
		for _, path := range p.Imports {
			if name, ok := strings.CutPrefix(path, module); ok {
				ours = append(ours, name)
			}
		}
		graph[strings.TrimPrefix(p.ImportPath, module)] = ours
	}
}

// within reports whether a package is in a folder or below it.
func within(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// roomOf returns the floor of a package and its room there, -1 for a package that has none.
func roomOf(name string) (floor int, room string) {
	for floor, rooms := range floors {
		for _, room := range rooms {
			if folder, whole := strings.CutSuffix(room, "/..."); name == room || whole && within(name, folder) {
				return floor, room
			}
		}
	}
	return -1, ""
}

// outsideOf returns the folder outside of the floors that a package is in, "" for none.
func outsideOf(name string) string {
	for folder := range outside {
		if within(name, folder) {
			return folder
		}
	}
	return ""
}

// check returns what is wrong with an import graph.
func violations(graph map[string][]string) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for name, imports := range graph {
		floor, room := roomOf(name)
		folder := outsideOf(name)
		switch {
		case floor < 0 && folder == "":
			complain("%s has no floor: add it to the floors that this test lists", name)
			continue
		case floor >= 0 && folder != "":
			complain("%s is on a floor, and in the folder %s, which is outside", name, folder)
		}
		for _, imported := range imports {
			to, itsRoom := roomOf(imported)
			switch {
			case folder != "" && outsideOf(imported) == folder:
			case folder != "" && (to < 0 || outside[folder] != nil && !slices.Contains(outside[folder], imported)):
				complain("%s imports %s: the folder %s may import %v", name, imported, folder, outside[folder])
			case folder != "":
			case to < 0:
				complain("%s imports %s, which is on no floor", name, imported)
			case to > floor, to == floor && itsRoom != room:
				complain("%s on floor %d imports %s on floor %d: imports point downward", name, floor, imported, to)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestImportsPointDownward(t *testing.T) {
	graph := listed(t)
	for _, wrong := range violations(graph) {
		t.Error(wrong)
	}
	for _, room := range slices.Concat(floors...) {
		folder := strings.TrimSuffix(room, "/...")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(graph)), func(name string) bool { return within(name, folder) }) {
			t.Errorf("%s is on a floor, and no folder of the module", room)
		}
	}
	for folder, allowed := range outside {
		for _, name := range allowed {
			if floor, _ := roomOf(name); floor < 0 {
				t.Errorf("the folder %s may import %s, which has no floor", folder, name)
			}
		}
	}
}

// TestCheck shows the check each kind of arrow that is wrong.
func TestCheck(t *testing.T) {
	for _, test := range []struct{ name, imports, want string }{
		{"internal/table", "zlimit", "internal/table on floor 4 imports zlimit on floor 6: imports point downward"},
		{"internal/table", "internal/layout", "internal/table on floor 4 imports internal/layout on floor 4: imports point downward"},
		{"zlimit", "internal/proof/enginetest", "zlimit imports internal/proof/enginetest, which is on no floor"},
		{"gen", "zlimit", "gen imports zlimit: the folder gen may import [internal/declaration internal/document internal/grammar]"},
		{"internal/proof/scale", "gen", "internal/proof/scale imports gen: the folder internal/proof may import []"},
		{"internal/newcomer", "zlimit", "internal/newcomer has no floor: add it to the floors that this test lists"},
	} {
		if got := violations(map[string][]string{test.name: {test.imports}}); !slices.Equal(got, []string{test.want}) {
			t.Errorf("violations(%s imports %s) = %q, want %q", test.name, test.imports, got, test.want)
		}
	}
	if got := violations(map[string][]string{"zlimit": {"internal/protocol", "internal/expr"}, "gen/api": {"gen/internal/source"}, "internal/edge/rpc": {"internal/edge/fields"}, "internal/proof/scale": {"aggregator"}}); got != nil {
		t.Errorf("violations() of imports that point downward = %q", got)
	}
}
