// Package limits has the command limits: levels one by one, and all of them as a file.
package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// Command returns the command limits.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := shell.Group("a command such as set, get or plan", &cobra.Command{
		Use:   "limits",
		Short: "Manage stored limits: by level, or as a file",
		Long: `Limits are stored at four levels. For a request the first level that has limits
wins as a whole. A LEVEL is named by flags:

  --entity E --resource R   the entity's, for one resource
  --entity E                the entity's, for every other resource
  --resource R              the resource's
  --system                  the limits where no other level has any

A limit is written NAME=CAPACITY[:REFILL]/PERIOD. It holds CAPACITY tokens, and
REFILL of them flow in per PERIOD, evenly; CAPACITY of them where REFILL is left
out, and digits may be in groups: 10_000. PERIOD is s, min, h, d, w, or a
duration such as 90s, 1h30m or 2d. Other kinds of limits are:

  tokens=1M/month@UTC       a quota, which resets on the calendar of a time zone
  tokens=2M/session:5h      a quota for five hours from its first use
  usd=25/month@UTC          a quota in dollars
  usd=25/month@UTC carry 50 up to 50 of what is left is carried over
  usd=5/never               a prepaid limit, which top-ups add to
  workers=20 slots/30s      concurrent leases, each renewed within the term

Plan, apply, diff and import keep all limits of a namespace as a file. Scale
multiplies all of them. Disable and enable suspend an entity or a resource,
whatever its limits.`,
	}, setCommand(sh), patchCommand(sh), inheritCommand(sh), excludeCommand(sh), getCommand(sh), deleteCommand(sh), listCommand(sh), resolveCommand(sh),
		planCommand(sh), applyCommand(sh), diffCommand(sh), importCommand(sh), schemaCommand(sh), scaleCommand(sh))
	cmd.AddCommand(switchCommands(sh)...)
	return cmd
}

type levelFlag struct {
	zlimit.Level
	system bool
}

// flags adds the flags to a command, which must name a level.
func (f *levelFlag) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.system, "system", false, "the limits where no other level has any")
	cmd.Flags().StringVar(&f.Resource, "resource", "", "the limits of a `resource`")
	cmd.Flags().StringVar(&f.Entity, "entity", "", "the limits of an `entity`")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return f.check(cmd) }
}

// check refuses flags that name no level. Other names are for the SDK to check, but an empty one means another level.
func (f *levelFlag) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch entity, resource := given("entity"), given("resource"); {
	case f.system && (entity || resource):
		return shell.Usagef("limits %s: --system excludes --entity and --resource", cmd.Name())
	case !f.system && !entity && !resource:
		levels := "--resource or --entity"
		if !cmd.Flags().Lookup("system").Hidden {
			levels = "--system, " + levels
		}
		return shell.Usagef("limits %s: %s is missing; see %s --help", cmd.Name(), levels, cmd.CommandPath())
	}
	return shell.NotEmpty(cmd, "entity", "resource")
}

type level struct {
	zlimit.Level
	config zlimit.Config // its limits are nil where it was not read
	said   zlimit.Switch // of serving requests

	changed bool             // by this command; it had limits before
	changes []budgets.Change // of budgets, by this command

	unsupported []zlimit.UnsupportedFeature // in place of the config
}

// MarshalJSON returns the level as an object. Fields that were not read are left out.
func (l level) MarshalJSON() ([]byte, error) {
	type Config zlimit.Config // its fields alone
	b := struct {
		Level    zlimit.Source `json:"level"`
		Resource string        `json:"resource,omitempty"`
		Entity   string        `json:"entity,omitempty"`
		*Config
		AuditRetention int64         `json:"audit_retention_seconds,omitempty"`
		Switch         zlimit.Switch `json:"switch,omitempty"`

		Unsupported []zlimit.UnsupportedFeature `json:"unsupported,omitempty"`
		Changes     []budgets.Change            `json:"changes,omitempty"`
	}{
		Level: l.Source(), Resource: l.Resource, Entity: l.Entity,
		AuditRetention: int64(l.config.AuditRetention / time.Second), Switch: l.said, Unsupported: l.unsupported, Changes: l.changes,
	}
	if l.config.Limits != nil {
		b.Config = (*Config)(&l.config)
	}
	return json.Marshal(b)
}

