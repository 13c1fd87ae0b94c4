package budgets

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// A Cut is a budget that was lowered in its running period for a while, which cut what was left.
type Cut struct {
	Entity   string    `json:"entity"`
	Resource string    `json:"resource"`
	Limit    string    `json:"limit"`
	To       int64     `json:"to"` // tokens
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	Budget   int64     `json:"budget"`              // of the period, tokens
	Used     int64     `json:"used,omitzero"`       // as far as it is counted, tokens
	Unsure   int64     `json:"unsure,omitzero"`     // of Used: may be of the period before, tokens
	Counted  time.Time `json:"counted_to,omitzero"` // the zero time where usage is not complete
	Missing  int64     `json:"missing,omitzero"`    // that brings the balance to the budget less what is used, tokens; at least, where Used is not sure
}

// CutsOf returns the budgets that were cut in their running periods. Who cannot read the audit log sees none.
func CutsOf(ctx context.Context, l *zlimit.RateLimiter, statuses zlimit.Statuses, now time.Time) (all []Cut) {
	for i := range statuses {
		if c := cutOf(ctx, l, &statuses[i], now); c != nil {
			all = append(all, *c)
		}
	}
	return all
}

func cutOf(ctx context.Context, l *zlimit.RateLimiter, s *zlimit.Status, now time.Time) *Cut {
	c, is, err := hindsight.CutOf(ctx, l, s, now)
	if err != nil || !is {
		return nil
	}
	return &Cut{s.Entity, s.Resource, s.Limit.Name, c.To, c.From, c.Until, c.Budget, c.Used, c.Unsure, c.Counted, max(c.Missing, 0)}
}

// Line says what the cut took, and the command that adds it.
func (c *Cut) Line() string {
	const minutes = "2006-01-02T15:04Z"
	amount := func(n int64) string { return show.Amount(c.Limit, n) }
	line := fmt.Sprintf("%s of %s for %s was %s from %s to %s, which ", c.Limit, c.Entity, c.Resource, amount(c.To),
		c.From.UTC().Format(minutes), c.Until.UTC().Format(minutes))
	if c.Counted.IsZero() {
		return line + fmt.Sprintf("may have cut what is left: zlimit available %s %s says how much "+
			"once an aggregator has counted the usage until then", grammar.ShellWord(c.Entity), grammar.ShellWord(c.Resource))
	}
	used, took, counted := amount(c.Used), "what the cut took", c.Counted.UTC().Format(time.RFC3339)
	if c.Unsure > 0 {
		used, took = amount(c.Used-c.Unsure)+" to "+used, "the least that the cut took"
		counted += ": usage is counted by hours, and the period began within one"
	}
	used = fmt.Sprintf("cut what is left: %s of %s are used, as counted to %s", used, amount(c.Budget), counted)
	if c.Missing == 0 {
		return line + "may have " + used
	}
	return line + fmt.Sprintf("%s; %s adds %s, less what was used since then", used, topUpLine(c.Entity, c.Resource, c.Limit, c.Missing, "cut", c.Until), took)
}
