package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/zlimit/zlimit-go/gen/internal/emit"
	"github.com/zlimit/zlimit-go/gen/internal/gentest"
	"github.com/zlimit/zlimit-go/gen/internal/schema"
	"github.com/zlimit/zlimit-go/gen/internal/source"
	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	specFile   = "../spec/schema.yaml"
	legacySpec = "../spec/legacy.yaml"
	callsSpec  = "../spec/calls.yaml"
	bucketDir  = "../internal/bucket"
)

// generated returns the outputs of a schema.
func generated(t *testing.T, name string, text []byte) map[string]string {
	t.Helper()
	s := check.Call(schema.Load(name, text)).Must(t, "schema.Load()")
	files := check.Call(emit.Files(s)).Must(t, "emit.Files()")
	outputs := make(map[string]string, len(files))
	for path, content := range files {
		outputs[path] = string(content)
	}
	return outputs
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	return check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
}

// TestGolden compares the outputs of small schemas with those in the archives. TestGoldenCompiles runs them.
func TestGolden(t *testing.T) {
	for name, archive := range gentest.Archives(t, "golden") {
		t.Run(name, func(t *testing.T) {
			text, _ := gentest.File(archive, "schema.yaml")
			got := generated(t, "schema.yaml", []byte(text))
			if *update {
				gentest.Rewrite(t, "golden", name, archive, isInput, got)
				return
			}
			want := gentest.Outputs(archive, isInput)
			compare.Equal(t, "outputs differ from the golden files; -update rewrites them", want, got)
		})
	}
}

func isInput(name string) bool {
	return name == "schema.yaml" || strings.HasSuffix(name, "_check_test.go")
}

// TestGoldenCompiles compiles the golden outputs with the primitives that they call. It runs the tests for every schema, and
// the ones in the archives. The long form vets them.
func TestGoldenCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("builds what is generated")
	}
	dir, err := os.MkdirTemp("testdata", "build-") //nolint:usetesting // the outputs import internal packages of the module
	check.Fatal(t, "os.MkdirTemp()", err)
	t.Cleanup(func() { check.Error(t, "os.RemoveAll()", os.RemoveAll(dir)) })
	for name, archive := range gentest.Archives(t, "golden") {
		pkg := filepath.Join(dir, name)
		check.Fatal(t, "os.Mkdir()", os.Mkdir(pkg, 0o755))
		files := map[string][]byte{}
		for _, name := range []string{"keys.go", "codec.go", "records_test.go"} {
			files[name] = readFile(t, "../internal/layout/"+name)
		}
		outputs := 0
		for _, f := range archive.Files {
			if path, ok := strings.CutPrefix(f.Name, "internal/layout/"); ok {
				outputs++
				files[path] = f.Data
			} else if strings.HasSuffix(f.Name, ".go") { // of packages zlimit and dynamo, or a test
				built := "zlimit-go/gen/" + filepath.ToSlash(pkg)
				content := bytes.ReplaceAll(f.Data, []byte("zlimit-go/internal/layout"), []byte(built))
				files[f.Name] = bytes.ReplaceAll(content, []byte("zlimit-go/zlimit\""), []byte(built+"/zlimit\""))
			}
		}
		if outputs == 0 {
			t.Errorf("archive %s has no outputs", name)
		}
		for name, content := range files {
			path := filepath.Join(pkg, filepath.FromSlash(name))
			check.Fatal(t, "os.MkdirAll()", os.MkdirAll(filepath.Dir(path), 0o755))
			check.Fatal(t, "os.WriteFile()", os.WriteFile(path, content, 0o644))
		}
	}
	for _, verb := range soak.Pick([]string{"test"}, []string{"vet", "test"}) {
		if output, err := exec.Command("go", verb, "./"+filepath.ToSlash(dir)+"/...").CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", verb, err, output)
		}
	}
}