func printLevel(sh *shell.Shell, l level) error {
	return sh.Print(l, func(p *show.Page) {
		p.Linef("%v", l.Level)
		if l.said != zlimit.SwitchInherit {
			p.Linef("%s", says(l.said))
		}
		if l.Source() == zlimit.SourceSystem && l.config.OnUnavailable == zlimit.PolicyInherit {
			p.Linef("on unavailable: %v", l.config.OnUnavailable)
		}
		for _, s := range besideLimits(&l.config) {
			p.Linef("%s: %s", strings.ReplaceAll(s.name, "_", " "), s.value)
		}
		if len(l.config.Limits) == 0 {
			p.Linef("no limits")
		} else {
			p.Limits(l.config.Limits)
		}
		if l.changed {
			p.Linef("running processes apply it within the time that they keep limits, a minute by default")
		}
		for i := range l.changes {
			for _, line := range l.changes[i].Lines(l.String()) {
				p.Linef("%s", line)
			}
		}
	})
}

func setCommand(sh *shell.Shell) *cobra.Command {
	var at levelFlag
	var limits []string
	var policy, cascade string
	cmd := &cobra.Command{
		Use:   "set LEVEL --limit LIMIT ...",
		Short: "Replace the limits of a level",
		Long: `Set replaces all limits of a level. What is not given stays as it is: the limits
without --limit, what happens in outages without --on-unavailable, and whether
parents are charged without --cascade.
Processes that use the limits take the change up within their config TTL, which
is a minute by default. A raised budget holds from its next period on: the
output says what is left until then. A note says if a file of limits manages the
level: its next apply undoes the change. Levels and limits are explained by
zlimit limits --help.`,
		Example: `  zlimit limits set --resource gpt --limit rpm=300/min --limit tpm=400000/min
  zlimit limits set --entity acme --resource gpt --limit tpm=2000000:1000000/min
  zlimit limits set --system --limit rpm=60/min --on-unavailable allow
  zlimit limits set --entity acme --on-unavailable block
  zlimit limits set --entity acme --resource local-llm --cascade never`,
		Args: setArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			withPolicy := cmd.Flags().Changed("on-unavailable")
			withCascade := cmd.Flags().Changed("cascade")
			if len(limits) == 0 && !withPolicy && !withCascade {
				return shell.Usagef("limits set: --limit is missing; see %s --help", cmd.CommandPath())
			}
			var want, stored zlimit.Config
			var err error
			if want.Limits, err = shell.ParseLimits(limits); err != nil {
				return err
			}
			if withPolicy {
				if want.OnUnavailable, err = zlimit.ParseFailurePolicy(policy); err != nil {
					return err
				}
			}
			if want.Cascade, err = shell.ParseCascade(cascade); withCascade && err != nil {
				return err
			}
			var left []string
			had := false
			changes, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) ([]budgets.Change, error) {
				if err := rotation.CheckLimits(ctx, l, at.Entity); err != nil {
					return nil, err
				}
				return withBudgets(ctx, sh, l, at.Level, len(want.Limits) > 0, func() error {
					wider := zlimit.Resolved{}
					if at.Entity != "" && at.Resource != "" && len(limits) > 0 {
						wider, _ = l.Limits.Resolve(ctx, at.Entity, at.Resource) // without limits there is nothing to say
					}
					return l.Limits.Update(ctx, at.Level, func(config *zlimit.Config) error {
						had = len(config.Limits) > 0
						if left = nil; len(limits) > 0 {
							if len(config.Limits) == 0 {
								left = missing(wider.Limits, want.Limits)
							}
							config.Limits = want.Limits
						}
						if withPolicy {
							config.OnUnavailable = want.OnUnavailable
						}
						if withCascade {
							config.Cascade = want.Cascade
						}
						stored = *config
						return nil
					})
				})
			})
			if err != nil {
				return err
			}
			if len(left) > 0 {
				sh.Note(fmt.Sprintf("note: %s, of the wider level, applied here before and no longer does; zlimit limits patch keeps the others", strings.Join(left, ", ")))
			}
			return printLevel(sh, level{Level: at.Level, config: stored, changed: had, changes: changes})
		},
	}
	at.flags(cmd)
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "`LIMIT` to set; repeatable")
	cmd.Flags().StringVar(&policy, "on-unavailable", zlimit.PolicyInherit.String(),
		"outage `policy`: block, allow")
	cmd.Flags().StringVar(&cascade, "cascade", "", "charge parents: always, never, `inherit`")
	return cmd
}

// missing returns the names of limits that others lack.
func missing(limits, others []zlimit.Limit) (names []string) {
	for _, l := range limits {
		if !slices.ContainsFunc(others, func(o zlimit.Limit) bool { return o.Name == l.Name }) {
			names = append(names, l.Name)
		}
	}
	return names
}

