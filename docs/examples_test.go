package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// withoutExample are the functions and methods that need no example, and why.
var withoutExample = map[string]string{
	"quota.NewWithSQLiteConfig":    "is as NewWithSQLite and NewWithConfig",
	"quota.NewWithStore":           "is for stores of one's own, of which package quotasqlite is the example",
	"quota.Refusal":                "is for stores of one's own",
	"quota.RegisterSQLite":         "is called by package quotasqlite",
	"quota.Reservation.Request":    "returns what was passed to Reserve",
	"quota.State.Validate":         "is for stores of one's own",
	"quota.ValidateName":           "is for stores of one's own",
	"zlimit.Amounts.AppendAmounts": "is called by the limiter",
	"zlimit.Summary.Limit":         "is as Statuses.Limit",
	"zlimit.UsageService.Summary":  "sums up what an aggregator has written",
}

// interfaces are methods that the standard library calls.
var interfaces = []string{"Error", "Is", "MarshalJSON", "MarshalText", "RoundTrip", "String", "UnmarshalJSON", "UnmarshalText", "Unwrap"}

// TestExamples asks for an example of every exported function and method: one that calls it. Methods of one name are
// distinguished by the type that the example belongs to. Options are left out: the examples of what takes them show some.
func TestExamples(t *testing.T) {
	excused := map[string]bool{}
	for _, dir := range []string{"zlimit", "quota"} {
		p := parsePackage(t, dir)
		all := slices.Clone(p.Examples)
		types := map[string]int{} // that have a method of that name
		for _, typ := range p.Types {
			all = slices.Concat(all, examplesOf(typ))
			for _, method := range typ.Methods {
				types[method.Name]++
			}
		}
		for _, function := range p.Funcs {
			all = slices.Concat(all, function.Examples)
		}
		check := func(name, selector string, examples []*doc.Example) {
			name = p.Name + "." + name
			switch {
			case slices.ContainsFunc(examples, func(e *doc.Example) bool { return calls(e.Code, selector) }):
			case withoutExample[name] != "":
				excused[name] = true
			default:
				t.Errorf("%s has no example", name)
			}
		}
		for _, function := range p.Funcs {
			check(function.Name, function.Name, all)
		}
		for _, typ := range p.Types {
			for _, function := range typ.Funcs {
				if !strings.HasSuffix(typ.Name, "Option") {
					check(function.Name, function.Name, all)
				}
			}
			for _, method := range typ.Methods {
				examples := all
				if types[method.Name] > 1 {
					examples = slices.Concat(examplesOf(typ), p.Examples)
				}
				if !slices.Contains(interfaces, method.Name) {
					check(typ.Name+"."+method.Name, method.Name, examples)
				}
			}
		}
	}
	for name := range withoutExample {
		if !excused[name] {
			t.Errorf("%s is excused, and is not there or has an example", name)
		}
	}
}

// examplesOf returns the examples of a type, its methods and the functions that return it.
func examplesOf(typ *doc.Type) []*doc.Example {
	examples := slices.Clone(typ.Examples)
	for _, function := range slices.Concat(typ.Funcs, typ.Methods) {
		examples = append(examples, function.Examples...)
	}
	return examples
}

// parsePackage returns the documentation of a package of this module, with its examples.
func parsePackage(t *testing.T, name string) *doc.Package {
	t.Helper()
	paths := check.Call(filepath.Glob(filepath.Join(root, name, "*.go"))).Must(t, "filepath.Glob()")
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		source := check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
		file := check.Call(parser.ParseFile(fset, path, source, parser.ParseComments)).Must(t, "parser.ParseFile()")
		files = append(files, file)
	}
	return check.Call(doc.NewFromFiles(fset, files, module+"/"+name)).Must(t, "doc.NewFromFiles()")
}

// calls reports whether code calls a function or method of that name.
func calls(code ast.Node, name string) (found bool) {
	ast.Inspect(code, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			s, ok := call.Fun.(*ast.SelectorExpr)
			found = found || ok && s.Sel.Name == name
		}
		return !found
	})
	return found
}
