package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/migrate"
	"github.com/zlimit/zlimit-go/internal/store"
)

func statusCommand(sh *shell.Shell) *cobra.Command {
	o := migration{}
	return &cobra.Command{
		Use:   "status",
		Short: "Show the progress of a migration",
		Long: `Status reads the record of the migration to the table of --store, and how far
its parts have come. It costs a few read units.`,
		Example: `  zlimit migrate status --store dynamodb:limits`,
		Args:    shell.Takes(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.status(cmd, sh) },
	}
}

// status shows how far the work has come.
func (o *migration) status(cmd *cobra.Command, sh *shell.Shell) (err error) {
	dsn, err := o.target(sh)
	if err != nil {
		return err
	}
	target, err := o.openExisting(cmd.Context(), "--store", dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	found, counts, err := migrate.Find(cmd.Context(), migrate.Config{Target: store.Of(target)})
	if err != nil {
		return o.advise(err)
	}
	value := struct {
		From      string         `json:"from"`
		Phase     string         `json:"phase"`
		StartedAt string         `json:"started_at"`
		Running   bool           `json:"running"`
		Counts    migrate.Counts `json:"counts"`
	}{found.Source, found.Phase, found.StartedAt, found.Owner != "", counts}
	return sh.Print(value, func(p *show.Page) {
		p.Linef("%s from %s, since %s", found.Phase, found.Source, found.StartedAt)
		if found.Owner != "" {
			p.Linef("a run works on it, or ended without a word")
		}
		showCounts(p, counts)
	})
}

func endMigration(
	ctx context.Context, sh *shell.Shell, o *migration, ask func(source, target string, inPlace bool) (question string), do func(m *migrate.Migration, source, dsn string) error,
) (err error) {
	dsn, err := o.target(sh)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return err
	}
	target, err := o.openExisting(ctx, "--store", dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	found, _, err := migrate.Find(ctx, migrate.Config{Target: store.Of(target)})
	switch {
	case err != nil:
		return o.advise(err)
	case found.Phase == migrate.Finished:
		return fmt.Errorf("%w: programs use %s", migrate.ErrFinished, dsn)
	}
	if ask != nil {
		if err := sh.Confirm(ask(found.Source, dsn, found.InPlace), o.yes); err != nil {
			return err
		}
	}
	o.from, o.inPlace = found.Source, found.InPlace
	source, err := o.openExisting(ctx, "--from", o.from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	c := migrationConfig(sh, o, store.Of(source), store.Of(target))
	return working(ctx, sh, o, c, migrate.Resume, func(m *migrate.Migration) error { return do(m, o.from, dsn) })
}

func verifyCommand(sh *shell.Shell) *cobra.Command {
	o := migration{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the two tables of a migration",
		Long: `Verify applies the changes of the old table, and reads both tables. It compares
every item of the new one with what follows from the old one, attribute by
attribute. Where they differ it looks again, up to four times, with the changes
applied that programs have made meanwhile. What they write before every look is
counted, and left to finish. It takes the read units that the plan shows. Exit
code 4 says that they differ.`,
		Example: `  zlimit migrate verify --store dynamodb:limits`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.verify(cmd, sh)
		},
	}
	o.rateFlag(cmd)
	return cmd
}

// verify compares the two stores.
func (o *migration) verify(cmd *cobra.Command, sh *shell.Shell) error {
	return endMigration(cmd.Context(), sh, o, nil, func(m *migrate.Migration, from, dsn string) error {
		switch m.Phase() {
		case migrate.Copying:
			return fmt.Errorf("the copy is not complete; zlimit %s run goes on with it", o.name())
		case migrate.Deleting:
			return migrate.ErrDeleting
		}
		if err := m.CatchUp(cmd.Context()); err != nil {
			return err
		}
		v, err := m.Verify(cmd.Context())
		if err != nil {
			return err
		}
		if err := printVerification(sh, v, func(p *show.Page) { o.showVerification(p, v, from, dsn) }); err != nil || v.Exact() {
			return err
		}
		return shell.ErrDiffers
	})
}

func printVerification(sh *shell.Shell, v *migrate.Verification, text func(*show.Page)) error {
	return sh.Print(struct {
		Exact bool `json:"exact"`
		*migrate.Verification
	}{v.Exact(), v}, text)
}

func (o *migration) showVerification(p *show.Page, v *migrate.Verification, from, dsn string) {
	switch {
	case v.Exact() && v.Written > 0:
		p.Linef("%s is what follows from %s: %s items, from %s. Programs wrote %s of them before every look: finish compares these",
			dsn, from, show.Grouped(v.Items), show.Grouped(v.Source), show.Grouped(v.Written))
	case v.Exact():
		p.Linef("%s is exactly what follows from %s: %s items, from %s", dsn, from, show.Grouped(v.Items), show.Grouped(v.Source))
	default:
		p.Linef("%s is not what follows from %s: of %s items %s differ, and %s have no source", dsn, from, show.Grouped(v.Items), show.Grouped(v.Different), show.Grouped(v.Extra))
		for _, d := range v.Differences {
			p.Linef("  %s", d)
		}
		if rest := v.Different + v.Extra - int64(len(v.Differences)); rest > 0 {
			p.Linef("  and %s more", show.Grouped(rest))
		}
		p.Linef("if programs wrote to %s, run: %s, and start again", dsn, o.next("abort", dsn))
	}
	showLosses(p, v.Losses)
}

func finishCommand(sh *shell.Shell) *cobra.Command {
	o := migration{}
	cmd := &cobra.Command{
		Use:   "finish [--yes]",
		Short: "Open the new table to programs",
		Long: `Finish asks, waits until the old table was not written for the time of --quiet,
and applies the last changes. It compares the two tables, and opens the new one
to programs, in one transaction. When they differ, or the old table is still
written after six times that time, the new one stays closed. Stop what writes
the old table before: what is written there afterwards is not carried over. The
old table stays as it is. After a migration in place the old items are deleted
then, except items of which nothing could be carried over. That cannot be
undone; when it is interrupted, the same command goes on with it.`,
		Example: `  zlimit migrate finish --store dynamodb:limits`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.finish(cmd, sh)
		},
	}
	o.rateFlag(cmd)
	cmd.Flags().DurationVar(&o.quiet, "quiet", 10*time.Second, "`time` for which the old table must be quiet")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	return cmd
}

