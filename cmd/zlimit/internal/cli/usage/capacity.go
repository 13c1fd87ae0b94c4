package usage

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// CapacityCommand returns the command capacity.
func CapacityCommand(sh *shell.Shell) *cobra.Command {
	var entities bool
	cmd := &cobra.Command{
		Use:   "capacity RESOURCE",
		Short: "Show what is left of a resource, over all entities",
		Long: `Capacity adds up the buckets of all entities that use a resource: how much they
hold, how much is available now, and how much entities owe. With --entities it
lists the buckets. An entity without a bucket has not used the resource, or not
for so long that its limits are full.`,
		Example: `  zlimit capacity gpt
  zlimit capacity gpt --entities -o csv`,
		Args: shell.Takes("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			if entities {
				buckets, err := shell.Look(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) ([]zlimit.Bucket, error) {
					return shell.Collect(l.Usage.Buckets(ctx, args[0]))
				})
				if err != nil {
					return err
				}
				return printBuckets(sh, args[0], buckets)
			}
			c, err := shell.Look(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Capacity, error) {
				return l.Usage.Capacity(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return printCapacity(sh, c)
		},
	}
	cmd.Flags().BoolVar(&entities, "entities", false, "list the buckets of the entities")
	sh.ListFlag(cmd)
	return cmd
}

func printCapacity(sh *shell.Shell, c zlimit.Capacity) error {
	used := func(l zlimit.LimitCapacity) float64 { return l.Utilization() * 100 }
	l := shell.Listing[zlimit.LimitCapacity]{
		Value: c, Rows: c.Limits,
		Title: fmt.Sprintf("resource %s: entities %s, items %s", c.Resource, show.Grouped(int64(c.Entities)), show.Grouped(int64(c.Items))),
		None:  noBuckets(c.Resource),
		Columns: []show.Column[zlimit.LimitCapacity]{
			show.Text("limit", func(l zlimit.LimitCapacity) string { return l.Name }),
			show.Number("entities", func(l zlimit.LimitCapacity) int64 { return int64(l.Entities) }),
			show.Quantity("capacity", func(l zlimit.LimitCapacity) zlimit.Quantity { return l.Capacity }),
			show.Quantity("available", func(l zlimit.LimitCapacity) zlimit.Quantity { return l.Available }),
			{
				Name: "used_percent", Right: true,
				Plain: func(l zlimit.LimitCapacity) string { return strconv.FormatFloat(used(l), 'f', 3, 64) },
				Shown: func(l zlimit.LimitCapacity) string { return show.Decimal(used(l)) },
			},
			show.Number("in_debt", func(l zlimit.LimitCapacity) int64 { return int64(l.InDebt) }),
			show.Quantity("debt", func(l zlimit.LimitCapacity) zlimit.Quantity { return l.Debt }),
		},
	}
	return l.Print(sh)
}

// noBuckets says that no entity has a bucket of a resource.
func noBuckets(resource string) string { return "no entity has a bucket of resource " + resource }

// printBuckets prints one row for each limit of each bucket.
func printBuckets(sh *shell.Shell, resource string, buckets []zlimit.Bucket) error {
	type bucketJSON struct {
		Entity string          `json:"entity"`
		Shards int             `json:"shards"`
		Limits zlimit.Statuses `json:"limits"`
	}
	type result struct {
		Resource string       `json:"resource"`
		Buckets  []bucketJSON `json:"buckets"`
	}
	value := result{resource, []bucketJSON{}}
	var rows zlimit.Statuses
	for _, b := range buckets {
		value.Buckets = append(value.Buckets, bucketJSON{b.Entity, b.Shards, b.Statuses})
		rows = append(rows, b.Statuses...)
	}
	l := shell.Listing[zlimit.Status]{
		Value: value, Rows: rows, None: noBuckets(resource),
		Columns: []show.Column[zlimit.Status]{
			show.Text("entity", func(s zlimit.Status) string { return s.Entity }),
			show.Text("limit", func(s zlimit.Status) string { return s.Limit.Name }),
			show.Number("available", func(s zlimit.Status) int64 { return s.Available }),
			show.Number("capacity", func(s zlimit.Status) int64 { return s.Limit.Capacity }),
			show.Text("refill", func(s zlimit.Status) string { return show.Refill(s.Limit) }),
		},
	}
	return l.Print(sh)
}
