package page

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// refusals are what was refused in the last minute: what this process saw, and what other processes reported. Some may be both.
func (p *page) refusals(ctx context.Context, resource string, pulse *pulse) ([]refusedBy, error) {
	reported, err := p.feed.rejected(ctx, resource)
	of := map[refusal]refusedBy{}
	for _, r := range pulse.Refusals {
		of[r.refusal] = r
	}
	for _, r := range reported.Heaviest {
		key := refusal{r.Entity, r.Resource, r.LimitEntity, r.Limit}
		if have := of[key]; r.Count > have.N {
			have.refusal, have.N = key, r.Count
			of[key] = have
		}
	}
	return slices.SortedFunc(maps.Values(of), func(a, b refusedBy) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Limit, b.Limit))
	}), err
}

// A cause is a limit that refuses.
type cause struct {
	refusedBy
	Part   float64        // of all refusals
	Status *zlimit.Status // where it stands; nil where its bucket is not listed
	At     time.Time      // when it has room for what was asked; zero where that is not known
}

// Never reports whether what was asked can never fit.
func (c *cause) Never() bool { return c.RetryAfter == zlimit.Never }

// Left is what the limit has, or owes.
func (c *cause) Left() string {
	left := amount(c.Limit, math.Abs(float64(c.Status.Available)))
	if !isMoney(c.Limit) {
		left += " tokens"
	}
	return left
}

// Asked is what was asked of the limit.
func (c *cause) Asked() string { return amount(c.Limit, float64(max(c.Requested, 1))) }

// causes adds up refusals by the limit that refuses, the heaviest first, and all of them.
func (p *page) causes(status func(entity, limit string) *zlimit.Status, refusals []refusedBy) (causes []cause, total int64) {
	by := map[[2]string]cause{}
	for _, of := range refusals {
		key := [2]string{of.LimitEntity, of.Limit}
		sum, ok := by[key]
		if !ok {
			sum = cause{refusedBy: of}
			sum.N = 0
		}
		sum.N += of.N
		total += of.N
		by[key] = sum
	}
	causes = slices.SortedFunc(maps.Values(by), func(a, b cause) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.LimitEntity, b.LimitEntity), cmp.Compare(a.Limit, b.Limit))
	})
	for i := range causes {
		c := &causes[i]
		c.Part = float64(c.N) / float64(total)
		c.Status = status(c.LimitEntity, c.Limit)
		c.At = p.better(c.Status, &c.refusedBy)
	}
	return causes, total
}

// better returns when a limit that refuses has room for what was asked; zero where that is not known.
func (p *page) better(st *zlimit.Status, of *refusedBy) time.Time {
	now := p.Now()
	switch {
	case st == nil:
	case isBudget(&st.Limit) && !st.ResetsAt.IsZero() && st.Available < max(of.Requested, 1):
		return st.ResetsAt
	case !of.Last.IsZero() && of.RetryAfter > 5*time.Second && of.RetryAfter != zlimit.Never && of.Last.Add(of.RetryAfter).After(now):
		return of.Last.Add(of.RetryAfter)
	case st.Queue > 2*time.Second:
		return now.Add(st.Queue)
	}
	return time.Time{}
}

func zoneOf(l *zlimit.Limit) *time.Location {
	if zone, err := time.LoadLocation(l.Zone); err == nil && l.Zone != "" {
		return zone
	}
	return time.UTC
}

// whose names a limit, with its entity if that is a parent.
func whose(st *zlimit.Status, id string) string {
	if st.Entity == id {
		return limitName(&st.Limit)
	}
	return limitName(&st.Limit) + " of " + named(st.Entity)
}
