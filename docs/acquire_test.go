package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// steps are the rows of the way of one acquire: a file and a function.
var steps = regexp.MustCompile("(?m)^\\| (\\d+) \\| `([a-z]+)/([a-z]+\\.go)` `(\\w+)` \\|")

// TestTheWayOfOneAcquire checks that each function of that page of DESIGN.md is in its file, stands once, and is called by
// one that stands before it.
func TestTheWayOfOneAcquire(t *testing.T) {
	content, err := os.ReadFile("../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(content), "\n## The way of one acquire\n")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := steps.FindAllStringSubmatch(page, -1)
	if want := strings.Count(page, "\n| ") - 1; len(rows) != want || want < 40 { // less the head
		t.Fatalf("the page has %d steps in %d rows, want at least 40, one a row", len(rows), want)
	}
	called := map[string]bool{"Acquire": true}
	seen := map[string]bool{}
	for _, row := range rows {
		pkg, file, name := row[2], row[3], row[4]
		dir := "../internal/" + pkg + "/"
		if pkg == "zlimit" {
			dir = "../zlimit/"
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), dir+file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var body *ast.BlockStmt
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
				body = f.Body
			}
		}
		switch {
		case body == nil:
			t.Errorf("step %s: %s%s has no function %s", row[1], dir, file, name)
			continue
		case seen[name]:
			t.Errorf("step %s: %s stands twice", row[1], name)
		case !called[name]:
			t.Errorf("step %s: %s is called by none of the steps before it", row[1], name)
		}
		seen[name] = true
		ast.Inspect(body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				called[f.Sel.Name] = true
			case *ast.Ident:
				called[f.Name] = true
			}
			return true
		})
	}
}
