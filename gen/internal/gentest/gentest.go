// Package gentest keeps the golden files of generators in archives: the inputs and their outputs.
package gentest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// Archives returns the txtar files of a directory under testdata, by name.
func Archives(tb testing.TB, dir string) map[string]*txtar.Archive {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no archives in testdata/%s: %v", dir, err)
	}
	found := map[string]*txtar.Archive{}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			tb.Fatalf("txtar.ParseFile() = %v", err)
		}
		found[strings.TrimSuffix(filepath.Base(path), ".txtar")] = archive
	}
	return found
}

// File returns a file of an archive; false when it has none of that name.
func File(archive *txtar.Archive, name string) (string, bool) {
	for _, f := range archive.Files {
		if f.Name == name {
			return string(f.Data), true
		}
	}
	return "", false
}

// Outputs returns the files of an archive that are not its inputs.
func Outputs(archive *txtar.Archive, input func(name string) bool) map[string]string {
	outputs := map[string]string{}
	for _, f := range archive.Files {
		if !input(f.Name) {
			outputs[f.Name] = string(f.Data)
		}
	}
	return outputs
}

// Rewrite replaces the outputs in an archive under testdata.
func Rewrite(
	tb testing.TB, dir, name string, archive *txtar.Archive, input func(name string) bool, outputs map[string]string,
) {
	tb.Helper()
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return !input(f.Name) })
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(outputs[name])})
	}
	path := filepath.Join("testdata", dir, name+".txtar")
	if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
		tb.Fatalf("os.WriteFile() = %v", err)
	}
}

// Errors compares the errors that load reports for the archives of a directory with the file errors of each. update
// rewrites them.
func Errors(t *testing.T, dir string, update bool, input func(name string) bool, load func(*testing.T, *txtar.Archive) error) {
	for name, archive := range Archives(t, dir) {
		t.Run(name, func(t *testing.T) {
			err := load(t, archive)
			if err == nil {
				t.Fatal("nothing is reported, want errors")
			}
			got := err.Error() + "\n"
			if update {
				Rewrite(t, dir, name, archive, input, map[string]string{"errors": got})
				return
			}
			want, ok := File(archive, "errors")
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Errorf("errors differ; -update rewrites them (-want +got):\n%s", diff)
			}
		})
	}
}
