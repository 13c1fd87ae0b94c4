package shell

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A UsageError is bad input that the command found itself.
type UsageError struct{ text string }

// Error returns the text.
func (e *UsageError) Error() string { return e.text }

// Usagef returns an error of bad input.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// NoSuchCommand refuses the arguments of a command that only holds others.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = max(1, min(len(args[0])/3, 2)) // letters that may differ: one in three, and two at most
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return Usagef("no command %q; %s", args[0], hint)
}

// Group makes a command a group of others, and returns it. A call that names none of them is bad input, and its error says
// what is missing.
func Group(missing string, cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = NoSuchCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return Usagef("%s: %s is missing; see %s --help", cmd.Name(), missing, cmd.CommandPath())
	}
	cmd.AddCommand(below...)
	return cmd
}

// Takes returns a check that a command has exactly the arguments of its line of use.
func Takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usagef("%s: %s is missing; see %s --help", cmd.Name(), names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return Usagef("%s: one argument too many, %q; see %s --help", cmd.Name(), args[len(names)], cmd.CommandPath())
		default:
			return nil
		}
	}
}

// NotEmpty refuses flags that are given without a text, as by a script whose variable is not set.
func NotEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return Usagef("%s: --%s must not be empty", CommandName(cmd), name)
		}
	}
	return nil
}

// CommandName returns the name of a command without that of the program.
func CommandName(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}
