// Command gen writes the files that follow from the schema. They are the keys, codecs and expressions of package
// layout, the key builders and the table definition of package zlimit, and docs/schema.md. From the schema and the
// calls it writes the template of package stack, and from the records of older layouts their keys and codecs. When one
// of these files has mistakes it reports all of them, with file, line and column, and writes nothing. An attribute
// without a field in its type in package bucket is a mistake: the generator reads the declarations of that package.
//
// Then it reads package zlimit, with those files, and writes what follows from its exported methods: package blocking.
// The package need not exist.
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

	"github.com/zlimit/zlimit-go/gen/internal/calls"
	"github.com/zlimit/zlimit-go/gen/internal/emit"
	"github.com/zlimit/zlimit-go/gen/internal/facade"
	"github.com/zlimit/zlimit-go/gen/internal/schema"
	"github.com/zlimit/zlimit-go/gen/internal/source"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run is the command; it returns the exit code.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("gen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	spec := flags.String("spec", "spec/schema.yaml", "the schema")
	old := flags.String("legacy", "spec/legacy.yaml", "the records of older layouts")
	asked := flags.String("calls", "spec/calls.yaml", "what programs ask of AWS")
	members := flags.String("members", "internal/bucket", "the directory of the package that declares types of members")
	core := flags.String("core", "zlimit", "the directory of package zlimit")
	root := flags.String("root", ".", "the directory of the module, which the output goes to")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	err := generate(*root, func() (map[string][]byte, error) { return schemaFiles(*spec, *members, *asked) })
	if err == nil {
		err = generate(*root, func() (map[string][]byte, error) { return legacyFiles(*old) })
	}
	if err == nil {
		err = generate(*root, func() (map[string][]byte, error) { return facadeFiles(*core) })
	}
	if err != nil {
		log.New(stderr, "", 0).Print(err)
		return 1
	}
	return 0
}

// schemaFiles returns the outputs of a schema, and of it and the calls.
func schemaFiles(spec, members, asked string) (map[string][]byte, error) {
	text, err := os.ReadFile(spec)
	if err != nil {
		return nil, err
	}
	s, err := schema.Load(spec, text)
	if err != nil {
		return nil, err
	}
	p, err := source.Load(members)
	if err != nil {
		return nil, err
	}
	if err := s.CheckImported(spec, p.Types); err != nil {
		return nil, err
	}
	files, err := emit.Files(s)
	if err != nil {
		return nil, err
	}
	if text, err = os.ReadFile(asked); err != nil {
		return nil, err
	}
	c, err := calls.Load(asked, text)
	if err != nil {
		return nil, err
	}
	more, err := emit.Stack(s, c)
	maps.Copy(files, more)
	return files, err
}

// legacyFiles returns the outputs of the records of older layouts.
func legacyFiles(old string) (map[string][]byte, error) {
	text, err := os.ReadFile(old)
	if err != nil {
		return nil, err
	}
	s, err := schema.LoadLegacy(old, text)
	if err != nil {
		return nil, err
	}
	return emit.Legacy(s)
}

// facadeFiles returns the outputs of package zlimit.
func facadeFiles(core string) (map[string][]byte, error) {
	p, err := source.Load(core)
	if err != nil {
		return nil, err
	}
	f, err := facade.Of(p)
	if err != nil {
		return nil, err
	}
	return emit.Blocking(f)
}

// generate writes those outputs that differ from the files.
func generate(root string, outputs func() (map[string][]byte, error)) error {
	files, err := outputs()
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
