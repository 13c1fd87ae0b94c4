package docs

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/internal/proof/pages"
)

// packages are those that a block may use without an import, by name. A block that needs another one imports it.
var packages = map[string]string{
	"aggregator": module + "/aggregator",
	"context":    "context",
	"dynamo":     module + "/zlimit/dynamo",
	"dynamodb":   "github.com/aws/aws-sdk-go-v2/service/dynamodb",
	"errors":     "errors",
	"fmt":        "fmt",
	"hindsight":  module + "/zlimit/hindsight",
	"http":       "net/http",
	"httptest":   "net/http/httptest",
	"json":       "encoding/json",
	"httplimit":  module + "/httplimit",
	"leasetoken": module + "/zlimit/leasetoken",
	"ledger":     module + "/zlimit/ledger",
	"price":      module + "/price",
	"log":        "log",
	"quota":      module + "/quota",
	"slog":       "log/slog",
	"strings":    "strings",
	"sync":       "sync",
	"synctest":   "testing/synctest",
	"testing":    "testing",
	"time":       "time",
	"zlimit":     module + "/zlimit",
	"zlimittest": module + "/zlimit/zlimittest",
}

const module = "github.com/zlimit/zlimit-go"

// beyond are the pages that use more than the module of the SDK. They are compiled in the module of the examples, which
// requires all modules.
var beyond = map[string]map[string]string{
	"README.md": {
		"llm": module + "/llm", "openai": "github.com/openai/openai-go/v3", "option": "github.com/openai/openai-go/v3/option",
	},
	"docs/dashboard.md": {"dashboard": module + "/dashboard", "os": "os", "recent": module + "/zlimit/recent", "subtle": "crypto/subtle"},
	"docs/envoy.md":     {"envoylimit": module + "/envoylimit", "grpc": "google.golang.org/grpc"},
	"docs/grpc.md": {
		"connect": "connectrpc.com/connect", "connectlimit": module + "/connectlimit",
		"grpc": "google.golang.org/grpc", "grpclimit": module + "/grpclimit",
	},
	"docs/models.md": {
		"big": "math/big", "io": "io", "llm": module + "/llm", "price": module + "/price",
		"openai": "github.com/openai/openai-go/v3", "option": "github.com/openai/openai-go/v3/option",
	},
	"docs/agents.md":    {"llm": module + "/llm"},
	"docs/telemetry.md": {"noop": "go.opentelemetry.io/otel/metric/noop", "otelzlimit": module + "/otelzlimit"},
	"docs/typed.md":     {"llm": module + "/examples/typed/llm"},
}

// A program is a block of Go, ready to be compiled.
type program struct {
	pages.Block
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
func newProgram(b pages.Block) (program, error) {
	p := program{Block: b, name: "Line" + strconv.Itoa(b.Line)}
	file, err := p.parse()
	if err != nil {
		return p, fmt.Errorf("neither a program nor declarations nor statements: %w", err)
	}
	if formatted, err := format.Source([]byte(b.Text)); err == nil && string(formatted) != b.Text {
		return p, fmt.Errorf("%s: the block is not formatted; gofmt writes:\n%s", b.At(), formatted)
	}
	if len(file.Decls) == 0 {
		return p, fmt.Errorf("%s: the block is empty", b.At())
	}
	p.want = output(file)
	p.run = !needsAWS(file)
	head := "package " + packageOf(b.Page) + "\n" + importsOf(b.Page, file)
	switch p.kind {
	case whole:
		p.source = strings.Replace(numbered(b), "\nfunc main()", "\nfunc Main()", 1)
		if file.Name.Name != "main" || p.source == numbered(b) {
			return p, fmt.Errorf("%s: a program must be of package main, with a main function", b.At())
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
		return parser.ParseFile(token.NewFileSet(), "", head+numbered(p.Block)+tail, parser.ParseComments)
	}
	if strings.HasPrefix(p.Text, "package ") {
		return parse(whole, "", "")
	}
	file, errDeclarations := parse(declarations, "package p", "")
	if errDeclarations == nil {
		return file, nil
	}
	file, err := parse(statements, "package p; func _() {", "}")
	if first, _, _ := strings.Cut(p.Text, " "); err != nil && slices.Contains([]string{"func", "import", "type"}, first) {
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

// numbered returns the code of a block, after a line that makes the compiler count lines as in the page.
func numbered(b pages.Block) string { return fmt.Sprintf("\n//line %s\n%s", b.At(), b.Text) }

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
			pkg, ok := n.X.(*ast.Ident)
			needs = needs || ok && pkg.Name == "dynamo" && n.Sel.Name == "New"
		}
		return true
	})
	return needs
}

// importsOf returns the imports that a file of a page needs and does not have.
func importsOf(page string, file *ast.File) string {
	packages := maps.Clone(packages)
	maps.Copy(packages, beyond[page])
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
