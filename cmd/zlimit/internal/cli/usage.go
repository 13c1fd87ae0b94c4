package cli

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) usageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what was consumed: list, summary, plot",
		Long: `Usage shows what entities consumed of resources in the past, hour by hour, day
by day or month by month, as an aggregator has summed it up; without one there
is nothing to show. --entity, --resource or both choose whose usage.

` + rangeHelp + `
A window that the range cuts at its beginning is shown whole. Without a range it
is the last 24 hours, 30 days or 12 months, as the windows are.`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("usage: list, summary or plot is missing; see %s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(a.usageListCommand(), a.usageSummaryCommand(), a.usagePlotCommand())
	return cmd
}

// usageFlags choose snapshots.
type usageFlags struct {
	timeRange
	entity, resource, window string
}

func (f *usageFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.entity, "entity", "", "usage of an `entity`")
	cmd.Flags().StringVar(&f.resource, "resource", "", "usage of a `resource`")
	cmd.Flags().StringVar(&f.window, "window", string(zlimit.Daily), "`length`: hourly, daily or monthly")
	f.timeRange.flags(cmd)
}

// query returns the query that the flags ask for, with both of its ends.
func (f *usageFlags) query(cmd *cobra.Command, now time.Time) (q zlimit.UsageQuery, err error) {
	given := cmd.Flags().Changed
	if !given("entity") && !given("resource") {
		return q, usagef("%s: --entity or --resource is missing; see %s --help", commandName(cmd), cmd.CommandPath())
	}
	q = zlimit.UsageQuery{Entity: f.entity, Resource: f.resource}
	if q.Window, err = zlimit.ParseWindow(f.window); err != nil {
		return q, err
	}
	if q.From, q.To, err = f.parse(cmd, now); err != nil {
		return q, err
	}
	if q.To.IsZero() {
		q.To = now.UTC()
	}
	if q.From.IsZero() {
		switch q.Window {
		case zlimit.Monthly:
			q.From = q.Window.Start(q.To.Add(-1)).AddDate(0, -11, 0)
		case zlimit.Daily:
			q.From = q.Window.Start(q.To.Add(-1)).AddDate(0, 0, -29)
		default:
			q.From = q.Window.Start(q.To.Add(-1)).Add(-23 * time.Hour)
		}
	}
	q.From = q.Window.Start(q.From)
	if !q.From.Before(q.To) {
		return q, usagef("%s: the range ends at %s, and does not begin before", commandName(cmd), formatMoment(q.To))
	}
	return q, nil
}

// describeUsage says what a query asks for.
func describeUsage(q zlimit.UsageQuery, limits ...string) string {
	var of []string
	if q.Entity != "" {
		of = append(of, "entity "+q.Entity)
	}
	if q.Resource != "" {
		of = append(of, "resource "+q.Resource)
	}
	for _, name := range limits {
		of = append(of, "limit "+name)
	}
	return fmt.Sprintf("%s usage of %s", q.Window, strings.Join(of, ", "))
}

// noUsage says that a query finds nothing, and what there would be nothing without.
func noUsage(q zlimit.UsageQuery, limits ...string) string {
	return fmt.Sprintf("no %s from %s to %s; zlimit aggregate sums usage up", describeUsage(q, limits...), formatMoment(q.From), formatMoment(q.To))
}

// formatWindow returns the start of a window as people call the window.
func formatWindow(w zlimit.Window) func(time.Time) string {
	form := "2006-01-02T15:04"
	switch w {
	case zlimit.Monthly:
		form = "2006-01"
	case zlimit.Daily:
		form = time.DateOnly
	default: // hours
	}
	return func(start time.Time) string { return start.Format(form) }
}