// setArgs refuses arguments in place of flags, and says the flags that they probably stand for.
func setArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names, limits []string
	for _, arg := range args {
		if strings.Contains(arg, "=") {
			limits = append(limits, "--limit '"+arg+"'")
		} else {
			names = append(names, arg)
		}
	}
	meant := ""
	switch len(names) {
	case 0:
	case 1:
		meant = " --resource " + names[0]
	default:
		meant = " --entity " + names[0] + " --resource " + names[1]
	}
	return shell.Usagef("limits set: levels and limits are given by flags, such as %s%s %s", cmd.CommandPath(), meant, strings.Join(limits, " "))
}

func getCommand(sh *shell.Shell) *cobra.Command {
	var at levelFlag
	cmd := &cobra.Command{
		Use:   "get LEVEL",
		Short: "Show the limits of a level",
		Long: `Get shows what is stored at a level itself: its limits, and whether the level is
disabled or enabled. zlimit limits resolve shows what holds for an entity and a
resource, at any level.`,
		Example: `  zlimit limits get --system
  zlimit limits get --entity acme --resource gpt -o json`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (level, error) {
				return storedAt(ctx, l, at.Level)
			})
			if err != nil {
				return err
			}
			return printLevel(sh, found)
		},
	}
	at.flags(cmd)
	return cmd
}

func storedAt(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level) (level, error) {
	config, err := l.Limits.Get(ctx, at)
	if err != nil {
		return level{}, err
	}
	q := zlimit.LevelQuery{Source: at.Source(), Entity: at.Entity, Resource: at.Resource}
	for stored, err := range l.Limits.List(ctx, q) {
		if err != nil || stored.Level == at {
			return level{Level: at, config: config, said: stored.Switch}, err
		}
	}
	return level{Level: at, config: config}, nil
}

func deleteCommand(sh *shell.Shell) *cobra.Command {
	var at levelFlag
	var ifPresent bool
	cmd := &cobra.Command{
		Use:   "delete LEVEL",
		Short: "Delete the limits of a level",
		Long: `Delete deletes the limits that are stored at a level. The limits of the next
level hold then. Where nothing is stored it fails with exit code 1, so that a
misspelt name is noticed; with --if-present it does not.`,
		Example: `  zlimit limits delete --entity acme --resource gpt`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				if err := rotation.CheckLimits(ctx, l, at.Entity); err != nil {
					return struct{}{}, err
				}
				if stored, err := l.Limits.Get(ctx, at.Level); err != nil {
					return struct{}{}, err
				} else if stored.IsZero() && !ifPresent {
					return struct{}{}, fmt.Errorf("%v has no limits of its own; zlimit limits list shows what has", at.Level)
				}
				err := l.Limits.Delete(ctx, at.Level)
				if err == nil {
					sh.NoteManaged(ctx, l, at.Level)
				}
				return struct{}{}, err
			})
			if err != nil {
				return err
			}
			return sh.Print(level{Level: at.Level}, func(p *show.Page) { p.Linef("%v: no limits of its own", at.Level) })
		},
	}
	at.flags(cmd)
	cmd.Flags().BoolVar(&ifPresent, "if-present", false, "succeed where nothing is stored")
	return cmd
}

