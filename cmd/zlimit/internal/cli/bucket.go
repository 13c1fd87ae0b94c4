package cli

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) bucketCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bucket",
		Short: "Look at buckets: list, get",
		Long: `A bucket is where the limits of an entity stand for one resource. It is made by
the first request, and expires when nobody uses it, unless its limits are the
entity's own. Looking changes nothing.`,
		Example: `  zlimit bucket list --entity acme`,
		Args:    noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("bucket: list or get is missing; see %s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(a.bucketListCommand(), a.bucketGetCommand())
	return cmd
}

// A bucketJSON is a bucket in JSON.
type bucketJSON struct {
	Entity   string          `json:"entity"`
	Resource string          `json:"resource"`
	Shards   int             `json:"shards"`
	Limits   zlimit.Statuses `json:"limits"`
}

// A bucketLine is one limit of a bucket.
type bucketLine struct {
	bucket *zlimit.Bucket
	status zlimit.Status
}

func (a *app) bucketListCommand() *cobra.Command {
	var entity, resource string
	cmd := &cobra.Command{
		Use:   "list {--entity E | --resource R}",
		Short: "List the buckets of an entity, or of a resource",
		Long: `List lists buckets, a line for each of their limits. It reads an index, which
may be moments behind, and the buckets that the index tells of: half a read unit
per 4 KB of each, a whole one for those of an entity.`,
		Example: `  zlimit bucket list --entity acme
  zlimit bucket list --resource gpt -o csv`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			byEntity, byResource := cmd.Flags().Changed("entity"), cmd.Flags().Changed("resource")
			if byEntity == byResource {
				return usagef("bucket list: give --entity or --resource; see %s --help", cmd.CommandPath())
			}
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			list := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Bucket, error] {
				if byEntity {
					return l.Entities.Buckets(ctx, entity)
				}
				return l.Usage.Buckets(ctx, resource)
			}
			buckets, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) ([]zlimit.Bucket, error) {
				return collect(list(ctx, l))
			})
			if err != nil {
				return err
			}
			return a.printBucketList(buckets)
		},
	}
	cmd.Flags().StringVar(&entity, "entity", "", "buckets of an `entity`")
	cmd.Flags().StringVar(&resource, "resource", "", "buckets of a `resource`")
	a.listFlag(cmd)
	return cmd
}

func (a *app) printBucketList(buckets []zlimit.Bucket) error {
	value := map[string][]bucketJSON{"buckets": {}}
	var rows []bucketLine
	for i := range buckets {
		b := &buckets[i]
		value["buckets"] = append(value["buckets"], bucketJSON{b.Entity, b.Resource, b.Shards, b.Statuses})
		for _, s := range b.Statuses {
			rows = append(rows, bucketLine{b, s})
		}
	}
	l := listing[bucketLine]{
		value: value, rows: rows, none: "no buckets",
		columns: []column[bucketLine]{
			text("entity", func(l bucketLine) string { return l.bucket.Entity }),
			text("resource", func(l bucketLine) string { return l.bucket.Resource }),
			text("limit", func(l bucketLine) string { return l.status.Limit.Name }),
			number("available", func(l bucketLine) int64 { return l.status.Available }),
			number("capacity", func(l bucketLine) int64 { return l.status.Limit.Capacity }),
			text("refill", func(l bucketLine) string { return formatRefill(l.status.Limit) }),
			number("shards", func(l bucketLine) int64 { return int64(l.bucket.Shards) }),
		},
	}
	return l.print(a)
}

func (a *app) bucketGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ENTITY RESOURCE",
		Short: "Show a bucket",
		Long: `Get shows where the limits of a bucket stand, and over how many items it is
spread. A bucket that nobody has used, or that has expired, is an error: what it
would have is what zlimit available shows.`,
		Example: `  zlimit bucket get acme gpt -o json`,
		Args:    takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			found, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Bucket, error) {
				for b, err := range l.Entities.Buckets(ctx, args[0]) {
					if err != nil || b.Resource == args[1] {
						return b, err
					}
				}
				return zlimit.Bucket{}, fmt.Errorf("entity %s has no bucket of resource %s", args[0], args[1])
			})
			if err != nil {
				return err
			}
			return a.print(bucketJSON{found.Entity, found.Resource, found.Shards, found.Statuses}, func(p *page) {
				p.linef("%s/%s, %s", found.Entity, found.Resource, counted(found.Shards, "shard"))
				p.statuses(found.Statuses, false)
			})
		},
	}
}

func (a *app) limitsResolveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resolve ENTITY RESOURCE",
		Short: "Show the limits that hold for an entity and a resource",
		Long: `Resolve shows which limits hold for requests of an entity to a resource, the
level that they come from, and what happens while the store is unavailable. It
asks no bucket; zlimit available does.`,
		Example: `  zlimit limits resolve acme gpt`,
		Args:    takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			found, err := look(cmd.Context(), a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Resolved, error) {
				return l.Limits.Resolve(ctx, args[0], args[1])
			})
			if err != nil {
				return err
			}
			type result struct {
				Entity        string         `json:"entity"`
				Resource      string         `json:"resource"`
				Source        zlimit.Source  `json:"source"`
				OnUnavailable string         `json:"on_unavailable"`
				Limits        []zlimit.Limit `json:"limits"`
			}
			r := result{args[0], args[1], found.Source, found.OnUnavailable.String(), found.Limits}
			return a.print(r, func(p *page) {
				p.linef("%s/%s, limits of the level %s", r.Entity, r.Resource, r.Source)
				p.linef("on unavailable: %s", r.OnUnavailable)
				p.limits(found.Limits)
			})
		},
	}
}
