// Package resources has the command resource.
package resources

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command resource.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("put, get or list", &cobra.Command{
		Use:   "resource",
		Short: "Manage wider resources: put, get, list",
		Long: `A request of a resource that lies within a wider one, such as gpt-4o within
models, is charged to both: to each for the limits that the entity has there.
It is charged to the parents of the entity, too, where the entity cascades. A
resource can say otherwise, for all entities.`,
		Example: `  zlimit resource put gpt-4o --within models
  zlimit resource put local-llm --cascade never`,
	}, putCommand(sh), getCommand(sh), listCommand(sh))
}

func printResource(sh *shell.Shell, r zlimit.Resource) error {
	return sh.Print(r, func(p *show.Page) {
		if r.Within == "" {
			p.Linef("resource %s, within no other", r.ID)
		} else {
			p.Linef("resource %s, within %s", r.ID, r.Within)
		}
		if r.Cascade != zlimit.CascadeInherit {
			p.Linef("cascade: %s", r.Cascade)
		}
	})
}

func putCommand(sh *shell.Shell) *cobra.Command {
	var within, cascade string
	var alone bool
	cmd := &cobra.Command{
		Use:   "put RESOURCE [--within WIDER] [--cascade POLICY]",
		Short: "Put a resource within a wider one, or exempt parents",
		Long: `Put has a resource lie within a wider one, or with --alone within none. The
wider one has limits already, its own or an entity's for it. Three
resources at most are within one another.

With --cascade never, requests of the resource do not charge the parents of
their entities. With always they do, also of entities that do not cascade. With
inherit, the entity says it again. The buckets of the resource are marked, so
that the policy applies immediately. On DynamoDB that reads the whole table.

What is not given stays as it is, as do the limits of the resource.

Programs before 0.17.1 do not charge wider resources, and those before 0.16.0 do
not obey policies. The table refuses them when they start, from the first wider
resource and the first policy on.`,
		Example: `  zlimit resource put gpt-4o --within models
  zlimit resource put gpt-4o --alone
  zlimit resource put local-llm --cascade never`,
		Args: shell.Takes("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wider, policy := cmd.Flags().Changed("within"), cmd.Flags().Changed("cascade")
			switch {
			case alone && wider, !alone && !wider && !policy:
				return shell.Usagef("resource put: either --within or --alone must be given, or --cascade")
			case wider && within == "":
				return shell.Usagef("resource put: --within must not be empty")
			}
			charges, err := shell.ParseCascade(cascade)
			if policy && err != nil {
				return err
			}
			dsn, err := sh.Lasting() // no rehearsal: the stored resources decide whether the input is valid
			if err != nil {
				return err
			}
			r, err := shell.Perform(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Resource, error) {
				r, err := l.Resources.Get(ctx, args[0])
				if err != nil {
					return r, err
				}
				if wider || alone {
					r.Within = within
				}
				if policy {
					r.Cascade = charges
				}
				return r, l.Resources.Put(ctx, r)
			})
			if err != nil {
				return err
			}
			return printResource(sh, r)
		},
	}
	cmd.Flags().StringVar(&within, "within", "", "the wider `resource`")
	cmd.Flags().BoolVar(&alone, "alone", false, "within none")
	cmd.Flags().StringVar(&cascade, "cascade", "", "charge parents: always, never, `inherit`")
	return cmd
}

func getCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "get RESOURCE",
		Short:   "Show the wider resource of a resource, and whom it charges",
		Example: `  zlimit resource get gpt-4o`,
		Args:    shell.Takes("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Resource, error) {
				return l.Resources.Get(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return printResource(sh, r)
		},
	}
}

func listCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the stored resources, and their wider resources",
		Example: `  zlimit resource list`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Resource, error] {
				return l.Resources.List(ctx)
			}
			return shell.List(cmd.Context(), sh, list, &shell.Stream[zlimit.Resource]{
				Head: struct{}{}, Key: "resources", None: "nothing is stored of a resource",
				Columns: shell.Fixed(
					show.Text("resource", func(r zlimit.Resource) string { return r.ID }),
					show.Text("within", func(r zlimit.Resource) string { return r.Within }),
					show.Text("cascade", func(r zlimit.Resource) string { return string(r.Cascade) }),
				),
			})
		},
	}
	sh.ListFlag(cmd)
	return cmd
}
