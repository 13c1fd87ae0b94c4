package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUpToDate compares the list with what the packages export.
func TestUpToDate(t *testing.T) {
	got, err := listing("../..")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../docs/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("docs/api.txt is stale: run make api (-listed +exported):\n%s", diff)
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

func TestExported(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "sample.go", sample, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("example.com/sample", fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := exported(pkg)
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exported differs (-want +got):\n%s", diff)
	}
}
