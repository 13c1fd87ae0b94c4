// Package source reads a Go package for generators: its declarations with their types, positions and comments.
package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A Package is a package whose declarations have been checked. The bodies of its functions are not checked: they may
// call functions that are still to be generated or adapted.
type Package struct {
	Fset  *token.FileSet
	Files []*ast.File
	Types *types.Package
}

// Load reads the package in a directory, without its tests. Imports come from the export data of the go command, which
// compiles changed packages. The error has every mistake in the declarations, with file, line and column.
func Load(dir string) (*Package, error) {
	listed, exports, err := list(dir)
	if err != nil {
		return nil, err
	}
	p := &Package{Fset: token.NewFileSet()}
	for _, name := range listed.GoFiles {
		f, err := parser.ParseFile(p.Fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	var mistakes []error
	config := types.Config{
		IgnoreFuncBodies: true,
		Error:            func(err error) { mistakes = append(mistakes, err) },
		Importer:         importing(p.Fset, exports),
	}
	p.Types, err = config.Check(listed.ImportPath, p.Fset, p.Files, nil)
	if err != nil {
		return nil, errors.Join(mistakes...)
	}
	return p, nil
}

// Importer imports the packages that the package in a directory imports, by the export data of the go command.
func Importer(fset *token.FileSet, dir string) (types.Importer, error) {
	_, exports, err := list(dir)
	if err != nil {
		return nil, err
	}
	return importing(fset, exports), nil
}

// importing imports packages from files of export data by path.
func importing(fset *token.FileSet, exports map[string]string) types.Importer {
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("it does not compile")
		}
		return os.Open(exports[path])
	})
}

// listing is the answer of the go command about a package.
type listing struct {
	ImportPath string
	Export     string // path of the export data
	GoFiles    []string
}

// list asks the go command for the package in a directory, and for the export data of those that it imports.
func list(dir string) (listing, map[string]string, error) {
	command := exec.Command("go", "list", "-e", "-deps", "-export", "-json=ImportPath,Export,GoFiles", ".")
	var output, complaint bytes.Buffer
	command.Dir, command.Stdout, command.Stderr = dir, &output, &complaint
	if err := command.Run(); err != nil {
		return listing{}, nil, fmt.Errorf("go list in %s: %w\n%s", dir, err, complaint.Bytes())
	}
	var last listing // dependencies come first
	exports := map[string]string{}
	for decoder := json.NewDecoder(&output); ; {
		var next listing
		err := decoder.Decode(&next)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return listing{}, nil, fmt.Errorf("go list in %s: %w", dir, err)
		}
		exports[next.ImportPath], last = next.Export, next
	}
	if len(last.GoFiles) == 0 {
		return listing{}, nil, fmt.Errorf("%s has no Go files", dir)
	}
	return last, exports, nil
}