// TestErrors compares the errors about malformed schemas with the archives.
func TestErrors(t *testing.T) {
	members := check.Call(source.Load(bucketDir)).Must(t, "source.Load()")
	gentest.Errors(t, "errors", *update, isInput, func(_ *testing.T, archive *txtar.Archive) error {
		text, _ := gentest.File(archive, "schema.yaml")
		s, err := schema.Load("schema.yaml", []byte(text))
		if err != nil {
			return err
		}
		return s.CheckImported("schema.yaml", members.Types)
	})
}

// TestUpToDate compares the outputs with the files in the module.
func TestUpToDate(t *testing.T) {
	outputs := everything(t)
	for path, want := range outputs {
		got, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(path)))
		if err != nil || string(got) != want {
			t.Errorf("%s is stale (%v): run go generate ./...", path, err)
		}
	}
	for _, dir := range []string{"internal/layout", "zlimit", "zlimit/blocking"} {
		files, err := filepath.Glob("../" + dir + "/*_gen*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no generated files in %s: %v", dir, err)
		}
		for _, path := range files {
			if _, ok := outputs[dir+"/"+filepath.Base(path)]; !ok {
				t.Errorf("%s is not an output of the generator any more", path)
			}
		}
	}
}

// TestHeader asks what tools ask: whether the outputs are marked as generated.
func TestHeader(t *testing.T) {
	for path, text := range everything(t) {
		if !strings.HasSuffix(path, ".go") {
			continue
		}
		header := "// Code generated by gen from spec/schema.yaml. DO NOT EDIT.\n"
		if strings.HasPrefix(path, "zlimit/blocking/") {
			header = "// Code generated by gen from package zlimit. DO NOT EDIT.\n"
		}
		if strings.HasPrefix(path, "internal/layout/legacy_") {
			header = "// Code generated by gen from spec/legacy.yaml. DO NOT EDIT.\n"
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.PackageClauseOnly)
		check.Fatal(t, "parser.ParseFile()", err)
		if !ast.IsGenerated(f) || !strings.HasPrefix(text, header) {
			t.Errorf("%s starts with %q", path, text[:min(len(header), len(text))])
		}
		if f.Doc != nil {
			t.Errorf("%s has a package comment: %s", path, f.Doc.Text())
		}
	}
}

// TestSameBytes generates repeatedly.
func TestSameBytes(t *testing.T) {
	text := readFile(t, specFile)
	first := generated(t, specFile, text)
	for range 5 {
		if diff := cmp.Diff(first, generated(t, specFile, text)); diff != "" {
			t.Fatalf("outputs differ from run to run (-first +later):\n%s", diff)
		}
	}
}

// TestStyle asks for what a reader of the outputs would miss: short lines, and imports under their own names in groups.
func TestStyle(t *testing.T) {
	for path, text := range everything(t) {
		if !strings.HasSuffix(path, ".go") {
			continue
		}
		if lines := strings.Count(text, "\n"); lines > 1500 {
			t.Errorf("%s has %d lines, want at most 1500: divide it", path, lines)
		}
		if strings.Contains(text, "/*") {
			t.Errorf("%s has a block comment", path)
		}
		for i, line := range strings.Split(text, "\n") {
			if width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); width > 120 {
				t.Errorf("%s:%d is %d columns wide", path, i+1, width)
			}
		}
		fset := token.NewFileSet()
		f := check.Call(parser.ParseFile(fset, path, text, parser.ImportsOnly)).Must(t, "parser.ParseFile()")
		lastGroup, lastLine := 0, 0
		for _, spec := range f.Imports {
			if spec.Name != nil {
				t.Errorf("%s imports %s as %s", path, spec.Path.Value, spec.Name.Name)
			}
			group := 1 // of the standard library
			switch {
			case strings.HasPrefix(spec.Path.Value, `"github.com/zlimit/zlimit-go/`):
				group = 3
			case strings.Contains(spec.Path.Value, "."):
				group = 2
			}
			line := fset.Position(spec.Pos()).Line
			if lastGroup > 0 && (line-lastLine > 1) != (group > lastGroup) {
				t.Errorf("%s: import %s is not in a group of its kind", path, spec.Path.Value)
			}
			lastGroup, lastLine = group, line
		}
	}
}

