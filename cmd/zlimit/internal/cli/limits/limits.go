// Package limits has the command limits: levels one by one, and all of them as a file.
package limits

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command limits.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Keep the stored limits: by level, or as a file",
		Long: `Limits are stored at four levels. For a request the first level that has limits
wins as a whole. A LEVEL is named by flags:

  --entity E --resource R   the entity's, for one resource
  --entity E                the entity's, for every other resource
  --resource R              the resource's
  --system                  the limits of last resort

A limit is written NAME=CAPACITY[:REFILL]/PERIOD. It holds CAPACITY tokens, and
REFILL of them flow in per PERIOD, evenly; CAPACITY of them where REFILL is left
out, and digits may be in groups: 10_000. PERIOD is s, min, h, d, w, or a
duration such as 90s, 1h30m or 2d.

Plan, apply, diff and import keep all limits of a namespace as a file.`,
		Args: shell.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return shell.Usagef("limits: a command such as set, get or plan is missing; see %s --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(setCommand(sh), getCommand(sh), deleteCommand(sh), listCommand(sh), resolveCommand(sh),
		planCommand(sh), applyCommand(sh), diffCommand(sh), importCommand(sh), schemaCommand(sh))
	return cmd
}

// A place is where limits are stored.
type place struct {
	system           bool
	resource, entity string
}

func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.system, "system", false, "the limits of last resort")
	cmd.Flags().StringVar(&p.resource, "resource", "", "the limits of a `resource`")
	cmd.Flags().StringVar(&p.entity, "entity", "", "the limits of an `entity`")
}

// check completes the place that flags name.
func (p *place) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch entity, resource := given("entity"), given("resource"); {
	case p.system && (entity || resource):
		return shell.Usagef("limits %s: --system excludes --entity and --resource", cmd.Name())
	case !p.system && !entity && !resource:
		return shell.Usagef("limits %s: --system, --resource or --entity is missing; see %s --help", cmd.Name(), cmd.CommandPath())
	case entity && !resource:
		p.resource = zlimit.DefaultResource
	case !entity && p.resource == zlimit.DefaultResource:
		return shell.Usagef("limits %s: resource %s is for entities; --system sets limits of last resort", cmd.Name(), p.resource)
	}
	if given("entity") && p.entity == "" { // other names are for the SDK to check, but no entity means another level
		return shell.Usagef("limits %s: --entity must not be empty", cmd.Name())
	}
	return nil
}

// source returns the level of the place.
func (p *place) source() zlimit.Source {
	switch {
	case p.system:
		return zlimit.SourceSystem
	case p.entity == "":
		return zlimit.SourceResource
	case p.resource == zlimit.DefaultResource:
		return zlimit.SourceEntityDefault
	default:
		return zlimit.SourceEntity
	}
}

// String names the place as people do.
func (p *place) String() string {
	switch p.source() {
	case zlimit.SourceSystem:
		return "the system"
	case zlimit.SourceResource:
		return "resource " + p.resource
	case zlimit.SourceEntityDefault:
		return "entity " + p.entity + ", every resource"
	default:
		return "entity " + p.entity + ", resource " + p.resource
	}
}

// A level is a place with what is stored there.
type level struct {
	place
	config zlimit.SystemConfig // its limits are nil where it was not read; the retention is that of the system alone
}

// MarshalJSON returns the level as an object. What was not read is left out.
func (l level) MarshalJSON() ([]byte, error) {
	type body struct {
		Level         zlimit.Source  `json:"level"`
		Resource      string         `json:"resource,omitempty"`
		Entity        string         `json:"entity,omitempty"`
		Limits        []zlimit.Limit `json:"limits,omitzero"`
		OnUnavailable string         `json:"on_unavailable,omitempty"`
	}
	b := body{Level: l.source(), Resource: l.resource, Entity: l.entity, Limits: l.config.Limits}
	if b.Limits != nil {
		b.OnUnavailable = l.config.OnUnavailable.String()
	}
	return json.Marshal(b)
}

func printLevel(sh *shell.Shell, l level) error {
	return sh.Print(l, func(p *show.Page) {
		p.Linef("%v", &l.place)
		if l.system || l.config.OnUnavailable != zlimit.Inherit {
			p.Linef("on unavailable: %v", l.config.OnUnavailable)
		}
		if len(l.config.Limits) == 0 {
			p.Linef("no limits")
			return
		}
		p.Limits(l.config.Limits)
	})
}

// read returns what is stored at the place.
func (p *place) read(ctx context.Context, l *zlimit.RateLimiter) (zlimit.SystemConfig, error) {
	var config zlimit.LevelConfig
	var err error
	switch p.source() {
	case zlimit.SourceSystem:
		return l.Limits.System(ctx)
	case zlimit.SourceResource:
		config, err = l.Limits.ResourceConfig(ctx, p.resource)
	default:
		config, err = l.Limits.EntityConfig(ctx, p.entity, p.resource)
	}
	return zlimit.SystemConfig{Limits: config.Limits, OnUnavailable: config.OnUnavailable}, err
}

