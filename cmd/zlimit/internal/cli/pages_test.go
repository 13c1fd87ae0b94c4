package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/local"
	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/pages"
	"github.com/zlimit/zlimit-go/internal/tool/engine"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/stack"
)

// root is the root of the module, as seen from this package.
const root = "../../../.."

const module = "github.com/zlimit/zlimit-go"

// readPages reads the pages of the documentation, and others by their paths.
func readPages(t *testing.T, others ...string) []pages.Page {
	t.Helper()
	all, err := pages.ReadAll(root)
	for _, path := range others {
		var p pages.Page
		if err == nil {
			p, err = pages.Read(root, path)
			all = append(all, p)
		}
	}
	check.Fatal(t, "pages.ReadAll()", err)
	return all
}

// TestPages runs the blocks of sh, those of a page in one directory, with one environment, and with one AWS in memory.
func TestPages(t *testing.T) {
	for _, p := range readPages(t) {
		if !slices.ContainsFunc(p.Blocks, func(b pages.Block) bool { return b.Language == "sh" }) {
			continue
		}
		t.Run(p.Path, func(t *testing.T) {
			s := newSession(t)
			for _, b := range p.Blocks {
				if b.Language != "sh" {
					continue
				}
				var stdout bytes.Buffer
				for _, c := range shellCommands(b) {
					if err := s.run(c, &stdout); err != nil {
						t.Errorf("%s:%d: %v", b.Page, c.line, err)
					}
				}
				if got := stdout.String(); b.Next == "text" && got != b.Result {
					t.Errorf("%s: the block prints\n%sbut the page says\n%s", b.At(), got, b.Result)
				}
			}
		})
	}
}

// A session is what the commands of a page leave to one another. Its directory and its variables are those of the
// process, from which AWS clients read theirs.
type session struct {
	*testing.T
	dir, module string
	aws         *cfn.Service
	engine      string // path of a DynamoDB engine, "" for none
}

// newSession begins in a directory with the files named by pages, and in an environment with HOME alone.
func newSession(t *testing.T) *session {
	t.Helper()
	s := &session{T: t, dir: t.TempDir(), aws: cfn.NewService()}
	check.Fatal(t, "os.CopyFS()", os.CopyFS(s.dir, os.DirFS(filepath.Join(root, "docs", "testdata", "files"))))
	s.module, _ = filepath.Abs(root)
	s.engine = cmp.Or(os.Getenv("ZLIMIT_ENGINE"), engine.Path(engine.Cache(s.module)))
	if info, err := os.Stat(s.engine); err != nil || !info.Mode().IsRegular() || local.Supported != nil {
		s.engine = ""
	}
	home := t.TempDir()
	before := os.Environ()
	t.Chdir(s.dir)
	os.Clearenv()
	t.Cleanup(func() {
		os.Clearenv()
		for _, variable := range before {
			name, value, _ := strings.Cut(variable, "=")
			_ = os.Setenv(name, value) //nolint:usetesting // this is what ends a Setenv of the test
		}
	})
	t.Setenv("HOME", home)
	t.Cleanup(func() { s.command("local", "down") }) // a deployment that the page has left behind
	return s
}

// command runs a command of zlimit.
func (s *session) command(args ...string) run {
	sh := &shell.Shell{
		Env: os.Getenv, Now: time.Now, Sleep: wait.For,
		Manage: func() *stack.Manager { return stack.New(s.aws.Clients(), stack.WithPoll(0)) },
		Code:   func() (*stack.Code, error) { return stack.Pack(cfn.Executable()) },
		Self:   []string{"/usr/bin/env", envCommand + "=1", os.Args[0]},
	}
	return execute(context.WithoutCancel(s.Context()), sh, args...) // one runs in a cleanup
}

// A shellCommand is one line of a block, or several that a backslash joins.
type shellCommand struct {
	line int
	text string // without its comment
	exit int    // the exit code in its comment
}

var exits = regexp.MustCompile(`exit code (\d+)`)

