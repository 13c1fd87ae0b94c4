package teams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A changed budget was another one before. It says what the change does to the period that has begun.
type changed struct {
	Entity   string       `json:"entity"`
	Resource string       `json:"resource"`
	Was      zlimit.Limit `json:"was"`
	Budget   zlimit.Limit `json:"budget"`
	From     *time.Time   `json:"from,omitempty"` // when the next period begins; nil if the budget holds immediately
	LeftWas  int64        `json:"left_was"`
	Left     int64        `json:"left"`
	toRaise  *topUp       // what a raised budget does not add to the running period; nil for nothing
}

// setBudget sets a budget, and returns what that does to one that was there; nil for a new one, for the same, and while it is disabled.
func setBudget(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level, to asked, now time.Time) (*changed, error) {
	before, err := standing(ctx, l, at)
	if err != nil {
		return nil, err
	}
	began := false
	if before != nil {
		began = beganWith(ctx, l, at, before, now)
	}
	if err := putBudget(ctx, l, at, to); err != nil {
		return nil, err
	}
	after, err := standing(ctx, l, at)
	if err != nil || before == nil || after == nil || before.Limit.String() == after.Limit.String() {
		return nil, err
	}
	ch := changed{Entity: at.Entity, Resource: at.Resource, Was: before.Limit, Budget: after.Limit, LeftWas: before.Available, Left: after.Available}
	whole := after.Now().Capacity
	if isWhole := ch.Left >= whole && ch.Left > ch.LeftWas; after.Limit.Resets != "" && !isWhole {
		ch.From = &after.ResetsAt
	}
	ch.toRaise = raise(before, after, began)
	return &ch, nil
}

// standing returns where the own budget of a level stands, nil if it has none or is disabled.
func standing(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level) (*zlimit.Status, error) {
	stored, err := l.Limits.Get(ctx, at)
	if err != nil || !hasBudget(stored.Limits) {
		return nil, err
	}
	statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: at.Entity, Resource: at.Resource})
	if errors.Is(err, zlimit.ErrDisabled) {
		return nil, nil
	}
	for i, s := range statuses {
		if s.Entity == at.Entity && s.Resource == at.Resource && s.Limit.Name == grammar.Money {
			return &statuses[i], err
		}
	}
	return nil, err
}

// lines say from when a changed budget holds, and what is left until then.
func (ch *changed) lines() (lines []string) {
	dollars := func(n int64) string { return show.Amount(grammar.Money, n) }
	line := fmt.Sprintf("%s: %s", ch.Entity, ch.Budget)
	left := dollars(ch.Left) + " is left"
	if ch.From == nil {
		line += " from now on; "
	} else {
		line += " from " + ch.From.Format("2006-01-02T15:04Z") + " on; until then "
	}
	switch {
	case ch.Left == ch.LeftWas:
		line += left + ", as before"
	case ch.Left < ch.LeftWas:
		line += left + ", cut from " + dollars(ch.LeftWas)
	default:
		line += left + ", and was " + dollars(ch.LeftWas)
	}
	lines = append(append(lines, line), ch.carry()...)
	if ch.toRaise != nil {
		lines = append(lines, "  "+ch.toRaise.line(ch.Entity, ch.Resource))
	}
	return lines
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
