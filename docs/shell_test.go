package docs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestShell runs the blocks of sh, those of a page in one directory and with one environment.
func TestShell(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command")
	}
	command := filepath.Join(t.TempDir(), "zlimit")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", command, "./cmd/zlimit")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	for _, p := range readPages(t) {
		t.Run(p.path, func(t *testing.T) {
			s := shell{command: command, dir: t.TempDir(), env: map[string]string{}}
			if err := os.CopyFS(s.dir, os.DirFS("testdata/files")); err != nil {
				t.Fatal(err)
			}
			s.module, _ = filepath.Abs(root)
			t.Chdir(s.dir)
			for _, b := range p.blocks {
				if b.language != "sh" {
					continue
				}
				var stdout bytes.Buffer
				for _, c := range commands(b) {
					if err := s.run(t, c, &stdout); err != nil {
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
	command, dir, module string
	env                  map[string]string
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

// run runs a command of ours, and looks at others as far as it can: that a target or a package of this module exists.
func (s *shell) run(t *testing.T, c shellCommand, stdout *bytes.Buffer) error {
	if strings.ContainsAny(quoted.ReplaceAllString(c.text, ""), "|;&<>*?`") {
		return fmt.Errorf("%s: a command must do without the arts of the shell", c.text)
	}
	words := strings.Fields(strings.NewReplacer(`"`, "", `'`, "").Replace(c.text))
	switch words[0] {
	case "zlimit":
		return s.zlimit(t, words[1:], c.exit, stdout)
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

// zlimit runs the command. One that would talk to DynamoDB shows its help instead, which checks its name and flags.
func (s *shell) zlimit(t *testing.T, args []string, want int, stdout *bytes.Buffer) error {
	out := stdout
	if strings.Contains(strings.Join(args, " ")+s.env["ZLIMIT_STORE"], "dynamodb:") {
		args, want, out = append(args, "--help"), 0, new(bytes.Buffer)
	}
	var stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), s.command, args...)
	command.Stdout, command.Stderr = out, &stderr
	command.Env = []string{}
	for name, value := range s.env {
		command.Env = append(command.Env, name+"="+value)
	}
	err := command.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		return err
	}
	if got := command.ProcessState.ExitCode(); got != want {
		return fmt.Errorf("exit code = %d, want %d\n%s%s", got, want, out, &stderr)
	}
	return nil
}