// shellCommands returns the commands of a block of sh.
func shellCommands(b pages.Block) (all []shellCommand) {
	joined := ""
	for i, line := range strings.Split(b.Text, "\n") {
		if rest, more := strings.CutSuffix(line, `\`); more {
			joined += rest
			continue
		}
		text, comment, _ := strings.Cut(joined+line, "#")
		joined = ""
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		c := shellCommand{line: b.Line + i, text: text}
		if m := exits.FindStringSubmatch(comment); m != nil {
			c.exit, _ = strconv.Atoi(m[1])
		}
		all = append(all, c)
	}
	return all
}

// quoted is what the shell takes as it is.
var quoted = regexp.MustCompile(`'[^']*'`)

// evaluated is a command whose output sets variables, and redirected one whose output goes to a file.
var (
	evaluated  = regexp.MustCompile(`^eval "\$\((zlimit .*)\)"$`)
	redirected = regexp.MustCompile(`^(zlimit .*) > ([\w.-]+)$`)
	exported   = regexp.MustCompile(`(?m)^export (\w+)='?([^'\n]*)'?$`)
)

// run runs a command of ours, and looks at others as far as it can: that a target or a package of this module exists.
func (s *session) run(c shellCommand, stdout *bytes.Buffer) error {
	if m := evaluated.FindStringSubmatch(c.text); m != nil {
		var variables bytes.Buffer
		err := s.run(shellCommand{c.line, m[1], c.exit}, &variables)
		for _, v := range exported.FindAllStringSubmatch(variables.String(), -1) {
			s.Setenv(v[1], v[2])
		}
		return err
	}
	if m := redirected.FindStringSubmatch(c.text); m != nil {
		var content bytes.Buffer
		err := s.run(shellCommand{c.line, m[1], c.exit}, &content)
		return errors.Join(err, os.WriteFile(filepath.Join(s.dir, m[2]), content.Bytes(), 0o600))
	}
	if strings.ContainsAny(quoted.ReplaceAllString(c.text, ""), "|;&<>*?`") {
		return fmt.Errorf("%s: a command must do without the arts of the shell", c.text)
	}
	words := c.words()
	switch words[0] {
	case "zlimit":
		return s.zlimit(words[1:], c.exit, stdout)
	case "export":
		name, value, ok := strings.Cut(words[1], "=")
		if !ok || len(words) != 2 {
			return errors.New("export takes NAME=VALUE")
		}
		s.Setenv(name, value)
		return nil
	case "make":
		makefile, err := os.ReadFile(filepath.Join(s.module, "Makefile"))
		if err == nil && !strings.Contains(string(makefile), "\n"+words[1]+":") {
			err = fmt.Errorf("make has no target %s", words[1])
		}
		return err
	case "go":
		for _, word := range words[2:] {
			path, ours := strings.CutPrefix(word, module)
			if path, _, _ = strings.Cut(path, "@"); ours || strings.HasPrefix(word, "./") {
				if _, err := os.Stat(filepath.Join(s.module, path)); err != nil {
					return err
				}
			}
		}
		return nil
	case "aws", "curl":
		return nil // what they talk to is not here
	default:
		return fmt.Errorf("%s: no command that this test knows", words[0])
	}
}

// words returns the words of a command, without their quotes.
func (c *shellCommand) words() []string {
	list, quote, open := []string(nil), rune(0), false
	for _, r := range c.text {
		if quote == 0 && unicode.IsSpace(r) {
			open = false
			continue
		}
		if !open {
			list, open = append(list, ""), true
		}
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		default:
			list[len(list)-1] += string(r)
		}
	}
	return list
}

// zlimit runs the command. A command with missing needs shows its help instead, which checks its name and flags.
func (s *session) zlimit(args []string, want int, stdout *bytes.Buffer) error {
	if s.lacks(args) {
		args, want, stdout = append(args, "--help"), 0, new(bytes.Buffer)
	}
	if len(args) > 1 && args[0] == "local" && args[1] == "up" {
		args = append(args, "--engine", s.engine) // npm would download one
	}
	r := s.command(args...)
	stdout.WriteString(r.stdout)
	if r.code != want {
		return fmt.Errorf("exit code = %d, want %d\n%s%s", r.code, want, r.stdout, r.stderr)
	}
	return nil
}

// lacks reports whether a command cannot be run here. Its table may be in AWS, and the AWS in memory has no items of
// it. It may go on until it is interrupted, or need an engine or a provider of models that this machine lacks.
func (s *session) lacks(args []string) bool {
	store := strings.Join(args, " ") + " " + os.Getenv("ZLIMIT_STORE")
	switch {
	case strings.Contains(store, "dynamodb:") && !strings.Contains(store, "endpoint=http://127.0.0.1:"):
		return true
	case args[0] == "local" && s.engine == "", args[0] == "quota" && args[1] == "count":
		return true
	case args[0] == "aggregate", args[0] == "local" && args[1] == "serve", slices.Contains(args, "--follow"):
		return true
	default:
		return false
	}
}
