package limits

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// An edit changes single limits of a level.
type edit func(ctx context.Context, s *zlimit.LimitService, at zlimit.Level) error

func patchCommand(sh *shell.Shell) *cobra.Command {
	return editCommand(sh, "LIMIT", "`LIMIT` to set; repeatable", func(limits []string) (edit, error) {
		parsed, err := shell.ParseLimits(limits)
		return func(ctx context.Context, s *zlimit.LimitService, at zlimit.Level) error {
			return s.Patch(ctx, at, parsed...)
		}, err
	}, &cobra.Command{
		Use:   "patch LEVEL --limit LIMIT ...",
		Short: "Set single limits of a level",
		Long: `Patch sets single limits of a level, and leaves the others that hold there as
they are. A level without limits of its own gets a copy of the others of the
next wider level. zlimit limits inherit copies them again.`,
		Example: `  zlimit limits patch --entity acme --resource gpt --limit rpm=600/min
  zlimit limits patch --system --limit rpm=60/min`,
	})
}

func inheritCommand(sh *shell.Shell) *cobra.Command {
	return editCommand(sh, "NAME", "`NAME` of a limit; repeatable", func(names []string) (edit, error) {
		return func(ctx context.Context, s *zlimit.LimitService, at zlimit.Level) error {
			return s.Inherit(ctx, at, names...)
		}, nil
	}, &cobra.Command{
		Use:   "inherit LEVEL --limit NAME ...",
		Short: "Remove limits of a level, so that the next wider level applies",
		Long: `Inherit gives limits of a level the values of the next wider level again. A
level whose limits all equal those in the wider one has none of its own any
more, and follows the wider one.`,
		Example: `  zlimit limits inherit --entity acme --resource gpt --limit rpm`,
	})
}

func excludeCommand(sh *shell.Shell) *cobra.Command {
	return editCommand(sh, "NAME", "`NAME` of a limit; repeatable", func(names []string) (edit, error) {
		return func(ctx context.Context, s *zlimit.LimitService, at zlimit.Level) error {
			return s.Exclude(ctx, at, names...)
		}, nil
	}, &cobra.Command{
		Use:   "exclude LEVEL --limit NAME ...",
		Short: "Exclude limits of the next wider level",
		Long: `Exclude leaves limits out that hold at a level, and leaves the others as they
are. At least one limit must be left: a level without any has all limits of the
next wider one. zlimit limits bypass admits requests without limits.`,
		Example: `  zlimit limits exclude --entity acme --resource gpt --limit rpd`,
	})
}

// editCommand makes a command change single limits of a level, as its flags say.
func editCommand(sh *shell.Shell, what, usage string, parse func([]string) (edit, error), cmd *cobra.Command) *cobra.Command {
	var at levelFlag
	var given []string
	cmd.Args = shell.Takes()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(given) == 0 {
			return shell.Usagef("limits %s: --limit %s is missing; see %s --help", cmd.Name(), what, cmd.CommandPath())
		}
		change, err := parse(given)
		if err != nil {
			return err
		}
		stored, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (level, error) {
			if err := rotation.CheckLimits(ctx, l, at.Entity); err != nil {
				return level{}, err
			}
			changes, err := withBudgets(ctx, sh, l, at.Level, true, func() error { return change(ctx, l.Limits, at.Level) })
			if err != nil {
				return level{}, err
			}
			stored, err := storedAt(ctx, l, at.Level)
			stored.changed, stored.changes = true, changes
			return stored, err
		})
		if err != nil {
			return err
		}
		return printLevel(sh, stored)
	}
	at.flags(cmd)
	cmd.Flags().StringArrayVar(&given, "limit", nil, usage)
	return cmd
}

// withBudgets changes a level, and returns what that does to its budgets where it may change any. It notes that a file of limits manages the level.
func withBudgets(
	ctx context.Context, sh *shell.Shell, l *zlimit.RateLimiter, at zlimit.Level, any bool, change func() error,
) ([]budgets.Change, error) {
	var before *budgets.Standing
	if any {
		var err error
		if before, err = budgets.Stand(ctx, l, at, sh.Now()); err != nil {
			return nil, err
		}
	}
	if err := change(); err != nil {
		return nil, err
	}
	if sh.NoteManaged(ctx, l, at); !any {
		return nil, nil
	}
	return before.Changes(ctx, l)
}
