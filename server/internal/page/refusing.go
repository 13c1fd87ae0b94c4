package page

import (
	"context"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// refusals are what was refused in the last minute, as far as this process and reports know.
func (p *page) refusals(ctx context.Context, resource string, pulse *recent.Pulse) ([]recent.Refused, error) {
	reported, err := p.feed.rejected(ctx, resource)
	return recent.Refusals(pulse.Refusals, reported), err
}

// A cause writes what is known of a limit that refuses.
type cause struct{ recent.Cause }

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

func (p *page) causes(status func(entity, limit string) *zlimit.Status, refusals []recent.Refused) (all []cause, total int64) {
	causes, total := recent.Causes(refusals, status, p.Now())
	for _, c := range causes {
		all = append(all, cause{c})
	}
	return all, total
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
