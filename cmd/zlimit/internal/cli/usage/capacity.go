package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// CapacityCommand returns the command capacity.
func CapacityCommand(sh *shell.Shell) *cobra.Command {
	var entities, parents, cuts bool
	var entity string
	cmd := &cobra.Command{
		Use:   "capacity {RESOURCE | --cuts --entity E}",
		Short: "Show what is left of a resource, over all entities",
		Long: `Capacity adds up the buckets of all entities that use a resource: how much they
hold, how much is available now, and how much entities owe. With --entities it
lists the buckets, with the time at which a budget is used up if its period goes
on as it began. An entity without a bucket has not used the resource, or not
for so long that its limits are full. A request is charged to the parents of its
entity, too. Parents without requests of their own are left out, so that a
request counts once; --with-children adds a line for them. On DynamoDB a bucket
that was used once may not be listed. A note says how many entities may be
missing. It shows the limits that the last request of each bucket has applied:
zlimit available shows the limits of the next request.

With --cuts it lists the budgets that were lowered in their running periods and
set back, and for each the top-up that adds what was cut, as far as usage shows
it. It reads audit events and usage for each budget. With --entity it lists the
budgets of an entity, for all resources that it has used.`,
		Example: `  zlimit capacity gpt
  zlimit capacity gpt --entities -o csv
  zlimit capacity gpt --cuts
  zlimit capacity --cuts --entity acme`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("entity") {
				return shell.Takes()(cmd, args)
			}
			return shell.Takes("RESOURCE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("entity") && !cuts {
				return shell.Usagef("capacity: --entity is for --cuts; zlimit bucket list --entity shows what an entity has left")
			}
			if err := shell.NotEmpty(cmd, "entity"); err != nil {
				return err
			}
			if cuts && (entities || parents) {
				return shell.Usagef("capacity: --cuts excludes --entities and --with-children")
			}
			if cuts {
				return printCuts(cmd.Context(), sh, entity, strings.Join(args, ""))
			}
			if entities {
				var covered zlimit.Coverage
				buckets, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (_ []zlimit.Bucket, err error) {
					if covered, err = l.Usage.Coverage(ctx, args[0]); err != nil {
						return nil, err
					}
					return shell.Collect(l.Usage.Buckets(ctx, args[0]))
				})
				if err != nil {
					return err
				}
				sh.NoteUnsupported(buckets)
				noteCoverage(sh, covered)
				return printBuckets(sh, args[0], buckets, covered)
			}
			c, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Capacity, error) {
				return l.Usage.Capacity(ctx, args[0])
			})
			if err != nil {
				return err
			}
			if c.Unsupported > 0 {
				sh.Note(fmt.Sprintf("left out: %d entities that zae-limiter limits in a way that zlimit does not know; --entities names them", c.Unsupported))
			}
			noteCoverage(sh, c.Coverage)
			return printCapacity(sh, c, parents)
		},
	}
	cmd.Flags().BoolVar(&entities, "entities", false, "list the buckets of the entities")
	cmd.Flags().BoolVar(&cuts, "cuts", false, "list what budgets lost that were lowered and set back")
	cmd.Flags().StringVar(&entity, "entity", "", "with --cuts: all resources of an `entity`")
	cmd.Flags().BoolVar(&parents, "with-children", false, "show parents of such requests apart")
	sh.ListFlag(cmd)
	return cmd
}

// printCuts prints the budgets of an entity or of a resource that were cut in their running periods.
func printCuts(ctx context.Context, sh *shell.Shell, entity, resource string) error {
	type cutList struct {
		Entity   string           `json:"entity,omitempty"`
		Resource string           `json:"resource,omitempty"`
		Cuts     []budgets.Cut    `json:"cuts"`
		Coverage *zlimit.Coverage `json:"coverage,omitempty"` // of a resource
	}
	found := cutList{Entity: entity, Resource: resource, Cuts: []budgets.Cut{}}
	progress := sh.ProgressLine()
	found, err := shell.Look(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (cutList, error) {
		buckets := l.Entities.Buckets(ctx, entity)
		if entity == "" {
			covered, err := l.Usage.Coverage(ctx, resource)
			if err != nil {
				return found, err
			}
			found.Coverage, buckets = &covered, l.Usage.Buckets(ctx, resource)
		}
		read := 0
		for b, err := range buckets {
			if err != nil {
				return found, err
			}
			now, err := l.Available(ctx, zlimit.AvailableQuery{Entity: b.Entity, Resource: b.Resource})
			if err != nil && !errors.Is(err, zlimit.ErrDisabled) && !errors.Is(err, zlimit.ErrNoLimits) {
				return found, err
			}
			found.Cuts = append(found.Cuts, budgets.CutsOf(ctx, l, now, sh.Now())...)
			read++
			progress.Show(show.Grouped(int64(read)) + " buckets read")
		}
		return found, nil
	})
	progress.End()
	if err != nil {
		return err
	}
	about := "entity " + entity
	if found.Coverage != nil {
		about = "resource " + resource
		noteCoverage(sh, *found.Coverage)
	}
	return sh.Print(found, func(p *show.Page) {
		for i := range found.Cuts {
			p.Linef("%s", found.Cuts[i].Line())
		}
		if len(found.Cuts) == 0 {
			p.Linef("no budget of %s is known to have been cut", about)
		}
	})
}

