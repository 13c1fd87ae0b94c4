package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/commands.md")

// notRun are commands that no page runs, each with the reason.
var notRun = map[string]string{}

// A command is one of zlimit, as the program of package rehearse tells it.
type command struct {
	Path, Use, Short, Usage string
	Group                   bool
	Flags                   []string
}

// build builds the command zlimit with AWS in its memory, once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "zlimit-docs-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "zlimit")
	cmd := exec.Command("go", "build", "-o", program, "./cmd/zlimit/internal/rehearse")
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		return program, fmt.Errorf("go build: %w\n%s", err, output)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if program, err := build(); program != "" && err == nil {
		_ = os.RemoveAll(filepath.Dir(program)) // of this run alone
	}
	os.Exit(code)
}

// rehearsal returns the path of the program that runs the commands of the pages.
func rehearsal(t *testing.T) string {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// readCommands returns all commands of zlimit, by their paths.
func readCommands(t *testing.T) []command {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the command")
	}
	output, err := exec.CommandContext(t.Context(), rehearsal(t), "-commands").Output()
	var all []command
	if err == nil {
		err = json.Unmarshal(output, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// find returns the command that words begin with, and what stands behind its name.
func find(all []command, words []string) (found command, rest []string) {
	path := ""
	for i, word := range words {
		path = strings.TrimSpace(path + " " + word)
		n := slices.IndexFunc(all, func(c command) bool { return c.Path == path })
		if n < 0 {
			break
		}
		found, rest = all[n], words[i+1:]
	}
	return found, rest
}

// TestCommandsAreRun finds every command of zlimit in a block of sh, which TestShell runs.
func TestCommandsAreRun(t *testing.T) {
	all := readCommands(t)
	seen := map[string]bool{}
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			if b.language != "sh" {
				continue
			}
			for _, c := range commands(b) {
				if m := evaluated.FindStringSubmatch(c.text); m != nil {
					c.text = m[1]
				}
				if found, _ := find(all, c.words()); found.Path != "" {
					seen[found.Path] = true
				}
			}
		}
	}
	for _, c := range all {
		reason, excused := notRun[c.Path]
		switch {
		case c.Group:
		case !seen[c.Path] && !excused:
			t.Errorf("%s: no page runs it in a block of sh", c.Path)
		case seen[c.Path] && excused:
			t.Errorf("%s is run, and notRun says that it is not: %s", c.Path, reason)
		}
	}
	for path := range notRun {
		if found, rest := find(all, strings.Fields(path)); found.Path == "" || len(rest) > 0 {
			t.Errorf("notRun has %s, which is no command", path)
		}
	}
}

var (
	spans = regexp.MustCompile("`([^`]+)`")
	flags = regexp.MustCompile(`^--([a-z][a-z-]*)`)
	// placeholder is a word that stands for any command.
	placeholder = regexp.MustCompile(`^([A-Z]+|…)$`)
)

// TestCommandsAreThere looks up the commands and flags of zlimit that pages name in code between their words, or in blocks of
// text. A flag without a command must be one of any.
func TestCommandsAreThere(t *testing.T) {
	all := readCommands(t)
	for _, p := range append(readPages(t), readPage(t, "CONTRIBUTING.md"), readPage(t, "DESIGN.md")) {
		for i, line := range p.lines {
			var texts []string
			for _, span := range spans.FindAllStringSubmatch(line, -1) {
				texts = append(texts, span[1])
			}
			if strings.HasPrefix(line, "zlimit ") && inText(p, i+1) {
				texts = append(texts, line)
			}
			for _, text := range texts {
				if reason := wrongCommand(all, text); reason != "" {
					t.Errorf("%s:%d: %s: %s", p.path, i+1, text, reason)
				}
			}
		}
	}
}

// inText reports whether a line is in a block of text.
func inText(p page, line int) bool {
	return slices.ContainsFunc(p.blocks, func(b block) bool {
		return b.language == "text" && line >= b.line && line < b.line+strings.Count(b.text, "\n")
	})
}

// wrongCommand returns what is wrong with the text of a command or of a flag, "" when it is right or no command of zlimit.
func wrongCommand(all []command, text string) string {
	words := strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(text))
	if m := flags.FindStringSubmatch(text); m != nil && !slices.ContainsFunc(all, func(c command) bool { return slices.Contains(c.Flags, m[1]) }) {
		return "no command has this flag"
	}
	if len(words) < 2 || words[0] != "zlimit" {
		return ""
	}
	found, rest := find(all, words)
	if found.Group && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		if placeholder.MatchString(rest[0]) {
			return ""
		}
		return found.Path + " has no command " + rest[0]
	}
	for _, word := range rest {
		m := flags.FindStringSubmatch(word)
		if m == nil || m[1] == "help" {
			continue
		}
		if !slices.ContainsFunc(all, func(c command) bool {
			return (c.Path == found.Path || strings.HasPrefix(found.Path, c.Path+" ")) && slices.Contains(c.Flags, m[1])
		}) {
			return found.Path + " has no flag --" + m[1]
		}
	}
	return ""
}

// TestCommandsPage compares docs/commands.md with the commands and flags that there are.
func TestCommandsPage(t *testing.T) {
	got := commandsPage(readCommands(t))
	if *update {
		if err := os.WriteFile("commands.md", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("commands.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/commands.md is stale; `go test ./docs -run CommandsPage -update` writes it (-page +commands):\n%s", diff)
	}
}

// commandsPage returns the page of all commands with their flags.
func commandsPage(all []command) string {
	var b strings.Builder
	b.WriteString(`# Commands and flags

Every command of ` + "`zlimit`" + ` with its flags, as ` + "`go test ./docs -run CommandsPage -update`" + ` writes them. [The command](cli.md),
[Deploy](deploy.md), [Limits as a file](limits-file.md) and [Migrating a table](migrate.md) show them at work. ` + "`zlimit COMMAND --help`" + `
says more about each.

Every command has the flags of the first one.
`)
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", c.Path, c.Short)
		if c.Group && c.Path != "zlimit" && len(c.Flags) < 2 {
			continue
		}
		usage := slices.DeleteFunc(strings.Split(strings.TrimRight(c.Usage, "\n"), "\n"), func(line string) bool {
			return c.Path != "zlimit" && strings.HasPrefix(strings.TrimSpace(line), "-h, --help ")
		})
		fmt.Fprintf(&b, "\n```text\n%s\n", c.Use)
		if len(usage) > 0 {
			fmt.Fprintf(&b, "\n%s\n", strings.Join(usage, "\n"))
		}
		b.WriteString("```\n")
	}
	return b.String()
}