// write stores a config at the place.
func (p *place) write(ctx context.Context, l *zlimit.RateLimiter, config zlimit.SystemConfig) error {
	c := zlimit.LevelConfig{Limits: config.Limits, OnUnavailable: config.OnUnavailable}
	switch p.source() {
	case zlimit.SourceSystem:
		return l.Limits.SetSystem(ctx, config)
	case zlimit.SourceResource:
		return l.Limits.SetResourceConfig(ctx, p.resource, c)
	default:
		return l.Limits.SetEntityConfig(ctx, p.entity, p.resource, c)
	}
}

// remove deletes what is stored at the place.
func (p *place) remove(ctx context.Context, l *zlimit.RateLimiter) error {
	switch p.source() {
	case zlimit.SourceSystem:
		return l.Limits.DeleteSystem(ctx)
	case zlimit.SourceResource:
		return l.Limits.DeleteResource(ctx, p.resource)
	default:
		return l.Limits.DeleteEntity(ctx, p.entity, p.resource)
	}
}

func setCommand(sh *shell.Shell) *cobra.Command {
	var at place
	var limits []string
	var policy string
	cmd := &cobra.Command{
		Use:   "set LEVEL --limit LIMIT ...",
		Short: "Replace the limits of a level",
		Long: `Set replaces all limits of a level. What is not given stays as it is: the limits
without --limit, what happens in outages without --on-unavailable.
Processes that use the limits take the change up within their config TTL, which
is a minute by default. Levels and limits are explained by zlimit limits --help.`,
		Example: `  zlimit limits set --resource gpt --limit rpm=300/min --limit tpm=400000/min
  zlimit limits set --entity acme --resource gpt --limit tpm=2000000:1000000/min
  zlimit limits set --system --limit rpm=60/min --on-unavailable allow
  zlimit limits set --entity acme --on-unavailable block`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := at.check(cmd); err != nil {
				return err
			}
			withPolicy := cmd.Flags().Changed("on-unavailable")
			if len(limits) == 0 && !withPolicy {
				return shell.Usagef("limits set: --limit is missing; see %s --help", cmd.CommandPath())
			}
			var want zlimit.SystemConfig
			var err error
			if want.Limits, err = shell.ParseLimits(limits); err != nil {
				return err
			}
			if withPolicy {
				if want.OnUnavailable, err = zlimit.ParseFailurePolicy(policy); err != nil {
					return err
				}
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			stored, err := shell.Do(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.SystemConfig, error) {
				config, err := at.read(ctx, l)
				if err != nil {
					return config, err
				}
				if len(limits) > 0 {
					config.Limits = want.Limits
				}
				if withPolicy {
					config.OnUnavailable = want.OnUnavailable
				}
				if !at.system && isEmpty(config) { // nothing is stored, and nothing is to be
					return config, nil
				}
				return config, at.write(ctx, l, config)
			})
			if err != nil {
				return err
			}
			return printLevel(sh, level{at, stored})
		},
	}
	at.flags(cmd)
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "`LIMIT` to set; repeatable")
	cmd.Flags().StringVar(&policy, "on-unavailable", zlimit.Inherit.String(),
		"outage `policy`: block, allow")
	return cmd
}

func getCommand(sh *shell.Shell) *cobra.Command {
	var at place
	cmd := &cobra.Command{
		Use:   "get LEVEL",
		Short: "Show the limits of a level",
		Long: `Get shows the limits that are stored at a level itself. What holds for an entity
and a resource, wherever it comes from, is what zlimit available shows.`,
		Example: `  zlimit limits get --system
  zlimit limits get --entity acme --resource gpt -o json`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := at.check(cmd); err != nil {
				return err
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			found, err := shell.Look(cmd.Context(), sh, dsn, at.read)
			if err != nil {
				return err
			}
			return printLevel(sh, level{at, found})
		},
	}
	at.flags(cmd)
	return cmd
}

func deleteCommand(sh *shell.Shell) *cobra.Command {
	var at place
	cmd := &cobra.Command{
		Use:   "delete LEVEL",
		Short: "Delete the limits of a level",
		Long: `Delete deletes the limits that are stored at a level, if there are any. The
limits of the next level hold then.`,
		Example: `  zlimit limits delete --entity acme --resource gpt`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := at.check(cmd); err != nil {
				return err
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			_, err = shell.Do(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				return struct{}{}, at.remove(ctx, l)
			})
			if err != nil {
				return err
			}
			return sh.Print(level{place: at}, func(p *show.Page) { p.Linef("%v: no limits of its own", &at) })
		},
	}
	at.flags(cmd)
	return cmd
}

