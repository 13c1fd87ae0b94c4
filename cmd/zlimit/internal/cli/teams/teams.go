// Package teams has the command team: a budget that several keys share.
package teams

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// Command returns the command team.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("set or get", &cobra.Command{
		Use:   "team",
		Short: "Give a team a budget in dollars, and keys that share it: set, get",
		Long: `A team has a budget in dollars for all its models. Its keys need no limits: what
they spend is charged to the team. The team and the keys are entities, the
budget is a limit named usd, and the models are resources within a wider one.
The commands entity, limits and resource change all of that as well.`,
		Example: `  zlimit team set research --budget 200/month --key key-1 --key key-2
  zlimit team get research`,
	}, setCommand(sh), getCommand(sh))
}

// defaultResource is the resource that holds the budgets of teams, unless a flag says otherwise.
const defaultResource = "models"

// A change is what team set does. It can be repeated.
type change struct {
	team, resource string
	budget         *asked // nil for the present one
	keyBudget      *asked // of each key; nil for the present ones
	keys, models   []string
	now            func() time.Time
}

func setCommand(sh *shell.Shell) *cobra.Command {
	var c change
	var budget, keyBudget string
	cmd := &cobra.Command{
		Use:   "set TEAM [--budget DOLLARS/PERIOD] [--key KEY ...]",
		Short: "Give a team a budget, keys and models",
		Long: `Set gives a team a budget in dollars, and adds keys to it. A period is day,
week, month or never, and may have a time zone. A new budget without a zone is
in UTC, and a number alone is dollars a month. The first command of a team needs
--budget.

What --budget and --key-budget do not name stays as it is stored: the period of
a number alone, the zone, what is carried over, windows, floors, and soft or
shadow. The words that remove them are carry 0, when none, floors none and
enforced. The output says what it kept.

A key without a record becomes a member. So does one without a parent. A key of
another team is refused, as zlimit entity move moves it. A key needs no budget.
One by --key-budget bounds what it takes of the team's, and counts what it
spends.

A changed budget begins with its next period. A raise adds nothing to the period
that has begun, and a lower budget cuts what is left of it. The output says from
when the budget holds and what is left until then.

The budget is at the resource that --resource names. Each --model is put within
that resource, so that its calls are charged there. Other limits, keys and
models stay as they are. A command that was interrupted is run again.`,
		Example: `  zlimit team set research --budget 200/month --key key-1 --key key-2
  zlimit team set research --budget 200/month@Europe/Berlin
  zlimit team set research --budget '200/month carry 50'
  zlimit team set research --budget '200/month enforced'
  zlimit team set research --key key-3 --key-budget 50/month
  zlimit team set research --model gpt-4o --model claude-sonnet-4-5`,
		Args: shell.Takes("TEAM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.team, c.now = args[0], sh.Now
			if err := shell.NotEmpty(cmd, "budget", "key-budget", "resource"); err != nil {
				return err
			}
			var err error
			if c.budget, err = parseBudget("--budget", budget); err != nil {
				return err
			}
			if c.keyBudget, err = parseBudget("--key-budget", keyBudget); err != nil {
				return err
			}
			if err := c.check(cmd); err != nil {
				return err
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			first := c // its names follow the rules for the first command of a team
			if first.budget == nil {
				first.budget = &asked{Limit: zlimit.USD(grammar.Money, 1, zlimit.PerMonth)}
			}
			if err := shell.Rehearse(cmd.Context(), sh, first.make); err != nil {
				return err
			}
			changes, err := shell.Perform(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) ([]changed, error) {
				changes, err := c.make(ctx, l)
				if err == nil {
					sh.NoteManaged(ctx, l, c.levels()...)
				}
				return changes, err
			})
			if err != nil {
				return err
			}
			return printTeam(cmd.Context(), sh, c.team, changes)
		},
	}
	cmd.Flags().StringVar(&budget, "budget", "", "`DOLLARS`, such as 200/month or '200/month carry 50'")
	cmd.Flags().StringArrayVar(&c.keys, "key", nil, "`entity` that the team pays for; repeatable")
	cmd.Flags().StringVar(&keyBudget, "key-budget", "", "`DOLLARS` of each --key, within the team's")
	cmd.Flags().StringArrayVar(&c.models, "model", nil, "`resource` within the budget's; repeatable")
	cmd.Flags().StringVar(&c.resource, "resource", defaultResource, "`resource` of the budget")
	return cmd
}

// levels returns the levels whose budgets the change sets.
func (c *change) levels() (levels []zlimit.Level) {
	if c.budget != nil {
		levels = append(levels, zlimit.Level{Entity: c.team, Resource: c.resource})
	}
	if c.keyBudget != nil {
		for _, key := range c.keys {
			levels = append(levels, zlimit.Level{Entity: key, Resource: c.resource})
		}
	}
	return levels
}

