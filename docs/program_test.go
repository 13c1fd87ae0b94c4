package docs

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// packages are those that a block may use without an import, by name. A block that needs another one imports it.
var packages = map[string]string{
	"context":  "context",
	"dynamodb": "github.com/aws/aws-sdk-go-v2/service/dynamodb",
	"errors":   "errors",
	"fmt":      "fmt",
	"http":     "net/http",
	"httptest": "net/http/httptest",
	"json":     "encoding/json",
	"log":      "log",
	"quota":    module + "/quota",
	"slog":     "log/slog",
	"strings":  "strings",
	"sync":     "sync",
	"synctest": "testing/synctest",
	"testing":  "testing",
	"time":     "time",
	"zlimit":   module + "/zlimit",
}

const module = "github.com/zlimit/zlimit-go"

// A program is a block of Go, ready to be compiled.
type program struct {
	block
	name   string   // of its package, or of the file in its page's package
	kind   kind     // what the block is
	source string   // a whole file, whose lines are numbered as in the page
	want   string   // what it prints
	run    bool     // that it can run here: it needs nothing of AWS
	tests  []string // the names of its tests
}

// A kind is the shape of a block.
type kind int

const (
	whole        kind = iota // a program with a main function
	declarations             // functions and types that later blocks of the page use, and tests
	statements               // the inside of a function
)

// newProgram turns a block into a file. It is an error when the block is of no shape, or not formatted.
func newProgram(b block) (program, error) {
	p := program{block: b, name: "Line" + strconv.Itoa(b.line)}
	file, err := p.parse()
	if err != nil {
		return p, fmt.Errorf("neither a program nor declarations nor statements: %w", err)
	}
	if formatted, err := format.Source([]byte(b.text)); err == nil && string(formatted) != b.text {
		return p, fmt.Errorf("%s: the block is not formatted; gofmt writes:\n%s", b.at(), formatted)
	}
	if len(file.Decls) == 0 {
		return p, fmt.Errorf("%s: the block is empty", b.at())
	}
	p.want = output(file)
	p.run = !needsAWS(file)
	head := "package " + packageOf(b.page) + "\n" + importsOf(file)
	switch p.kind {
	case whole:
		p.source = strings.Replace(numbered(b), "\nfunc main()", "\nfunc Main()", 1)
		if file.Name.Name != "main" || p.source == numbered(b) {
			return p, fmt.Errorf("%s: a program must be of package main, with a main function", b.at())
		}
		p.source = strings.Replace(p.source, "package main", "package program", 1)
	case declarations:
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				p.tests = append(p.tests, f.Name.Name)
			}
		}
		p.source = head + numbered(b)
	case statements:
		end := "\nreturn nil\n}\n"
		body := file.Decls[0].(*ast.FuncDecl).Body.List
		if _, returns := body[len(body)-1].(*ast.ReturnStmt); returns {
			end = "\n}\n"
		}
		p.source = head + frame(p.name) + numbered(b) + end
	}
	return p, nil
}

// parse finds the kind of a block by parsing it.
func (p *program) parse() (*ast.File, error) {
	parse := func(k kind, head, tail string) (*ast.File, error) {
		p.kind = k
		return parser.ParseFile(token.NewFileSet(), "", head+numbered(p.block)+tail, parser.ParseComments)
	}
	if strings.HasPrefix(p.text, "package ") {
		return parse(whole, "", "")
	}
	file, errDeclarations := parse(declarations, "package p", "")
	if errDeclarations == nil {
		return file, nil
	}
	file, err := parse(statements, "package p; func _() {", "}")
	if first, _, _ := strings.Cut(p.text, " "); err != nil && slices.Contains([]string{"func", "import", "type"}, first) {
		err = errDeclarations
	}
	return file, err
}

// frame opens the function around a block of statements, and names what every such block may use.
func frame(name string) string {
	return fmt.Sprintf(`
import c "context"
import l "%s/zlimit"
import t "time"

func %s(ctx c.Context, limiter *l.RateLimiter, sleep func(t.Duration), callModel func(c.Context) int64) error {
`, module, name)
}

// numbered returns the code of a block, with a line that has the compiler count as in the page.
func numbered(b block) string { return fmt.Sprintf("\n//line %s\n%s", b.at(), b.text) }

