// Command zlimitgen writes Go types from an application's declaration of its limits, so that a misspelt limit does not
// compile. An application calls it from a comment,
//
//	//go:generate go run github.com/zlimit/zlimit-go/gen/zlimitgen -limits limits.yaml -out limits_gen.go
//
// and runs go generate when the declaration has changed; its go.mod names the command as a tool. When anything is wrong
// with the declaration, the command reports everything that is, with file, line and column, and writes nothing.
// docs/typed.md describes the grammar and the output.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/zlimit/zlimit-go/gen/internal/emit"
	"github.com/zlimit/zlimit-go/internal/declaration"
)

func main() { os.Exit(run(os.Args[1:], os.Getenv("GOPACKAGE"), os.Stderr)) }

const usage = `usage: zlimitgen [-limits FILE] [-out FILE] [-package NAME] [-check]

Zlimitgen writes Go types from a declaration of limits. See docs/typed.md of
github.com/zlimit/zlimit-go for the grammar.

`

type command struct {
	limits, out, pkg string
	check            bool
}

// run is the command; it returns the exit code: 1 for a mistake in the declaration, 2 for one in the use.
func run(args []string, pkg string, stderr io.Writer) int {
	var c command
	report := log.New(stderr, "", 0)
	flags := flag.NewFlagSet("zlimitgen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		report.Print(usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&c.limits, "limits", "limits.yaml", "read the declaration from `FILE`")
	flags.StringVar(&c.out, "out", "limits_gen.go", "write the types to `FILE`")
	flags.StringVar(&c.pkg, "package", pkg, "`NAME` of the package that the types belong to; by default what go generate says, or that of the files beside the output")
	flags.BoolVar(&c.check, "check", false, "write nothing, and fail if the output is stale")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if c.pkg == "" {
		c.pkg = packageIn(filepath.Dir(c.out))
	}
	if err := c.validate(flags.Args()); err != nil {
		report.Printf("zlimitgen: %v; see zlimitgen -help", err)
		return 2
	}
	if err := c.generate(); err != nil {
		report.Print(err)
		return 1
	}
	return 0
}

func (c *command) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case c.limits == "":
		return errors.New("-limits is empty")
	case filepath.Ext(c.out) != ".go":
		return fmt.Errorf("-out %q is not a Go file", c.out)
	case c.pkg == "":
		return errors.New("-package is missing, and no Go file beside the output has a package clause")
	case !token.IsIdentifier(c.pkg) || c.pkg == "_":
		return fmt.Errorf("-package %q is not the name of a package", c.pkg)
	default:
		return nil
	}
}

// packageIn returns the package that the Go files of a directory belong to, "" if none is there or can be read.
func packageIn(dir string) string {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.go")) // the pattern is well formed, unless the directory's name is not
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
		if err == nil && !strings.HasSuffix(path, "_test.go") {
			return file.Name.Name
		}
	}
	return ""
}

// isGenerated reports whether a file says that it is generated, and so may be replaced.
func isGenerated(text []byte) bool {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments|parser.PackageClauseOnly)
	return err == nil && ast.IsGenerated(file)
}

// generate writes the output if it differs from the file, or fails if it does.
func (c *command) generate() error {
	text, err := os.ReadFile(c.limits)
	if err != nil {
		return err
	}
	declared, err := declaration.LoadForGo(c.limits, text)
	if err != nil {
		return err
	}
	want, err := emit.Typed(declared, c.pkg, filepath.Base(c.limits))
	if err != nil {
		return err
	}
	if err := c.checkPackage(want); err != nil {
		return err
	}
	got, err := os.ReadFile(c.out)
	switch {
	case err == nil && bytes.Equal(got, want):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && len(got) > 0 && !isGenerated(got):
		return fmt.Errorf("%s is not of zlimitgen: choose another -out, or delete the file", c.out)
	case c.check:
		return fmt.Errorf("%s is stale: run go generate", c.out)
	}
	return os.WriteFile(c.out, want, 0o644)
}