func listCommand(sh *shell.Shell) *cobra.Command {
	var resource string
	var details bool
	cmd := &cobra.Command{
		Use:   "list [--resource R] [--details]",
		Short: "List the levels that have limits",
		Long: `List lists the levels that have limits: the system, the resources, and the
entities, by resource. With --resource it lists one resource's. With
--details it shows the limits, what happens in outages, and which levels are
disabled or enabled, which reads each level. A level with a limit of
zae-limiter that zlimit does not know is named with it.`,
		Example: `  zlimit limits list
  zlimit limits list --resource gpt --details`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := zlimit.LevelQuery{Resource: resource, NamesOnly: !details}
			if err := shell.NotEmpty(cmd, "resource"); err != nil {
				return err
			}
			levels, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) ([]level, error) {
				levels := []level{}
				for stored, err := range l.Limits.List(ctx, q) {
					if err != nil {
						return nil, err
					}
					levels = append(levels, level{Level: stored.Level, config: stored.Config, said: stored.Switch, unsupported: stored.Unsupported})
				}
				return levels, nil
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

func printLevels(sh *shell.Shell, levels []level, resource string, details bool) error {
	columns := []show.Column[level]{
		show.Text("level", func(l level) string { return string(l.Source()) }),
		show.Text("resource", func(l level) string { return l.Resource }),
		show.Text("entity", func(l level) string { return l.Entity }),
	}
	if details {
		columns = append(columns, show.Text("on_unavailable", func(l level) string { return l.config.OnUnavailable.String() }))
		columns = append(columns, show.Text("limits", func(l level) string {
			if len(l.unsupported) > 0 {
				return "not known to zlimit: " + shell.Features(l.unsupported)
			}
			var limits []string
			for _, limit := range l.config.Limits {
				limits = append(limits, limit.String())
			}
			return strings.Join(limits, " ")
		}))
		if slices.ContainsFunc(levels, func(l level) bool { return l.said != zlimit.SwitchInherit }) {
			columns = append(columns, show.Text("switch", func(l level) string { return string(l.said) }))
		}
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
		Short: "Show the limits that apply to an entity and a resource",
		Long: `Resolve shows which limits hold for requests of an entity to a resource, and
their level. It also shows what happens while the store is unavailable. Where
requests are refused, or counted alone, it names the level that says so. It
looks at no parent, and asks no bucket; zlimit available does both. Only for an
entity without limits of its own it shows the parents and wider resources whose
limits its requests are charged to.`,
		Example: `  zlimit limits resolve acme gpt`,
		Args:    shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var charged zlimit.Statuses // of others, if the entity has no limits
			found, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Resolved, error) {
				found, err := l.Limits.Resolve(ctx, args[0], args[1])
				if !errors.Is(err, zlimit.ErrNoLimits) {
					return found, err
				}
				found.Limits = []zlimit.Limit{}
				if found.DisabledBy != "" { // a request fails as disabled
					return found, nil
				}
				charged, err = l.Available(ctx, zlimit.AvailableQuery{Entity: args[0], Resource: args[1], Parents: true})
				return found, err
			})
			if err != nil {
				return err
			}
			type result struct {
				Entity        string         `json:"entity"`
				Resource      string         `json:"resource"`
				Source        zlimit.Source  `json:"source"`
				DisabledBy    zlimit.Source  `json:"disabled_by,omitempty"`
				BypassedBy    zlimit.Source  `json:"bypassed_by,omitempty"`
				OnUnavailable string         `json:"on_unavailable"`
				Limits        []zlimit.Limit `json:"limits"`

				Cascade zlimit.CascadePolicy `json:"cascade,omitempty"`
				Charged []chargedLevel       `json:"charged,omitempty"` // if the entity has no limits of its own
			}
			r := result{args[0], args[1], found.Source, found.DisabledBy, found.BypassedBy, found.OnUnavailable.String(), found.Limits, found.Cascade, chargedLevels(charged)}
			return sh.Print(r, func(p *show.Page) {
				from := "no limits"
				if len(r.Limits) > 0 {
					from = "limits of the level " + string(r.Source)
				}
				p.Linef("%s/%s, %s", r.Entity, r.Resource, from)
				if r.DisabledBy != "" {
					p.Linef("disabled by the level %s, requests are refused", r.DisabledBy)
				}
				if r.BypassedBy != "" {
					p.Linef("bypassed by the level %s, requests are counted and no limit refuses them", r.BypassedBy)
				}
				p.Linef("on unavailable: %s", r.OnUnavailable)
				if r.Cascade != zlimit.CascadeInherit {
					p.Linef("cascade: %s", r.Cascade)
				}
				if len(r.Limits) > 0 {
					p.Limits(r.Limits)
				}
				for _, c := range r.Charged {
					p.Linef("its requests are charged to %s/%s:", c.Entity, c.Resource)
					p.Limits(c.Limits)
				}
			})
		},
	}
}

// A chargedLevel is an entity and a resource whose limits requests of another one are charged to.
type chargedLevel struct {
	Entity   string         `json:"entity"`
	Resource string         `json:"resource"`
	Limits   []zlimit.Limit `json:"limits"`
}

// chargedLevels returns the levels of statuses, in their order.
func chargedLevels(statuses zlimit.Statuses) (all []chargedLevel) {
	for _, s := range statuses {
		if n := len(all); n == 0 || all[n-1].Entity != s.Entity || all[n-1].Resource != s.Resource {
			all = append(all, chargedLevel{Entity: s.Entity, Resource: s.Resource})
		}
		last := &all[len(all)-1]
		last.Limits = append(last.Limits, s.Limit)
	}
	return all
}
