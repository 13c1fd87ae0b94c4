// Package namespaces has the commands namespace and setup.
package namespaces

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command namespace.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := shell.Group("a command such as register, list or delete", &cobra.Command{
		Use:   "namespace",
		Short: "Manage the namespaces of a table: register, list, delete, purge",
		Long: `A namespace is a part of a table that is apart from the others. Deleting one
takes its name away and keeps its items: recover brings it back, until purge
deletes them. A namespace without a name is given by its ID: see orphans.

These commands are about the whole table. They work on it by way of the
namespace that --namespace names, which must be registered.`,
		Example: `  zlimit namespace register staging
  zlimit namespace list`,
	},
		oneCommand(sh, "register NAME", "Register a namespace, or find it registered", "NAME", "register staging", false,
			func(ctx context.Context, l *zlimit.RateLimiter, name string) (zlimit.Namespace, error) {
				return l.Namespaces.Register(ctx, name)
			}),
		oneCommand(sh, "get NAME", "Show a namespace", "NAME", "get staging", true,
			func(ctx context.Context, l *zlimit.RateLimiter, name string) (zlimit.Namespace, error) {
				return l.Namespaces.Get(ctx, name)
			}),
		oneCommand(sh, "recover ID", "Give a deleted namespace its name back", "ID", "recover Zm9vYmFyYmF", false,
			func(ctx context.Context, l *zlimit.RateLimiter, id string) (zlimit.Namespace, error) {
				return l.Namespaces.Recover(ctx, id)
			}),
		listCommand(sh, "list", "List the namespaces that have a name", "no namespaces",
			func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Namespace, error] {
				return l.Namespaces.List(ctx)
			}),
		listCommand(sh, "orphans", "List the namespaces that have lost their name", "no namespace is without a name",
			func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Namespace, error] {
				return l.Namespaces.Orphans(ctx)
			}),
		deleteCommand(sh),
		purgeCommand(sh),
	)
	return cmd
}

func printNamespace(sh *shell.Shell, ns zlimit.Namespace) error {
	return sh.Print(ns, func(p *show.Page) { p.Linef("%s", describeNamespace(ns)) })
}

func describeNamespace(ns zlimit.Namespace) string {
	line := fmt.Sprintf("namespace %s, ID %s, %s", ns.Name, ns.ID, ns.Status)
	if !ns.DeletedAt.IsZero() {
		line += ", deleted " + ns.DeletedAt.UTC().Format(time.DateTime)
	}
	return line
}

// oneCommand is a command that takes one namespace, and shows it.
func oneCommand(sh *shell.Shell,
	use, short, takesOne, example string, looks bool, do func(context.Context, *zlimit.RateLimiter, string) (zlimit.Namespace, error),
) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  zlimit namespace " + example,
		Args:    shell.Takes(takesOne),
		RunE: func(cmd *cobra.Command, args []string) error {
			run := shell.Do[zlimit.Namespace]
			if looks {
				run = shell.Look[zlimit.Namespace]
			}
			found, err := run(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
				return do(ctx, l, args[0])
			})
			if err != nil {
				return err
			}
			return printNamespace(sh, found)
		},
	}
}

func listCommand(sh *shell.Shell, use, short, none string, list shell.RowsOf[zlimit.Namespace]) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  zlimit namespace " + use + " -o json",
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			seconds := func(t time.Time) string { return t.UTC().Format(time.DateTime) }
			return shell.List(cmd.Context(), sh, list, &shell.Stream[zlimit.Namespace]{
				Head: struct{}{}, Key: "namespaces", None: none,
				Columns: shell.Fixed(
					show.Text("name", func(ns zlimit.Namespace) string { return ns.Name }),
					show.Text("id", func(ns zlimit.Namespace) string { return ns.ID }),
					show.Text("status", func(ns zlimit.Namespace) string { return string(ns.Status) }),
					show.Instant("created_at", seconds, func(ns zlimit.Namespace) time.Time { return ns.CreatedAt }),
					show.Instant("deleted_at", seconds, func(ns zlimit.Namespace) time.Time { return ns.DeletedAt }).
						Where(func(ns zlimit.Namespace) bool { return !ns.DeletedAt.IsZero() }),
				),
			})
		},
	}
	sh.ListFlag(cmd)
	return cmd
}

