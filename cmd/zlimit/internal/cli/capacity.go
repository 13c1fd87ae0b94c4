package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) capacityCommand() *cobra.Command {
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
		Args: takes("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			if entities {
				buckets, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) ([]zlimit.Bucket, error) {
					return collect(l.Usage.Buckets(ctx, args[0]))
				})
				if err != nil {
					return err
				}
				return a.printBuckets(args[0], buckets)
			}
			c, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Capacity, error) {
				return l.Usage.Capacity(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return a.printCapacity(c)
		},
	}
	cmd.Flags().BoolVar(&entities, "entities", false, "list the buckets of the entities")
	a.listFlag(cmd)
	return cmd
}

func (a *app) printCapacity(c zlimit.Capacity) error {
	used := func(l zlimit.LimitCapacity) float64 { return l.Utilization() * 100 }
	l := listing[zlimit.LimitCapacity]{
		value: c, rows: c.Limits,
		title: fmt.Sprintf("resource %s: entities %s, items %s", c.Resource, grouped(int64(c.Entities)), grouped(int64(c.Items))),
		none:  noBuckets(c.Resource),
		columns: []column[zlimit.LimitCapacity]{
			text("limit", func(l zlimit.LimitCapacity) string { return l.Name }),
			number("entities", func(l zlimit.LimitCapacity) int64 { return int64(l.Entities) }),
			quantity("capacity", func(l zlimit.LimitCapacity) zlimit.Quantity { return l.Capacity }),
			quantity("available", func(l zlimit.LimitCapacity) zlimit.Quantity { return l.Available }),
			{
				"used_percent", true,
				func(l zlimit.LimitCapacity) string { return strconv.FormatFloat(used(l), 'f', 3, 64) },
				func(l zlimit.LimitCapacity) string { return decimal(used(l)) },
			},
			number("in_debt", func(l zlimit.LimitCapacity) int64 { return int64(l.InDebt) }),
			quantity("debt", func(l zlimit.LimitCapacity) zlimit.Quantity { return l.Debt }),
		},
	}
	return l.print(a)
}

// noBuckets says that no entity has a bucket of a resource.
func noBuckets(resource string) string { return "no entity has a bucket of resource " + resource }

// printBuckets prints one row for each limit of each bucket.
func (a *app) printBuckets(resource string, buckets []zlimit.Bucket) error {
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
	l := listing[zlimit.Status]{
		value: value, rows: rows, none: noBuckets(resource),
		columns: []column[zlimit.Status]{
			text("entity", func(s zlimit.Status) string { return s.Entity }),
			text("limit", func(s zlimit.Status) string { return s.Limit.Name }),
			number("available", func(s zlimit.Status) int64 { return s.Available }),
			number("capacity", func(s zlimit.Status) int64 { return s.Limit.Capacity }),
			text("refill", func(s zlimit.Status) string { return formatRefill(s.Limit) }),
		},
	}
	return l.print(a)
}