func listCommand(sh *shell.Shell) *cobra.Command {
	var resource string
	var details bool
	cmd := &cobra.Command{
		Use:   "list [--resource R] [--details]",
		Short: "List what has limits of its own",
		Long: `List lists the levels that have limits: the system, the resources, and the
entities per resource, where ` + zlimit.DefaultResource + ` stands for every resource. With
--resource it lists those of one resource. With --details it shows the limits
and what happens in outages too, at the cost of one more read per line.`,
		Example: `  zlimit limits list
  zlimit limits list --resource gpt --details`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			only := cmd.Flags().Changed("resource")
			levels, err := shell.Look(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) ([]level, error) {
				places, err := placesOf(ctx, l, resource, only)
				if err != nil {
					return nil, err
				}
				return describe(ctx, l, places, details)
			})
			if err != nil {
				return err
			}
			return printLevels(sh, levels, resource, details)
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", "only the levels of a `resource`")
	cmd.Flags().BoolVar(&details, "details", false, "show what the levels say too")
	sh.ListFlag(cmd)
	return cmd
}

// placesOf returns where limits are stored, of all resources or of only one.
func placesOf(ctx context.Context, l *zlimit.RateLimiter, resource string, only bool) ([]place, error) {
	candidates := []place{{system: true}}
	resources := []string{resource} // that entities may have limits for
	if only {
		candidates = nil
		if resource != zlimit.DefaultResource {
			candidates = []place{{resource: resource}}
		}
	} else {
		var err error
		if resources, err = shell.Collect(l.Limits.ResourcesWith(ctx)); err != nil {
			return nil, err
		}
	}
	var places []place
	for _, p := range candidates {
		config, err := p.read(ctx, l)
		if err != nil {
			return nil, err
		}
		if !isEmpty(config) {
			places = append(places, p)
		}
	}
	if !only {
		names, err := shell.Collect(l.Limits.Resources(ctx))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			places = append(places, place{resource: name})
		}
	}
	for _, name := range resources {
		entities, err := shell.Collect(l.Limits.EntitiesWith(ctx, name))
		if err != nil {
			return nil, err
		}
		for _, entity := range entities {
			places = append(places, place{resource: name, entity: entity})
		}
	}
	return places, nil
}

// isEmpty reports whether nothing is stored at a place.
func isEmpty(config zlimit.SystemConfig) bool {
	return len(config.Limits) == 0 && config.OnUnavailable == zlimit.Inherit && config.AuditRetention == 0
}

// describe returns places with what is stored there, if details are asked for.
func describe(ctx context.Context, l *zlimit.RateLimiter, places []place, details bool) ([]level, error) {
	levels := []level{}
	for _, p := range places {
		described := level{place: p}
		if details {
			var err error
			described.config, err = p.read(ctx, l)
			if err != nil {
				return nil, err
			}
			if isEmpty(described.config) {
				continue // deleted meanwhile
			}
		}
		levels = append(levels, described)
	}
	return levels, nil
}

func printLevels(sh *shell.Shell, levels []level, resource string, details bool) error {
	columns := []show.Column[level]{
		show.Text("level", func(l level) string { return string(l.source()) }),
		show.Text("resource", func(l level) string { return l.resource }),
		show.Text("entity", func(l level) string { return l.entity }),
	}
	if details {
		columns = append(columns, show.Text("on_unavailable", func(l level) string { return l.config.OnUnavailable.String() }))
		columns = append(columns, show.Text("limits", func(l level) string {
			var limits []string
			for _, limit := range l.config.Limits {
				limits = append(limits, limit.String())
			}
			return strings.Join(limits, " ")
		}))
	}
	none := "no limits are stored"
	if resource != "" {
		none += " for resource " + resource
	}
	l := shell.Listing[level]{Value: map[string][]level{"levels": levels}, Rows: levels, Columns: columns, None: none}
	return l.Print(sh)
}

func resolveCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "resolve ENTITY RESOURCE",
		Short: "Show the limits that hold for an entity and a resource",
		Long: `Resolve shows which limits hold for requests of an entity to a resource, the
level that they come from, and what happens while the store is unavailable. It
asks no bucket; zlimit available does.`,
		Example: `  zlimit limits resolve acme gpt`,
		Args:    shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			found, err := shell.Look(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Resolved, error) {
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
			return sh.Print(r, func(p *show.Page) {
				p.Linef("%s/%s, limits of the level %s", r.Entity, r.Resource, r.Source)
				p.Linef("on unavailable: %s", r.OnUnavailable)
				p.Limits(found.Limits)
			})
		},
	}
}
