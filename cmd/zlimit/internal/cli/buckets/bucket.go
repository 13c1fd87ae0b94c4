package buckets

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command bucket.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("list, get, reset or top-up", &cobra.Command{
		Use:   "bucket",
		Short: "Show and refill buckets: list, get, reset, top-up",
		Long: `A bucket is where the limits of an entity stand for one resource. It is made by
the first request, and expires when it is not used, unless its limits are the
entity's own. Looking changes nothing.

Reset fills a bucket, and top-up adds tokens to it.`,
		Example: `  zlimit bucket list --entity acme`,
	}, listCommand(sh), getCommand(sh), resetCommand(sh), topUpCommand(sh))
}

type bucketJSON struct {
	Entity   string          `json:"entity"`
	Resource string          `json:"resource"`
	Shards   int             `json:"shards"`
	Limits   zlimit.Statuses `json:"limits"`
	Disabled bool            `json:"disabled,omitempty"`
	Bypassed bool            `json:"bypassed,omitempty"`

	DisabledBy zlimit.Source `json:"disabled_by,omitempty"` // the level that says so, where that was looked at
}

func jsonOf(b *zlimit.Bucket) bucketJSON {
	return bucketJSON{Entity: b.Entity, Resource: b.Resource, Shards: b.Shards, Limits: b.Statuses, Disabled: b.Disabled, Bypassed: b.Bypassed}
}

// A bucketLine is one limit of a bucket.
type bucketLine struct {
	bucket *zlimit.Bucket
	status zlimit.Status
}

func listCommand(sh *shell.Shell) *cobra.Command {
	var entity, resource string
	cmd := &cobra.Command{
		Use:   "list {--entity E | --resource R}",
		Short: "List the buckets of an entity, or of a resource",
		Long: `List lists buckets, a line for each of their limits. It reads an index, which
may be moments behind, and the buckets in the index: half a read unit
per 4 KB of each, a whole one for buckets of an entity.`,
		Example: `  zlimit bucket list --entity acme
  zlimit bucket list --resource gpt -o csv`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			byEntity, byResource := cmd.Flags().Changed("entity"), cmd.Flags().Changed("resource")
			if byEntity == byResource {
				return shell.Usagef("bucket list: give --entity or --resource; see %s --help", cmd.CommandPath())
			}
			list := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Bucket, error] {
				if byEntity {
					return l.Entities.Buckets(ctx, entity)
				}
				return l.Usage.Buckets(ctx, resource)
			}
			buckets, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) ([]zlimit.Bucket, error) {
				return shell.Collect(list(ctx, l))
			})
			if err != nil {
				return err
			}
			sh.NoteUnsupported(buckets)
			return printBucketList(sh, buckets)
		},
	}
	cmd.Flags().StringVar(&entity, "entity", "", "buckets of an `entity`")
	cmd.Flags().StringVar(&resource, "resource", "", "buckets of a `resource`")
	sh.ListFlag(cmd)
	return cmd
}

func printBucketList(sh *shell.Shell, buckets []zlimit.Bucket) error {
	value := map[string][]bucketJSON{"buckets": {}}
	var rows []bucketLine
	for i := range buckets {
		b := &buckets[i]
		value["buckets"] = append(value["buckets"], jsonOf(b))
		for _, s := range b.Statuses {
			rows = append(rows, bucketLine{b, s})
		}
	}
	name := func(l bucketLine) string { return l.status.Limit.Name }
	l := shell.Listing[bucketLine]{
		Value: value, Rows: rows, None: "no buckets",
		Columns: []show.Column[bucketLine]{
			show.Text("entity", func(l bucketLine) string { return l.bucket.Entity }),
			show.Text("resource", func(l bucketLine) string { return l.bucket.Resource }),
			show.Text("limit", name),
			show.Limited("available", name, func(l bucketLine) zlimit.Quantity { return zlimit.Quantity(l.status.Available) * zlimit.Token }),
			show.Limited("capacity", name, func(l bucketLine) zlimit.Quantity { return zlimit.Quantity(l.status.Now().Capacity) * zlimit.Token }),
			{
				Name:  "refill",
				Plain: func(l bucketLine) string { return show.PlainRefill(l.status.Limit) },
				Shown: func(l bucketLine) string { return show.Refill(l.status.Limit) },
			},
			show.Number("shards", func(l bucketLine) int64 { return int64(l.bucket.Shards) }),
		},
	}
	if slices.ContainsFunc(rows, func(l bucketLine) bool { return l.status.Limit.Term > 0 }) {
		l.Columns = append(l.Columns, show.Number("held", func(l bucketLine) int64 { return l.status.Held() }))
	}
	return l.Print(sh)
}

func getCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "get ENTITY RESOURCE",
		Short: "Show a bucket",
		Long: `Get shows where the limits of a bucket stand, and over how many items it is
spread. A bucket that is unused, or has expired, is an error: zlimit available
shows what it would have. Where its requests are refused, it is shown as
disabled, with the level that says so, or as bypassed.`,
		Example: `  zlimit bucket get acme gpt -o json`,
		Args:    shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var by zlimit.Source
			var remarks budgets.Remarks
			found, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Bucket, error) {
				for b, err := range l.Entities.Buckets(ctx, args[0]) {
					if err == nil && b.Disabled && b.Resource == args[1] {
						by, err = disabledBy(ctx, l, b.Entity, b.Resource)
					}
					if err != nil || b.Resource == args[1] {
						remarks = budgets.RemarksOf(ctx, l, b.Statuses, sh.Now())
						return b, err
					}
				}
				_, err := l.Limits.Resolve(ctx, args[0], args[1])
				if errors.As(err, new(*zlimit.ValidationError)) {
					return zlimit.Bucket{}, err
				}
				charged := ""
				if errors.Is(err, zlimit.ErrNoLimits) {
					charged = chargedTo(ctx, l, args[0], args[1])
				}
				return zlimit.Bucket{}, fmt.Errorf("entity %s has no bucket of resource %s%s", args[0], args[1], charged)
			})
			if err != nil {
				return err
			}
			sh.NoteUnsupported([]zlimit.Bucket{found})
			body := jsonOf(&found)
			body.DisabledBy = by
			return sh.Print(body, func(p *show.Page) {
				p.Linef("%s/%s, %s", found.Entity, found.Resource, show.Counted(found.Shards, "shard"))
				if by != "" {
					p.Linef("disabled by the level %s, requests are refused", by)
				} else if found.Disabled {
					p.Linef("disabled, though no level says so any more: the next request looks again")
				}
				if found.Bypassed {
					p.Linef("bypassed, requests are counted and no limit refuses them")
				}
				remarks.Print(p, found.Statuses, false)
			})
		},
	}
}

// chargedTo says which buckets the requests of an entity without limits of its own are charged to, "" if it has some, or if no other level
// has any.
func chargedTo(ctx context.Context, l *zlimit.RateLimiter, entity, resource string) string {
	statuses, _ := l.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: resource, Parents: true})
	var all []string
	for _, s := range statuses {
		if s.Entity == entity && s.Resource == resource {
			return ""
		}
		if name := s.Entity + "/" + s.Resource; !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ", since it has no limits of its own: its requests are charged to " + strings.Join(all, " and ")
}

// disabledBy returns the level that rejects requests, "" if none says so any more.
func disabledBy(ctx context.Context, l *zlimit.RateLimiter, entity, resource string) (zlimit.Source, error) {
	resolved, err := l.Limits.Resolve(ctx, entity, resource)
	if errors.Is(err, zlimit.ErrNoLimits) {
		err = nil
	}
	return resolved.DisabledBy, err
}
