package shell

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
)

// ErrDeclined ends a command whose question was not answered with yes.
var ErrDeclined = errors.New("nothing was changed")

// Confirm asks whether to go on, unless yes says so already. Where the input is no terminal it returns an error of bad
// input, which names the flag. The command first shows the work that it asks about.
func (sh *Shell) Confirm(question string, yes bool) error {
	if yes {
		return nil
	}
	answer, err := sh.ask(question+" [y/N] ", "--yes")
	if err != nil {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	default:
		return ErrDeclined
	}
}

// ConfirmName asks for a name to be typed, unless it was given already, as Confirm asks for a yes.
func (sh *Shell) ConfirmName(question, name, given string) error {
	if given == name {
		return nil
	}
	answer, err := sh.ask(question+" ", "--confirm "+name)
	if err == nil && answer != name {
		err = ErrDeclined
	}
	return err
}

// ask asks a question on the standard error, and returns the line that answers it. The flag is what answers it otherwise.
func (sh *Shell) ask(question, flag string) (string, error) {
	if !sh.Asks {
		return "", Usagef("cannot ask, since the input is no terminal: %s skips the question; nothing was changed", flag)
	}
	if _, err := io.WriteString(sh.Stderr, question); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(sh.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(answer), nil
}

// Agreed returns the answer to a question, in the form of package stack.
func Agreed(err error) (bool, error) {
	if errors.Is(err, ErrDeclined) {
		return false, nil
	}
	return err == nil, err
}

// ShowAndConfirm shows the next step of a command to people, and asks them, unless yes says that they
// agree.
func (sh *Shell) ShowAndConfirm(question string, yes bool, format string, args ...any) error {
	p := &show.Page{}
	p.Linef(format, args...)
	if err := sh.ToPeople(p); err != nil {
		return err
	}
	return sh.Confirm(question, yes)
}
