// Package usage has the commands that read usage and events: usage, capacity and audit. It also has aggregate,
// which counts usage.
package usage

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command usage.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("list, summary, plot, bill, month or forecast", &cobra.Command{
		Use:   "usage",
		Short: "Show what was consumed: list, summary, plot, bill, month, forecast",
		Long: `Usage shows the past consumption of entities and resources, hour by hour, day by
day or month by month. An aggregator has summed it up; without one there is
nothing to show. --entity, --resource or both choose whose usage.

On DynamoDB days and months get an hour some 15 to 20 minutes after its end.
The first day is missing until then; --window hourly has the latest. With
zlimit aggregate --all-windows days and months are as new as hours.

` + shell.RangeHelp + `
` + childrenHelp + `

A range has the windows that begin in it, each of them whole, so ranges that
follow one another count nothing twice. A TIME within a window is refused, with
those on both sides; only --to now may be one. Without a range it is the last 24
hours, 30 days or 12 months. zlimit usage bill adds hours up to months of any
time zone.`,
	}, listCommand(sh), summaryCommand(sh), plotCommand(sh), billCommand(sh), monthCommand(sh), forecastCommand(sh))
}

type usageFlags struct {
	shell.TimeRange
	entity, resource, window string
	children                 bool
}

// childrenHelp says what counts once.
const childrenHelp = `A request of an entity with parents is charged to each of them. Figures of an
entity have what it was charged; those over all entities of a resource count a
request once. --with-children shows apart what parents were charged.`

func (f *usageFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.entity, "entity", "", "usage of an `entity`")
	cmd.Flags().StringVar(&f.resource, "resource", "", "usage of a `resource`")
	cmd.Flags().StringVar(&f.window, "window", string(zlimit.WindowDaily), "`length`: hourly, daily or monthly")
	cmd.Flags().BoolVar(&f.children, "with-children", false, "show what parents were charged apart")
	f.Flags(cmd)
}

// query returns the query that the flags ask for, with both of its ends.
func (f *usageFlags) query(cmd *cobra.Command, now time.Time) (q zlimit.UsageQuery, err error) {
	given := cmd.Flags().Changed
	if !given("entity") && !given("resource") {
		return q, shell.Usagef("%s: --entity or --resource is missing; see %s --help", shell.CommandName(cmd), cmd.CommandPath())
	}
	if err := shell.NotEmpty(cmd, "entity", "resource"); err != nil {
		return q, err
	}
	q = zlimit.UsageQuery{Entity: f.entity, Resource: f.resource}
	if q.Window, err = zlimit.ParseWindow(f.window); err != nil {
		return q, err
	}
	if q.From, q.To, err = f.Parse(cmd, now); err != nil {
		return q, err
	}
	for _, end := range []struct {
		flag string
		at   time.Time
	}{{"from", q.From}, {"to", q.To}} {
		if text := cmd.Flags().Lookup(end.flag).Value.String(); given(end.flag) && (end.flag == "from" || text != "now") {
			if err := beginsWindow(q.Window, end.at); err != nil {
				return q, shell.Usagef("%s: --%s %s: %v", shell.CommandName(cmd), end.flag, text, err)
			}
		}
	}
	if q.To.IsZero() {
		q.To = now.UTC()
	}
	if q.From.IsZero() {
		switch q.Window {
		case zlimit.WindowMonthly:
			q.From = q.Window.Start(q.To.Add(-1)).AddDate(0, -11, 0)
		case zlimit.WindowDaily:
			q.From = q.Window.Start(q.To.Add(-1)).AddDate(0, 0, -29)
		default:
			q.From = q.Window.Start(q.To.Add(-1)).Add(-23 * time.Hour)
		}
	}
	if !q.From.Before(q.To) {
		return q, shell.Usagef("%s: the range ends at %s, and does not begin before", shell.CommandName(cmd), shell.FormatMoment(q.To))
	}
	if start := q.Window.Start(q.From); start.Before(q.From) {
		q.From = q.Window.End(start) // --since: the first window that begins within the age
	}
	if !q.From.Before(q.To) {
		return q, shell.Usagef("%s: no %s window begins before %s in the range", shell.CommandName(cmd), q.Window, shell.FormatMoment(q.To))
	}
	return q, nil
}

// beginsWindow returns an error unless a window begins at a time. It names the windows on both sides, and shorter ones of which one does.
func beginsWindow(w zlimit.Window, at time.Time) error {
	start, end := w.Start(at), w.End(at)
	if start.Equal(at) {
		return nil
	}
	hint := ""
	for _, finer := range []zlimit.Window{zlimit.WindowDaily, zlimit.WindowHourly} {
		if finer != w && finer.Start(at).Equal(at) {
			hint = fmt.Sprintf("; --window %s has it as %s", finer, shell.FormatMoment(at))
			break
		}
	}
	return fmt.Errorf("is within a %s window, which begins at %s and ends at %s%s", w, shell.FormatMoment(start), shell.FormatMoment(end), hint)
}

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

// noUsage says that a query finds nothing, and names the source of usage.
func noUsage(q zlimit.UsageQuery, limits ...string) string {
	none := fmt.Sprintf("no %s from %s to %s; zlimit aggregate sums usage up", describeUsage(q, limits...), shell.FormatMoment(q.From), shell.FormatMoment(q.To))
	if q.Window != zlimit.WindowHourly {
		none += ", and --window hourly has the latest"
	}
	return none
}

