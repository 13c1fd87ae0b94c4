package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// noJSON are the structs that have no JSON, with the reason.
var noJSON = map[string]string{
	"quota.FileError":     "an error with a cause, which its text has",
	"stack.DetachedError": "an error with a cause, which its text has",
	"stack.Clients":       "clients of AWS",
}

// TestJSONNames reads the exported structs of the packages beside zlimit, which has a test of its own. Each exported field has
// a name in snake case in JSON, or none. Structs with functions have no JSON.
func TestJSONNames(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	structs := 0
	for _, name := range []string{"quota", "llm", "stack", "aggregator"} {
		paths := check.Call(filepath.Glob(filepath.Join(root, name, "*.go"))).Must(t, "filepath.Glob()")
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file := check.Call(parser.ParseFile(token.NewFileSet(), path, nil, 0)).Must(t, "parser.ParseFile()")
			for _, d := range file.Decls {
				types, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, spec := range types.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok || !spec.Name.IsExported() {
						continue
					}
					s, ok := spec.Type.(*ast.StructType)
					if !ok || hasFunctions(s) || noJSON[name+"."+spec.Name.Name] != "" {
						continue
					}
					structs++
					for _, field := range s.Fields.List {
						for _, n := range field.Names {
							if member := memberOf(field); n.IsExported() && member != "-" && !snake.MatchString(member) {
								t.Errorf("%s.%s.%s is %q in JSON, want a name in snake case, or -", name, spec.Name.Name, n.Name, member)
							}
						}
					}
				}
			}
		}
	}
	if structs < 30 {
		t.Errorf("only %d structs are found", structs)
	}
}

func hasFunctions(s *ast.StructType) bool {
	for _, field := range s.Fields.List {
		if _, ok := field.Type.(*ast.FuncType); ok {
			return true
		}
	}
	return false
}

// memberOf returns the name of a field in JSON, as its tag says.
func memberOf(field *ast.Field) string {
	if field.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return ""
	}
	member, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return member
}
