package teams

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// A team is what team get shows.
type team struct {
	Team    string    `json:"team"`
	Rotated string    `json:"rotated_to,omitempty"` // the new ID that it has
	Budgets []budget  `json:"budgets"`              // of the team
	Keys    []member  `json:"keys"`
	Changes []changed `json:"changes,omitempty"` // by team set
	budgets.Remarks
}

// A budget is a limit in dollars, and what is left of it.
type budget struct {
	Resource string        `json:"resource"`
	Status   zlimit.Status `json:"status"`
	Models   []string      `json:"models"` // within the resource
}

// A member is a key of a team, with its own budgets.
type member struct {
	Key     string          `json:"key"`
	Budgets zlimit.Statuses `json:"budgets"`
}

func getCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "get TEAM",
		Short: "Show the budget of a team, and what is left of it",
		Long: `Get shows the budgets of a team in dollars, what is left of each, and the keys
that share them. It reads the record of each key, and a bucket for each budget.`,
		Example: `  zlimit team get research
  zlimit team get research -o json`,
		Args: shell.Takes("TEAM"),
		RunE: func(cmd *cobra.Command, args []string) error { return printTeam(cmd.Context(), sh, args[0], nil) },
	}
}

// printTeam prints a team, and budgets that were just changed.
func printTeam(ctx context.Context, sh *shell.Shell, id string, changes []changed) error {
	found, err := shell.Look(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (team, error) {
		found, err := read(ctx, l, id)
		if err == nil {
			found.Remarks = budgets.RemarksOf(ctx, l, found.statuses(), sh.Now())
		}
		return found, err
	})
	if err != nil {
		return err
	}
	found.Changes = changes
	return sh.Print(found, func(p *show.Page) {
		p.Linef("team %s", found.Team)
		if found.Rotated != "" {
			p.Linef("team %s has the new ID %s", found.Team, found.Rotated)
		}
		var rows [][]string
		for _, b := range found.Budgets {
			rows = append(rows, found.row("team", &b.Status))
		}
		for _, k := range found.Keys {
			for i := range k.Budgets {
				rows = append(rows, found.row("key "+k.Key, &k.Budgets[i]))
			}
			if len(k.Budgets) == 0 {
				rows = append(rows, []string{"key " + k.Key, "", "", "", "the team's"})
			}
		}
		p.Table([]string{"whose", "resource", "left>", "budget>", "period"}, rows)
		for _, b := range found.Budgets {
			if len(b.Models) > 0 {
				p.Linef("models within %s: %s", b.Resource, strings.Join(b.Models, ", "))
			}
		}
		for _, line := range found.Lines() {
			if len(changes) == 0 { // which say so
				p.Linef("%s", line)
			}
		}
		for _, ch := range changes {
			for _, line := range ch.lines() {
				p.Linef("%s", line)
			}
		}
	})
}

// row returns the row of a budget.
func (t *team) row(whose string, s *zlimit.Status) []string {
	return []string{whose, s.Resource, show.Amount(s.Limit.Name, s.Available), t.Capacity(s) + show.Beyond(*s), show.Refill(s.Limit)}
}

// statuses returns where the budgets of the team and of its keys stand.
func (t *team) statuses() (all zlimit.Statuses) {
	for _, b := range t.Budgets {
		all = append(all, b.Status)
	}
	for _, k := range t.Keys {
		all = append(all, k.Budgets...)
	}
	return all
}

// read reads a team with its keys.
func read(ctx context.Context, l *zlimit.RateLimiter, id string) (team, error) {
	t := team{Team: id, Budgets: []budget{}, Keys: []member{}}
	record, err := l.Entities.Get(ctx, id)
	if err != nil {
		return t, err
	}
	t.Rotated = record.Metadata[rotation.ToKey]
	models, err := narrower(ctx, l)
	if err != nil {
		return t, err
	}
	own, err := budgetsOf(ctx, l, id)
	if err != nil {
		return t, err
	}
	for _, s := range own {
		t.Budgets = append(t.Budgets, budget{s.Resource, s, append([]string{}, models[s.Resource]...)})
	}
	for key, err := range l.Entities.Children(ctx, id) {
		if err != nil {
			return t, err
		}
		of, err := budgetsOf(ctx, l, key.ID)
		if err != nil {
			return t, err
		}
		t.Keys = append(t.Keys, member{key.ID, of})
	}
	return t, nil
}

// budgetsOf returns where the limits in dollars stand that are an entity's own for single resources.
func budgetsOf(ctx context.Context, l *zlimit.RateLimiter, entity string) (zlimit.Statuses, error) {
	found := zlimit.Statuses{}
	for stored, err := range l.Limits.List(ctx, zlimit.LevelQuery{Entity: entity}) {
		if err != nil {
			return nil, err
		}
		if stored.Level.Resource == "" || !hasBudget(stored.Config.Limits) {
			continue
		}
		statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: stored.Level.Resource})
		if err != nil && !errors.Is(err, zlimit.ErrDisabled) {
			return nil, err
		}
		for _, s := range statuses {
			if s.Entity == entity && s.Resource == stored.Level.Resource && s.Limit.Name == grammar.Money {
				found = append(found, s)
			}
		}
	}
	return found, nil
}

// narrower returns the resources within each wider one.
func narrower(ctx context.Context, l *zlimit.RateLimiter) (map[string][]string, error) {
	within := map[string][]string{}
	for r, err := range l.Resources.List(ctx) {
		if err != nil {
			return nil, err
		}
		if r.Within != "" {
			within[r.Within] = append(within[r.Within], r.ID)
		}
	}
	for _, models := range within {
		slices.Sort(models)
	}
	return within, nil
}
