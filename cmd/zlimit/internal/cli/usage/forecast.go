package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

func forecastCommand(sh *shell.Shell) *cobra.Command {
	var entity, resource string
	cmd := &cobra.Command{
		Use:   "forecast --entity E --resource R",
		Short: "Show when budgets are used up",
		Long: `Forecast shows when the budgets of an entity and of its parents are used up:
quotas, session quotas and prepaid limits. The rate is that of the last seven
days, with a part of its own for each weekday if that fits the last weeks
better. Earliest and latest are the same with the consumption of the last 24
hours. A budget that lasts until its reset shows -. The capacity of a budget
that was raised is that of its running period: a note says from when the raise
holds. All of it follows from usage, so an aggregator must run.`,
		Example: `  zlimit usage forecast --entity acme --resource gpt`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for flag, value := range map[string]string{"entity": entity, "resource": resource} {
				if value == "" {
					return shell.Usagef("usage forecast: --%s is missing; see zlimit usage forecast --help", flag)
				}
			}
			var remarks budgets.Remarks
			forecasts, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (all []zlimit.Forecast, err error) {
				if all, err = l.Usage.Forecast(ctx, entity, resource); err == nil {
					remarks = heldNow(ctx, sh, l, zlimit.AvailableQuery{Entity: entity, Resource: resource, Parents: true}, all)
				}
				return all, err
			})
			if err != nil {
				return err
			}
			for _, line := range remarks.Lines() {
				sh.Note("note: " + line)
			}
			return printForecasts(sh, entity, resource, forecasts, remarks)
		},
	}
	cmd.Flags().StringVar(&entity, "entity", "", "budgets of an `entity`")
	cmd.Flags().StringVar(&resource, "resource", "", "budgets for a `resource`")
	sh.ListFlag(cmd)
	return cmd
}

// heldNow gives forecasts the capacities of the running periods, and returns the remarks on budgets that were changed in them. Where it is not known
// what a period began with, the capacity is the least.
func heldNow(
	ctx context.Context, sh *shell.Shell, l *zlimit.RateLimiter, q zlimit.AvailableQuery, forecasts []zlimit.Forecast,
) (remarks budgets.Remarks) {
	statuses, err := l.Available(ctx, q)
	if err != nil { // the forecasts have what is known
		return remarks
	}
	remarks = budgets.RemarksOf(ctx, l, statuses, sh.Now())
	for i := range forecasts {
		f := &forecasts[i]
		if r := remarks.Raise(&zlimit.Status{Entity: f.Entity, Resource: f.Resource, Limit: zlimit.Limit{Name: f.Limit}}); r != nil {
			f.Capacity -= r.Is - r.Was
		}
	}
	return remarks
}

func printForecasts(sh *shell.Shell, entity, resource string, forecasts []zlimit.Forecast, remarks budgets.Remarks) error {
	limit := func(f zlimit.Forecast) string { return f.Limit }
	tokens := func(of func(zlimit.Forecast) float64) func(zlimit.Forecast) zlimit.Quantity {
		return func(f zlimit.Forecast) zlimit.Quantity { return zlimit.Quantity(of(f)) * zlimit.Token }
	}
	moment := func(name string, of func(zlimit.Forecast) time.Time) show.Column[zlimit.Forecast] {
		return show.Instant(name, func(t time.Time) string {
			if t.IsZero() {
				return "-"
			}
			return t.Format("2006-01-02 15:04")
		}, of).Where(func(f zlimit.Forecast) bool { return !sh.Output.CSV || !of(f).IsZero() })
	}
	l := shell.Listing[zlimit.Forecast]{
		Value: struct {
			Forecasts []zlimit.Forecast `json:"forecasts"`
			budgets.Remarks
		}{forecasts, remarks}, Rows: forecasts,
		None: fmt.Sprintf("%s has no budget for resource %s", entity, resource),
		Columns: []show.Column[zlimit.Forecast]{
			show.Text("entity", func(f zlimit.Forecast) string { return f.Entity }),
			show.Text("resource", func(f zlimit.Forecast) string { return f.Resource }),
			show.Text("limit", limit),
			show.Limited("available", limit, func(f zlimit.Forecast) zlimit.Quantity { return zlimit.Quantity(f.Available) * zlimit.Token }),
			show.Limited("capacity", limit, func(f zlimit.Forecast) zlimit.Quantity { return zlimit.Quantity(f.Capacity) * zlimit.Token }),
			show.Limited("per_day", limit, tokens(func(f zlimit.Forecast) float64 { return f.PerDay })),
			show.Limited("last_24_hours", limit, tokens(func(f zlimit.Forecast) float64 { return f.Today })),
			moment("used_up", func(f zlimit.Forecast) time.Time { return f.UsedUp }),
			moment("earliest", func(f zlimit.Forecast) time.Time { return f.Earliest }),
			moment("latest", func(f zlimit.Forecast) time.Time { return f.Latest }),
			moment("resets", func(f zlimit.Forecast) time.Time { return f.ResetsAt }),
		},
		Below: []string{"earliest", "latest", "last_24_hours", "per_day", "resets", "capacity", "resource"},
	}
	return l.Print(sh)
}
