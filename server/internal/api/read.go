package api

import (
	"cmp"
	"net/http"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// available serves GET /v1/available.
func (h *handler) available(c *call) (any, error) {
	q := c.query("entity", "resource", "parents")
	asked := zlimit.AvailableQuery{Entity: q.required("entity"), Resource: q.Get("resource"), Parents: q.flag("parents")}
	if err := cmp.Or(q.err, c.mayName(asked.Entity)); err != nil {
		return nil, err
	}
	statuses, err := c.limiter.Available(c.r.Context(), asked)
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

// The bounds of a query of usage.
const (
	maxWindows = 1000
	maxRange   = 366 * 24 * time.Hour
)

// usage serves GET /v1/usage.
func (h *handler) usage(c *call) (any, error) {
	q := c.query("entity", "resource", "window", "from", "to", "windows")
	asked := zlimit.UsageQuery{Entity: q.Get("entity"), Resource: q.Get("resource"), Window: q.window("window")}
	asked.From, asked.To = q.between(h.Now(), 24*time.Hour, maxRange)
	windows := q.integer("windows", 0, 0, maxWindows)
	if asked.Entity == "" && asked.Resource == "" {
		q.invalid("entity", "", "must be given, or resource")
	}
	if err := cmp.Or(q.err, c.mayName(asked.Entity)); err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	summary, err := c.limiter.Usage.Summary(ctx, asked)
	if err != nil {
		return nil, err
	}
	reply := usageReply{Summary: summary, Windows: []zlimit.Snapshot{}, Gaps: []zlimit.UsageGap{}}
	if asked.Limit = windows; windows > 0 {
		for snapshot, err := range c.limiter.Usage.Snapshots(ctx, asked) {
			if err != nil {
				return nil, err
			}
			reply.Windows = append(reply.Windows, snapshot)
		}
	}
	complete, err := c.limiter.Usage.Completeness(ctx)
	reply.CompleteTo = complete.To
	reply.Gaps = append(reply.Gaps, complete.Within(asked.From, asked.To)...)
	return orError(reply, err)
}

// forecast serves GET /v1/forecast.
func (h *handler) forecast(c *call) (any, error) {
	q := c.query("entity", "resource")
	entity, resource := q.required("entity"), q.Get("resource")
	if err := cmp.Or(q.err, c.mayName(entity)); err != nil {
		return nil, err
	}
	found, err := c.limiter.Usage.Forecast(c.r.Context(), entity, resource)
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
func (h *handler) rejections(c *call) (any, error) {
	q := c.query("entity", "resource", "from", "to", "max")
	q.keep(c.mayName(""))
	asked := zlimit.RejectedQuery{Entity: q.Get("entity"), Resource: q.Get("resource"), Max: q.integer("max", 20, 1, 100)}
	asked.From, asked.To = q.between(h.Now(), 10*time.Minute, maxRejectedRange)
	if q.err != nil {
		return nil, q.err
	}
	return orError(c.limiter.Usage.Rejected(c.r.Context(), asked))
}

// noEvents is the answer of a server that keeps none.
var noEvents = refuse(http.StatusNotFound, "not_found", "No events", "The server does not observe its limiters.")
