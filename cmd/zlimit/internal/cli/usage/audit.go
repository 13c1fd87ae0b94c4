package usage

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// AuditCommand returns the command audit.
func AuditCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed entities and limits: list",
		Args:  shell.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return shell.Usagef("audit: list is missing; see %s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(auditListCommand(sh))
	return cmd
}

func auditListCommand(sh *shell.Shell) *cobra.Command {
	var r shell.TimeRange
	var q zlimit.AuditQuery
	var system bool
	var entity, resource string
	cmd := &cobra.Command{
		Use:   "list SUBJECT",
		Short: "List the changes of an entity, a resource or the system",
		Long: `List lists who changed what, in the order of time. A SUBJECT is what was
changed, and is named by flags:

  --entity E                an entity and its limits
  --entity E --resource R   the limits of an entity for one resource
  --resource R              the limits of a resource
  --system                  changes of the system level

` + shell.RangeHelp,
		Example: `  zlimit audit list --entity acme --since 7d
  zlimit audit list --resource gpt --reverse --max 10
  zlimit audit list --system --from 2026-01 --to 2026-02 -o json`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			subject := entity
			switch byEntity, byResource := given("entity"), given("resource"); {
			case system && (byEntity || byResource):
				return shell.Usagef("audit list: --system excludes --entity and --resource")
			case !system && !byEntity && !byResource:
				return shell.Usagef("audit list: --system, --resource or --entity is missing; see %s --help", cmd.CommandPath())
			case given("max") && q.Limit < 1:
				return shell.Usagef("audit list: --max %d: must be positive", q.Limit)
			case system:
				subject = zlimit.AuditSystem
			case !byEntity:
				subject = zlimit.AuditResource(resource)
			default:
				q.Resource = resource
			}
			var err error
			if q.From, q.To, err = r.Parse(cmd, sh.Now()); err != nil {
				return err
			}
			rows := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.AuditEvent, error] {
				return l.Audit.Events(ctx, subject, q)
			}
			return shell.List(cmd.Context(), sh, rows, auditEvents())
		},
	}
	cmd.Flags().BoolVar(&system, "system", false, "changes of the system level")
	cmd.Flags().StringVar(&entity, "entity", "", "changes of an `entity`")
	cmd.Flags().StringVar(&resource, "resource", "", "changes of the limits of a `resource`")
	cmd.Flags().BoolVar(&q.Reverse, "reverse", false, "the latest first")
	cmd.Flags().IntVar(&q.Limit, "max", 0, "`number` of changes at most")
	r.Flags(cmd)
	sh.ListFlag(cmd)
	return cmd
}

// auditEvents is the list of audit events.
func auditEvents() *shell.Stream[zlimit.AuditEvent] {
	seconds := func(t time.Time) string { return t.Format(time.DateTime) }
	columns := func([]string) []show.Column[zlimit.AuditEvent] {
		return []show.Column[zlimit.AuditEvent]{
			show.Instant("time", seconds, func(e zlimit.AuditEvent) time.Time { return e.Time }),
			show.Text("action", func(e zlimit.AuditEvent) string { return string(e.Action) }),
			show.Text("resource", func(e zlimit.AuditEvent) string { return e.Resource }),
			show.Text("principal", func(e zlimit.AuditEvent) string { return e.Principal }),
			show.Text("details", func(e zlimit.AuditEvent) string {
				details, err := json.Marshal(e.Details)
				if err != nil { // of what JSON cannot hold, which no item can either
					return err.Error()
				}
				return string(details)
			}),
		}
	}
	return &shell.Stream[zlimit.AuditEvent]{Head: struct{}{}, Key: "events", Columns: columns, None: "no changes"}
}