// packageOf returns the name of the package that a page becomes.
func packageOf(page string) string {
	name := strings.TrimSuffix(page, ".md")
	return "page_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

// output returns what the last comment of a block says that it prints, as examples of the testing package do.
func output(file *ast.File) string {
	if len(file.Comments) == 0 {
		return ""
	}
	text, ok := strings.CutPrefix(file.Comments[len(file.Comments)-1].Text(), "Output:")
	if !ok {
		return ""
	}
	return strings.TrimSpace(text)
}

// needsAWS reports whether a block talks to DynamoDB: its data source names, or its client.
func needsAWS(file *ast.File) (needs bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			needs = needs || strings.HasPrefix(n.Value, `"dynamodb:`)
		case *ast.SelectorExpr:
			needs = needs || n.Sel.Name == "DynamoDB"
		}
		return true
	})
	return needs
}

// importsOf returns the imports that a file needs and does not have.
func importsOf(file *ast.File) string {
	paths := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && packages[x.Name] != "" {
				paths[packages[x.Name]] = true
			}
		}
		return true
	})
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		delete(paths, path)
	}
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		fmt.Fprintf(&b, "import %q\n", path)
	}
	return b.String()
}

// The marks that the binary of all blocks sets in its output.
const (
	markBlock = "\x1e" // a block begins; its place follows, up to the end of the line
	markError = "\x1f" // it returned an error, which follows
)

// driver is the test that runs all blocks, those of a page in their order, on one limiter in memory whose clock only
// moves when a block sleeps.
var driver = template.Must(template.New("driver").Parse(`package run

import (
	"context"
	"fmt"
	"testing"
	"time"

	"{{.Module}}/zlimit"
{{range .Imports}}	{{.}}
{{end}})

func begin(at string) { fmt.Print("\n{{.Block}}" + at + "\n") }

func check(err error) {
	if err != nil {
		fmt.Print("{{.Error}}" + err.Error())
	}
}

func callModel(context.Context) int64 { return 620 }

func TestPages(t *testing.T) {
{{range .Pages}}	t.Run({{.Name}}.Path, func(t *testing.T) {
		ctx, now := t.Context(), time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
		sleep := func(d time.Duration) { now = now.Add(d) }
		limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return now }))
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		_, _ = sleep, check
{{range .Calls}}		{{.}}
{{end}}	})
{{end}}	begin("")
}
`))

// files returns the source files of all programs, by their path in the module.
func files(programs []program) (map[string]string, error) {
	type pageCalls struct {
		Name  string
		Calls []string
	}
	var pages []*pageCalls
	var imports []string
	sources := map[string]string{}
	for _, p := range programs {
		name := packageOf(p.page)
		dir := "docs/run/" + name
		if sources[dir+"/page.go"] == "" {
			sources[dir+"/page.go"] = fmt.Sprintf("package %s\n\nconst Path = %q\n", name, p.page)
			imports = append(imports, fmt.Sprintf("%q", module+"/"+dir))
			pages = append(pages, &pageCalls{Name: name})
		}
		var calls []string
		if p.kind == whole {
			dir += "/" + p.name
			alias := name + p.name
			imports = append(imports, fmt.Sprintf("%s %q", alias, module+"/"+dir))
			sources[dir+"/page.go"] = "package program\n\nconst Path = 0\n"
			calls = append(calls, "_ = "+alias+".Path")
			if p.run {
				calls = append(calls, alias+".Main()")
			}
		} else if p.run {
			if p.kind == statements {
				calls = append(calls, fmt.Sprintf("check(%s.%s(ctx, limiter, sleep, callModel))", name, p.name))
			}
			for _, test := range p.tests {
				calls = append(calls, fmt.Sprintf("t.Run(%q, %s.%s)", test, name, test))
			}
		}
		sources[dir+"/"+p.name+".go"] = p.source
		page := pages[len(pages)-1]
		page.Calls = append(page.Calls, fmt.Sprintf("begin(%q)", p.at()))
		page.Calls = append(page.Calls, calls...)
	}
	var b bytes.Buffer
	err := driver.Execute(&b, map[string]any{
		"Module": module, "Imports": imports, "Pages": pages, "Block": markBlock, "Error": markError,
	})
	sources["docs/run/run_test.go"] = b.String()
	return sources, err
}

// A result is what one run of the binary printed for each block, by its place.
type result struct{ printed, failed string }

// results takes the output of the binary apart.
func results(stdout string) (map[string]result, error) {
	parts := strings.Split(stdout, "\n"+markBlock)
	got := map[string]result{}
	for _, part := range parts[1:] {
		at, printed, _ := strings.Cut(part, "\n")
		printed, failed, _ := strings.Cut(printed, markError)
		got[at] = result{strings.TrimSpace(printed), strings.TrimSpace(failed)}
	}
	if _, ended := got[""]; !ended {
		return got, errors.New("the run ended too early")
	}
	return got, nil
}
