// Package gentest keeps the golden files of generators in archives: inputs, and what is generated from them.
package gentest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
			tb.Fatal(err)
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
		tb.Fatal(err)
	}
}
