// Package shell is shared by all commands of zlimit. It has their streams, the form of their results, their questions,
// and their way to open a store.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/stack"
)

// Exit codes.
const (
	ExitOK       = 0
	ExitFailure  = 1 // the command could not do its work
	ExitUsage    = 2 // bad input; nothing was written
	ExitRejected = 3 // a limit was exceeded
	ExitDiffers  = 4 // the compared sides differ
	ExitUpgrade  = 4 // there is a later version

	ExitInterrupted = 130 // an interrupt came before the work was done; as a shell reports programs that SIGINT ends
)

// A Shell is one run of the command: its surroundings, and the flags that every command has.
type Shell struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            func(string) string
	Now            func() time.Time
	Sleep          func(context.Context, time.Duration) error
	Live, Watch    bool                        // stdout, stderr is a terminal that can be redrawn
	Asks           bool                        // stdin is a terminal, where a question can be answered
	Manage         func() *stack.Manager       // of stacks, in place of the one that the flags say; for tests
	Code           func() (*stack.Code, error) // of the functions, in place of this program; for tests
	Self           []string                    // how this program is run, in place of the path of its file; for tests

	Store     string
	Namespace string
	Principal string // the author of changes; "" for the one of the environment or the store
	Output    Output

	noted bool // that the store does not last
}

// ErrRejected ends a command whose result says that a limit was exceeded.
var ErrRejected = errors.New("rejected")

// Note writes a line to stderr. There is nowhere to report that this failed.
func (sh *Shell) Note(line string) { _, _ = fmt.Fprintln(sh.Stderr, line) }

// Write writes a page to stdout.
func (sh *Shell) Write(p *show.Page) error {
	if _, err := sh.Stdout.Write(p.Bytes()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// ErrDiffers ends a command whose result says that something is to change.
var ErrDiffers = errors.New("differs")

// ErrUpgrade ends a check that found an older version.
var ErrUpgrade = errors.New("an upgrade is available")

// An UnfinishedError ends a command over many things midway. The things before are done.
type UnfinishedError struct {
	Err  error
	Done string // what is done, and how to go on
}

// Error implements error.
func (e *UnfinishedError) Error() string { return e.Err.Error() + "\n" + e.Done }

// Unwrap returns why the command ended.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// Unfinished returns the error of a command that ended midway; err itself if there is nothing to say.
func Unfinished(err error, done string) error {
	if err == nil || done == "" {
		return err
	}
	return &UnfinishedError{err, done}
}
