// Package budgets says what a changed quota does to the period that has begun: from when it holds, what is left until then, and the top-up that
// makes it hold now.
package budgets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Change is that of a quota, a session quota or a prepaid limit.
type Change struct {
	Entity   string       `json:"entity,omitempty"`
	Resource string       `json:"resource,omitempty"`
	Was      zlimit.Limit `json:"was"`
	Budget   zlimit.Limit `json:"budget"`
	From     *time.Time   `json:"from,omitempty"` // when the next period begins; nil if the budget holds immediately, or for each bucket apart
	LeftWas  int64        `json:"left_was"`
	Left     int64        `json:"left"`
	Cut      *Cut         `json:"cut,omitempty"` // what a budget that is set back does not give back; nil for nothing
	toRaise  *topUp       // what a raised budget does not add to the running period; nil for nothing
	many     bool         // it is of a level with a bucket for each entity or resource, so that it is not known what is left
}

// IsBudget reports whether a limit is an amount for a period, or one that only top-ups add to.
func IsBudget(l *zlimit.Limit) bool { return l.Resets != "" || l.Session != 0 }

// A Standing is where the budgets of a level stood before a change.
type Standing struct {
	at       zlimit.Level
	now      time.Time
	statuses map[string]zlimit.Status // of a bucket, by limit
	began    map[string]bool          // it is known that the running period began with the amount
	stored   []zlimit.Limit
}

// Stand returns where the budgets of a level stand, before a change. It costs a read of the level; for an entity and a resource also one of
// each shard of its bucket, and for each budget of its own the reads of [beganWith].
func Stand(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level, now time.Time) (*Standing, error) {
	s := &Standing{at: at, now: now, began: map[string]bool{}}
	config, err := l.Limits.Get(ctx, at)
	if s.stored = config.Limits; err != nil || at.Entity == "" || at.Resource == "" {
		return s, err
	}
	if s.statuses, err = standing(ctx, l, at); err != nil {
		return nil, err
	}
	for _, limit := range s.stored { // the changes of a wider level are not looked for
		if status, ok := s.statuses[limit.Name]; ok {
			s.began[limit.Name] = beganWith(ctx, l, at, &status, now)
		}
	}
	return s, nil
}

// standing returns where the budgets of a bucket stand, by their names; none where it is disabled or has no limits.
func standing(ctx context.Context, l *zlimit.RateLimiter, at zlimit.Level) (map[string]zlimit.Status, error) {
	statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: at.Entity, Resource: at.Resource})
	if errors.Is(err, zlimit.ErrDisabled) || errors.Is(err, zlimit.ErrNoLimits) {
		return nil, nil
	}
	found := map[string]zlimit.Status{}
	for _, s := range statuses {
		if s.Entity == at.Entity && s.Resource == at.Resource && IsBudget(&s.Limit) {
			found[s.Limit.Name] = s
		}
	}
	return found, err
}

// Changes returns what has become of the budgets since, in the order of their names. It costs a read of each shard, or of the level.
func (s *Standing) Changes(ctx context.Context, l *zlimit.RateLimiter) (changes []Change, err error) {
	if s.at.Entity == "" || s.at.Resource == "" {
		config, err := l.Limits.Get(ctx, s.at)
		return s.ofMany(config.Limits), err
	}
	after, err := standing(ctx, l, s.at)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		is := after[name]
		if was, there := s.statuses[name]; there && was.Limit.String() != is.Limit.String() {
			ch := s.change(&was, &is)
			if ch.Cut = cutOf(ctx, l, &is, s.now); ch.Cut != nil && ch.Cut.Missing > 0 {
				ch.toRaise = nil
			}
			changes = append(changes, ch)
		}
	}
	return changes, nil
}

func (s *Standing) change(was, is *zlimit.Status) Change {
	ch := Change{Entity: s.at.Entity, Resource: s.at.Resource, Was: was.Limit, Budget: is.Limit, LeftWas: was.Available, Left: is.Available}
	whole := is.Now().Capacity
	if isWhole := ch.Left >= whole && ch.Left > ch.LeftWas; is.Limit.Resets != "" && !isWhole {
		ch.From = &is.ResetsAt
	}
	if ch.toRaise = raise(was, is, s.began[is.Limit.Name]); ch.toRaise != nil {
		ch.toRaise.at = s.now
	}
	return ch
}

// ofMany returns the changed amounts of a level with many buckets.
func (s *Standing) ofMany(limits []zlimit.Limit) (changes []Change) {
	for _, is := range limits {
		for _, was := range s.stored {
			if was.Name != is.Name || was.Capacity == is.Capacity || !IsBudget(&was) || !IsBudget(&is) {
				continue
			}
			ch := Change{Entity: s.at.Entity, Resource: s.at.Resource, Was: was, Budget: is, many: true}
			if times, err := calendar.Parse(is.Resets, is.Zone); is.Resets != "" && err == nil {
				from := time.UnixMilli(times.Next(s.now.UnixMilli())).UTC()
				ch.From = &from
			}
			changes = append(changes, ch)
		}
	}
	return changes
}

// Lines say from when a changed budget of a level holds, and what is left until then. More lines stand before the top-up.
func (ch *Change) Lines(of string, more ...string) []string {
	if ch.many {
		return []string{ch.manyLine(of)}
	}
	amount := func(n int64) string { return show.Amount(ch.Budget.Name, n) }
	line := fmt.Sprintf("%s: %s", of, ch.Budget)
	left := amount(ch.Left) + " is left"
	if ch.From == nil {
		line += " from now on; "
	} else {
		line += " from " + ch.From.Format("2006-01-02T15:04Z") + " on; until then "
	}
	switch {
	case ch.Left == ch.LeftWas:
		line += left + ", as before"
	case ch.Left < ch.LeftWas:
		line += left + ", cut from " + amount(ch.LeftWas)
	default:
		line += left + ", and was " + amount(ch.LeftWas)
	}
	lines := append([]string{line}, more...)
	if ch.Cut != nil {
		lines = append(lines, "  "+ch.Cut.Line())
	}
	if ch.toRaise != nil {
		lines = append(lines, "  "+ch.toRaise.line(ch.Entity, ch.Resource))
	}
	return lines
}

// manyLine says from when a budget of many buckets holds.
func (ch *Change) manyLine(of string) string {
	line := fmt.Sprintf("%s: %s", of, ch.Budget)
	if ch.Budget.Capacity < ch.Was.Capacity {
		return line + " from now on: a bucket in use is cut to the new amount"
	}
	from := "a bucket in use gets it with its next session"
	switch {
	case ch.From != nil:
		from = "a bucket in use gets it from " + ch.From.Format("2006-01-02T15:04Z") + " on"
	case ch.Budget.Session == grammar.MaxSession:
		from = "a bucket in use gets nothing of a raise"
	}
	return line + ": " + from + ", and zlimit bucket top-up adds to one now"
}
