package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Bounds of the lists, so that each of them fits on a page.
const (
	mostOnTheWay = 40
	mostInAPart  = 12
)

// steps are the rows of the way of one acquire and of its parts: a file and a function.
var steps = regexp.MustCompile("(?m)^\\| (?:\\d+ \\| )?`([a-z]+)/([a-z_]+\\.go)` `(\\w+)` \\|")

// TestTheWayOfOneAcquire checks the lists of that page of DESIGN.md. Each function is in its file and stands once. One that stands
// before it, on the way or in the same part, calls it.
func TestTheWayOfOneAcquire(t *testing.T) {
	content, err := os.ReadFile("../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(content), "\n## The way of one acquire\n")
	page, _, _ = strings.Cut(page, "\n## ")
	seen := map[string]bool{}
	onTheWay := map[string]bool{"Acquire": true} // called by it
	for i, part := range strings.Split(page, "\n**") {
		rows := steps.FindAllStringSubmatch(part, -1)
		most, called := mostOnTheWay, onTheWay
		if i > 0 {
			most, called = mostInAPart, maps.Clone(onTheWay)
		}
		if want := strings.Count(part, "\n| ") - 1; len(rows) != want || want < 1 || want > most { // less the head
			t.Fatalf("list %d has %d functions in %d rows, want at most %d, one a row", i, len(rows), want, most)
		}
		for _, row := range rows {
			file, name := "../internal/"+row[1]+"/"+row[2], row[3]
			if row[1] == "zlimit" {
				file = "../zlimit/" + row[2]
			}
			body := functions(t, file)[name]
			switch {
			case body == nil:
				t.Errorf("%s has no function %s", file, name)
				continue
			case seen[name]:
				t.Errorf("%s stands twice", name)
			case !called[name]:
				t.Errorf("%s is called by none of the functions before it", name)
			}
			seen[name] = true
			noteCalls(body, called)
		}
	}
}

// functions returns the functions and methods of a file, by name.
func functions(t *testing.T, file string) map[string]*ast.BlockStmt {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]*ast.BlockStmt{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			bodies[f.Name.Name] = f.Body
		}
	}
	return bodies
}

// noteCalls notes the names of the functions that a body calls.
func noteCalls(body *ast.BlockStmt, called map[string]bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				called[f.Sel.Name] = true
			case *ast.Ident:
				called[f.Name] = true
			}
		}
		return true
	})
}