// finish opens the target.
func (o *migration) finish(cmd *cobra.Command, sh *shell.Shell) error {
	ask := func(source, target string, inPlace bool) string {
		if inPlace {
			return "Open " + target + ", and permanently delete its old items?"
		}
		return "Open " + target + " in place of " + source + "?"
	}
	return endMigration(cmd.Context(), sh, o, ask, func(m *migrate.Migration, from, dsn string) error {
		v, err := m.Finish(cmd.Context())
		if v == nil && err == nil {
			return sh.Print(m.Counts(), func(p *show.Page) { showDeleted(p, dsn) })
		}
		if v == nil || err != nil && !errors.Is(err, migrate.ErrDiffers) {
			return err
		}
		printed := printVerification(sh, v, func(p *show.Page) {
			o.showVerification(p, v, from, dsn)
			if err == nil {
				if o.inPlace {
					showDeleted(p, dsn)
				}
				p.Linef("programs may open %s from now on; zlimit version %s or later", dsn, v.Clients)
			}
		})
		if err != nil {
			err = shell.ErrDiffers
		}
		return errors.Join(printed, err)
	})
}

func showDeleted(p *show.Page, dsn string) {
	p.Linef("the old items of %s are deleted, except items of which nothing could be carried over", dsn)
}

func abortCommand(sh *shell.Shell) *cobra.Command {
	o := migration{}
	cmd := &cobra.Command{
		Use:   "abort [--yes]",
		Short: "Abort a migration, and delete what was copied",
		Long: `Abort asks, and deletes every item that the migration has written to the table
of --store, and at last its record. The table stays, with its namespaces. The
old table is left as it is. In place it deletes what the migration has added,
except indexes. A finished migration cannot be aborted.`,
		Example: `  zlimit migrate abort --store dynamodb:limits`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.abort(cmd, sh)
		},
	}
	o.rateFlag(cmd)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	return cmd
}

// abort deletes what was copied.
func (o *migration) abort(cmd *cobra.Command, sh *shell.Shell) error {
	ask := func(source, target string, inPlace bool) string {
		if inPlace {
			return "Delete what the migration has added to " + target + "?"
		}
		return "Delete what " + target + " has of " + source + "?"
	}
	return endMigration(cmd.Context(), sh, o, ask, func(m *migrate.Migration, _, dsn string) error {
		deleted, err := m.Abort(cmd.Context())
		if err != nil {
			return err
		}
		return sh.Print(map[string]any{"deleted": deleted}, func(p *show.Page) {
			p.Linef("the migration is given up: %s deleted from %s", show.Counted(int(deleted), "item"), dsn)
		})
	})
}