// noteCoverage prints the share of the buckets shown, unless all are.
func noteCoverage(sh *shell.Shell, c zlimit.Coverage) {
	if !c.Complete && (c.Unlisted > 0 || !c.Known()) {
		sh.Note(c.String())
	}
}

// A capacityRow is where a limit stands in the buckets of those who are charged by requests, or by children alone.
type capacityRow struct {
	zlimit.LimitCapacity
	chargedBy string
}

func capacityRows(c zlimit.Capacity, parents bool) (rows []capacityRow) {
	for _, l := range c.Limits {
		rows = append(rows, capacityRow{l, "requests"})
	}
	for _, l := range c.OfParents {
		if parents {
			rows = append(rows, capacityRow{l, "children"})
		}
	}
	return rows
}

func printCapacity(sh *shell.Shell, c zlimit.Capacity, parents bool) error {
	used := func(l capacityRow) float64 { return l.Utilization() * 100 }
	name := func(l capacityRow) string { return l.Name }
	l := shell.Listing[capacityRow]{
		Value: c, Rows: capacityRows(c, parents),
		Title: fmt.Sprintf("resource %s: entities %s, items %s", c.Resource, show.Grouped(int64(c.Entities)), show.Grouped(int64(c.Items))),
		None:  noBuckets(c.Resource),
		Columns: []show.Column[capacityRow]{
			show.Text("limit", name),
			show.Number("entities", func(l capacityRow) int64 { return int64(l.Entities) }),
			show.Limited("capacity", name, func(l capacityRow) zlimit.Quantity { return l.Capacity }),
			show.Limited("available", name, func(l capacityRow) zlimit.Quantity { return l.Available }),
			{
				Name: "used_percent", Right: true,
				Plain: func(l capacityRow) string { return strconv.FormatFloat(used(l), 'f', 3, 64) },
				Shown: func(l capacityRow) string { return show.Decimal(used(l)) },
			},
			show.Number("in_debt", func(l capacityRow) int64 { return int64(l.InDebt) }),
			show.Limited("debt", name, func(l capacityRow) zlimit.Quantity { return l.Debt }),
		},
	}
	if parents {
		l.Columns = append(l.Columns, show.Text("charged_by", func(l capacityRow) string { return l.chargedBy }))
	}
	return l.Print(sh)
}

func noBuckets(resource string) string { return "no entity has a bucket of resource " + resource }

// printBuckets prints one row for each limit of each bucket.
func printBuckets(sh *shell.Shell, resource string, buckets []zlimit.Bucket, covered zlimit.Coverage) error {
	type bucketJSON struct {
		Entity string          `json:"entity"`
		Shards int             `json:"shards"`
		Limits zlimit.Statuses `json:"limits"`
	}
	type result struct {
		Resource string          `json:"resource"`
		Buckets  []bucketJSON    `json:"buckets"`
		Coverage zlimit.Coverage `json:"coverage"`
	}
	value := result{resource, []bucketJSON{}, covered}
	var rows zlimit.Statuses
	for _, b := range buckets {
		value.Buckets = append(value.Buckets, bucketJSON{b.Entity, b.Shards, b.Statuses})
		rows = append(rows, b.Statuses...)
	}
	name := func(s zlimit.Status) string { return s.Limit.Name }
	l := shell.Listing[zlimit.Status]{
		Value: value, Rows: rows, None: noBuckets(resource),
		Columns: []show.Column[zlimit.Status]{
			show.Text("entity", func(s zlimit.Status) string { return s.Entity }),
			show.Text("limit", name),
			show.Limited("available", name, func(s zlimit.Status) zlimit.Quantity { return zlimit.Quantity(s.Available) * zlimit.Token }),
			show.Limited("capacity", name, func(s zlimit.Status) zlimit.Quantity { return zlimit.Quantity(s.Now().Capacity) * zlimit.Token }),
			show.Text("refill", func(s zlimit.Status) string { return show.Refill(s.Limit) }),
		},
	}
	now := sh.Now()
	usedUp := func(s zlimit.Status) time.Time { at, _ := s.UsedUp(now); return at } // the zero time if it is not
	if slices.ContainsFunc(rows, func(s zlimit.Status) bool { return !usedUp(s).IsZero() }) {
		column := show.Instant("used_up", func(t time.Time) string { return t.Format("2006-01-02 15:04") }, usedUp)
		l.Columns = append(l.Columns, column.Where(func(s zlimit.Status) bool { return !usedUp(s).IsZero() }))
	}
	return l.Print(sh)
}
