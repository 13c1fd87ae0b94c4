package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
)

// run compiles the programs, those of each module into one binary, and runs them. Errors name the lines of the pages.
func run(t *testing.T, programs []program) (map[string]result, error) {
	t.Helper()
	homes := map[string][]program{}
	for _, p := range programs {
		home := "."
		if beyond[p.Page] != nil {
			home = "examples"
		}
		homes[home] = append(homes[home], p)
	}
	all := map[string]result{}
	for home, programs := range homes {
		got, err := runIn(t, home, programs)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, got)
	}
	return all, nil
}

// runIn is run for the programs of the module in a directory of the repository.
func runIn(t *testing.T, home string, programs []program) (map[string]result, error) {
	t.Helper()
	sources, err := files(path.Join(module, home), programs)
	if err != nil {
		return nil, err
	}
	dir := t.TempDir()
	moduleDir, err := filepath.Abs(filepath.Join(root, home))
	if err != nil {
		return nil, err
	}
	// The files are in the module for the compiler alone.
	replace := map[string]string{}
	for path, source := range sources {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(moduleDir, path)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "pages")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return nil, err
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary, "./docs/run")
	build.Dir = moduleDir
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the blocks: %w\n%s", err, output)
	}
	var stdout, stderr bytes.Buffer
	pages := exec.CommandContext(t.Context(), binary, "-test.timeout=1m")
	pages.Dir, pages.Stdout, pages.Stderr = t.TempDir(), &stdout, &stderr
	if err := pages.Run(); err != nil {
		last := stdout.String()[strings.LastIndex(stdout.String(), markBlock)+1:] // the block that panicked, or the report
		return nil, fmt.Errorf("run the blocks: %w\n%s%s", err, last, &stderr)
	}
	return results(stdout.String())
}

// The marks that the binary of all blocks sets in its output.
const (
	markBlock = "\x1e" // a block begins; its place follows, up to the end of the line
	markError = "\x1f" // it returned an error, which follows
)

// driver is the test that runs all blocks, those of a page in their order. They run on one limiter in memory whose
// clock only moves when a block sleeps.
var driver = template.Must(template.New("driver").Parse(`package run

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"{{.Module}}/zlimit"
{{range .Imports}}	{{.}}
{{end}})

func begin(at string) { fmt.Print("\n{{.Block}}" + at + "\n") }

func check(err error) {
	if err != nil {
		fmt.Print("{{.Error}}" + err.Error())
	}
}

func callModel(context.Context) int64 { return 620 }

func TestPages(t *testing.T) {
{{range .Pages}}	t.Run({{.Name}}.Path, func(t *testing.T) {
		ctx := t.Context()
		var slept atomic.Int64
		sleep := func(d time.Duration) { slept.Add(int64(d)) }
		start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
		clock := func() time.Time { return start.Add(time.Duration(slept.Load())) }
		limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(clock))
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		_, _ = sleep, check
{{range .Calls}}		{{.}}
{{end}}	})
{{end}}	begin("")
}
`))

// files returns the source files of programs, by their path in a module.
func files(home string, programs []program) (map[string]string, error) {
	type pageCalls struct {
		Name  string
		Calls []string
	}
	var pages []*pageCalls
	var imports []string
	sources := map[string]string{}
	for _, p := range programs {
		name := packageOf(p.Page)
		dir := "docs/run/" + name
		if sources[dir+"/page.go"] == "" {
			sources[dir+"/page.go"] = fmt.Sprintf("package %s\n\nconst Path = %q\n", name, p.Page)
			imports = append(imports, fmt.Sprintf("%q", home+"/"+dir))
			pages = append(pages, &pageCalls{Name: name})
		}
		var calls []string
		if p.kind == whole {
			dir += "/" + p.name
			alias := name + p.name
			imports = append(imports, fmt.Sprintf("%s %q", alias, home+"/"+dir))
			sources[dir+"/page.go"] = "package program\n\nconst Path = 0\n"
			calls = append(calls, "_ = "+alias+".Path")
			if p.run {
				calls = append(calls, alias+".Main()")
			}
		} else if p.run {
			if p.kind == statements {
				calls = append(calls, fmt.Sprintf("check(%s.%s(ctx, limiter, sleep, callModel))", name, p.name))
			}
			for _, test := range p.tests {
				calls = append(calls, fmt.Sprintf("t.Run(%q, %s.%s)", test, name, test))
			}
		}
		sources[dir+"/"+p.name+".go"] = p.source
		page := pages[len(pages)-1]
		page.Calls = append(page.Calls, fmt.Sprintf("begin(%q)", p.At()))
		page.Calls = append(page.Calls, calls...)
	}
	var b bytes.Buffer
	err := driver.Execute(&b, map[string]any{
		"Module": module, "Imports": imports, "Pages": pages, "Block": markBlock, "Error": markError,
	})
	sources["docs/run/run_test.go"] = b.String()
	return sources, err
}

// A result is what one run of the binary printed for each block, by its place.
type result struct{ printed, failed string }

// results takes the output of the binary apart.
func results(stdout string) (map[string]result, error) {
	parts := strings.Split(stdout, "\n"+markBlock)
	got := map[string]result{}
	for _, part := range parts[1:] {
		at, printed, _ := strings.Cut(part, "\n")
		printed, failed, _ := strings.Cut(printed, markError)
		got[at] = result{strings.TrimSpace(printed), strings.TrimSpace(failed)}
	}
	if _, ended := got[""]; !ended {
		return got, errors.New("the run ended too early")
	}
	return got, nil
}
