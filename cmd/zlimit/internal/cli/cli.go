// Package cli is the zlimit command. It reads and writes only the streams given to [Main], so tests run it in their
// own process.
package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/bench"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/buckets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/demo"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/entities"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/laptop"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/limits"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/migrations"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/namespaces"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/prices"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/quotas"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/resources"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/simulate"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/stacks"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/teams"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/usage"
	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Main runs one zlimit command with its arguments, without the name of the program, and returns its exit code. Results
// go to stdout, errors and notes to stderr; env looks up an environment variable, "" when it is not set.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	sh := &shell.Shell{
		Stdin:  stdin,
		Stdout: stdout,
		Stderr: stderr,
		Env:    env,
		Now:    time.Now,
		Sleep:  wait.For,
		Live:   show.IsTerminal(stdout) && env("TERM") != "dumb",
		Watch:  show.IsTerminal(stderr) && env("TERM") != "dumb",
		Asks:   show.IsTerminal(stdin),
	}
	return Run(ctx, sh, args)
}

// Run runs one zlimit command in the surroundings of a shell, and returns its exit code.
func Run(ctx context.Context, sh *shell.Shell, args []string) int {
	root := Root(sh) //nolint:contextcheck // commands get theirs from ExecuteContext
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil && !errors.As(err, new(*stack.DetachedError)) {
		complain(sh, interruption(err))
		return shell.ExitInterrupted
	}
	var wrong document.Errors
	switch {
	case err == nil:
		return shell.ExitOK
	case errors.Is(err, shell.ErrRejected):
		return shell.ExitRejected
	case errors.Is(err, shell.ErrUpgrade):
		return shell.ExitUpgrade
	case errors.Is(err, shell.ErrDiffers):
		return shell.ExitDiffers
	case errors.As(err, &wrong):
		for _, e := range wrong {
			sh.Note(e.Error())
		}
		return shell.ExitUsage
	case errors.As(err, new(*shell.UsageError)), errors.As(err, new(*zlimit.ValidationError)):
		complain(sh, err)
		return shell.ExitUsage
	default:
		complain(sh, err)
		return shell.ExitFailure
	}
}

// errInterrupted is the error of a command that an interrupt ends before its work is done.
var errInterrupted = errors.New("interrupted")

// interruption returns the error to report of a command that an interrupt has ended with an error: with what is done by then, if it says so.
func interruption(err error) error {
	if unfinished, ok := errors.AsType[*shell.UnfinishedError](err); ok {
		return shell.Unfinished(errInterrupted, unfinished.Done)
	}
	return errInterrupted
}

// complain writes an error as one line, with zlimit named once.
func complain(sh *shell.Shell, err error) {
	text := strings.TrimPrefix(strings.TrimPrefix(shell.Explain(err), "zlimit: "), "stack: ")
	sh.Note("zlimit: " + strings.NewReplacer("\nzlimit: ", "; ", "\nstack: ", "; ", "\n", "; ", ": zlimit: ", ": ", ": stack: ", ": ").Replace(text))
}

// Root returns the command zlimit with all commands below it, which write where the shell does.
func Root(sh *shell.Shell) *cobra.Command {
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
                               a DynamoDB table; every parameter is optional;
                               timeout=10s bounds a call, 2s by default

Exit codes: 0 admitted or done, 3 rejected, 4 different, 2 bad input, 1 failure,
130 interrupted before the work was done.`,
		Example: `  zlimit demo
  zlimit limits set --store sqlite:limits.db --resource gpt --limit rpm=300/min
  zlimit acquire --store sqlite:limits.db acme gpt --consume rpm=1
  zlimit simulate --trace trace.csv --limit rpm=300/min --cost rpm=1`,
		Args:          shell.NoSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = thisVersion().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(helpCommand(root))
	flags := root.PersistentFlags()
	flags.StringVar(&sh.Store, "store", "", "`DSN` of the store (default $ZLIMIT_STORE)")
	flags.StringVar(&sh.Namespace, "namespace", zlimit.DefaultNamespace, "`name` of the namespace to work in")
	flags.StringVar(&sh.Principal, "principal", "", "`name` of who makes changes (default $ZLIMIT_PRINCIPAL)")
	flags.VarP(&sh.Output, "output", "o", "`form` of the result, table or json")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return shell.Usagef("%s; see %s --help", shell.FlagError(cmd, err), cmd.CommandPath())
	})
	root.AddCommand(
		demo.Command(sh),
		simulate.Command(sh),
		bench.Command(sh),
		namespaces.SetupCommand(sh),
		buckets.AcquireCommand(sh),
		buckets.AvailableCommand(sh),
		limits.Command(sh),
		teams.Command(sh),
		resources.Command(sh),
		entities.Command(sh),
		namespaces.Command(sh),
		buckets.Command(sh),
		usage.Command(sh),
		usage.CapacityCommand(sh),
		buckets.TopCommand(sh),
		usage.AuditCommand(sh),
		usage.ExplainCommand(sh),
		usage.AggregateCommand(sh),
		laptop.Command(sh),
		migrations.Command(sh),
		migrations.CopyCommand(sh),
		stacks.Command(sh),
		quotas.Command(sh),
		prices.Command(sh),
		dashboardCommand(sh),
		manCommand(sh),
		versionCommand(sh),
	)
	completeNames(sh, root)
	hideFlags(root)
	root.SetIn(sh.Stdin)
	root.SetOut(sh.Stdout)
	root.SetErr(sh.Stderr)
	strictCompletion(root) // which writes where the root does by now
	return root
}

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
					return shell.NoSuchCommand(cmd, rest)
				}
				cmd, rest = next, rest[1:]
			}
			cmd.InitDefaultHelpFlag()
			cmd.InitDefaultVersionFlag()
			return cmd.Help()
		},
	}
}

// hideFlags leaves "[flags]" out of the lines of use, which name the required flags.
func hideFlags(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	for _, c := range cmd.Commands() {
		hideFlags(c)
	}
}