// overlay is a set of files that the go command sees in place of those on disk.
type overlay struct {
	dir     string // of the files that are seen
	Replace map[string]string
}

func newOverlay(t *testing.T) *overlay { return &overlay{t.TempDir(), map[string]string{}} }

// root returns the directory of the module.
func root(t *testing.T) string {
	t.Helper()
	return check.Call(filepath.Abs("..")).Must(t, "filepath.Abs()")
}

// add shows content at a path in the module.
func (o *overlay) add(t *testing.T, path, content string) {
	t.Helper()
	real := filepath.Join(o.dir, strings.ReplaceAll(path, "/", "_"))
	check.Fatal(t, "os.WriteFile()", os.WriteFile(real, []byte(content), 0o644))
	o.Replace[filepath.Join(root(t), filepath.FromSlash(path))] = real
}

// run runs the go command in the module.
func (o *overlay) run(t *testing.T, verb string, args ...string) (string, error) {
	t.Helper()
	text := check.Call(json.Marshal(o)).Must(t, "json.Marshal()")
	list := filepath.Join(o.dir, "overlay.json")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(list, text, 0o644))
	command := exec.Command("go", append([]string{verb, "-overlay=" + list}, args...)...)
	command.Dir = root(t)
	output, err := command.CombinedOutput()
	return string(output), err
}

// check checks the types of packages and of all that they import, as the overlay shows them, and returns the mistakes. What the overlay
// does not reach comes from export data: that takes a tenth of the time of a build.
func (o *overlay) check(t *testing.T, paths ...string) error {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,GoFiles,Deps,Export"}, paths...)...)
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v", command.Args, err)
	}
	const changed = "github.com/zlimit/zlimit-go/internal/layout"
	checked, exports, fset := known{}, map[string]string{}, token.NewFileSet()
	exported := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var mistakes []error
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); { // what is imported comes first
		var p struct {
			ImportPath, Dir, Export string
			GoFiles, Deps           []string
		}
		check.Fatal(t, "Decode()", decoder.Decode(&p))
		if p.ImportPath != changed && !slices.Contains(p.Deps, changed) {
			exports[p.ImportPath] = p.Export
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			if shown := o.Replace[path]; shown != "" {
				path = shown
			}
			f := check.Call(parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)).Must(t, "parser.ParseFile()")
			files = append(files, f)
		}
		config := types.Config{
			Importer: importing(func(path string) (*types.Package, error) {
				if p := checked[path]; p != nil {
					return p, nil
				}
				return exported.Import(path)
			}),
			Error: func(err error) { mistakes = append(mistakes, err) },
		}
		checked[p.ImportPath], _ = config.Check(p.ImportPath, fset, files, nil) // its error is the first of the mistakes
	}
	if len(checked) < 3 {
		t.Errorf("%d packages are checked, want the layout and those that import it", len(checked))
	}
	return errors.Join(mistakes...)
}

// importing is a function that imports packages.
type importing func(path string) (*types.Package, error)

// Import implements [types.Importer].
func (f importing) Import(path string) (*types.Package, error) { return f(path) }

