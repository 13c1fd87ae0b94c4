// Package entities has the command entity.
package entities

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// Command returns the command entity.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("create, get, update, move, rotate, list, children or delete", &cobra.Command{
		Use:   "entity",
		Short: "Manage the records of entities: create, update, move, rotate, list",
		Long: `An entity needs no record to be limited, nor to have limits of its own. It needs
one to have a parent, which is charged for what the entity consumes.`,
		Example: `  zlimit entity create acme --name 'Acme Inc.'`,
	}, createCommand(sh), getCommand(sh), updateCommand(sh), moveCommand(sh), rotateCommand(sh), listCommand(sh), childrenCommand(sh), deleteCommand(sh))
}

func printEntity(sh *shell.Shell, e zlimit.Entity) error {
	return sh.Print(e, func(p *show.Page) {
		p.Linef("entity %s", e.ID)
		p.Linef("  name     %s", e.Name)
		if e.ParentID != "" {
			cascade := "what it consumes is not charged to it"
			if e.Cascade {
				cascade = "what it consumes is charged to it as well"
			}
			p.Linef("  parent   %s; %s", e.ParentID, cascade)
		}
		if !e.CreatedAt.IsZero() {
			p.Linef("  created  %s", e.CreatedAt.UTC().Format(time.DateTime))
		}
		for _, name := range slices.Sorted(maps.Keys(e.Metadata)) {
			p.Linef("  %s: %s", name, e.Metadata[name])
		}
	})
}

func createCommand(sh *shell.Shell) *cobra.Command {
	var e zlimit.Entity
	var metadata []string
	var ensure bool
	cmd := &cobra.Command{
		Use:   "create ENTITY [--parent P [--cascade]]",
		Short: "Create the record of an entity",
		Long: `Create writes the record of an entity. A parent must have a record already. With
--ensure an entity with a record is no error. The record stays as it is, and is
shown.`,
		Example: `  zlimit entity create acme --name 'Acme Inc.' --metadata plan=gold
  zlimit entity create key-1 --parent acme --cascade`,
		Args: shell.Takes("ENTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.ID = args[0]
			err := shell.NotEmpty(cmd, "parent")
			if err != nil {
				return err
			}
			if e.Metadata, err = parseMetadata(cmd, metadata); err != nil {
				return err
			}
			created, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Entity, error) {
				if err := rotation.CheckLimits(ctx, l, e.ParentID); err != nil {
					return zlimit.Entity{}, err
				}
				if ensure {
					return l.Entities.Ensure(ctx, e)
				}
				return l.Entities.Create(ctx, e)
			})
			if err != nil {
				return err
			}
			return printEntity(sh, created)
		},
	}
	cmd.Flags().StringVar(&e.Name, "name", "", "`name` for people; the ID without it")
	cmd.Flags().StringVar(&e.ParentID, "parent", "", "`entity` above it")
	cmd.Flags().BoolVar(&e.Cascade, "cascade", false, "charge what it consumes to the parent as well")
	cmd.Flags().StringArrayVar(&metadata, "metadata", nil, "`NAME=VALUE` to keep with it; repeatable")
	cmd.Flags().BoolVar(&ensure, "ensure", false, "take the record that is there, if there is one")
	return cmd
}

// parseMetadata returns the metadata that flags give; nil where they give none.
func parseMetadata(cmd *cobra.Command, given []string) (map[string]string, error) {
	var metadata map[string]string
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, shell.Usagef("entity %s: metadata %q must be NAME=VALUE", cmd.Name(), text)
		}
		if _, twice := metadata[name]; twice {
			return nil, shell.Usagef("entity %s: metadata %q: %s is given twice", cmd.Name(), text, name)
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[name] = value
	}
	return metadata, nil
}

// updateTries is the number of times that an update is retried after another change of the entity.
const updateTries = 10

