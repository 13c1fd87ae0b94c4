package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
)

// TestUpToDate compares the list with what the packages export. Every module that users import is in it.
func TestUpToDate(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles all modules")
	}
	got := check.Call(listing("../..")).Must(t, "listing()")
	want := check.Call(os.ReadFile("../../docs/api.txt")).Must(t, "os.ReadFile()")
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("docs/api.txt is stale: run make api (-listed +exported):\n%s", diff)
	}
	for _, path := range []string{"zlimit", "quota", "connectlimit", "dashboard", "envoylimit", "grpclimit", "llm", "otelzlimit"} {
		if !strings.Contains(got, "\npkg "+path+", func ") {
			t.Errorf("no function of package %s is listed", path)
		}
	}
}

const sample = `package sample

const Answer = 42

const hidden = 1

var ErrLate error

type Option func(*options)

type options struct{}

type Box[T any] struct {
	Value  T
	hidden int
}

func (b *Box[T]) Put(value T) error { return nil }

func (b Box[T]) Get() T { return b.Value }

func (b Box[T]) peek() T { return b.Value }

type Names = []string

type Reader interface {
	Read(name string) (int, error)
}

type Sealed interface{ sealed() }

func Open[T any](name string, opts ...Option) (*Box[T], error) { return nil, nil }

func helper() {}
`

// TestExportedAliases lists the methods of a type that users can reach by its alias alone.
func TestExportedAliases(t *testing.T) {
	const other = "package %s\n\ntype Handle struct{ open bool }\n\nfunc (h Handle) Close() error { return nil }\n"
	packages := packagesOf{}
	for _, path := range []string{"example.com/internal/store", "example.com/public"} {
		packages[path] = checked(t, path, fmt.Sprintf(other, filepath.Base(path)), nil)
	}
	pkg := checked(t, "example.com/sample", `package sample

import (
	"example.com/internal/store"
	"example.com/public"
)

type Store = store.Handle

type Public = public.Handle
`, packages)
	got := exported(pkg)
	slices.Sort(got)
	want := []string{"method (Store) Close() error", "type Public = public.Handle", "type Store = store.Handle"}
	compare.Equal(t, "exported differs", want, got)
}

// packagesOf imports packages by their paths.
type packagesOf map[string]*types.Package

// Import implements [types.Importer].
func (p packagesOf) Import(path string) (*types.Package, error) { return p[path], nil }

// checked returns a package of one file.
func checked(t *testing.T, path, text string, imports types.Importer) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	f := check.Call(parser.ParseFile(fset, "sample.go", text, 0)).Must(t, "parser.ParseFile()")
	return check.Call((&types.Config{Importer: imports}).Check(path, fset, []*ast.File{f}, nil)).Must(t, "Check()")
}

func TestExported(t *testing.T) {
	got := exported(checked(t, "example.com/sample", sample, nil))
	slices.Sort(got)
	want := []string{
		"const Answer untyped int = 42",
		"func Open[T any](name string, opts ...Option) (*Box[T], error)",
		"method (*Box) Put(value T) error",
		"method (Box) Get() T",
		"type Box[T any] struct",
		"type Box[T any] struct, Value T",
		"type Names = []string",
		"type Option func(*options)",
		"type Reader interface",
		"type Reader interface, Read(name string) (int, error)",
		"type Sealed interface with unexported methods",
		"var ErrLate error",
	}
	compare.Equal(t, "exported differs", want, got)
}
