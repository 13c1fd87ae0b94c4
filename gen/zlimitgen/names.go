package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// checkPackage returns an error for each name of the output that another file of its package declares: generated, it
// would not compile.
func (c *command) checkPackage(output []byte) error {
	fset := token.NewFileSet()
	generated, err := parser.ParseFile(fset, c.out, output, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, name := range declared(generated) {
		wanted[name.Name] = true
	}
	others, err := c.others(fset)
	if err != nil {
		return err
	}
	var errs []error
	for _, other := range others {
		for _, name := range declared(other) {
			if !wanted[name.Name] {
				continue
			}
			if ast.IsGenerated(other) && name.Name == "Declared" {
				errs = append(errs, fmt.Errorf("%s: Declared is there already: a package has one declaration of limits, so put the "+
					"resources of %s into it, or generate into another package", fset.Position(name.Pos()), c.limits))
				break // Its other names follow from that.
			}
			errs = append(errs, fmt.Errorf("%s: %s is declared here, and would be in %s; go: says another name", fset.Position(name.Pos()), name.Name, c.out))
		}
	}
	return errors.Join(errs...)
}

// others returns the files that are compiled with the output, in the order of their names.
func (c *command) others(fset *token.FileSet) ([]*ast.File, error) {
	dir := filepath.Dir(c.out)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if e.Name() == filepath.Base(c.out) || !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		if compiled, err := build.Default.MatchFile(dir, e.Name()); err != nil || !compiled {
			continue
		}
		// A file that does not parse may still be read in part.
		f, _ := parser.ParseFile(fset, filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if f != nil && f.Name != nil && f.Name.Name == c.pkg {
			files = append(files, f)
		}
	}
	return files, nil
}

func declared(f *ast.File) (names []*ast.Ident) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name != "init" {
				names = append(names, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name)
				case *ast.ValueSpec:
					names = append(names, spec.Names...)
				}
			}
		}
	}
	return names
}
