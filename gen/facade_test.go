package main

import (
	"errors"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/zlimit/zlimit-go/gen/internal/emit"
	"github.com/zlimit/zlimit-go/gen/internal/facade"
	"github.com/zlimit/zlimit-go/gen/internal/gentest"
	"github.com/zlimit/zlimit-go/gen/internal/source"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
)

const coreDir = "../zlimit"

// facadeOf returns the outputs of a core package.
func facadeOf(t *testing.T, dir string) (map[string]string, error) {
	t.Helper()
	files, err := facadeFiles(dir)
	outputs := make(map[string]string, len(files))
	for path, content := range files {
		outputs[path] = string(content)
	}
	return outputs, err
}

// everything returns the outputs of the schema, of the calls and of package zlimit.
func everything(t *testing.T) map[string]string {
	t.Helper()
	mirrored := check.Call(facade.Of(loadCore(t))).Must(t, "facade.Of()")
	files := check.Call(emit.Blocking(mirrored)).Must(t, "emit.Blocking()")
	old := check.Call(legacyFiles(legacySpec)).Must(t, "legacyFiles()")
	outputs := generated(t, specFile, readFile(t, specFile))
	outputs["stack/template.yaml"] = templateOf(t, string(readFile(t, specFile)))
	maps.Copy(files, old)
	for path, content := range files {
		outputs[path] = string(content)
	}
	return outputs
}

var core = sync.OnceValues(func() (*source.Package, error) { return source.Load(coreDir) })

// loadCore returns package zlimit, which all tests share. Short runs do without the tests that ask for it.
func loadCore(t *testing.T) *source.Package {
	t.Helper()
	if testing.Short() {
		t.Skip("type-checks package zlimit: the runs that are not short have it")
	}
	return check.Call(core()).Must(t, "core()")
}

// unpack writes the files of an archive that are wanted into a module of its own, and returns its directory.
func unpack(t *testing.T, archive *txtar.Archive, wanted func(name string) bool) string {
	t.Helper()
	dir := t.TempDir()
	files := append(slices.Clone(archive.Files), txtar.File{
		Name: "go.mod", Data: []byte("module github.com/zlimit/zlimit-go\n\ngo 1.26\n"),
	})
	for _, f := range files {
		if !wanted(f.Name) && f.Name != "go.mod" {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		check.Fatal(t, "os.MkdirAll()", os.MkdirAll(filepath.Dir(path), 0o755))
		check.Fatal(t, "os.WriteFile()", os.WriteFile(path, f.Data, 0o644))
	}
	return dir
}

// isCore reports whether a file of an archive is not an output.
func isCore(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_gen.go")
}

// TestFacadeGolden compares the facades of small packages with those in the archives. It compiles them with the
// hand-written files of package blocking, and runs the tests that the archives have. The long form vets them.
func TestFacadeGolden(t *testing.T) {
	for name, archive := range gentest.Archives(t, "facade") {
		t.Run(name, func(t *testing.T) {
			dir := unpack(t, archive, isCore)
			got := check.Call(facadeOf(t, filepath.Join(dir, "zlimit"))).Must(t, "facadeOf()")
			if *update {
				gentest.Rewrite(t, "facade", name, archive, isCore, got)
				return
			}
			want := gentest.Outputs(archive, isCore)
			compare.Equal(t, "outputs differ from the golden files; -update rewrites them", want, got)
			for path, content := range got {
				check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, filepath.FromSlash(path)), []byte(content), 0o644))
			}
			for _, support := range []string{"blocking.go", "lease.go", "steps.go"} {
				path := filepath.Join(dir, "zlimit", "blocking", support)
				check.Fatal(t, "os.WriteFile()", os.WriteFile(path, readFile(t, filepath.Join(coreDir, "blocking", support)), 0o644))
			}
			for _, verb := range soak.Pick([]string{"test"}, []string{"vet", "test"}) {
				command := exec.Command("go", verb, "./...")
				command.Dir = dir
				if output, err := command.CombinedOutput(); err != nil {
					t.Errorf("%v: %v\n%s", command.Args, err, output)
				}
			}
		})
	}
}

// TestFacadeErrors compares the errors about declarations without a counterpart with the archives.
func TestFacadeErrors(t *testing.T) {
	gentest.Errors(t, "facade-errors", *update, isCore, func(t *testing.T, archive *txtar.Archive) error {
		dir := unpack(t, archive, isCore)
		outputs, err := facadeOf(t, filepath.Join(dir, "zlimit"))
		if err == nil || len(outputs) > 0 {
			t.Fatalf("%d files, %v; want errors alone", len(outputs), err)
		}
		return errors.New(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
	})
}

// TestFacadeFunctions looks for the functions of package zlimit that take a context in package blocking, except those that
// make another one. A test there does the same for methods.
func TestFacadeFunctions(t *testing.T) {
	core := loadCore(t)
	blocking := check.Call(source.Load(filepath.Join(coreDir, "blocking"))).Must(t, "source.Load()")
	mirrored := 0
	for _, name := range core.Types.Scope().Names() {
		f, ok := core.Types.Scope().Lookup(name).(*types.Func)
		if !ok || !f.Exported() || f.Signature().Params().Len() == 0 {
			continue
		}
		if first := f.Signature().Params().At(0).Type().String(); first != "context.Context" {
			continue
		}
		mirrored++
		if results := f.Signature().Results(); results.Len() > 0 && results.At(0).Type().String() == "context.Context" {
			continue
		}
		if _, ok := blocking.Types.Scope().Lookup(name).(*types.Func); !ok {
			t.Errorf("package blocking has no function %s", name)
		}
	}
	if mirrored < 2 {
		t.Errorf("%d functions take a context, want at least Open and New", mirrored)
	}
}

// TestUnfinishedCore generates from a package whose functions call missing ones, beside a facade that does not compile.
// Neither matters.
func TestUnfinishedCore(t *testing.T) {
	archive := gentest.Archives(t, "facade")["limiter"]
	want := gentest.Outputs(archive, isCore)
	dir := unpack(t, archive, isCore)
	for path, text := range map[string]string{
		"zlimit/unfinished.go":         "package zlimit\n\nimport \"fmt\"\n\nfunc unfinished() int { return missing() }\n",
		"zlimit/blocking/stale_gen.go": "package blocking\n\nfunc stale( {\n",
	} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, filepath.FromSlash(path)), []byte(text), 0o644))
	}
	got := check.Call(facadeOf(t, filepath.Join(dir, "zlimit"))).Must(t, "facadeOf()")
	compare.Equal(t, "outputs differ", want, got)
}

// TestFacadeIsPure emits the files of one facade repeatedly.
func TestFacadeIsPure(t *testing.T) {
	p := loadCore(t)
	f := check.Call(facade.Of(p)).Must(t, "facade.Of()")
	first, err := emit.Blocking(f)
	check.Fatal(t, "emit.Blocking()", err)
	for range 5 {
		if f, err = facade.Of(p); err != nil {
			t.Fatalf("facade.Of() = %v", err)
		}
		again, err := emit.Blocking(f)
		if diff := cmp.Diff(first, again); err != nil || diff != "" {
			t.Fatalf("outputs differ from run to run: %v (-first +later):\n%s", err, diff)
		}
	}
}
