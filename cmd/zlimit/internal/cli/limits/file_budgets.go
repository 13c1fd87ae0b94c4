package limits

import (
	"context"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/zlimit"
)

// maxStandings is the number of levels whose budgets an apply looks at: each costs reads of its bucket and of its audit events.
const maxStandings = 20

// standings returns where the budgets stand that a plan changes, and how many more levels it changes budgets of.
func standings(ctx context.Context, sh *shell.Shell, l *zlimit.RateLimiter, plan *provision.Plan) (all []*budgets.Standing, more int, err error) {
	for i := range plan.Changes {
		c := &plan.Changes[i]
		if !changesBudget(c) {
			continue
		}
		if len(all) == maxStandings {
			more++
			continue
		}
		one, err := budgets.Stand(ctx, l, c.After.Level, sh.Now())
		if err != nil {
			return nil, 0, err
		}
		all = append(all, one)
	}
	return all, more, nil
}

// changesBudget reports whether a change of a level may change a budget in use. A new level may change that of a wider one, and the end of a
// level puts a wider one in its place.
func changesBudget(c *provision.Change) bool {
	is := map[string]string{}
	for _, limit := range c.Before.Config.Limits {
		is[limit.Name] = limit.String()
	}
	for _, limit := range c.After.Config.Limits {
		if budgets.IsBudget(&limit) && is[limit.Name] != limit.String() {
			return true
		}
		delete(is, limit.Name)
	}
	return c.Action == provision.Delete && c.After.Level.Entity != "" && c.After.Level.Resource != ""
}

// budgetChanges returns what has become of budgets.
func budgetChanges(ctx context.Context, l *zlimit.RateLimiter, before []*budgets.Standing) (all []budgets.Change, err error) {
	for _, one := range before {
		changes, err := one.Changes(ctx, l)
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	return all, nil
}
