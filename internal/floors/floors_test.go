// Package floors holds the import graph of the module to its floors. It has no code of its own.
package floors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/zlimit/zlimit-go/"

// floors are the packages of the module, from the ground up. A package imports packages of lower floors alone, never one
// of its own floor.
var floors = [][]string{
	{"internal/wait", "internal/expr", "internal/bucket", "internal/document", "internal/atomicfile", "internal/grammar", "internal/engine"},
	{"internal/store", "internal/declaration"},
	{"internal/store/dynamo/wire", "internal/door"},
	{"internal/store/dynamo", "internal/store/sqlite", "internal/store/memory", "internal/stream", "internal/table", "internal/layout"},
	{"internal/protocol", "internal/stream/leases", "internal/migrate", "zlimit/sqlite"},
	{"zlimit"},
	{"zlimit/blocking", "zlimit/zlimittest", "internal/provision", "httplimit", "internal/rpc", "stack"},
	{"aggregator", "internal/customresource"},
	{"quota", "internal/local"},
	{"quota/quotasqlite"},
	{"cmd/zlimit/internal/cli/show"},
	{"cmd/zlimit/internal/cli/shell"},
	{
		"cmd/zlimit/internal/cli/bench", "cmd/zlimit/internal/cli/buckets", "cmd/zlimit/internal/cli/entities",
		"cmd/zlimit/internal/cli/laptop", "cmd/zlimit/internal/cli/limits", "cmd/zlimit/internal/cli/migrations",
		"cmd/zlimit/internal/cli/namespaces", "cmd/zlimit/internal/cli/quotas", "cmd/zlimit/internal/cli/simulate",
		"cmd/zlimit/internal/cli/stacks", "cmd/zlimit/internal/cli/usage",
	},
	{"cmd/zlimit/internal/cli/demo"},
	{"cmd/zlimit/internal/cli"},
	{"cmd/zlimit"},
}

// apart are trees that no package of the floors imports, with what they may import of the floors. Inside a tree all
// imports are allowed.
var apart = map[string][]string{
	"gen":                              {"internal/declaration", "internal/document"},
	"examples":                         {"zlimit", "zlimit/blocking", "quota"},
	"docs":                             nil,
	"internal/enginetest":              {"internal/engine"},
	"internal/cfn":                     {"stack"},
	"cmd/zlimit/internal/rehearse":     {"cmd/zlimit/internal/cli", "cmd/zlimit/internal/cli/shell", "internal/cfn", "internal/wait", "stack"},
	"internal/iam":                     nil,
	"internal/mutate":                  {"internal/atomicfile"},
	"internal/release":                 {"stack", "zlimit"},
	"internal/explore":                 {"internal/bucket", "internal/door", "internal/expr", "internal/layout", "internal/store", "zlimit"},
	"internal/scale":                   {"aggregator", "internal/bucket", "internal/door", "internal/expr", "internal/layout", "internal/store", "internal/store/memory", "internal/wait", "zlimit"},
	"internal/expr/difftest":           nil,
	"internal/faulttest":               {"internal/door", "internal/expr", "internal/layout", "internal/store", "internal/store/memory", "zlimit"},
	"internal/store/storetest":         {"internal/expr", "internal/store"},
	"internal/store/dynamo/dynamotest": {"internal/store", "internal/store/storetest"},
}

// A pkg is a package as go list prints it.
type pkg struct {
	ImportPath, Dir string
	Imports         []string
}

// listed returns the packages of the module, with what they import of it, but for their tests.
func listed(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Imports", "./...")
	cmd.Dir = "../.."
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
			t.Fatal(err)
		}
		// What go list reads is unknown to the cache of test results, which goes by what the test itself looks at.
		for _, dir := range []string{p.Dir, filepath.Dir(p.Dir)} {
			if _, err := os.ReadDir(dir); err != nil {
				t.Fatal(err)
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

// floorOf returns the floor of a package, -1 for one that has none.
func floorOf(name string) int {
	return slices.IndexFunc(floors, func(floor []string) bool { return slices.Contains(floor, name) })
}

// treeOf returns the tree apart that a package is in, "" for none.
func treeOf(name string) string {
	for tree := range apart {
		if name == tree || strings.HasPrefix(name, tree+"/") {
			return tree
		}
	}
	return ""
}

// check returns what is wrong with an import graph.
func check(graph map[string][]string) (wrong []string) {
	for name, imports := range graph {
		floor, tree := floorOf(name), treeOf(name)
		switch {
		case floor < 0 && tree == "" && name != "internal/floors":
			wrong = append(wrong, fmt.Sprintf("%s has no floor: add it to the floors that this test lists", name))
			continue
		case floor >= 0 && tree != "":
			wrong = append(wrong, fmt.Sprintf("%s is on a floor, and in the tree %s", name, tree))
		}
		for _, imported := range imports {
			switch to := floorOf(imported); {
			case tree != "" && treeOf(imported) == tree, tree != "" && slices.Contains(apart[tree], imported):
			case tree != "":
				wrong = append(wrong, fmt.Sprintf("%s imports %s: the tree %s may import %v", name, imported, tree, apart[tree]))
			case to < 0:
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which is on no floor", name, imported))
			case to >= floor:
				wrong = append(wrong, fmt.Sprintf("%s on floor %d imports %s on floor %d: imports point downward", name, floor, imported, to))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestImportsPointDownward(t *testing.T) {
	graph := listed(t)
	for _, wrong := range check(graph) {
		t.Error(wrong)
	}
	for _, floor := range floors {
		for _, name := range floor {
			if _, ok := graph[name]; !ok {
				t.Errorf("%s is on a floor, and is no package of the module", name)
			}
		}
	}
	for tree, allowed := range apart {
		if !slices.ContainsFunc(allowed, func(name string) bool { return floorOf(name) < 0 && treeOf(name) == "" }) {
			continue
		}
		t.Errorf("the tree %s may import a package that has no floor: %v", tree, allowed)
	}
}

// TestCheck shows the check each kind of arrow that is wrong.
func TestCheck(t *testing.T) {
	for _, test := range []struct{ name, imports, want string }{
		{"internal/table", "zlimit", "internal/table on floor 3 imports zlimit on floor 5: imports point downward"},
		{"internal/table", "internal/layout", "internal/table on floor 3 imports internal/layout on floor 3: imports point downward"},
		{"zlimit", "internal/enginetest", "zlimit imports internal/enginetest, which is on no floor"},
		{"gen", "zlimit", "gen imports zlimit: the tree gen may import [internal/declaration internal/document]"},
		{"internal/newcomer", "zlimit", "internal/newcomer has no floor: add it to the floors that this test lists"},
	} {
		if got := check(map[string][]string{test.name: {test.imports}}); !slices.Equal(got, []string{test.want}) {
			t.Errorf("check(%s imports %s) = %q, want %q", test.name, test.imports, got, test.want)
		}
	}
	if got := check(map[string][]string{"zlimit": {"internal/protocol", "internal/expr"}, "gen/api": {"gen/internal/source"}}); got != nil {
		t.Errorf("check() of imports that point downward = %q", got)
	}
}
