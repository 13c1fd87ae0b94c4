package api

import (
	"cmp"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// available serves GET /v1/available.
func (h *handler) available(c *call, q *zlimit.AvailableQuery) (any, error) {
	if err := c.mayName(q.Entity); err != nil {
		return nil, err
	}
	statuses, err := c.limiter.Available(c.r.Context(), *q)
	return orError(map[string]any{"limits": limitsOf(statuses, c.caller)}, err)
}

// A usageReply is the reply to GET /v1/usage.
type usageReply struct {
	Summary zlimit.Summary `json:"summary"`
	// Windows are the snapshots that the call asked for, the first ones of the range.
	Windows []zlimit.Snapshot `json:"windows"`
	// CompleteTo is up to when consumption is counted; left out where that is not known.
	CompleteTo time.Time         `json:"complete_to,omitzero"`
	Gaps       []zlimit.UsageGap `json:"gaps"` // in the range
}

// between fills in a range of time, and checks its bound. The defaults end now, and begin some time before the end.
func between(from, to *time.Time, now time.Time, usual, most time.Duration) error {
	if to.IsZero() {
		*to = now
	}
	if from.IsZero() {
		*from = to.Add(-usual)
	}
	if !from.Before(*to) || to.Sub(*from) > most {
		return invalid("from", from.Format(time.RFC3339), fmt.Sprintf("must be before to, by %d days at most", most/(24*time.Hour)))
	}
	return nil
}

// maxRange bounds the range of a query of usage.
const maxRange = 366 * 24 * time.Hour

// A usageQuery has the parameters of GET /v1/usage.
type usageQuery struct {
	zlimit.UsageQuery

	Windows int `json:"windows"`
}

// usage serves GET /v1/usage.
func (h *handler) usage(c *call, q *usageQuery) (any, error) {
	err := between(&q.From, &q.To, h.Now(), 24*time.Hour, maxRange)
	if err == nil && q.Entity == "" && q.Resource == "" {
		err = invalid("entity", "", "must be given, or resource")
	}
	if err = cmp.Or(err, c.mayName(q.Entity)); err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	summary, err := c.limiter.Usage.Summary(ctx, q.UsageQuery)
	if err != nil {
		return nil, err
	}
	reply := usageReply{Summary: summary, Windows: []zlimit.Snapshot{}, Gaps: []zlimit.UsageGap{}}
	if q.Limit = q.Windows; q.Windows > 0 {
		for snapshot, err := range c.limiter.Usage.Snapshots(ctx, q.UsageQuery) {
			if err != nil {
				return nil, err
			}
			reply.Windows = append(reply.Windows, snapshot)
		}
	}
	complete, err := c.limiter.Usage.Completeness(ctx)
	reply.CompleteTo = complete.To
	reply.Gaps = append(reply.Gaps, complete.Within(q.From, q.To)...)
	return orError(reply, err)
}

// forecast serves GET /v1/forecast.
func (h *handler) forecast(c *call, q *zlimit.Level) (any, error) {
	if err := c.mayName(q.Entity); err != nil {
		return nil, err
	}
	found, err := c.limiter.Usage.Forecast(c.r.Context(), q.Entity, q.Resource)
	budgets := []zlimit.Forecast{}
	for _, f := range found {
		if c.caller.MayEntity(f.Entity) { // and not of a parent that the caller may not name
			budgets = append(budgets, f)
		}
	}
	return orError(map[string]any{"budgets": budgets}, err)
}

// maxRejectedRange bounds a query of rejections, whose reports are kept for 30 days at most.
const maxRejectedRange = 31 * 24 * time.Hour

// rejections serves GET /v1/rejections. A rejection names the parent whose limit rejected, so it is for callers of all entities.
func (h *handler) rejections(c *call, q *zlimit.RejectedQuery) (any, error) {
	if err := cmp.Or(c.mayName(""), between(&q.From, &q.To, h.Now(), 10*time.Minute, maxRejectedRange)); err != nil {
		return nil, err
	}
	return orError(c.limiter.Usage.Rejected(c.r.Context(), *q))
}
