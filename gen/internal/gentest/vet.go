package gentest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A listed is a package as go list tells of it, with those that tests make of it.
type listed struct {
	ImportPath, Dir, Export, ForTest string
	DepOnly                          bool
	GoFiles, Imports                 []string
	ImportMap                        map[string]string
}

// Vet checks packages as go vet does, except that nothing is asked of the packages which they import: which of their functions format as
// fmt.Printf does. To ask several hundred packages takes much longer than the check itself.
func Vet(tb testing.TB, dir, pattern string) {
	tb.Helper()
	list := exec.Command("go", "list", "-test", "-deps", "-export", "-json=ImportPath,Dir,Export,ForTest,DepOnly,GoFiles,Imports,ImportMap", pattern)
	list.Dir = dir
	var faults strings.Builder
	list.Stderr = &faults
	text, err := list.Output()
	if err != nil {
		tb.Fatalf("%v: %v\n%s", list.Args, err, &faults)
	}
	exports, packages, tested := map[string]string{}, []listed{}, map[string]bool{}
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			tb.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && !strings.HasSuffix(p.ImportPath, ".test") {
			packages = append(packages, p)
			tested[p.ForTest] = true
		}
	}
	checked := 0
	for i, p := range packages {
		if tested[p.ImportPath] {
			continue // with its tests
		}
		checked++
		p.vet(tb, filepath.Join(tb.TempDir(), strconv.Itoa(i)), exports)
	}
	if checked == 0 {
		tb.Fatalf("%s has no packages", pattern)
	}
}

// vet checks one package, by a configuration such as the go command writes for its tool.
func (p *listed) vet(tb testing.TB, scratch string, exports map[string]string) {
	tb.Helper()
	imports := maps.Clone(p.ImportMap)
	if imports == nil {
		imports = map[string]string{}
	}
	for _, path := range p.Imports {
		raw, _, _ := strings.Cut(path, " ") // without the name of the test that it is made for
		imports[raw] = path
	}
	var files []string
	for _, name := range p.GoFiles {
		files = append(files, filepath.Join(p.Dir, name))
	}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	config, err := json.Marshal(map[string]any{
		"ID": p.ImportPath, "Compiler": "gc", "Dir": p.Dir, "ImportPath": path, "GoFiles": files, "ImportMap": imports,
		"PackageFile": exports, "VetxOutput": scratch + ".out",
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(scratch+".cfg", config, 0o600); err != nil {
		tb.Fatal(err)
	}
	if output, err := exec.Command("go", "tool", "vet", scratch+".cfg").CombinedOutput(); err != nil {
		tb.Errorf("go vet of %s: %v\n%s", p.ImportPath, err, output)
	}
}
