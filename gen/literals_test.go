package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestNamesStandInTheSchemaAlone asks that no hand-written code has the name of an index, or of an attribute whose name is a code or
// has the prefix of a family: it would be another one once the schema renames it. Words such as cascade mean other things as well.
func TestNamesStandInTheSchemaAlone(t *testing.T) {
	s := check.Call(schema.Load(specFile, readFile(t, specFile))).Must(t, "schema.Load()")
	isName := nameOf(s)
	for _, dir := range []string{"../zlimit", "../aggregator", "../stack", "../cmd", "../server", "../internal"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "proof":
				return fs.SkipDir
			case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_gen.go"):
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				if text, err := strconv.Unquote(literal.Value); err == nil && isName(text) {
					t.Errorf("%s: %s is a name of the schema: package layout has it", files.Position(literal.Pos()), literal.Value)
				}
				return true
			})
			return nil
		})
		check.Fatal(t, "filepath.WalkDir()", err)
	}
}

// nameOf returns a function that reports whether a text is a name that only the schema has.
func nameOf(s *schema.Schema) func(string) bool {
	names, prefixes := map[string]bool{}, []string{}
	for _, x := range s.Indexes {
		for _, name := range append(x.Attributes(), x.Name) {
			names[name] = true
		}
	}
	for _, r := range s.Records {
		for _, a := range r.Attributes {
			names[a.Name] = names[a.Name] || a.Go != a.Name && len(a.Name) <= 4
		}
	}
	delete(names, s.TTL) // a word of other programs, too
	for _, f := range s.Fields {
		delete(names, f.Name)
	}
	for _, m := range s.Members {
		if m.Prefix != "" {
			prefixes = append(prefixes, m.Prefix)
		}
	}
	return func(text string) bool {
		for _, prefix := range prefixes {
			if strings.HasPrefix(text, prefix) {
				return true
			}
		}
		return names[text]
	}
}