// formatWindow returns the start of a window as people call the window.
func formatWindow(w zlimit.Window) func(time.Time) string {
	form := "2006-01-02T15:04"
	switch w {
	case zlimit.WindowMonthly:
		form = "2006-01"
	case zlimit.WindowDaily:
		form = time.DateOnly
	default: // hours
	}
	return func(start time.Time) string { return start.Format(form) }
}

func listCommand(sh *shell.Shell) *cobra.Command {
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
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, sh.Now())
			if err != nil {
				return err
			}
			if q.Limit = most; cmd.Flags().Changed("max") && most < 1 {
				return shell.Usagef("usage list: --max %d: must be positive", most)
			}
			rows := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Snapshot, error] {
				return l.Usage.Snapshots(ctx, q)
			}
			return shell.List(cmd.Context(), sh, rows, SnapshotsOf(q, f.children))
		},
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&most, "max", 0, "`number` of lines at most")
	sh.ListFlag(cmd)
	return cmd
}

// rangeColumns are those that distinguish files of several ranges.
func rangeColumns[T any](q zlimit.UsageQuery) []show.Column[T] {
	return []show.Column[T]{
		show.Same[T]("from", q.From.Format(time.RFC3339)), show.Same[T]("to", q.To.Format(time.RFC3339)), show.Same[T]("window", string(q.Window)),
	}
}

// SnapshotsOf returns how a list of snapshots is printed, with the sum of children or without it.
func SnapshotsOf(q zlimit.UsageQuery, children bool) *shell.Stream[zlimit.Snapshot] {
	type head struct {
		Window zlimit.Window `json:"window"`
		From   time.Time     `json:"from"`
		To     time.Time     `json:"to"`
	}
	columns := func(limits []string) []show.Column[zlimit.Snapshot] {
		columns := []show.Column[zlimit.Snapshot]{
			show.Instant("start", formatWindow(q.Window), func(s zlimit.Snapshot) time.Time { return s.Start }),
			show.Text("entity", func(s zlimit.Snapshot) string { return s.Entity }),
			show.Text("resource", func(s zlimit.Snapshot) string { return s.Resource }),
		}
		columns = append(rangeColumns[zlimit.Snapshot](q), columns...)
		for _, name := range limits {
			limit := func(zlimit.Snapshot) string { return name }
			there := func(s zlimit.Snapshot) bool { _, ok := s.Consumed[name]; return ok }
			columns = append(columns, show.Limited(name, limit, func(s zlimit.Snapshot) zlimit.Quantity { return s.Consumed[name] }).Where(there))
			if children {
				columns = append(columns, show.Limited(name+"_from_children", limit, func(s zlimit.Snapshot) zlimit.Quantity { return s.FromChildren[name] }).Where(there))
			}
		}
		return append(columns, show.Number("events", func(s zlimit.Snapshot) int64 { return s.Events }))
	}
	return &shell.Stream[zlimit.Snapshot]{
		Head: head{q.Window, q.From, q.To}, Key: "snapshots", Columns: columns,
		Limits: func(s zlimit.Snapshot) iter.Seq[string] { return maps.Keys(s.Consumed) },
		None:   noUsage(q),
	}
}

func summaryCommand(sh *shell.Shell) *cobra.Command {
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
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, sh.Now())
			if err != nil {
				return err
			}
			sum, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Summary, error) {
				return l.Usage.Summary(ctx, q)
			})
			if err != nil {
				return err
			}
			if sum.MayRepeat {
				sh.Note("the range begins before the table counted apart what parents were charged: a request may count once more for each")
			}
			name := func(u zlimit.LimitUsage) string { return u.Name }
			l := shell.Listing[zlimit.LimitUsage]{
				Value: sum, Rows: sum.Limits, None: noUsage(q),
				Title: fmt.Sprintf("%s: windows with consumption %s, from %s to %s; events %s", describeUsage(q),
					show.Grouped(int64(sum.Windows)), shell.FormatMoment(sum.From), shell.FormatMoment(sum.To), show.Grouped(sum.Events)),
				Columns: []show.Column[zlimit.LimitUsage]{
					show.Same[zlimit.LimitUsage]("entity", q.Entity),
					show.Same[zlimit.LimitUsage]("resource", q.Resource),
					show.Text("limit", name),
					show.Limited("total", name, func(u zlimit.LimitUsage) zlimit.Quantity { return u.Total }),
					show.Limited("average", name, func(u zlimit.LimitUsage) zlimit.Quantity { return u.Average }),
					show.Limited("peak", name, func(u zlimit.LimitUsage) zlimit.Quantity { return u.Peak }),
					show.Instant("peak_at", formatWindow(q.Window), func(u zlimit.LimitUsage) time.Time { return u.PeakAt }),
				},
			}
			l.Columns = append(rangeColumns[zlimit.LimitUsage](q), l.Columns...)
			if f.children {
				l.Columns = append(l.Columns, show.Limited("from_children", name, func(u zlimit.LimitUsage) zlimit.Quantity { return u.FromChildren }))
			}
			return l.Print(sh)
		},
	}
	f.flags(cmd)
	sh.ListFlag(cmd)
	return cmd
}
