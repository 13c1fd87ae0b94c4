package budgets

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Raised budget has an amount that holds from its next period on.
type Raised struct {
	Entity   string    `json:"entity"`
	Resource string    `json:"resource"`
	Limit    string    `json:"limit"`
	Was      int64     `json:"was"` // that the running period began with, tokens
	Is       int64     `json:"is"`  // from the next period on
	From     time.Time `json:"from"`
}

// RaisedOf returns the budgets that were raised in their running periods. Who may not read the audit log or usage sees none.
func RaisedOf(ctx context.Context, l *zlimit.RateLimiter, statuses zlimit.Statuses, now time.Time) (all []Raised) {
	for i := range statuses {
		s := &statuses[i]
		if was, ok, err := hindsight.Raised(ctx, l, s, now); err == nil && ok {
			all = append(all, Raised{s.Entity, s.Resource, s.Limit.Name, was, s.Limit.Capacity, s.ResetsAt})
		}
	}
	return all
}

// Held returns statuses with the budgets of the running periods.
func Held(statuses zlimit.Statuses, all []Raised) zlimit.Statuses {
	statuses = slices.Clone(statuses)
	for i := range statuses {
		s := &statuses[i]
		for _, r := range all {
			if r.Entity == s.Entity && r.Resource == s.Resource && r.Limit == s.Limit.Name {
				s.Limit.Capacity = r.Was
			}
		}
	}
	return statuses
}

// Line says from when the budget holds.
func (r *Raised) Line() string {
	return fmt.Sprintf("%s of %s for %s was raised to %s, which holds from %s on", r.Limit, r.Entity, r.Resource, show.Amount(r.Limit, r.Is),
		r.From.UTC().Format("2006-01-02T15:04Z"))
}
