package budgets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// A topUp gives a running period what a raised budget adds to the next one alone.
type topUp struct {
	amount int64 // that brings the period to the new budget, less what the period has used if that is not known
	used   bool  // what the period has used is still to be subtracted
	limit  string
	at     time.Time // of the raise
}

// topUpLine returns a command that adds an amount to a bucket once, however often it is run: its operation is named after the change at a time that it
// makes up for.
func topUpLine(entity, resource, limit string, amount int64, after string, at time.Time) string {
	return fmt.Sprintf("zlimit bucket top-up %s %s --add %s=%s --operation %s-%s-%s", grammar.ShellWord(entity), grammar.ShellWord(resource),
		limit, grammar.FormatAmount(limit, amount), after, limit, at.UTC().Format("20060102T150405Z"))
}

// raise returns the top-up that brings the running period to a raised quota, nil if the period has it already, or has other times than
// before. The period began with the budget before where that is known. Else what it has used is not known either.
func raise(before, after *zlimit.Status, began bool) *topUp {
	was, is := before.Limit, after.Limit
	sameTimes := was.Resets == is.Resets && was.Zone == is.Zone && was.Session == is.Session
	if !sameTimes || is.Resets == "" && is.Session == 0 || is.Capacity <= was.Capacity || was.Windows != "" || is.Windows != "" || !after.GrantEnds.IsZero() {
		return nil
	}
	added := max(after.Available-before.Available, 0) // by the change itself, to a period without requests
	t := topUp{amount: is.Capacity - was.Capacity - after.Granted - added, limit: is.Name}
	if !began {
		t = topUp{amount: is.Capacity + after.Carried - after.Available, used: true, limit: is.Name}
	}
	if t.amount <= 0 || !began && added > 0 {
		return nil
	}
	return &t
}

// line says how to bring the period to the new budget.
func (t *topUp) line(entity, resource string) string {
	if t.used {
		return fmt.Sprintf("a top-up of %s, less what is used so far, brings it to the new budget now",
			show.Amount(t.limit, t.amount))
	}
	return topUpLine(entity, resource, t.limit, t.amount, "raise", t.at) + " adds the difference now"
}

// keptEvents is how long audit events are kept without a setting of the namespace.
const keptEvents = 90 * 24 * time.Hour

// beganWith reports whether it is known that the running period of a budget began with its present amount: the audit log has no change of
// the amount since. It is not known where the log does not reach back so far, or cannot be read. It costs reads of up to three levels, and
// of the entity's events since the period began, and of its record.
func beganWith(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level, s *zlimit.Status, now time.Time) bool {
	since, ok := beginning(s, now)
	if !ok {
		return false
	}
	if at.Entity != "" {
		e, err := l.Entities.Get(ctx, at.Entity)
		if err != nil && !errors.Is(err, zlimit.ErrEntityNotFound) || e.Metadata[rotation.FromKey] != "" && e.CreatedAt.After(since) { // its period began with the budget of its former ID
			return false
		}
	}
	system, err := l.Limits.Get(ctx, zlimit.Level{})
	if err != nil || !since.IsZero() && now.Sub(since) > cmp.Or(system.AuditRetention, keptEvents) {
		return false
	}
	created := 0
	for e, err := range l.Audit.Events(ctx, at.Entity, zlimit.AuditQuery{From: since, Resource: at.Resource}) {
		if err != nil {
			return false
		}
		has, there := termsIn(e.Details, s.Limit.Name)
		if e.Action == zlimit.ActionLimitsDeleted && there {
			return false
		}
		before, _ := e.Details["before"].(map[string]any)
		had, wasThere := termsIn(before, s.Limit.Name)
		if e.Action != zlimit.ActionLimitsSet || has == had {
			continue
		}
		if wasThere {
			return false
		}
		created++
	}
	if created == 0 {
		return !since.IsZero() // else the log does not reach back to the beginning
	}
	return created == 1 && !inherits(ctx, l, at, s.Limit.Name, &system)
}

// inherits reports whether a bucket may have had a budget before its level got one: from a wider level.
func inherits(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level, name string, system *zlimit.Config) bool {
	has := func(c *zlimit.Config) bool {
		return slices.ContainsFunc(c.Limits, func(l zlimit.Limit) bool { return l.Name == name })
	}
	for _, wider := range []zlimit.Level{{Entity: at.Entity}, {Resource: at.Resource}} {
		if config, err := l.Limits.Get(ctx, wider); err != nil || has(&config) {
			return true
		}
	}
	return has(system)
}

// beginning returns when the running period of a budget began; the zero time for a prepaid one, and false where that is not known.
func beginning(s *zlimit.Status, now time.Time) (time.Time, bool) {
	switch {
	case s.Limit.Session == grammar.MaxSession:
		return time.Time{}, true
	case s.Limit.Session > 0:
		return s.ResetsAt.Add(-s.Limit.Session), !s.ResetsAt.IsZero()
	}
	times, err := calendar.Parse(s.Limit.Resets, s.Limit.Zone)
	if err != nil {
		return time.Time{}, false
	}
	last, ok := times.Last(now.UnixMilli())
	return time.UnixMilli(last), ok
}

// terms are the parts of a budget that decide what a period begins with, as an audit event has them.
type terms struct{ capacity, resets, zone, session, windows any }

// termsIn returns the terms of the budget in the details of an event, and whether they have one.
func termsIn(details map[string]any, name string) (terms, bool) {
	limits, _ := details["limits"].([]any)
	for _, limit := range limits {
		if l, ok := limit.(map[string]any); ok && l["name"] == name {
			return terms{l["capacity"], l["resets"], l["zone"], l["session_seconds"], l["windows"]}, true
		}
	}
	return terms{}, false
}