func deleteCommand(sh *shell.Shell) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete NAME [--yes]",
		Short: "Delete the name of a namespace, and keep its items",
		Long: `Delete shows the namespace, asks, and takes its name away, which may then be
registered again. Its items stay, and programs that have it open go on: recover
brings it back, and purge deletes the items.`,
		Example: `  zlimit namespace delete staging`,
		Args:    shell.Takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
				return l.Namespaces.Get(ctx, args[0])
			})
			if err != nil {
				return err
			}
			if err := sh.ShowAndConfirm("Delete?", yes, "%s: its items stay, and zlimit namespace recover %s brings it back", describeNamespace(found), found.ID); err != nil {
				return err
			}
			deleted, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
				return l.Namespaces.Delete(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return printNamespace(sh, deleted)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func purgeCommand(sh *shell.Shell) *cobra.Command {
	var yes, leave bool
	cmd := &cobra.Command{
		Use:   "purge ID [--yes] [--leave-expiring]",
		Short: "Permanently delete every item of a deleted namespace",
		Long: `Purge shows the namespace, asks, and deletes every item of it, its audit events
included. There is no way back from its first moment. A purge that was
interrupted goes on where it was when it is run again.

Its progress is shown on the standard error. It costs three write units for a
bucket, and two for most other items. On DynamoDB it reads the whole table in
the end, some 10 MB a second, since no index has the buckets that expire. That
is half a read unit for 4 KB, and needs the permission to Scan. The command says
what it comes to for the table before it asks, if it may describe the table.
With --leave-expiring it reads no table. It leaves expiring buckets and usage to
DynamoDB, where nothing in the namespace names them.`,
		Example: `  zlimit namespace orphans
  zlimit namespace purge Zm9vYmFyYmF`,
		Args: shell.Takes("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			about, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (string, error) {
				for ns, err := range l.Namespaces.Orphans(ctx) {
					if err != nil || ns.ID == args[0] {
						return describeNamespace(ns), err
					}
				}
				for ns, err := range l.Namespaces.List(ctx) {
					if err == nil && ns.ID == args[0] {
						err = fmt.Errorf("%w: %s: is not deleted; zlimit namespace delete %s comes first", zlimit.ErrNamespaceState, describeNamespace(ns), ns.Name)
					}
					if err != nil {
						return "", err
					}
				}
				return "namespace ID " + args[0] + ", which is not registered", nil
			})
			if err != nil {
				return err
			}
			p := &show.Page{}
			p.Linef("%s: every item of it is permanently deleted", about)
			if cost := sh.ScanCost(cmd.Context()); cost != "" && !leave {
				p.Linef("%s", cost)
			}
			if err := sh.ToPeople(p); err != nil {
				return err
			}
			if err := sh.Confirm("Purge?", yes); err != nil {
				return err
			}
			var opts []zlimit.PurgeOption
			if leave {
				opts = append(opts, zlimit.LeaveExpiring())
			}
			deleted := 0
			_, err = shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				progress := sh.ProgressLine()
				defer progress.End()
				return struct{}{}, l.Namespaces.Purge(ctx, args[0], func(done zlimit.PurgeProgress) {
					deleted = done.Deleted
					progress.Show(show.Grouped(int64(deleted)) + " items deleted")
				}, opts...)
			})
			switch {
			case err != nil && deleted > 0:
				return shell.Unfinished(err, show.Counted(deleted, "item")+" are deleted; running it again goes on")
			case err != nil:
				return err
			}
			return sh.Print(map[string]any{"id": args[0], "deleted": deleted}, func(p *show.Page) {
				p.Linef("namespace ID %s is purged, %s deleted", args[0], show.Counted(deleted, "item"))
			})
		},
	}
	cmd.Flags().BoolVar(&leave, "leave-expiring", false, "read no table, and leave what expires to its expiry")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
