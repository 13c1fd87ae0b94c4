package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// available serves GET /v1/available.
func (h *handler) available(c *call) (any, error) {
	get, err := readQuery(c.r, "entity", "resource", "parents")
	if err != nil {
		return nil, err
	}
	q := zlimit.AvailableQuery{Entity: get("entity"), Resource: get("resource")}
	switch parents := get("parents"); parents {
	case "", "false":
	case "true":
		q.Parents = true
	default:
		return nil, invalid("parents", shown([]byte(parents)), "must be true or false")
	}
	if q.Entity == "" {
		return nil, invalid("entity", "", "must be given")
	}
	if err := c.mayName(q.Entity); err != nil {
		return nil, err
	}
	statuses, err := c.limiter.Available(c.r.Context(), q)
	if err != nil {
		return nil, err
	}
	return map[string]any{"limits": limitsOf(statuses, c.caller)}, nil
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
	q, windows, err := h.readUsage(c)
	if err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	reply := usageReply{Windows: []zlimit.Snapshot{}, Gaps: []zlimit.UsageGap{}}
	if reply.Summary, err = c.limiter.Usage.Summary(ctx, q); err != nil {
		return nil, err
	}
	if q.Limit = windows; windows > 0 {
		for snapshot, err := range c.limiter.Usage.Snapshots(ctx, q) {
			if err != nil {
				return nil, err
			}
			reply.Windows = append(reply.Windows, snapshot)
		}
	}
	complete, err := c.limiter.Usage.Completeness(ctx)
	if err != nil {
		return nil, err
	}
	reply.CompleteTo = complete.To
	reply.Gaps = append(reply.Gaps, complete.Within(q.From, q.To)...)
	return &reply, nil
}

// readUsage reads the parameters of a query of usage.
func (h *handler) readUsage(c *call) (q zlimit.UsageQuery, windows int, err error) {
	get, err := readQuery(c.r, "entity", "resource", "window", "from", "to", "windows")
	if err != nil {
		return q, 0, err
	}
	q.Entity, q.Resource, q.Window = get("entity"), get("resource"), zlimit.WindowHourly
	if name := get("window"); name != "" {
		if q.Window, err = zlimit.ParseWindow(name); err != nil {
			return q, 0, invalid("window", shown([]byte(name)), "must be hourly, daily or monthly")
		}
	}
	if q.From, q.To, err = h.readRange(get, 24*time.Hour, maxRange); err != nil {
		return q, 0, err
	}
	if s := get("windows"); s != "" {
		var n int64
		if err := integer(&n, 0, maxWindows)("windows", []byte(s)); err != nil {
			return q, 0, err
		}
		windows = int(n)
	}
	if q.Entity == "" && q.Resource == "" {
		return q, 0, invalid("entity", "", "must be given, or resource")
	}
	return q, windows, c.mayName(q.Entity)
}

// forecast serves GET /v1/forecast.
func (h *handler) forecast(c *call) (any, error) {
	get, err := readQuery(c.r, "entity", "resource")
	if err != nil {
		return nil, err
	}
	entity, resource := get("entity"), get("resource")
	if entity == "" {
		return nil, invalid("entity", "", "must be given")
	}
	if err := c.mayName(entity); err != nil {
		return nil, err
	}
	found, err := c.limiter.Usage.Forecast(c.r.Context(), entity, resource)
	if err != nil {
		return nil, err
	}
	reply := struct {
		Budgets []zlimit.Forecast `json:"budgets"`
	}{[]zlimit.Forecast{}}
	for _, f := range found {
		if c.caller.MayEntity(f.Entity) { // and not of a parent that the caller may not name
			reply.Budgets = append(reply.Budgets, f)
		}
	}
	return &reply, nil
}

// maxRejectedRange bounds a query of rejections, whose reports are kept for 30 days at most.
const maxRejectedRange = 31 * 24 * time.Hour

// rejections serves GET /v1/rejections. A rejection names the parent whose limit rejected, so it is for callers of all entities.
func (h *handler) rejections(c *call) (any, error) {
	get, err := readQuery(c.r, "entity", "resource", "from", "to", "max")
	if err != nil {
		return nil, err
	}
	if err := c.mayName(""); err != nil {
		return nil, err
	}
	q := zlimit.RejectedQuery{Entity: get("entity"), Resource: get("resource")}
	if q.From, q.To, err = h.readRange(get, 10*time.Minute, maxRejectedRange); err != nil {
		return nil, err
	}
	if q.Max = 20; get("max") != "" {
		var n int64
		if err := integer(&n, 1, 100)("max", []byte(get("max"))); err != nil {
			return nil, err
		}
		q.Max = int(n)
	}
	return orError(c.limiter.Usage.Rejected(c.r.Context(), q))
}

// readRange reads the parameters from and to of a query. The defaults end now, and begin some time before the end.
func (h *handler) readRange(get func(string) string, before, most time.Duration) (from, to time.Time, err error) {
	to = h.Now()
	if s := get("to"); s != "" {
		if err := readTime(&to, "to", s); err != nil {
			return from, to, err
		}
	}
	from = to.Add(-before)
	if s := get("from"); s != "" {
		if err := readTime(&from, "from", s); err != nil {
			return from, to, err
		}
	}
	if !from.Before(to) || to.Sub(from) > most {
		return from, to, invalid("from", from.Format(time.RFC3339), fmt.Sprintf("must be before to, by %d days at most", most/(24*time.Hour)))
	}
	return from, to, nil
}

// noEvents is the answer of a server that keeps none.
var noEvents = refuse(http.StatusNotFound, "not_found", "No events", "The server does not observe its limiters.")
