package migrations

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
)

// CopyCommand returns the command copy.
func CopyCommand(sh *shell.Shell) *cobra.Command {
	return shell.Group("a command such as plan, run or finish", &cobra.Command{
		Use:   "copy",
		Short: "Copy a store of zlimit to another one",
		Long: `Copy copies all namespaces of a store to another one: a DynamoDB table or a
SQLite file, to a table or a file that holds no items. Tables may be of another
region or account: a table is its name or its ARN. The source is only read.

  plan FROM        what would be copied, and what it costs
  run FROM TO      copies, and applies what programs change meanwhile
  status TO        how far it has come
  verify TO        compares the two, attribute by attribute
  finish TO        opens TO, once it is exactly as FROM
  abort TO         deletes what was copied

Balances, limits, entities, usage and audit events come along. Slots that are
held do as well; their holders have to stop. Programs cannot open TO before
finish. Stop the programs of FROM, then its aggregator, which has counted the
last changes by then; finish; and start all of them on TO. Each command may be
interrupted and run again, and goes on where it was.`,
		Example: `  zlimit copy plan dynamodb:limits
  zlimit copy run dynamodb:limits 'dynamodb:limits?region=eu-west-1'
  zlimit copy finish 'dynamodb:limits?region=eu-west-1'`,
	},
		copyPlanCommand(sh), copyRunCommand(sh),
		copyStep(sh, "status TO", "Show how far a copy has come", "Status costs a few read units.", false, (*migration).status),
		copyStep(sh, "verify TO", "Compare the two stores of a copy", `Verify applies the changes of the source, and reads both stores. Where they
differ it looks again, up to four times, with the changes applied that programs
have made meanwhile. What they write before every look is counted, and left to
finish. Exit code 4 says that they differ.`, false, (*migration).verify),
		copyStep(sh, "finish TO", "Open a copy to programs", `Finish asks, waits until the source was not written for the time of --quiet,
and applies the last changes. It compares the two stores, and opens the copy.
When they differ, or the source is still written after six times that time, the
copy stays closed. What is written to the source afterwards is not carried over.`, true, (*migration).finish),
		copyStep(sh, "abort TO", "Give a copy up, and delete what was copied", `Abort asks, and deletes every item of the copy. The source is left as it is. A
finished copy cannot be aborted.`, true, (*migration).abort),
	)
}

func copyPlanCommand(sh *shell.Shell) *cobra.Command {
	o := migration{copies: true}
	cmd := &cobra.Command{
		Use:     "plan FROM",
		Short:   "Show what would be copied, and its cost",
		Long:    `Plan reads a sample of the source, and writes nothing.`,
		Example: `  zlimit copy plan sqlite:limits.db`,
		Args:    shell.Takes("FROM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.from = args[0]
			from, p, err := migrationPlan(cmd.Context(), sh, &o)
			if err != nil {
				return err
			}
			return sh.Print(planResult{from, p.Current(), p}, func(page *show.Page) { o.showPlan(page, from, p) })
		},
	}
	cmd.Flags().Int64Var(&o.sample, "sample", defaultSample, "`number` of items that the plan reads")
	return cmd
}

func copyRunCommand(sh *shell.Shell) *cobra.Command {
	o := migration{copies: true}
	cmd := &cobra.Command{
		Use:   "run FROM TO [--yes]",
		Short: "Copy a store, and apply what changes meanwhile",
		Long: `Run shows the plan, asks, and copies the source to the target, which it creates
unless it exists without items. Then it applies what programs have changed in
the source, up to the end of the copy, and ends, also while they go on;
--follow goes on until it is interrupted. A line every ten seconds says how far
it has come, and how far it is behind the programs. Run it again within a day,
since the change stream of the source forgets after that. The copy then begins
from the start.

A source that nothing writes meanwhile, such as a table restored from a backup,
needs no change stream with --offline.`,
		Example: `  zlimit copy run sqlite:limits.db dynamodb:limits --yes
  zlimit copy run dynamodb:restored dynamodb:limits --offline --rate 500`,
		Args: shell.Takes("FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.from, sh.Store = args[0], args[1]
			return migrateRun(cmd.Context(), sh, &o)
		},
	}
	o.rateFlag(cmd)
	flags := cmd.Flags()
	flags.Int64Var(&o.sample, "sample", defaultSample, "`number` of items that the plan reads")
	flags.BoolVar(&o.offline, "offline", false, "the source is not written meanwhile")
	flags.BoolVar(&o.follow, "follow", false, "keep applying changes until interrupted")
	flags.BoolVar(&o.yes, "yes", false, "do not ask")
	return cmd
}

// copyStep returns a command that goes on with a copy. Those that ask change programs' view of the target.
func copyStep(sh *shell.Shell, use, short, long string, asks bool, do func(*migration, *cobra.Command, *shell.Shell) error) *cobra.Command {
	o := migration{copies: true}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: shell.Takes("TO"),
	}
	cmd.Example = "  zlimit copy " + cmd.Name() + " dynamodb:limits"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sh.Store = args[0]
		return do(&o, cmd, sh)
	}
	if cmd.Name() != "status" {
		o.rateFlag(cmd)
	}
	if cmd.Name() == "finish" {
		cmd.Flags().DurationVar(&o.quiet, "quiet", 10*time.Second, "`time` for which the source must be quiet")
	}
	if asks {
		cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	}
	return cmd
}
