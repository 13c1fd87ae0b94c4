package stacks

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/stack"
)

// lettersCommand returns the command dead-letters.
func lettersCommand(sh *shell.Shell) *cobra.Command {
	var f stackFlags
	var redrive, discard bool
	cmd := &cobra.Command{
		Use:   "dead-letters --name NAME",
		Short: "Show changes that Lambda gave up on, and apply them",
		Long: `Dead-letters shows the messages in a stack's queue of dead letters, each about
some changes that Lambda gave up. All of them stay in the queue.

With --redrive it reads the changes from the stream, calls the aggregator with
them, and deletes the messages. A change counts once, whatever became of it
before. The stream has the changes of a day: older ones are forgotten, and their
usage is lost. --discard deletes the messages about those. A message that is not
deleted is back in the queue immediately.

Exit codes: 0 none is left, 4 some are, 1 failure.`,
		Example: `  zlimit stack dead-letters --name limits
  zlimit stack dead-letters --name limits --redrive
  zlimit stack dead-letters --name limits --redrive --discard`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := stacks(cmd.Context(), sh, &f)
			if err != nil {
				return err
			}
			letters, err := m.DeadLetters(cmd.Context(), f.name, redrive, discard)
			if err != nil {
				return find(err, f.name)
			}
			minutes := func(t time.Time) string { return t.UTC().Format(time.DateTime) }
			l := shell.Listing[stack.DeadLetter]{Value: letters, Rows: letters, None: "there are no dead letters", Columns: []show.Column[stack.DeadLetter]{
				show.Instant("from", minutes, func(l stack.DeadLetter) time.Time { return l.From }),
				show.Instant("to", minutes, func(l stack.DeadLetter) time.Time { return l.To }),
				show.Number("changes", func(l stack.DeadLetter) int64 { return int64(l.Changes) }),
				show.Text("why", func(l stack.DeadLetter) string { return l.Why }),
				show.Text("outcome", func(l stack.DeadLetter) string { return l.Outcome }),
			}}
			if err := l.Print(sh); err != nil {
				return err
			}
			if slices.ContainsFunc(letters, func(l stack.DeadLetter) bool {
				return l.Outcome != stack.LetterRedriven && l.Outcome != stack.LetterDiscarded
			}) {
				return shell.ErrDiffers
			}
			return nil
		},
	}
	f.existing(cmd)
	cmd.Flags().BoolVar(&redrive, "redrive", false, "apply their changes, and delete them")
	cmd.Flags().BoolVar(&discard, "discard", false, "delete messages whose changes have expired")
	sh.ListFlag(cmd)
	return cmd
}