func (a *app) usageListCommand() *cobra.Command {
	var f usageFlags
	var most int
	cmd := &cobra.Command{
		Use:   "list --entity E --resource R",
		Short: "List what was consumed in each window",
		Long: `List lists what was consumed in each window, in the order of time: net, what was
given back is taken off. Windows without consumption are left out. Whose usage
and what range it is, zlimit usage --help explains.`,
		Example: `  zlimit usage list --entity acme
  zlimit usage list --entity acme --resource gpt --window hourly --since 36h
  zlimit usage list --resource gpt --from 2026-02 --to 2026-03 -o csv`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, a.now())
			if err != nil {
				return err
			}
			if q.Limit = most; cmd.Flags().Changed("max") && most < 1 {
				return usagef("usage list: --max %d: must be positive", most)
			}
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			rows := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Snapshot, error] {
				return l.Usage.Snapshots(ctx, q)
			}
			return lookThrough(cmd.Context(), a, dsn, rows, snapshotsOf(q))
		},
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&most, "max", 0, "`number` of lines at most")
	a.listFlag(cmd)
	return cmd
}

// snapshotsOf is the list of the snapshots of a query.
func snapshotsOf(q zlimit.UsageQuery) *stream[zlimit.Snapshot] {
	type head struct {
		Window zlimit.Window `json:"window"`
		From   time.Time     `json:"from"`
		To     time.Time     `json:"to"`
	}
	columns := func(limits []string) []column[zlimit.Snapshot] {
		columns := []column[zlimit.Snapshot]{
			instant("start", formatWindow(q.Window), func(s zlimit.Snapshot) time.Time { return s.Start }),
			text("entity", func(s zlimit.Snapshot) string { return s.Entity }),
			text("resource", func(s zlimit.Snapshot) string { return s.Resource }),
		}
		for _, name := range limits {
			there := func(s zlimit.Snapshot) bool { _, ok := s.Consumed[name]; return ok }
			columns = append(columns, quantity(name, func(s zlimit.Snapshot) zlimit.Quantity { return s.Consumed[name] }).where(there))
		}
		return append(columns, number("events", func(s zlimit.Snapshot) int64 { return s.Events }))
	}
	return &stream[zlimit.Snapshot]{
		head: head{q.Window, q.From, q.To}, key: "snapshots", columns: columns,
		limits: func(s zlimit.Snapshot) iter.Seq[string] { return maps.Keys(s.Consumed) },
		none:   noUsage(q),
	}
}

func (a *app) usageSummaryCommand() *cobra.Command {
	var f usageFlags
	cmd := &cobra.Command{
		Use:   "summary --entity E --resource R",
		Short: "Sum up what was consumed",
		Long: `Summary shows of each limit what was consumed in all, on average of the windows
with consumption, and in the window of the highest consumption. Several entities
or resources are added up. Whose usage and what range it is, zlimit usage --help
explains.`,
		Example: `  zlimit usage summary --entity acme --resource gpt --since 7d
  zlimit usage summary --resource gpt --window monthly --from 2025-07`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, a.now())
			if err != nil {
				return err
			}
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			sum, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Summary, error) {
				return l.Usage.Summary(ctx, q)
			})
			if err != nil {
				return err
			}
			l := listing[zlimit.LimitUsage]{
				value: sum, rows: sum.Limits, none: noUsage(q),
				title: fmt.Sprintf("%s: windows with consumption %s, from %s to %s; events %s", describeUsage(q),
					grouped(int64(sum.Windows)), formatMoment(sum.From), formatMoment(sum.To), grouped(sum.Events)),
				columns: []column[zlimit.LimitUsage]{
					text("limit", func(u zlimit.LimitUsage) string { return u.Name }),
					quantity("total", func(u zlimit.LimitUsage) zlimit.Quantity { return u.Total }),
					quantity("average", func(u zlimit.LimitUsage) zlimit.Quantity { return u.Average }),
					quantity("peak", func(u zlimit.LimitUsage) zlimit.Quantity { return u.Peak }),
					instant("peak_at", formatWindow(q.Window), func(u zlimit.LimitUsage) time.Time { return u.PeakAt }),
				},
			}
			return l.print(a)
		},
	}
	f.flags(cmd)
	a.listFlag(cmd)
	return cmd
}
