package teams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A changed budget was another one before. It says what the change does to the period that has begun.
type changed struct {
	budgets.Change
	Kept   []part `json:"kept,omitempty"` // of the stored budget, since the command did not say them
	stands bool   // it is known what is left
}

// setBudget sets a budget, and returns what that does to one that was there; nil for a new one, for the same of which no part is kept, and
// while it is disabled. A kept part is one that the flag does not say, and that differs from a new budget's.
func setBudget(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level, to *asked, now time.Time) (*changed, error) {
	stored, err := l.Limits.Get(ctx, at)
	if err != nil {
		return nil, err
	}
	is := slices.IndexFunc(stored.Limits, isBudget)
	before, err := budgets.Stand(ctx, l, at, now)
	if err != nil {
		return nil, err
	}
	budget, kept, err := putBudget(ctx, l, at, to)
	if err != nil {
		return nil, err
	}
	if is < 0 || len(kept) == 0 && stored.Limits[is].String() == budget.String() {
		return nil, nil
	}
	ch := changed{Change: budgets.Change{Entity: at.Entity, Resource: at.Resource, Was: stored.Limits[is], Budget: budget}, Kept: kept}
	found, err := before.Changes(ctx, l)
	found = slices.DeleteFunc(found, func(ch budgets.Change) bool { return !isBudget(ch.Budget) })
	if err != nil || len(found) == 0 { // the same, or disabled
		return &ch, err
	}
	ch.Change, ch.stands = found[0], true
	return &ch, nil
}

// putBudget stores a budget over the parts that it keeps, and leaves the other limits of the level as they are. A budget that may carry
// nothing, or less than the stored one, does not keep that.
func putBudget(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level, to *asked) (budget zlimit.Limit, kept []part, err error) {
	put := func(to *asked) error {
		return l.Limits.Update(ctx, at, func(config *zlimit.Config) error {
			budget, kept = to.over(config.Limits)
			config.Limits = append(slices.DeleteFunc(slices.Clone(config.Limits), isBudget), budget)
			return nil
		})
	}
	err = put(to)
	var invalid *zlimit.ValidationError
	if slices.Contains(kept, partCarry) && errors.As(err, &invalid) && strings.HasSuffix(invalid.Field, " carry") {
		without := asked{Limit: to.Limit, says: maps.Clone(to.says)}
		without.says[partCarry] = true
		err = put(&without)
	}
	if len(kept) > 0 && errors.As(err, &invalid) {
		err = fmt.Errorf("%w; %s of the stored budget: %s", err, strings.TrimSpace(keptLine(&budget, kept)), "carry 0, when none, floors none and enforced remove them")
	}
	return budget, kept, err
}

// lines say from when a changed budget holds, and what is left until then.
func (ch *changed) lines() []string {
	kept := append(ch.kept(), ch.carry()...)
	if ch.stands {
		return ch.Lines(ch.Entity, kept...)
	}
	line := fmt.Sprintf("%s: %s", ch.Entity, ch.Budget)
	if ch.Was.String() == ch.Budget.String() {
		return append([]string{line + ", as before"}, ch.kept()...)
	}
	return append([]string{line}, kept...)
}

// carry says what a budget carries into its next period, and what it carried before; nothing where neither carries anything.
func (ch *changed) carry() []string {
	up := func(l zlimit.Limit) string {
		if l.Carry == 0 {
			return "nothing"
		}
		return "up to " + show.Amount(grammar.Money, l.Carry)
	}
	switch {
	case ch.Was.Carry == 0 && ch.Budget.Carry == 0:
		return nil
	case ch.Was.Carry == ch.Budget.Carry:
		return []string{"  it carries " + up(ch.Budget) + " into the next period, as before"}
	default:
		return []string{"  it carries " + up(ch.Budget) + " into the next period, and carried " + up(ch.Was) + " before"}
	}
}

// kept says which parts of the stored budget the command did not say, and has kept; nothing if there is none beside the carry.
func (ch *changed) kept() []string {
	others := slices.DeleteFunc(slices.Clone(ch.Kept), func(p part) bool { return p == partCarry })
	if len(others) == 0 {
		return nil
	}
	return []string{keptLine(&ch.Budget, others)}
}

// keptLine names parts of a budget with their values.
func keptLine(budget *zlimit.Limit, kept []part) string {
	var texts []string
	for _, p := range kept {
		texts = append(texts, string(p)+" "+p.of(budget))
	}
	return "  it keeps " + strings.Join(texts, ", ")
}
