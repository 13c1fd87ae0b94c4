// Package docs keeps the documentation true: its tests run the Go that README.md and the pages of this directory show.
//
// A block of Go is a whole program, declarations, or statements. Statements have ctx, limiter, sleep and callModel in
// scope. Those are a context, a limiter in memory, a function that lets time pass, and a model that answers with 620
// tokens. The blocks of a page run in their order on one limiter. What a block prints is in a comment at its end, as in
// examples of package testing. Blocks that talk to DynamoDB are compiled. A block that names its language golang is the
// code of another library, and comes with a block of Go that replaces it.
//
// The tests of package cli, below cmd/zlimit, run blocks of sh line by line, on one store and one AWS in memory for each
// page. What the commands print is in a block of text after them. Every command of zlimit is in such a block; commands.md
// has the flags of each.
package docs

import (
	"encoding/json"
	"go/format"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/pages"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// root is the root of the module, as seen from this package.
const root = ".."

// readPages reads README.md and the pages of this directory.
func readPages(t *testing.T) []pages.Page {
	t.Helper()
	return check.Call(pages.ReadAll(root)).Must(t, "pages.ReadAll()")
}

func readPage(t *testing.T, path string) pages.Page {
	t.Helper()
	return check.Call(pages.Read(root, path)).Must(t, "pages.Read()")
}

// languages are those of the blocks that there may be.
var languages = []string{"go", "golang", "json", "python", "sh", "text", "yaml"}

func TestLanguages(t *testing.T) {
	for _, p := range readPages(t) {
		for _, b := range p.Blocks {
			switch {
			case !slices.Contains(languages, b.Language):
				t.Errorf("%s: a block is of one of %v, not of %q", b.At(), languages, b.Language)
			case (b.Language == "golang" || b.Language == "python") && b.Next != "go":
				t.Errorf("%s: code of another library comes right before the Go that replaces it", b.At())
			case b.Language == "json":
				if !json.Valid([]byte(b.Text)) {
					t.Errorf("%s: the block is not JSON", b.At())
				}
			case b.Language == "golang":
				if _, err := format.Source([]byte(b.Text)); err != nil {
					t.Errorf("%s: %v", b.At(), err)
				}
			}
		}
	}
}

// TestPermissions compares the policies of dynamodb.md with the calls that a store makes.
func TestPermissions(t *testing.T) {
	allowed := map[string]bool{}
	for _, b := range readPage(t, "docs/dynamodb.md").Blocks {
		if b.Language != "json" {
			continue
		}
		for _, action := range actions.FindAllStringSubmatch(b.Text, -1) {
			allowed[action[1]] = true
		}
	}
	// Transactions take the permissions of their writes, among them one that is no call.
	called := map[string]bool{"ConditionCheckItem": true}
	for _, client := range []reflect.Type{reflect.TypeFor[dynamo.Client](), reflect.TypeFor[dynamo.StreamsClient]()} {
		for method := range client.Methods() {
			if method.Name != "Options" && method.Name != "TransactWriteItems" {
				called[method.Name] = true
			}
		}
	}
	if diff := cmp.Diff(called, allowed); diff != "" {
		t.Errorf("actions (-called +allowed):\n%s", diff)
	}
}

var actions = regexp.MustCompile(`"dynamodb:(\w+)"[^:]`) // and no condition key

func TestGo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs every block of Go")
	}
	var programs []program
	for _, p := range readPages(t) {
		for _, b := range p.Blocks {
			if b.Language != "go" {
				continue
			}
			program, err := newProgram(b)
			if err != nil {
				t.Errorf("newProgram() = %v", err)
				continue
			}
			programs = append(programs, program)
		}
	}
	if t.Failed() {
		return
	}
	got := check.Call(run(t, programs)).Must(t, "run()")
	for _, p := range programs {
		r := got[p.At()]
		switch {
		case r.failed != "":
			t.Errorf("%s: the block returns %s", p.At(), r.failed)
		case r.printed != p.want && p.run:
			t.Errorf("%s: the block prints\n%s\nbut says\n%s", p.At(), r.printed, p.want)
		}
	}
}

var (
	links    = regexp.MustCompile(`\]\(([^)]*)\)`)
	headings = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// TestLinks follows every link of the pages to another page, and to its headings.
func TestLinks(t *testing.T) {
	for _, p := range append(readPages(t), readPage(t, "CONTRIBUTING.md"), readPage(t, "DESIGN.md")) {
		for i, line := range p.Lines {
			for _, link := range links.FindAllStringSubmatch(line, -1) {
				target, anchor, _ := strings.Cut(link[1], "#")
				if strings.Contains(target, "://") {
					continue
				}
				path := filepath.Join(root, p.Path)
				if target != "" {
					path = filepath.Join(filepath.Dir(path), target)
				}
				text, err := os.ReadFile(path)
				if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
					err = nil
				}
				if err != nil {
					t.Errorf("%s:%d: %v", p.Path, i+1, err)
					continue
				}
				if anchor != "" && !slices.Contains(anchors(string(text)), anchor) {
					t.Errorf("%s:%d: %s has no heading #%s", p.Path, i+1, target, anchor)
				}
			}
		}
	}
}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(text string) (names []string) {
	for _, heading := range headings.FindAllStringSubmatch(text, -1) {
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case strings.ContainsRune("`.,:;?!'\"()[]/*&→", r):
				return -1
			}
			return r
		}, strings.ToLower(heading[1])))
	}
	return names
}

// TestReleaseIsSigned asks that the workflow of releases runs after the checks, and signs and verifies before it publishes.
func TestReleaseIsSigned(t *testing.T) {
	text := check.Call(os.ReadFile(filepath.Join(root, ".github", "workflows", "release.yml"))).Must(t, "os.ReadFile()")
	at := 0
	for _, step := range []string{"uses: ./.github/workflows/check.yml", "needs: check", "id-token: write", "uses: sigstore/cosign-installer@", "make release", "cosign verify-blob", "gh release create"} {
		next := strings.Index(string(text[at:]), step)
		if next < 0 {
			t.Fatalf("release.yml has no %q behind the steps before", step)
		}
		at += next
	}
}

// TestActionsArePinned asks that workflows name actions by the hash of a commit, with the version in a comment.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	pinned := regexp.MustCompile(`uses: ([a-z-]+/[a-z/-]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+|\./\.github/workflows/[a-z]+\.yml)$`)
	for _, path := range files {
		text := check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
		for _, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %s: is not pinned by a hash", filepath.Base(path), strings.TrimSpace(line))
			}
		}
	}
}
