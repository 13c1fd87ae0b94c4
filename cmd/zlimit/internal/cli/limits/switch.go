package limits

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// A turn is a change of the switch of a level.
type turn func(*zlimit.LimitService, context.Context, zlimit.Level, func(zlimit.SwitchReport)) (zlimit.SwitchReport, error)

// A switched is the state of a level's switch after a change.
type switched struct {
	Level    zlimit.Source `json:"level"`
	Resource string        `json:"resource,omitempty"`
	Entity   string        `json:"entity,omitempty"`
	Switch   zlimit.Switch `json:"switch"`

	*zlimit.SwitchReport
}

// switchCommands returns the commands that switch a level off and on again, and the list of such levels.
func switchCommands(sh *shell.Shell) []*cobra.Command {
	return []*cobra.Command{
		switchCommand(sh, "disable", zlimit.SwitchDisabled, (*zlimit.LimitService).Disable, "Have all requests of a level refused", `Disable suspends an entity, a resource, or an entity for one resource. Limits
stay as they are, and leases from before are settled. Children of the entity
that are charged to it are refused as well.`),
		switchCommand(sh, "enable", zlimit.SwitchEnabled, (*zlimit.LimitService).Enable, "Have requests of a level served, whatever wider levels say", `Enable has requests of a level served again, also where a wider level has them
refused: an entity where its resource is disabled.`),
		switchCommand(sh, "bypass", zlimit.SwitchBypassed, (*zlimit.LimitService).Bypass, "Have requests of a level served, whatever its limits hold", `Bypass has the limits of a level refuse nothing, also where a wider level is
disabled. Requests are counted, and taken from no balance. Slots are taken
all the same. Parents that the requests are charged to follow their own levels.`),
		switchCommand(sh, "leave-switch", zlimit.SwitchInherit, (*zlimit.LimitService).LeaveSwitch, "Leave it to wider levels whether requests are served", `Leave-switch takes back what disable, enable or bypass said of a level, so that
the next wider level decides. If none says it, requests are served.`),
		switchesCommand(sh),
	}
}

func switchCommand(sh *shell.Shell, name string, to zlimit.Switch, change turn, short, long string) *cobra.Command {
	var at levelFlag
	var rotated bool
	cmd := &cobra.Command{
		Use:   name + " LEVEL",
		Short: short,
		Long: long + `

The buckets of the level are marked one by one, and a mark binds in every
process immediately. If it is interrupted, run it again. It costs a write
unit for each item of a bucket. On DynamoDB the buckets of a resource are found
by a scan of the whole table, at half a read unit for 4 KB.`,
		Example: `  zlimit limits ` + name + ` --entity acme
  zlimit limits ` + name + ` --entity acme --resource gpt`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if at.system {
				return shell.Usagef("limits %s: --system has no switch; --resource or --entity is needed", cmd.Name())
			}
			progress := sh.ProgressLine()
			defer progress.End()
			marked := 0
			report, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.SwitchReport, error) {
				if to != zlimit.SwitchDisabled && !rotated {
					if err := rotation.CheckServe(ctx, l, at.Entity); err != nil {
						return zlimit.SwitchReport{}, err
					}
				}
				return change(l.Limits, ctx, at.Level, func(r zlimit.SwitchReport) {
					marked = r.Buckets
					progress.Show(show.Counted(marked, "bucket") + " marked")
				})
			})
			if err != nil && marked > 0 {
				return shell.Unfinished(err, show.Counted(marked, "bucket")+" marked; running it again goes on")
			}
			if err != nil {
				return err
			}
			body := switched{at.Source(), at.Resource, at.Entity, to, &report}
			return sh.Print(body, func(p *show.Page) {
				p.Linef("%v: %s", at.Level, says(to))
				p.Linef("%s marked, where it applies immediately; to buckets created meanwhile it applies from %s on",
					show.Counted(report.Buckets, "bucket"), report.Everywhere.UTC().Format(time.DateTime))
			})
		},
	}
	at.flags(cmd)
	if to != zlimit.SwitchDisabled {
		cmd.Flags().BoolVar(&rotated, "although-rotated", false, "of an entity that has a new ID, too")
	}
	_ = cmd.Flags().MarkHidden("system") // has no switch, which an error says
	return cmd
}

func says(s zlimit.Switch) string {
	switch s {
	case zlimit.SwitchDisabled:
		return "disabled, requests are refused"
	case zlimit.SwitchEnabled:
		return "enabled, requests are served"
	case zlimit.SwitchBypassed:
		return "bypassed, requests are counted and no limit refuses them"
	default:
		return "the next wider level decides"
	}
}

func switchesCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "switches",
		Short: "List the levels that disable, enable or bypass requests",
		Long: `Switches lists the levels of which zlimit limits disable, enable or bypass was
called last. It reads every level that has anything of its own.`,
		Example: `  zlimit limits switches`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			levels, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) ([]switched, error) {
				levels := []switched{}
				for stored, err := range l.Limits.List(ctx, zlimit.LevelQuery{}) {
					if err != nil {
						return nil, err
					}
					if stored.Switch != zlimit.SwitchInherit {
						levels = append(levels, switched{stored.Level.Source(), stored.Level.Resource, stored.Level.Entity, stored.Switch, nil})
					}
				}
				return levels, nil
			})
			if err != nil {
				return err
			}
			l := shell.Listing[switched]{
				Value: map[string][]switched{"switches": levels}, Rows: levels, None: "no level disables or enables requests",
				Columns: []show.Column[switched]{
					show.Text("level", func(s switched) string { return string(s.Level) }),
					show.Text("resource", func(s switched) string { return s.Resource }),
					show.Text("entity", func(s switched) string { return s.Entity }),
					show.Text("switch", func(s switched) string { return string(s.Switch) }),
				},
			}
			return l.Print(sh)
		},
	}
	sh.ListFlag(cmd)
	return cmd
}