func updateCommand(sh *shell.Shell) *cobra.Command {
	var name string
	var metadata, without []string
	cmd := &cobra.Command{
		Use:   "update ENTITY {--name N | --metadata NAME=VALUE}",
		Short: "Change the name or the metadata of an entity",
		Long: `Update changes what is given, and leaves the rest of the record as it is. What
somebody else changes at the same time is kept. The parent stays, which entity
move changes.`,
		Example: `  zlimit entity update acme --name 'Acme Corp.'
  zlimit entity update acme --metadata plan=platinum --without note`,
		Args: shell.Takes("ENTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			named := cmd.Flags().Changed("name")
			if !named && len(metadata)+len(without) == 0 {
				return shell.Usagef("entity update: --name, --metadata or --without is missing; see %s --help", cmd.CommandPath())
			}
			given, err := parseMetadata(cmd, metadata)
			if err != nil {
				return err
			}
			for _, key := range without {
				if _, both := given[key]; both {
					return shell.Usagef("entity update: --without %s and --metadata %s exclude each other", key, key)
				}
			}
			release := slices.Contains(without, rotation.ToKey) // the ID that a rotation has claimed
			for _, key := range slices.Concat(without, slices.Sorted(maps.Keys(given))) {
				if rotation.IsKey(key) && (!release || key != rotation.ToKey) {
					return shell.Usagef("entity update: metadata %s is what entity rotate keeps of a rotation, and not to be changed", key)
				}
			}
			updated, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (e zlimit.Entity, err error) {
				if release {
					if err := rotation.CheckRelease(ctx, l, args[0]); err != nil {
						return e, err
					}
				}
				for range updateTries {
					if e, err = l.Entities.Get(ctx, args[0]); err != nil {
						return e, err
					}
					if named {
						e.Name = name
					}
					next := maps.Clone(e.Metadata)
					if next == nil {
						next = map[string]string{}
					}
					maps.Copy(next, given)
					for _, key := range without {
						delete(next, key)
					}
					e.Metadata = next
					if e, err = l.Entities.Update(ctx, e); !errors.Is(err, zlimit.ErrEntityChanged) {
						return e, err
					}
				}
				return e, err
			})
			if err != nil {
				return err
			}
			return printEntity(sh, updated)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "display `name`; the ID if empty")
	cmd.Flags().StringArrayVar(&metadata, "metadata", nil, "`NAME=VALUE` to keep with it; repeatable")
	cmd.Flags().StringArrayVar(&without, "without", nil, "`NAME` of metadata to remove; repeatable")
	return cmd
}

func getCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "get ENTITY",
		Short:   "Show the record of an entity",
		Example: `  zlimit entity get acme -o json`,
		Args:    shell.Takes("ENTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Entity, error) {
				return l.Entities.Get(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return printEntity(sh, found)
		},
	}
}

func listCommand(sh *shell.Shell) *cobra.Command {
	var q zlimit.EntityQuery
	cmd := &cobra.Command{
		Use:   "list [--prefix P]",
		Short: "List the entities that have a record",
		Long: `List lists the entities of the namespace that have a record, in the order of
their IDs. It reads an index, which may be moments behind.`,
		Example: `  zlimit entity list --prefix acme --max 100
  zlimit entity list --after acme -o csv`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := leastOne(cmd, "max", q.Limit); err != nil {
				return err
			}
			return entities(sh, cmd, func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Entity, error] {
				return l.Entities.List(ctx, q)
			}, "no entity has a record")
		},
	}
	cmd.Flags().StringVar(&q.Prefix, "prefix", "", "entities whose ID begins with `text`")
	cmd.Flags().StringVar(&q.After, "after", "", "entities whose ID comes after this `entity`'s")
	cmd.Flags().IntVar(&q.Limit, "max", 0, "`number` of entities at most")
	sh.ListFlag(cmd)
	return cmd
}

// leastOne returns an error for a number of things to show that is given and is not positive.
func leastOne(cmd *cobra.Command, flag string, n int) error {
	if cmd.Flags().Changed(flag) && n < 1 {
		return shell.Usagef("%s: --%s %d must be at least 1", cmd.Name(), flag, n)
	}
	return nil
}

func childrenCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "children ENTITY",
		Short:   "List the entities below an entity",
		Example: `  zlimit entity children acme`,
		Args:    shell.Takes("ENTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return entities(sh, cmd, func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.Entity, error] {
				return l.Entities.Children(ctx, args[0])
			}, "entity "+args[0]+" has no children")
		},
	}
	sh.ListFlag(cmd)
	return cmd
}

func entities(sh *shell.Shell, cmd *cobra.Command, list shell.RowsOf[zlimit.Entity], none string) error {
	return shell.List(cmd.Context(), sh, list, &shell.Stream[zlimit.Entity]{
		Head: struct{}{}, Key: "entities", None: none,
		Columns: shell.Fixed(
			show.Text("id", func(e zlimit.Entity) string { return e.ID }),
			show.Text("name", func(e zlimit.Entity) string { return e.Name }),
			show.Text("parent_id", func(e zlimit.Entity) string { return e.ParentID }),
			show.Text("cascade", func(e zlimit.Entity) string { return strconv.FormatBool(e.Cascade) }),
			show.Instant("created_at", func(t time.Time) string { return t.UTC().Format(time.DateTime) }, func(e zlimit.Entity) time.Time { return e.CreatedAt }).
				Where(func(e zlimit.Entity) bool { return !e.CreatedAt.IsZero() }),
		),
	})
}

// An inventory is what deleting an entity deletes, as far as it is cheap to count.
type inventory struct {
	Entity  string         `json:"entity"`
	Record  bool           `json:"record"`
	Limits  []zlimit.Level `json:"limits"`
	Buckets []string       `json:"buckets"` // their resources
}

func inventoryOf(ctx context.Context, l *zlimit.RateLimiter, id string) (inventory, error) {
	inv := inventory{Entity: id, Limits: []zlimit.Level{}, Buckets: []string{}}
	_, err := l.Entities.Get(ctx, id)
	if inv.Record = err == nil; err != nil && !errors.Is(err, zlimit.ErrEntityNotFound) {
		return inv, err
	}
	for stored, err := range l.Limits.List(ctx, zlimit.LevelQuery{Entity: id, NamesOnly: true}) {
		if err != nil {
			return inv, err
		}
		inv.Limits = append(inv.Limits, stored.Level)
	}
	for b, err := range l.Entities.Buckets(ctx, id) {
		if err != nil {
			return inv, err
		}
		inv.Buckets = append(inv.Buckets, b.Resource)
	}
	slices.Sort(inv.Buckets)
	return inv, nil
}

func deleteCommand(sh *shell.Shell) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete ENTITY [--yes]",
		Short: "Delete an entity: its record, limits, buckets and usage",
		Long: `Delete shows what an entity has, asks, and deletes the record, the limits, the
buckets and the usage of the entity. Its audit events stay. An entity with
children is not deleted, nor one that is being rotated. One that is disabled
stays so. A deletion that was interrupted is finished by running
it again: the record goes last.`,
		Example: `  zlimit entity delete key-1
  zlimit entity delete key-1 --yes`,
		Args: shell.Takes("ENTITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			inv, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (inventory, error) {
				if err := rotation.CheckDelete(ctx, l, args[0]); err != nil {
					return inventory{}, err
				}
				return inventoryOf(ctx, l, args[0])
			})
			if err != nil {
				return err
			}
			if err := sh.ShowAndConfirm("Delete?", yes, "entity %s: %s; usage goes too, audit events stay", inv.Entity, inv.describe()); err != nil {
				return err
			}
			if _, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				return struct{}{}, l.Entities.Delete(ctx, args[0])
			}); err != nil {
				return err
			}
			return sh.Print(map[string]any{"deleted": inv}, func(p *show.Page) { p.Linef("entity %s is deleted", inv.Entity) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (inv *inventory) describe() string {
	parts := []string{"no record"}
	if inv.Record {
		parts[0] = "a record"
	}
	return strings.Join(append(parts, fmt.Sprintf("limits at %s, %s", show.Counted(len(inv.Limits), "level"), show.Counted(len(inv.Buckets), "bucket"))), ", ")
}
