package cli

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// errDeclined ends a command whose question was not answered with yes.
var errDeclined = errors.New("nothing was changed")

// confirm asks whether to go on, unless yes says so already. Where the input is no terminal it returns an error of bad
// input, which names the flag. The command shows before what is about to happen.
func (a *app) confirm(question string, yes bool) error {
	if yes {
		return nil
	}
	answer, err := a.ask(question+" [y/N] ", "--yes")
	if err != nil {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	default:
		return errDeclined
	}
}

// confirmName asks for a name to be typed, unless it was given already, as confirm asks for a yes.
func (a *app) confirmName(question, name, given string) error {
	if given == name {
		return nil
	}
	answer, err := a.ask(question+" ", "--confirm "+name)
	if err == nil && answer != name {
		err = errDeclined
	}
	return err
}

// ask asks a question on the standard error, and returns the line that answers it. The flag is what answers it otherwise.
func (a *app) ask(question, flag string) (string, error) {
	if !a.asks {
		return "", usagef("nobody can be asked, since the input is no terminal: %s goes on without; nothing was changed", flag)
	}
	if _, err := io.WriteString(a.stderr, question); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(answer), nil
}

// agreed returns what a question came to, in the form that package stack takes.
func agreed(err error) (bool, error) {
	if errors.Is(err, errDeclined) {
		return false, nil
	}
	return err == nil, err
}
