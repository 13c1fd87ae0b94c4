package cli

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed entities and limits: list",
		Args:  noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("audit: list is missing; see %s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(a.auditListCommand())
	return cmd
}

func (a *app) auditListCommand() *cobra.Command {
	var r timeRange
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
  --system                  the limits of last resort

` + rangeHelp,
		Example: `  zlimit audit list --entity acme --since 7d
  zlimit audit list --resource gpt --reverse --max 10
  zlimit audit list --system --from 2026-01 --to 2026-02 -o json`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			subject := entity
			switch byEntity, byResource := given("entity"), given("resource"); {
			case system && (byEntity || byResource):
				return usagef("audit list: --system excludes --entity and --resource")
			case !system && !byEntity && !byResource:
				return usagef("audit list: --system, --resource or --entity is missing; see %s --help", cmd.CommandPath())
			case given("max") && q.Limit < 1:
				return usagef("audit list: --max %d: must be positive", q.Limit)
			case system:
				subject = zlimit.AuditSystem
			case !byEntity:
				subject = zlimit.AuditResource(resource)
			default:
				q.Resource = resource
			}
			var err error
			if q.From, q.To, err = r.parse(cmd, a.now()); err != nil {
				return err
			}
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			rows := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.AuditEvent, error] {
				return l.Audit.Events(ctx, subject, q)
			}
			return lookThrough(cmd.Context(), a, dsn, rows, auditEvents())
		},
	}
	cmd.Flags().BoolVar(&system, "system", false, "changes of the limits of last resort")
	cmd.Flags().StringVar(&entity, "entity", "", "changes of an `entity`")
	cmd.Flags().StringVar(&resource, "resource", "", "changes of the limits of a `resource`")
	cmd.Flags().BoolVar(&q.Reverse, "reverse", false, "the latest first")
	cmd.Flags().IntVar(&q.Limit, "max", 0, "`number` of changes at most")
	r.flags(cmd)
	a.listFlag(cmd)
	return cmd
}

// auditEvents is the list of audit events.
func auditEvents() *stream[zlimit.AuditEvent] {
	seconds := func(t time.Time) string { return t.Format(time.DateTime) }
	columns := func([]string) []column[zlimit.AuditEvent] {
		return []column[zlimit.AuditEvent]{
			instant("time", seconds, func(e zlimit.AuditEvent) time.Time { return e.Time }),
			text("action", func(e zlimit.AuditEvent) string { return string(e.Action) }),
			text("resource", func(e zlimit.AuditEvent) string { return e.Resource }),
			text("principal", func(e zlimit.AuditEvent) string { return e.Principal }),
			text("details", func(e zlimit.AuditEvent) string {
				details, err := json.Marshal(e.Details)
				if err != nil { // of what JSON cannot hold, which no item can either
					return err.Error()
				}
				return string(details)
			}),
		}
	}
	return &stream[zlimit.AuditEvent]{head: struct{}{}, key: "events", columns: columns, none: "no changes"}
}