// TestChange adds an attribute, a record with an index entry and a family, a query and an operation to the schema. It
// compiles what builds on the layout with the result.
func TestChange(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the layout")
	}
	text := string(readFile(t, specFile))
	insert := func(after, addition string) {
		t.Helper()
		if strings.Count(text, after) != 1 {
			t.Fatalf("%q is not in the schema once", after)
		}
		text = strings.Replace(text, after, after+addition, 1)
	}
	insert("\n      shard_count: { type: N, empty: zero, doc: \"shards of this entity and resource, as this shard knows it\" }\n",
		"      paused_until: { type: N, empty: omit, doc: \"time of the end of a pause, epoch seconds\" }\n")
	insert("\nrecords:\n", `  quarantine:
    doc: The quarantine of one entity.
    pk: "{ns}/QUARANTINE#{entity}"
    sk: "#QUARANTINE#{resource}"
    indexes:
      GSI4: { pk: "{ns}", sk: "{ns}/QUARANTINE#{entity}" }
    attributes:
      reasons: { type: SS, empty: omit, doc: why }
    families:
      counts:
        pattern: "q_{limit}_{field}"
        type: QuarantineCount
        doc: What was refused.
        fields:
          n: { type: N, go: refused, doc: requests refused }
`)
	insert("\nqueries:\n", "  quarantines: { record: quarantine, doc: The quarantines of an entity. }\n")
	insert("\noperations:\n", `  isolate_entity:
    doc: Isolates an entity.
    record: quarantine
    write: update
    args: { reasons: why }
    where: [PK absent or reasons exists]
    do: [keys, add reasons $reasons]
    clauses:
      refuse: { doc: Counts what is refused., family: counts, args: { by: how many }, do: [add n $by] }
`)
	o := newOverlay(t)
	for path, content := range generated(t, specFile, []byte(text)) {
		if strings.HasSuffix(path, ".go") {
			o.add(t, path, content)
		}
	}
	o.add(t, "internal/layout/change_test.go", `package layout

import (
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
)

func TestQuarantine(t *testing.T) {
	key := QuarantineKey{NS: "n", Entity: "e", Resource: "r"}
	call := IsolateEntity(key, []string{"b", "a"})
	call.Refuse("rpm", 2)
	bound, err := call.Bind()
	if err != nil || !bound.Holds(nil) {
		t.Fatalf("%s: %v", bound.Condition(), err)
	}
	item, err := bound.Apply(expr.Item{{Name: "PK", Value: expr.S(key.Key().PK)}, {Name: "SK", Value: expr.S(key.Key().SK)}})
	if err != nil {
		t.Fatalf("Apply() = %v", err)
	}
	got, err := DecodeQuarantine(item)
	if err != nil || got.Key != key || !slices.Equal(got.Reasons, []string{"a", "b"}) ||
		!slices.Equal(got.Counts, []QuarantineCount{{Name: "rpm", Refused: 2}}) || got.unknown != nil {
		t.Fatalf("decode = %+v, %v", got, err)
	}
	if q := QueryQuarantines("n", "e"); q.PK != "n/QUARANTINE#e" || q.Prefix != "#QUARANTINE#" {
		t.Errorf("query = %+v", q)
	}
	if !(&Bucket{PausedUntil: 3}).Encode().Get("paused_until").Equal(expr.N(3)) {
		t.Error("the new attribute is not written")
	}
}
`)
	if output, err := o.run(t, "test", "-run", "^(TestQuarantine|TestKeysRoundTrip|TestItemsRoundTrip|TestOperations)$", "./internal/layout"); err != nil {
		t.Errorf("go test: %v\n%s", err, output)
	}
}

