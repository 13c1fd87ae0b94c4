// Package cli is the zlimit command. It reads and writes only what [Main] is given, so that tests run it in their own
// process.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/wait"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailure  = 1 // the command did not get to do what it was asked
	exitUsage    = 2 // bad input; nothing was written
	exitRejected = 3 // a limit was exceeded
	exitDiffers  = 4 // what was compared is not the same
)

// Main runs one zlimit command with its arguments, without the name of the program, and returns its exit code. Results
// go to stdout, errors and notes to stderr; env looks up an environment variable, "" when it is not set.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := &app{
		stdin:  stdin,
		stdout: stdout,
		stderr: stderr,
		env:    env,
		now:    time.Now,
		sleep:  wait.For,
		live:   isTerminal(stdout) && env("TERM") != "dumb",
		watch:  isTerminal(stderr) && env("TERM") != "dumb",
		asks:   isTerminal(stdin),
	}
	return a.run(ctx, args)
}

// An app is one run of the command: its surroundings, and the flags that every command has.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	now            func() time.Time
	sleep          func(context.Context, time.Duration) error
	live, watch    bool                  // stdout, stderr is a terminal that can be redrawn
	asks           bool                  // stdin is a terminal, where a question can be answered
	manage         func() *stack.Manager // of stacks, in place of the one that the flags say; for tests
	self           []string              // how this program is run, in place of the path of its file; for tests

	store     string
	namespace string
	output    output
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root() //nolint:contextcheck // commands get theirs from ExecuteContext
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	strictCompletion(root) // which writes where the root does by now
	err := root.ExecuteContext(ctx)
	var detached *stack.DetachedError
	if err != nil && ctx.Err() != nil && !errors.As(err, &detached) {
		err = errors.New("interrupted")
	}
	var usage *usageError
	var invalid *zlimit.ValidationError
	var wrong document.Errors
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errRejected):
		return exitRejected
	case errors.Is(err, errUpgrade):
		return exitUpgrade
	case errors.Is(err, errDiffers):
		return exitDiffers
	case errors.As(err, &wrong):
		for _, e := range wrong {
			a.note(e.Error())
		}
		return exitUsage
	case errors.As(err, &usage), errors.As(err, &invalid):
		a.complain(err)
		return exitUsage
	default:
		a.complain(err)
		return exitFailure
	}
}

// errRejected ends a command whose result says that a limit was exceeded.
var errRejected = errors.New("rejected")

// A usageError is bad input that the command found itself.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// complain writes an error as one line, with zlimit named once.
func (a *app) complain(err error) {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "zlimit: "), "stack: ")
	a.note("zlimit: " + strings.NewReplacer("\nzlimit: ", "; ", "\nstack: ", "; ", "\n", "; ", ": zlimit: ", ": ", ": stack: ", ": ").Replace(text))
}

// note writes a line to stderr. There is nowhere to report that this failed.
func (a *app) note(line string) { _, _ = fmt.Fprintln(a.stderr, line) }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "zlimit",
		Short: "Rate limits that many processes share",
		Long: `zlimit keeps rate limits that many processes share, in a DynamoDB table, in an
SQLite file or in memory.

A store is named by a DSN, which --store or the environment variable
ZLIMIT_STORE gives:

  memory:                      this process, and gone with it
  sqlite:PATH                  a file, shared by the processes of one machine
  dynamodb:TABLE?region=R&endpoint=URL&profile=P
                               a DynamoDB table; every parameter is optional

Exit codes: 0 admitted or done, 3 rejected, 4 different, 2 bad input, 1 failure.`,
		Example: `  zlimit demo
  zlimit limits set --store sqlite:limits.db --resource gpt --limit rpm=300/min
  zlimit acquire --store sqlite:limits.db acme gpt --consume rpm=1
  zlimit simulate --trace trace.csv --limit rpm=300/min --cost rpm=1`,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = thisVersion().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(helpCommand(root))
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "`DSN` of the store (default $ZLIMIT_STORE)")
	flags.StringVar(&a.namespace, "namespace", zlimit.DefaultNamespace, "`name` of the namespace to work in")
	flags.VarP(&a.output, "output", "o", "`form` of the result, table or json")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		a.demoCommand(),
		a.simulateCommand(),
		a.benchCommand(),
		a.setupCommand(),
		a.acquireCommand(),
		a.availableCommand(),
		a.limitsCommand(),
		a.entityCommand(),
		a.namespaceCommand(),
		a.bucketCommand(),
		a.usageCommand(),
		a.capacityCommand(),
		a.topCommand(),
		a.auditCommand(),
		a.aggregateCommand(),
		a.localCommand(),
		a.migrateCommand(),
		a.deployCommand(),
		a.statusCommand(),
		a.listCommand(),
		a.checkCommand(),
		a.upgradeCommand(),
		a.deleteCommand(),
		a.templateCommand(),
		a.lambdaExportCommand(),
		a.quotaCommand(),
		a.manCommand(),
		a.versionCommand(),
	)
	a.completeNames(root)
	hideFlags(root)
	return root
}

// helpCommand returns the command that shows the help of others.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND ...]",
		Short: "Show the help of a command",

		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) (names []string, _ cobra.ShellCompDirective) {
			if cmd, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), typed) {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest := root, args
			for len(rest) > 0 {
				next, _, err := cmd.Find(rest[:1])
				if err != nil || next == cmd {
					return noSuchCommand(cmd, rest)
				}
				cmd, rest = next, rest[1:]
			}
			cmd.InitDefaultHelpFlag()
			cmd.InitDefaultVersionFlag()
			return cmd.Help()
		},
	}
}

// hideFlags leaves "[flags]" out of the lines of use, which name what is required.
func hideFlags(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	for _, c := range cmd.Commands() {
		hideFlags(c)
	}
}

// noSuchCommand refuses the arguments of a command that only holds others.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("no command %q; %s", args[0], hint)
}

// takes returns a check that a command is given exactly the arguments that its line of use names.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s: %s is missing; see %s --help", cmd.Name(), names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return usagef("%s: one argument too many, %q; see %s --help", cmd.Name(), args[len(names)], cmd.CommandPath())
		default:
			return nil
		}
	}
}

// write writes a page to stdout.
func (a *app) write(p *page) error {
	if _, err := a.stdout.Write(p.Bytes()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// isTerminal reports whether a reader or a writer is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
