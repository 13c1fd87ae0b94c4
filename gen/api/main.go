// Command api writes docs/api.txt: the exports of the packages for users in all modules, a symbol to a line. A review
// of a change sees it there.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	root := flag.String("root", ".", "the directory of the repository")
	flag.Parse()
	text, err := listing(*root)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*root, "docs", "api.txt"), []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

// A pkg is a package as go list prints it.
type pkg struct {
	ImportPath, Name, Dir string
	Export                string // path of the export data
	DepOnly               bool   // a package that packages of the module import
}

// listing returns the exports of all packages that other modules can import, in alphabetical order.
func listing(root string) (string, error) {
	modules, err := output(root, "scripts/modules.sh", "pwd")
	if err != nil {
		return "", err
	}
	var lines []string
	for _, dir := range append([]string{root}, strings.Fields(string(modules))...) {
		if filepath.Base(dir) == "examples" {
			continue
		}
		symbols, err := listModule(dir)
		if err != nil {
			return "", err
		}
		lines = append(lines, symbols...)
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

// listModule returns the exports of the packages of one module. The types come from the export data of the go command.
func listModule(dir string) (lines []string, err error) {
	text, err := output(dir, "go", "list", "-deps", "-export", "-json=ImportPath,Name,Dir,Export,DepOnly", "./...")
	if err != nil {
		return nil, err
	}
	var own []pkg
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			own = append(own, p)
		}
	}
	types := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range own {
		// The cache of test results depends on the files that the test itself opens, and does not see go list's.
		for _, dir := range []string{p.Dir, filepath.Dir(p.Dir)} {
			if _, err := os.ReadDir(dir); err != nil {
				return nil, err
			}
		}
		path := strings.TrimPrefix(p.ImportPath, "github.com/zlimit/zlimit-go/")
		switch elements := strings.Split(path, "/"); {
		case p.Name == "main", p.Export == "", elements[0] == "examples", slices.Contains(elements, "internal"): // no export data: nothing but tests
			continue
		}
		imported, err := types.Import(p.ImportPath)
		if err != nil {
			return nil, err
		}
		for _, symbol := range exported(imported) {
			lines = append(lines, "pkg "+path+", "+symbol+"\n")
		}
	}
	return lines, nil
}

// output runs a command in a directory, and returns its output. A relative path of a command is one in that directory.
func output(dir string, name string, args ...string) ([]byte, error) {
	if strings.Contains(name, "/") {
		var err error
		if name, err = filepath.Abs(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	var complaint bytes.Buffer
	command := exec.Command(name, args...)
	command.Dir, command.Stderr = dir, &complaint
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w\n%s", name, dir, err, complaint.Bytes())
	}
	return text, nil
}