// TestRun runs the command.
func TestRun(t *testing.T) {
	t.Run("a valid schema is written, and left alone when nothing changed", func(t *testing.T) {
		loadCore(t)
		dir := t.TempDir()
		var stderr bytes.Buffer
		if code := run([]string{"-spec", specFile, "-legacy", legacySpec, "-calls", callsSpec, "-members", bucketDir, "-core", coreDir, "-root", dir}, &stderr); code != 0 || stderr.Len() > 0 {
			t.Fatalf("run = %d, %s", code, &stderr)
		}
		keys := filepath.Join(dir, "zlimit", "keys_gen.go")
		check.Fatal(t, "os.Chmod()", os.Chmod(keys, 0o444))
		if _, err := os.Stat(filepath.Join(dir, "zlimit", "blocking", "lease_gen.go")); err != nil {
			t.Errorf("os.Stat() = %v", err)
		}
		before := check.Call(os.Stat(keys)).Must(t, "os.Stat()")
		if code := run([]string{"-spec", specFile, "-legacy", legacySpec, "-calls", callsSpec, "-members", bucketDir, "-core", coreDir, "-root", dir}, &stderr); code != 0 {
			t.Fatalf("second run = %d, %s", code, &stderr)
		}
		if after, err := os.Stat(keys); err != nil || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("a file that did not change was written again: %v", err)
		}
	})
	for name, wrong := range map[string][2]string{
		"a malformed schema":                              {"type: N", "type: Q"},
		"a schema with a field that package bucket lacks": {"go: enrolled", "go: enlisted"},
	} {
		t.Run(name+" is reported, and nothing is written", func(t *testing.T) {
			dir := t.TempDir()
			spec := filepath.Join(dir, "schema.yaml")
			text := bytes.Replace(readFile(t, specFile), []byte(wrong[0]), []byte(wrong[1]), 1)
			check.Fatal(t, "os.WriteFile()", os.WriteFile(spec, text, 0o644))
			out := filepath.Join(dir, "out")
			var stderr bytes.Buffer
			args := []string{"-spec", spec, "-legacy", legacySpec, "-calls", callsSpec, "-members", bucketDir, "-core", coreDir, "-root", out}
			if code := run(args, &stderr); code != 1 {
				t.Errorf("run = %d, want 1", code)
			}
			if !strings.HasPrefix(stderr.String(), spec+":") {
				t.Errorf("stderr = %q", &stderr)
			}
			if _, err := os.Stat(out); !os.IsNotExist(err) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
	t.Run("a package without a counterpart is reported, and no facade is written", func(t *testing.T) {
		core := filepath.Join(unpack(t, gentest.Archives(t, "facade-errors")["shapes"], isCore), "zlimit")
		out := t.TempDir()
		var stderr bytes.Buffer
		if code := run([]string{"-spec", specFile, "-legacy", legacySpec, "-calls", callsSpec, "-members", bucketDir, "-core", core, "-root", out}, &stderr); code != 1 {
			t.Errorf("run = %d, want 1", code)
		}
		if !strings.HasPrefix(stderr.String(), core) || !strings.Contains(stderr.String(), ": Limiter.Give ") {
			t.Errorf("stderr = %q, want places and names", &stderr)
		}
		if _, err := os.Stat(filepath.Join(out, "zlimit", "blocking")); !os.IsNotExist(err) {
			t.Errorf("a facade was written: %v", err)
		}
	})
	t.Run("a schema that is not there is an error", func(t *testing.T) {
		var stderr bytes.Buffer
		if code := run([]string{"-spec", filepath.Join(t.TempDir(), "none.yaml")}, &stderr); code != 1 || stderr.Len() == 0 {
			t.Errorf("run = %d, %q", code, &stderr)
		}
	})
	t.Run("an unknown flag is a mistake in the use", func(t *testing.T) {
		var stderr bytes.Buffer
		if code := run([]string{"-nope"}, &stderr); code != 2 {
			t.Errorf("run = %d, want 2", code)
		}
	})
}

// FuzzGenerate reads malformed schemas, and generates from those that are not.
func FuzzGenerate(f *testing.F) {
	for _, dir := range []string{"golden", "errors"} {
		for _, archive := range gentest.Archives(f, dir) {
			text, _ := gentest.File(archive, "schema.yaml")
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := schema.Load("schema.yaml", text)
		var all document.Errors
		switch {
		case err == nil:
			if _, err := emit.Files(s); err != nil {
				t.Errorf("Files of a valid schema = %v", err)
			}
		case !errors.As(err, &all) || len(all) == 0:
			t.Errorf("Load = %v, want an Errors", err)
		default:
			for _, e := range all {
				if e.Pos.Line < 1 || e.Pos.Column < 1 || e.Text == "" {
					t.Errorf("%v has no place or no text", e)
				}
			}
		}
	})
}

// known imports packages that have been loaded.
type known map[string]*types.Package

func (k known) Import(path string) (*types.Package, error) {
	if p := k[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not loaded", path)
}

// mutant returns a text with a word in it, or all of its kind, replaced by another one, and says which.
func mutant(r *rand.Rand, text string) (mutated, what string) {
	// Words that mean something in Go, in the generated package, or in a schema.
	odd := []string{
		"a", "any", "append", "bind", "c", "call", "d", "decoder", "encode", "err", "expr", "field", "found", "go", "i", "id",
		"init", "int64", "iota", "it", "item", "k", "key", "len", "list", "m", "members", "name", "ok", "omit", "pick", "pk",
		"prefix", "rest", "sk", "store", "string", "types", "unknown", "x_1", "x1", "zero",
	}
	words := word.FindAllStringIndex(text, -1)
	target, source := words[r.IntN(len(words))], words[r.IntN(len(words))]
	replacement := text[source[0]:source[1]]
	if r.IntN(2) == 0 {
		replacement = odd[r.IntN(len(odd))]
	}
	original := text[target[0]:target[1]]
	if r.IntN(2) == 0 {
		return strings.ReplaceAll(text, original, replacement), fmt.Sprintf("every %s replaced by %s", original, replacement)
	}
	line := 1 + strings.Count(text[:target[0]], "\n")
	return text[:target[0]] + replacement + text[target[1]:],
		fmt.Sprintf("%s in line %d replaced by %s", original, line, replacement)
}

var word = regexp.MustCompile(`[A-Za-z0-9_]+`)

// TestMutants replaces words in schemas, and compiles the code generated from valid ones. A schema whose output would
// not compile must be an error.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles hundreds of schemas")
	}
	loaded, fset := known{}, token.NewFileSet()
	compiled := check.Call(source.Importer(fset, "../internal/layout")).Must(t, "source.Importer()")
	for _, path := range []string{
		"fmt", "math", "slices", "strconv", "strings",
		"github.com/zlimit/zlimit-go/internal/bucket",
		"github.com/zlimit/zlimit-go/internal/expr",
		"github.com/zlimit/zlimit-go/internal/store",
	} {
		p := check.Call(compiled.Import(path)).Must(t, "Import()")
		loaded[path] = p
	}
	var primitives []*ast.File
	for _, path := range []string{"../internal/layout/keys.go", "../internal/layout/codec.go"} {
		f := check.Call(parser.ParseFile(fset, path, nil, 0)).Must(t, "parser.ParseFile()")
		primitives = append(primitives, f)
	}
	originals := map[string]string{specFile: string(readFile(t, specFile))}
	for name, archive := range gentest.Archives(t, "golden") {
		originals[name], _ = gentest.File(archive, "schema.yaml")
	}
	r := rand.New(rand.NewPCG(1, 2))
	valid := 0
	mutants := soak.Pick(100, 300)
	for range mutants {
		original := slices.Sorted(maps.Keys(originals))[r.IntN(len(originals))]
		text, what := mutant(r, originals[original])
		s, err := schema.Load("schema.yaml", []byte(text))
		if err != nil || s.CheckImported("schema.yaml", loaded["github.com/zlimit/zlimit-go/internal/bucket"]) != nil {
			continue // rejected
		}
		valid++
		outputs, err := emit.Files(s)
		if err != nil {
			t.Fatalf("%s, with %s: %v", original, what, err)
		}
		files := map[string][]*ast.File{"layout": slices.Clone(primitives)} // by package
		for path, content := range outputs {
			// Not the definition of the table, whose import of the AWS SDK would take most of the time, nor tests.
			if strings.HasSuffix(path, "_gen.go") && path != "zlimit/table_gen.go" {
				f, err := parser.ParseFile(fset, path, content, 0)
				if err != nil {
					t.Fatalf("%s, with %s: %v", original, what, err)
				}
				files[f.Name.Name] = append(files[f.Name.Name], f)
			}
		}
		check := types.Config{Importer: loaded}
		for _, name := range []string{"layout", "zlimit"} {
			p, err := check.Check(name, fset, files[name], nil)
			if err != nil {
				t.Fatalf("%s, with %s: %v", original, what, err)
			}
			loaded["github.com/zlimit/zlimit-go/internal/"+name] = p
		}
	}
	if valid < mutants/10 {
		t.Errorf("%d of %d mutants are valid: too few to mean something", valid, mutants)
	}
}
