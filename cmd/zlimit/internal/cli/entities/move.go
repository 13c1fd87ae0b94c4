package entities

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

type moved struct {
	Entity string  `json:"entity"`
	Parent *string `json:"parent_id"` // null for none
	zlimit.SwitchReport
}

func moveCommand(sh *shell.Shell) *cobra.Command {
	var parent string
	var alone bool
	cmd := &cobra.Command{
		Use:   "move ENTITY {--parent P | --no-parent}",
		Short: "Move an entity and all below it to another parent, or to none",
		Long: `Move gives an entity another parent, or none. What is below the entity goes
along. Whether a parent is charged stays as the record says it. What was charged
before stays with the former parent, and leases from before are settled with it.

The buckets of the entity are marked one by one, and a mark binds in every
process immediately. If the command is interrupted, run it again.`,
		Example: `  zlimit entity move key-1 --parent globex
  zlimit entity move key-1 --no-parent`,
		Args: shell.Takes("ENTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if alone == cmd.Flags().Changed("parent") {
				return shell.Usagef("entity move: --parent or --no-parent is needed, and not both; see %s --help", cmd.CommandPath())
			}
			if !alone && parent == "" {
				return shell.Usagef("entity move: --parent \"\" names no entity; --no-parent moves the entity to none")
			}
			report, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.SwitchReport, error) {
				for _, entity := range []string{args[0], parent} {
					if err := rotation.CheckLimits(ctx, l, entity); err != nil {
						return zlimit.SwitchReport{}, err
					}
				}
				return l.Entities.SetParent(ctx, args[0], parent)
			})
			if err != nil {
				return err
			}
			body := moved{Entity: args[0], SwitchReport: report}
			below := "no parent"
			if !alone {
				body.Parent, below = &parent, "parent "+parent
			}
			return sh.Print(body, func(p *show.Page) {
				p.Linef("entity %s: %s", args[0], below)
				p.Linef("%s marked, where it applies immediately; to buckets created meanwhile it applies from %s on",
					show.Counted(report.Buckets, "bucket"), report.Everywhere.UTC().Format(time.DateTime))
			})
		},
	}
	cmd.Flags().StringVar(&parent, "parent", "", "the new parent, an `entity` with a record")
	cmd.Flags().BoolVar(&alone, "no-parent", false, "move it to no parent")
	return cmd
}
