package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/pages"
)

var update = flag.Bool("update", false, "write docs/commands.md")

// notRun are commands that no page runs, each with the reason.
var notRun = map[string]string{"zlimit dashboard": "it starts zlimitd, which is a module of its own; TestDashboard runs it"}

// A listedCommand is a command of zlimit, as its page lists it.
type listedCommand struct {
	path, use, short, usage string   // usage has a line for each of its own flags
	group                   bool     // whether it has commands below it
	flags                   []string // long names of its own flags; those of every command are flags of the first
}

// listedCommands returns all commands of zlimit, in the order of their paths.
func listedCommands() []listedCommand { return below(Root(&shell.Shell{})) }

// below returns a command and those below it.
func below(cmd *cobra.Command) []listedCommand {
	cmd.InitDefaultHelpFlag()
	own := cmd.NonInheritedFlags()
	c := listedCommand{path: cmd.CommandPath(), use: cmd.UseLine(), short: cmd.Short, usage: own.FlagUsages()}
	own.VisitAll(func(f *pflag.Flag) { c.flags = append(c.flags, f.Name) })
	all := []listedCommand{c}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all[0].group = true
			all = append(all, below(sub)...)
		}
	}
	return all
}

// find returns the command at the beginning of words, and the words behind its name.
func find(all []listedCommand, words []string) (found listedCommand, rest []string) {
	path := ""
	for i, word := range words {
		path = strings.TrimSpace(path + " " + word)
		n := slices.IndexFunc(all, func(c listedCommand) bool { return c.path == path })
		if n < 0 {
			break
		}
		found, rest = all[n], words[i+1:]
	}
	return found, rest
}

// TestCommandsAreRun finds every command of zlimit in a block of sh, which TestPages runs.
func TestCommandsAreRun(t *testing.T) {
	all := listedCommands()
	seen := map[string]bool{}
	for _, p := range readPages(t) {
		for _, b := range p.Blocks {
			if b.Language != "sh" {
				continue
			}
			for _, c := range shellCommands(b) {
				if m := evaluated.FindStringSubmatch(c.text); m != nil {
					c.text = m[1]
				}
				if found, _ := find(all, c.words()); found.path != "" {
					seen[found.path] = true
				}
			}
		}
	}
	for _, c := range all {
		reason, excused := notRun[c.path]
		switch {
		case c.group:
		case !seen[c.path] && !excused:
			t.Errorf("%s: no page runs it in a block of sh", c.path)
		case seen[c.path] && excused:
			t.Errorf("%s is run, and notRun says that it is not: %s", c.path, reason)
		}
	}
	for path := range notRun {
		if found, rest := find(all, strings.Fields(path)); found.path == "" || len(rest) > 0 {
			t.Errorf("notRun has %s, which is no command", path)
		}
	}
}

var (
	spans    = regexp.MustCompile("`([^`]+)`")
	longFlag = regexp.MustCompile(`^--([a-z][a-z-]*)`)
	// placeholder is a word that stands for any command.
	placeholder = regexp.MustCompile(`^([A-Z]+|…)$`)
)

// TestCommandsAreThere looks up the commands and flags of zlimit that pages name in code between their words, or in blocks of
// text. A flag without a command must be one of any.
func TestCommandsAreThere(t *testing.T) {
	all := listedCommands()
	for _, p := range readPages(t, "CONTRIBUTING.md", "DESIGN.md") {
		for i, line := range p.Lines {
			var texts []string
			for _, span := range spans.FindAllStringSubmatch(line, -1) {
				texts = append(texts, span[1])
			}
			if strings.HasPrefix(line, "zlimit ") && inText(p, i+1) {
				texts = append(texts, line)
			}
			for _, text := range texts {
				if reason := wrongCommand(all, text); reason != "" {
					t.Errorf("%s:%d: %s: %s", p.Path, i+1, text, reason)
				}
			}
		}
	}
}

// inText reports whether a line is in a block of text.
func inText(p pages.Page, line int) bool {
	return slices.ContainsFunc(p.Blocks, func(b pages.Block) bool {
		return b.Language == "text" && line >= b.Line && line < b.Line+strings.Count(b.Text, "\n")
	})
}

// wrongCommand returns what is wrong with the text of a command or of a flag, "" when it is right or no command of zlimit.
func wrongCommand(all []listedCommand, text string) string {
	words := strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(text))
	if m := longFlag.FindStringSubmatch(text); m != nil && !slices.ContainsFunc(all, func(c listedCommand) bool { return slices.Contains(c.flags, m[1]) }) {
		return "no command has this flag"
	}
	if len(words) < 2 || words[0] != "zlimit" {
		return ""
	}
	found, rest := find(all, words)
	if found.group && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		if placeholder.MatchString(rest[0]) {
			return ""
		}
		return found.path + " has no command " + rest[0]
	}
	for _, word := range rest {
		m := longFlag.FindStringSubmatch(word)
		if m == nil || m[1] == "help" {
			continue
		}
		if !slices.ContainsFunc(all, func(c listedCommand) bool {
			return (c.path == found.path || strings.HasPrefix(found.path, c.path+" ")) && slices.Contains(c.flags, m[1])
		}) {
			return found.path + " has no flag --" + m[1]
		}
	}
	return ""
}

// TestCommandsPage compares docs/commands.md with the commands and flags that there are.
func TestCommandsPage(t *testing.T) {
	got := commandsPage(listedCommands())
	path := filepath.Join(root, "docs", "commands.md")
	if *update {
		checkHelp(t)
		if t.Failed() {
			t.Fatal("docs/commands.md is left as it is")
		}
		check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(got), 0o644))
	}
	want := check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/commands.md is stale; `go test ./cmd/zlimit/internal/cli -run CommandsPage -update` writes it (-page +commands):\n%s", diff)
	}
}

// commandsPage returns the page of all commands with their flags.
func commandsPage(all []listedCommand) string {
	var b strings.Builder
	b.WriteString(`# Commands and flags

Every command of ` + "`zlimit`" + ` with its flags, as ` + "`go test ./cmd/zlimit/internal/cli -run CommandsPage -update`" + ` writes them.
[The command](cli.md), [Deploy](deploy.md), [Limits as a file](limits-file.md) and [Migrating a table](migrate.md) show them at work.
` + "`zlimit COMMAND --help`" + ` says more about each.

Every command has the flags of the first one.
`)
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", c.path, c.short)
		if c.group && c.path != "zlimit" && len(c.flags) < 2 {
			continue
		}
		usage := slices.DeleteFunc(strings.Split(strings.TrimRight(c.usage, "\n"), "\n"), func(line string) bool {
			return c.path != "zlimit" && strings.HasPrefix(strings.TrimSpace(line), "-h, --help ")
		})
		fmt.Fprintf(&b, "\n```text\n%s\n", c.use)
		if len(usage) > 0 {
			fmt.Fprintf(&b, "\n%s\n", strings.Join(usage, "\n"))
		}
		b.WriteString("```\n")
	}
	return b.String()
}