// check refuses what is wrong with the flags by themselves.
func (c *change) check(cmd *cobra.Command) error {
	if c.budget == nil && len(c.keys)+len(c.models) == 0 {
		return shell.Usagef("team set: --budget, --key or --model is missing; see %s --help", cmd.CommandPath())
	}
	if c.keyBudget != nil && len(c.keys) == 0 {
		return shell.Usagef("team set: --key-budget is for keys: --key is missing")
	}
	for _, names := range [][]string{c.keys, c.models} {
		for i, name := range names {
			if slices.Contains(names[:i], name) {
				return shell.Usagef("team set: %q is given twice", name)
			}
		}
	}
	if slices.Contains(c.keys, c.team) {
		return shell.Usagef("team set: --key %q is the team itself", c.team)
	}
	return nil
}

// make does the change, once it is known that nothing stands in its way. It returns what becomes of budgets that were there before.
func (c *change) make(ctx context.Context, l *zlimit.RateLimiter) (changes []changed, err error) {
	for _, entity := range append([]string{c.team}, c.keys...) {
		if err := rotation.CheckLimits(ctx, l, entity); err != nil {
			return nil, err
		}
	}
	at := zlimit.Level{Entity: c.team, Resource: c.resource}
	stored, err := l.Limits.Get(ctx, at)
	if err != nil {
		return nil, err
	}
	if c.budget == nil && !hasBudget(stored.Limits) {
		return nil, shell.Usagef("team set: team %s has no budget for %s yet: --budget is missing", c.team, c.resource)
	}
	records := make([]zlimit.Entity, len(c.keys))
	for i, key := range c.keys {
		if records[i], err = c.member(ctx, l, key); err != nil {
			return nil, err
		}
	}
	var outside []zlimit.Resource
	for _, model := range c.models {
		r, err := l.Resources.Get(ctx, model)
		switch {
		case err != nil:
			return nil, err
		case r.Within == "":
			outside = append(outside, r)
		case r.Within != c.resource:
			return nil, shell.Usagef("team set: --model %s lies within %s; zlimit resource put %s --within %s changes that",
				model, r.Within, grammar.ShellWord(model), grammar.ShellWord(c.resource))
		}
	}
	if err := c.record(ctx, l); err != nil {
		return nil, err
	}
	if c.budget != nil {
		ch, err := setBudget(ctx, l, at, c.budget, c.now())
		if err != nil {
			return nil, err
		}
		if ch != nil {
			changes = append(changes, *ch)
		}
	}
	for _, r := range outside {
		r.Within = c.resource
		if err := l.Resources.Put(ctx, r); err != nil {
			return nil, err
		}
	}
	for i, key := range c.keys {
		ch, err := c.join(ctx, l, key, records[i])
		if err != nil {
			return nil, err
		}
		if ch != nil {
			changes = append(changes, *ch)
		}
	}
	return changes, nil
}

// record creates the record of the team, unless it has one.
func (c *change) record(ctx context.Context, l *zlimit.RateLimiter) error {
	_, err := l.Entities.Get(ctx, c.team)
	if errors.Is(err, zlimit.ErrEntityNotFound) {
		_, err = l.Entities.Ensure(ctx, zlimit.Entity{ID: c.team})
	}
	return err
}

// member returns the record of a key, an empty one if there is none. It refuses a key of another team.
func (c *change) member(ctx context.Context, l *zlimit.RateLimiter, key string) (zlimit.Entity, error) {
	e, err := l.Entities.Get(ctx, key)
	switch {
	case errors.Is(err, zlimit.ErrEntityNotFound):
		return zlimit.Entity{}, nil
	case err != nil:
		return e, err
	case e.ParentID != "" && e.ParentID != c.team:
		return e, shell.Usagef("team set: --key %s belongs to %s; zlimit entity move %s --parent %s moves it",
			key, e.ParentID, grammar.ShellWord(key), grammar.ShellWord(c.team))
	}
	return e, nil
}

// join makes a key a member of the team. The record is that of the key, an empty one if it has none. It returns what becomes of a budget that
// the key had before.
func (c *change) join(ctx context.Context, l *zlimit.RateLimiter, key string, record zlimit.Entity) (ch *changed, err error) {
	switch {
	case record.ID == "":
		_, err = l.Entities.Ensure(ctx, zlimit.Entity{ID: key, ParentID: c.team, Cascade: true})
	case record.ParentID == "":
		_, err = l.Entities.SetParent(ctx, key, c.team)
	}
	if err == nil && record.ID != "" && !record.Cascade { // which a record keeps
		err = l.Limits.Update(ctx, zlimit.Level{Entity: key}, func(config *zlimit.Config) error {
			config.Cascade = zlimit.CascadeAlways
			return nil
		})
	}
	if err == nil && c.keyBudget != nil {
		ch, err = setBudget(ctx, l, zlimit.Level{Entity: key, Resource: c.resource}, c.keyBudget, c.now())
	}
	return ch, err
}
