package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A turnFunc turns the switch of a level.
type turnFunc func(s *zlimit.LimitService, ctx context.Context, at zlimit.Level, progress func(zlimit.SwitchReport)) (zlimit.SwitchReport, error)

// switches are the calls that turn the switch of a level, by their last word.
var switches = map[string]turnFunc{
	"disable": (*zlimit.LimitService).Disable, "enable": (*zlimit.LimitService).Enable,
	"bypass": (*zlimit.LimitService).Bypass, "inherit": (*zlimit.LimitService).LeaveSwitch,
}

// turn returns the call that turns the switch of an entity, of an entity for a resource, or of a resource.
func (h *handler) turn(turn turnFunc) func(*call) (any, error) {
	return func(c *call) (any, error) {
		at, err := c.level()
		if err != nil {
			return nil, err
		}
		known := fields{}
		if at.Entity != "" {
			known["resource"] = text(&at.Resource)
		}
		if err := c.readOptional(known); err != nil {
			return nil, err
		}
		return orError(turn(c.limiter.Limits, c.r.Context(), at, nil))
	}
}

// readOptional reads the body of a request that may have none.
func (c *call) readOptional(known fields) error {
	if c.r.ContentLength == 0 && c.r.Header.Get("Content-Type") == "" {
		return nil
	}
	return c.read(known)
}

// orError returns a reply, and none with an error.
func orError[T any](reply T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return &reply, nil
}

// setParent serves POST /v1/entities/{entity}/parent.
func (h *handler) setParent(c *call) (any, error) {
	at, err := c.level()
	if err != nil {
		return nil, err
	}
	var parent string
	if err := c.read(fields{"parent": text(&parent)}, "parent"); err != nil {
		return nil, err
	}
	if parent != "" {
		if err := c.mayName(parent); err != nil {
			return nil, err
		}
	}
	return orError(c.limiter.Entities.SetParent(c.r.Context(), at.Entity, parent))
}

// topUp serves POST /v1/topup.
func (h *handler) topUp(c *call) (any, error) {
	var r zlimit.TopUpRequest
	known := fields{"amounts": amounts(&r.Amounts, 1), "until": moment(&r.Until)}
	if err := c.readOperation(known, &r.Entity, &r.Resource, &r.OperationID, "amounts"); err != nil {
		return nil, err
	}
	return orError(c.limiter.Limits.TopUp(c.r.Context(), r))
}

// reset serves POST /v1/reset.
func (h *handler) reset(c *call) (any, error) {
	var r zlimit.ResetRequest
	known := fields{"limits": texts(&r.Limits, maxAmounts)}
	if err := c.readOperation(known, &r.Entity, &r.Resource, &r.OperationID); err != nil {
		return nil, err
	}
	return orError(c.limiter.Limits.Reset(c.r.Context(), r))
}

// readOperation reads the body of a manual change of a bucket. Its ID is that of the body, or stands for the idempotency key.
func (c *call) readOperation(known fields, entity, resource, id *string, required ...string) error {
	known["entity"], known["resource"], known["operation_id"] = text(entity), text(resource), text(id)
	if err := c.read(known, append([]string{"entity", "resource"}, required...)...); err != nil {
		return err
	}
	key, err := c.idempotencyKey()
	switch {
	case err != nil:
		return err
	case key != "" && *id != "":
		return invalid("operation_id", *id, "must be left out beside Idempotency-Key")
	case key != "":
		*id = key
	}
	return c.mayName(*entity)
}

// reasonOf returns the rule that a value breaks.
func reasonOf(err error) string {
	var wrong *zlimit.ValidationError
	if errors.As(err, &wrong) {
		return wrong.Reason
	}
	return "must be a limit"
}

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
	q.To = h.Now()
	if s := get("to"); s != "" {
		if err := readTime(&q.To, "to", s); err != nil {
			return q, 0, err
		}
	}
	q.From = q.To.Add(-24 * time.Hour)
	if s := get("from"); s != "" {
		if err := readTime(&q.From, "from", s); err != nil {
			return q, 0, err
		}
	}
	if !q.From.Before(q.To) || q.To.Sub(q.From) > maxRange {
		return q, 0, invalid("from", q.From.Format(time.RFC3339), "must be before to, by 366 days at most")
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

// noEvents is the answer of a server that keeps none.
var noEvents = refuse(http.StatusNotFound, "not_found", "No events", "The server does not observe its limiters.")
