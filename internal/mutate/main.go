// Command mutate makes each term of each condition of the schema's operations always true, one at a time, and runs the
// tests of the packages that use them on it. It prints which test noticed, and fails when none did. It changes no file: the mutated
// source is an overlay of the build.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	file := flag.String("file", "internal/layout/exprs_gen.go", "generated expressions")
	run := flag.String("run", "", "the tests to run, as in go test")
	only := flag.String("only", "", "the mutants to try: a regular expression on their names")
	flag.Parse()
	if err := mutate(os.Stdout, *file, *run, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// A mutant is one term of a condition.
type mutant struct {
	name       string
	start, end int // of the term in the source
}

func mutate(out io.Writer, file, run, only string) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	mutants, err := find(file, source)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "zlimit-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of the temporary directory
	if output, err := test(run); err != nil {
		return fmt.Errorf("the tests fail without a mutant: %w\n%s", err, output)
	}
	survivors := 0
	for _, m := range mutants {
		if !wanted.MatchString(m.name) {
			continue
		}
		by, err := m.try(dir, file, source, run)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if by == "" {
			survivors++
			by = "NOTHING"
		}
		if _, err := fmt.Fprintf(out, "%-60s %s\n", m.name, by); err != nil {
			return err
		}
	}
	if survivors > 0 {
		return fmt.Errorf("%d terms are missed by no test", survivors)
	}
	return nil
}

// find returns the terms of the operations in generated source: the elements of their Where lists.
func find(file string, source []byte) (mutants []mutant, err error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, 0)
	if err != nil {
		return nil, err
	}
	text := func(n ast.Node) string {
		return string(source[fset.Position(n.Pos()).Offset:fset.Position(n.End()).Offset])
	}
	var visit func(list *ast.CompositeLit, path string)
	visit = func(list *ast.CompositeLit, path string) {
		var where *ast.CompositeLit
		for _, element := range list.Elts {
			pair, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			value, composite := pair.Value.(*ast.CompositeLit)
			switch key := text(pair.Key); {
			case key == "Name":
				path = strings.TrimPrefix(path+" "+strings.Trim(text(pair.Value), `"`), " ")
			case key == "Where" && composite:
				where = value
			case composite:
				visit(value, path)
			}
		}
		if where == nil {
			return
		}
		for _, term := range where.Elts {
			mutants = append(mutants, mutant{
				name:  path + ": " + strings.NewReplacer("expr.", "", `"`, "", "Attr", "", "Of", "").Replace(strings.Join(strings.Fields(text(term)), " ")),
				start: fset.Position(term.Pos()).Offset,
				end:   fset.Position(term.End()).Offset,
			})
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		list, ok := n.(*ast.CompositeLit)
		if ok && text(list.Type) == "expr.Operation" {
			visit(list, "")
			return false
		}
		return true
	})
	if len(mutants) == 0 {
		return nil, errors.New("no conditions found in " + file)
	}
	return mutants, nil
}

// users are the packages whose tests use the operations.
var users = []string{"./zlimit", "./aggregator", "./internal/stream"}

// test runs the tests of the users.
func test(run string, flags ...string) ([]byte, error) {
	args := append([]string{"test", "-count=1", "-failfast", "-run", run}, flags...)
	return exec.Command("go", append(args, users...)...).CombinedOutput()
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try returns the first test that fails on the mutant, "" for none.
func (m mutant) try(dir, file string, source []byte, run string) (string, error) {
	term := source[m.start:m.end]
	mutated := bytes.Join([][]byte{
		source[:m.start], []byte("expr.Any("), term, []byte(`, expr.Absent(expr.Attr("never")))`), source[m.end:],
	}, nil)
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, "mutant.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: replacement}})
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(replacement, mutated, 0o600), os.WriteFile(config, overlay, 0o600)); err != nil {
		return "", err
	}
	output, err := test(run, "-overlay", config)
	if err == nil {
		return "", nil
	}
	if found := failure.FindAllSubmatch(output, -1); found != nil {
		return string(found[len(found)-1][1]), nil
	}
	return "", fmt.Errorf("%w\n%s", err, output)
}
