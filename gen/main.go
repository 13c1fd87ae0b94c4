// Command gen writes the files that follow from the schema: keys, codecs, expressions and the table definition of
// package zlimit, and docs/schema.md. When anything is wrong with the schema it reports everything that is, with file,
// line and column, and writes nothing.
package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/zlimit/zlimit-go/gen/internal/emit"
	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run is the command; it returns the exit code.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("gen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	spec := flags.String("spec", "spec/schema.yaml", "the schema")
	root := flags.String("root", ".", "the directory of the module, which the output goes to")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := generate(*spec, *root); err != nil {
		log.New(stderr, "", 0).Print(err)
		return 1
	}
	return 0
}

// generate writes the outputs of a schema that differ from what is there.
func generate(spec, root string) error {
	text, err := os.ReadFile(spec)
	if err != nil {
		return err
	}
	s, err := schema.Load(spec, text)
	if err != nil {
		return err
	}
	files, err := emit.Files(s)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := write(filepath.Join(root, filepath.FromSlash(path)), files[path]); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, text []byte) error {
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, text):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
