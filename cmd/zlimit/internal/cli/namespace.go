package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) namespaceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "namespace",
		Short: "Keep the namespaces of a table: register, list, delete, purge",
		Long: `A namespace is a part of a table that is apart from the others. Deleting one
takes its name away and keeps its items: recover brings it back, until purge
deletes them. A namespace without a name is told by its ID, which orphans lists.

These commands are about the whole table. They work on it by way of the
namespace that --namespace names, which must be registered.`,
		Example: `  zlimit namespace register staging
  zlimit namespace list`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("namespace: a command such as register, list or delete is missing; see %s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(
		a.namespaceOne("register NAME", "Register a namespace, or find it registered", "NAME", "register staging", false,
			func(ctx context.Context, l *zlimit.RateLimiter, name string) (zlimit.Namespace, error) {
				return l.Namespaces.Register(ctx, name)
			}),
		a.namespaceOne("get NAME", "Show a namespace", "NAME", "get staging", true,
			func(ctx context.Context, l *zlimit.RateLimiter, name string) (zlimit.Namespace, error) {
				return l.Namespaces.Get(ctx, name)
			}),
		a.namespaceOne("recover ID", "Give a deleted namespace its name back", "ID", "recover Zm9vYmFyYmF", false,
			func(ctx context.Context, l *zlimit.RateLimiter, id string) (zlimit.Namespace, error) {
				return l.Namespaces.Recover(ctx, id)
			}),
		a.namespaceList("list", "List the namespaces that have a name", "no namespaces",
			func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Namespace, error] {
				return l.Namespaces.List(ctx)
			}),
		a.namespaceList("orphans", "List the namespaces that have lost their name", "no namespace is without a name",
			func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Namespace, error] {
				return l.Namespaces.Orphans(ctx)
			}),
		a.namespaceDeleteCommand(),
		a.namespacePurgeCommand(),
	)
	return cmd
}

// A namespaceJSON is a namespace in JSON.
type namespaceJSON struct {
	Name      string                 `json:"name"`
	ID        string                 `json:"id"`
	Status    zlimit.NamespaceStatus `json:"status"`
	CreatedAt time.Time              `json:"created_at,omitzero"`
	DeletedAt time.Time              `json:"deleted_at,omitzero"`
}

func namespaceOf(ns zlimit.Namespace) namespaceJSON {
	return namespaceJSON{ns.Name, ns.ID, ns.Status, ns.CreatedAt, ns.DeletedAt}
}

func (a *app) printNamespace(ns zlimit.Namespace) error {
	return a.print(namespaceOf(ns), func(p *page) { p.linef("%s", describeNamespace(ns)) })
}

// describeNamespace says in a line what a namespace is.
func describeNamespace(ns zlimit.Namespace) string {
	line := fmt.Sprintf("namespace %s, ID %s, %s", ns.Name, ns.ID, ns.Status)
	if !ns.DeletedAt.IsZero() {
		line += ", deleted " + ns.DeletedAt.UTC().Format(time.DateTime)
	}
	return line
}

// namespaceOne is a command that takes one namespace, and shows it.
func (a *app) namespaceOne(
	use, short, takesOne, example string, looks bool, do func(context.Context, *zlimit.RateLimiter, string) (zlimit.Namespace, error),
) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  zlimit namespace " + example,
		Args:    takes(takesOne),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			run := on[zlimit.Namespace]
			if looks {
				run = look[zlimit.Namespace]
			}
			found, err := run(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
				return do(ctx, l, args[0])
			})
			if err != nil {
				return err
			}
			return a.printNamespace(found)
		},
	}
}

// namespaceList is a command that lists namespaces.
func (a *app) namespaceList(use, short, none string, list rowsOf[zlimit.Namespace]) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  zlimit namespace " + use + " -o json",
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			rows := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[namespaceJSON, error] {
				return func(yield func(namespaceJSON, error) bool) {
					for ns, err := range list(ctx, l) {
						if !yield(namespaceOf(ns), err) || err != nil {
							return
						}
					}
				}
			}
			seconds := func(t time.Time) string { return t.UTC().Format(time.DateTime) }
			columns := func([]string) []column[namespaceJSON] {
				return []column[namespaceJSON]{
					text("name", func(ns namespaceJSON) string { return ns.Name }),
					text("id", func(ns namespaceJSON) string { return ns.ID }),
					text("status", func(ns namespaceJSON) string { return string(ns.Status) }),
					instant("created_at", seconds, func(ns namespaceJSON) time.Time { return ns.CreatedAt }),
					instant("deleted_at", seconds, func(ns namespaceJSON) time.Time { return ns.DeletedAt }).
						where(func(ns namespaceJSON) bool { return !ns.DeletedAt.IsZero() }),
				}
			}
			return lookThrough(cmd.Context(), a, dsn, rows, &stream[namespaceJSON]{head: struct{}{}, key: "namespaces", columns: columns, none: none})
		},
	}
	a.listFlag(cmd)
	return cmd
}

func (a *app) namespaceDeleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete NAME [--yes]",
		Short: "Take the name of a namespace away, and keep its items",
		Long: `Delete shows the namespace, asks, and takes its name away, which may then be
registered again. Its items stay, and programs that have it open go on: recover
brings it back, and purge deletes the items.`,
		Example: `  zlimit namespace delete staging`,
		Args:    takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			found, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
				return l.Namespaces.Get(ctx, args[0])
			})
			if err != nil {
				return err
			}
			p := &page{}
			p.linef("%s: its items stay, and zlimit namespace recover %s brings it back", describeNamespace(found), found.ID)
			if err := a.toPeople(p); err != nil {
				return err
			}
			if err := a.confirm("Delete?", yes); err != nil {
				return err
			}
			deleted, err := on(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
				return l.Namespaces.Delete(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return a.printNamespace(deleted)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) namespacePurgeCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge ID [--yes]",
		Short: "Delete every item of a deleted namespace, for good",
		Long: `Purge shows the namespace, asks, and deletes every item of it, its audit events
included. There is no way back from its first moment. A purge that was
interrupted goes on where it was when it is run again.

Its progress is shown on the standard error. It costs four write units for a
bucket, and two for most other items.`,
		Example: `  zlimit namespace orphans
  zlimit namespace purge Zm9vYmFyYmF`,
		Args: takes("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			about, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (string, error) {
				for ns, err := range l.Namespaces.Orphans(ctx) {
					if err != nil || ns.ID == args[0] {
						return describeNamespace(ns), err
					}
				}
				return "namespace ID " + args[0] + ", which is not registered", nil
			})
			if err != nil {
				return err
			}
			p := &page{}
			p.linef("%s: every item of it is deleted, for good", about)
			if err := a.toPeople(p); err != nil {
				return err
			}
			if err := a.confirm("Purge?", yes); err != nil {
				return err
			}
			deleted := 0
			_, err = on(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				progress := a.progressLine()
				defer progress.end()
				return struct{}{}, l.Namespaces.Purge(ctx, args[0], func(done zlimit.PurgeProgress) {
					deleted = done.Deleted
					progress.show(grouped(int64(deleted)) + " items deleted")
				})
			})
			switch {
			case err != nil && deleted > 0:
				return errors.Join(err, fmt.Errorf("%s are deleted; running it again goes on", counted(deleted, "item")))
			case err != nil:
				return err
			}
			return a.print(map[string]any{"id": args[0], "deleted": deleted}, func(p *page) {
				p.linef("namespace ID %s is purged, %s deleted", args[0], counted(deleted, "item"))
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
