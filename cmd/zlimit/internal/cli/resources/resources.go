// Package resources has the command resource.
package resources

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command resource.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resource",
		Short: "Keep which resources lie within wider ones: put, get, list",
		Long: `A request of a resource that lies within a wider one, such as gpt-4o within
models, is charged to both: to each for the limits that the entity has there.`,
		Example: `  zlimit resource put gpt-4o --within models`,
		Args:    shell.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return shell.Usagef("resource: put, get or list is missing; see %s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(putCommand(sh), getCommand(sh), listCommand(sh))
	return cmd
}

func printResource(sh *shell.Shell, r zlimit.Resource) error {
	return sh.Print(r, func(p *show.Page) {
		if r.Within == "" {
			p.Linef("resource %s, within no other", r.ID)
		} else {
			p.Linef("resource %s, within %s", r.ID, r.Within)
		}
	})
}

func putCommand(sh *shell.Shell) *cobra.Command {
	var within string
	var alone bool
	cmd := &cobra.Command{
		Use:   "put RESOURCE --within WIDER",
		Short: "Have a resource lie within a wider one",
		Long: `Put has a resource lie within a wider one, or with --alone within none. The
wider one has limits already, its own or those of an entity for it. Three
resources at most are within one another. The limits of the resource stay as
they are.

Programs before 0.10.1 do not charge wider resources: the table refuses them
when they start, from the first wider resource on.`,
		Example: `  zlimit resource put gpt-4o --within models
  zlimit resource put gpt-4o --alone`,
		Args: shell.Takes("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if alone == cmd.Flags().Changed("within") {
				return shell.Usagef("resource put: either --within or --alone must be given")
			}
			if within == "" && !alone {
				return shell.Usagef("resource put: --within must not be empty")
			}
			dsn, err := sh.Lasting() // no rehearsal: the stored resources decide whether the input is valid
			if err != nil {
				return err
			}
			r, err := shell.Perform(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Resource, error) {
				r := zlimit.Resource{ID: args[0], Within: within}
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
	return cmd
}

func getCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "get RESOURCE",
		Short:   "Show which resource a resource lies within",
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
		Short:   "List the stored resources, and what they lie within",
		Example: `  zlimit resource list`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) ([]zlimit.Resource, error) {
				all := []zlimit.Resource{}
				for r, err := range l.Resources.List(ctx) {
					if err != nil {
						return nil, err
					}
					all = append(all, r)
				}
				return all, nil
			})
			if err != nil {
				return err
			}
			l := shell.Listing[zlimit.Resource]{
				Value: map[string][]zlimit.Resource{"resources": all}, Rows: all, None: "nothing is stored of a resource",
				Columns: []show.Column[zlimit.Resource]{
					show.Text("resource", func(r zlimit.Resource) string { return r.ID }),
					show.Text("within", func(r zlimit.Resource) string { return r.Within }),
				},
			}
			return l.Print(sh)
		},
	}
	sh.ListFlag(cmd)
	return cmd
}
