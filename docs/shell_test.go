package docs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/engine"
	"github.com/zlimit/zlimit-go/internal/local"
)

// TestShell runs the blocks of sh, those of a page in one directory, with one environment, and with one AWS in memory.
func TestShell(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command")
	}
	program := rehearsal(t)
	for _, p := range readPages(t) {
		if !slices.ContainsFunc(p.blocks, func(b block) bool { return b.language == "sh" }) {
			continue
		}
		t.Run(p.path, func(t *testing.T) {
			s := shell{program: program, dir: t.TempDir(), env: map[string]string{}}
			if err := os.CopyFS(s.dir, os.DirFS("testdata/files")); err != nil {
				t.Fatal(err)
			}
			s.module, _ = filepath.Abs(root)
			t.Chdir(s.dir)
			s.start(t)
			for _, b := range p.blocks {
				if b.language != "sh" {
					continue
				}
				var stdout bytes.Buffer
				for _, c := range commands(b) {
					if err := s.run(c, &stdout); err != nil {
						t.Errorf("%s:%d: %v", b.page, c.line, err)
					}
				}
				if got := stdout.String(); b.next == "text" && got != b.result {
					t.Errorf("%s: the block prints\n%sbut the page says\n%s", b.at(), got, b.result)
				}
			}
		})
	}
}

// A shell is what the commands of a page leave to one another.
type shell struct {
	program, dir, module string
	env                  map[string]string
	engine               string // path of a DynamoDB engine, "" for none
	requests             *json.Encoder
	replies              *json.Decoder
}

// start starts the program that runs the commands.
func (s *shell) start(t *testing.T) {
	t.Helper()
	s.engine = cmp.Or(os.Getenv("ZLIMIT_ENGINE"), engine.Path(engine.Cache(s.module)))
	if info, err := os.Stat(s.engine); err != nil || !info.Mode().IsRegular() || local.Supported != nil {
		s.engine = ""
	}
	s.env["HOME"] = t.TempDir()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), s.program) // it ends with its input, in the cleanup
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.requests, s.replies = json.NewEncoder(in), json.NewDecoder(out)
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { // a deployment that the page has left behind
		_, _ = s.ask([]string{"local", "down"})
	})
}

// ask runs a command.
func (s *shell) ask(args []string) (reply, error) {
	var r reply
	if err := s.requests.Encode(map[string]any{"args": args, "env": s.env}); err != nil {
		return r, err
	}
	return r, s.replies.Decode(&r)
}

// A reply is what came of a command.
type reply struct {
	Code           int
	Stdout, Stderr string
}

// A shellCommand is one line of a block, or several that a backslash joins.
type shellCommand struct {
	line int
	text string // without its comment
	exit int    // the exit code that its comment tells
}

var exits = regexp.MustCompile(`exit code (\d+)`)

func commands(b block) (all []shellCommand) {
	joined := ""
	for i, line := range strings.Split(b.text, "\n") {
		if rest, more := strings.CutSuffix(line, `\`); more {
			joined += rest
			continue
		}
		text, comment, _ := strings.Cut(joined+line, "#")
		joined = ""
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		c := shellCommand{line: b.line + i, text: text}
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
func (s *shell) run(c shellCommand, stdout *bytes.Buffer) error {
	if m := evaluated.FindStringSubmatch(c.text); m != nil {
		var variables bytes.Buffer
		err := s.run(shellCommand{c.line, m[1], c.exit}, &variables)
		for _, v := range exported.FindAllStringSubmatch(variables.String(), -1) {
			s.env[v[1]] = v[2]
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
		s.env[name] = value
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
	return strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(c.text))
}

// zlimit runs the command. One that needs what is not here shows its help instead, which checks its name and flags.
func (s *shell) zlimit(args []string, want int, stdout *bytes.Buffer) error {
	if s.lacks(args) {
		args, want, stdout = append(args, "--help"), 0, new(bytes.Buffer)
	}
	if len(args) > 1 && args[0] == "local" && args[1] == "up" {
		args = append(args, "--engine", s.engine) // npm would download one
	}
	r, err := s.ask(args)
	if err != nil {
		return err
	}
	stdout.WriteString(r.Stdout)
	if r.Code != want {
		return fmt.Errorf("exit code = %d, want %d\n%s%s", r.Code, want, r.Stdout, r.Stderr)
	}
	return nil
}

// lacks reports whether a command cannot be run here. Its table may be in AWS, which the AWS in memory has no items of, it may
// go on until it is interrupted, or it may need an engine that this machine lacks, or a provider of models.
func (s *shell) lacks(args []string) bool {
	store := strings.Join(args, " ") + " " + s.env["ZLIMIT_STORE"]
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
