package usage

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

func plotCommand(sh *shell.Shell) *cobra.Command {
	var f usageFlags
	var limits []string
	cmd := &cobra.Command{
		Use:   "plot --entity E --resource R",
		Short: "Plot consumption over time",
		Long: `Plot draws what was consumed of each limit, window after window, those without
consumption included. Up to 31 windows are bars, in which the heaviest entities
have colors of their own, or patterns if NO_COLOR is set or the output is no
terminal. More windows are a curve of the sum. If there are more windows than
columns, a column is the highest of several.
Whose usage and what range it is, zlimit usage --help explains.`,
		Example: `  zlimit usage plot --entity acme --resource gpt
  zlimit usage plot --resource gpt --window hourly --since 7d --limit tpm`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, sh.Now())
			if err != nil {
				return err
			}
			if n := int64(q.To.Sub(q.From) / q.Window.End(q.From).Sub(q.From)); n > maxWindows {
				return shell.Usagef("usage plot: the range has %s windows, more than %s", show.Grouped(n), show.Grouped(maxWindows))
			}
			plotted, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (plot, error) {
				return newPlot(ctx, l, q, f.children)
			})
			if err != nil {
				return err
			}
			plotted.choose(limits)
			plotted.colored = sh.Live && sh.Env("NO_COLOR") == ""
			return sh.Print(plotted, plotted.write)
		},
	}
	f.flags(cmd)
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "`name` of a limit to draw alone; repeatable")
	return cmd
}

// maxWindows bounds the windows of a plot: a year of hours, and some.
const maxWindows = 10_000

// A plot is the consumption in each window of a range.
type plot struct {
	Window zlimit.Window `json:"window"`
	From   time.Time     `json:"from"`
	To     time.Time     `json:"to"`
	Starts []time.Time   `json:"starts"` // of all windows
	Curves []curve       `json:"limits"` // in the order of their names

	query   zlimit.UsageQuery
	limits  []string // that are drawn alone; none for all
	colored bool
}

// A curve is the consumption of one limit, in each window.
type curve struct {
	Name     string            `json:"name"`
	Consumed []zlimit.Quantity `json:"consumed"`
	Children bool              `json:"from_children,omitzero"` // by requests of children, as charged to their parents

	entities map[string][]zlimit.Quantity // which add up to Consumed
}

func (c *curve) title() string {
	if c.Children {
		return c.Name + " from children"
	}
	return c.Name
}

// newPlot adds up the snapshots that a query chooses. Consumption by requests of children is drawn as separate curves if children is set.
func newPlot(ctx context.Context, l *zlimit.RateLimiter, q zlimit.UsageQuery, children bool) (plot, error) {
	series, err := ledger.ReadSeries(ctx, l, q)
	if err != nil {
		return plot{}, err
	}
	p := plot{Window: q.Window, From: q.From, To: q.To, Starts: series.Starts, Curves: []curve{}, query: q}
	for _, name := range slices.Sorted(maps.Keys(series.By)) {
		p.Curves = append(p.Curves, curve{Name: name, Consumed: series.Sum(name), entities: series.By[name]})
		if consumed := series.FromChildren[name]; children && consumed != nil {
			p.Curves = append(p.Curves, curve{Name: name, Consumed: consumed, Children: true})
		}
	}
	return p, nil
}

// choose leaves the curves of some limits, if any are named.
func (p *plot) choose(limits []string) {
	p.limits = limits
	if len(limits) > 0 {
		p.Curves = slices.DeleteFunc(p.Curves, func(c curve) bool { return !slices.Contains(limits, c.Name) })
	}
}

// Size of a curve in characters, without its axes.
const (
	plotWidth  = 60
	plotHeight = 9
)

func (p *plot) write(to *show.Page) {
	if len(p.Curves) == 0 {
		to.Linef("%s", noUsage(p.query, p.limits...))
		return
	}
	to.Linef("%s", describeUsage(p.query))
	bars := len(p.Starts) <= maxBars
	windows, width := 1, 1 // to a column, and columns to a window
	if n := len(p.Starts); n > plotWidth {
		windows = (n + plotWidth - 1) / plotWidth
		to.Linef("a column is the highest of %d windows", windows)
	} else {
		width = plotWidth / n
	}
	for _, c := range p.Curves {
		total := zlimit.Quantity(0)
		for _, consumed := range c.Consumed {
			total += consumed
		}
		highest := slices.Max(c.Consumed)
		peak := formatWindow(p.Window)(p.Starts[slices.Index(c.Consumed, highest)])
		to.Linef("")
		to.Linef("%s: %s, at most %s in a window, that of %s", c.title(), show.Quantified(c.Name, total), show.Quantified(c.Name, highest), peak)
		if bars && slices.Min(c.Consumed) >= 0 {
			p.bars(to, &c)
			continue
		}
		to.Linef("%s", show.Raw(c.draw(windows, width, p.label())))
	}
}

// label returns how windows are called below a curve, by their number.
func (p *plot) label() func(at int) string {
	form := "15:04"
	switch {
	case p.Window == zlimit.WindowMonthly:
		form = "2006-01"
	case p.Window == zlimit.WindowDaily:
		form = "01-02"
	case len(p.Starts) > 24:
		form = "01-02 15h"
	}
	return func(at int) string { return p.Starts[min(at, len(p.Starts)-1)].Format(form) }
}

// draw returns a curve with as many columns to a window, or windows to a column.
func (c *curve) draw(windows, width int, label func(at int) string) string {
	var columns []float64
	for chunk := range slices.Chunk(c.Consumed, windows) {
		for range width {
			columns = append(columns, slices.Max(chunk).Float64())
		}
	}
	options := []asciigraph.Option{
		asciigraph.Height(plotHeight),
		asciigraph.YAxisValueFormatter(show.Scale(c.Name, max(slices.Max(columns), -slices.Min(columns)), plotHeight)),
		asciigraph.XAxisRange(0, float64(len(columns)-1)),
		asciigraph.XAxisTickCount(4),
		asciigraph.XAxisValueFormatter(func(v float64) string { return label(int(v) / width * windows) }),
	}
	if slices.Min(columns) >= 0 {
		options = append(options, asciigraph.LowerBound(0))
	}
	return asciigraph.Plot(columns, options...)
}
