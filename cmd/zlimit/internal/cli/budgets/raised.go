package budgets

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// A Raised budget has an amount that holds from its next period on.
type Raised struct {
	Entity   string    `json:"entity"`
	Resource string    `json:"resource"`
	Limit    string    `json:"limit"`
	Was      int64     `json:"was"`                  // that the running period began with at least, tokens
	Most     int64     `json:"was_at_most,omitzero"` // where that is not known
	Is       int64     `json:"is"`                   // from the next period on
	From     time.Time `json:"from"`
}

// Remarks are what is to be said of budgets that were changed in their running periods.
type Remarks struct {
	Raised []Raised `json:"raised,omitempty"`
	Cuts   []Cut    `json:"cuts,omitempty"`
}

// RemarksOf returns the remarks on budgets.
func RemarksOf(ctx context.Context, l *zlimit.RateLimiter, statuses zlimit.Statuses, now time.Time) Remarks {
	return Remarks{raisedOf(ctx, l, statuses, now), CutsOf(ctx, l, statuses, now)}
}

// Lines returns a line for each remark.
func (n *Remarks) Lines() (lines []string) {
	for i := range n.Raised {
		lines = append(lines, n.Raised[i].Line())
	}
	for i := range n.Cuts {
		lines = append(lines, n.Cuts[i].Line())
	}
	return lines
}

// raisedOf returns the budgets that were raised in their running periods. Who may not read the audit log or usage sees none.
func raisedOf(ctx context.Context, l *zlimit.RateLimiter, statuses zlimit.Statuses, now time.Time) (all []Raised) {
	for i := range statuses {
		s := &statuses[i]
		r, ok, err := hindsight.Raised(ctx, l, s, now)
		if err != nil || !ok {
			continue
		}
		raised := Raised{Entity: s.Entity, Resource: s.Resource, Limit: s.Limit.Name, Was: r.Least, Is: s.Limit.Capacity, From: s.ResetsAt}
		if !r.Known() {
			raised.Most = r.Most
		}
		all = append(all, raised)
	}
	return all
}

// Capacity writes the capacity of a limit in its running period. Where it is not known what the period began with, it says from what to what.
func (n *Remarks) Capacity(s *zlimit.Status) string {
	r := n.Raise(s)
	switch {
	case r == nil:
		return show.Amount(s.Limit.Name, s.Now().Capacity)
	case r.Most > 0:
		return show.Amount(r.Limit, r.Was) + " to " + show.Amount(r.Limit, r.Most)
	default:
		return show.Amount(r.Limit, r.Was)
	}
}

// Print prints where limits stand, with the capacities of the running periods, and the remarks.
func (n *Remarks) Print(p *show.Page, statuses zlimit.Statuses, requested bool) {
	p.Statuses(statuses, requested, n.Capacity)
	for _, line := range n.Lines() {
		p.Linef("%s", line)
	}
}

// Raise returns the raise of a limit, nil for none.
func (n *Remarks) Raise(s *zlimit.Status) *Raised {
	for i := range n.Raised {
		if r := &n.Raised[i]; r.Entity == s.Entity && r.Resource == s.Resource && r.Limit == s.Limit.Name {
			return r
		}
	}
	return nil
}

// Line says from when the budget holds.
func (r *Raised) Line() string {
	line := fmt.Sprintf("%s of %s for %s was raised to %s, which holds from %s on", r.Limit, r.Entity, r.Resource, show.Amount(r.Limit, r.Is),
		r.From.UTC().Format("2006-01-02T15:04Z"))
	if r.Most > 0 {
		line += fmt.Sprintf("; it is not known what the running period began with: %s to %s",
			show.Amount(r.Limit, r.Was), show.Amount(r.Limit, r.Most))
	}
	return line
}
