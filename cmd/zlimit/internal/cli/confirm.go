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
	if !a.asks {
		return usagef("nobody can be asked, since the input is no terminal: --yes goes on without; nothing was changed")
	}
	if _, err := io.WriteString(a.stderr, question+" [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return errDeclined
	}
}
