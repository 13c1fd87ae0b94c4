package api

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/successor"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A turnFunc turns the switch of a level.
type turnFunc func(s *zlimit.LimitService, ctx context.Context, at zlimit.Level, progress func(zlimit.SwitchReport)) (zlimit.SwitchReport, error)

// switches are the calls that turn the switch of a level, by their last word.
var switches = map[string]turnFunc{
	"disable": (*zlimit.LimitService).Disable, "enable": (*zlimit.LimitService).Enable,
	"bypass": (*zlimit.LimitService).Bypass, "inherit": (*zlimit.LimitService).LeaveSwitch,
}

// turn returns the call that turns the switch of an entity, of an entity for a resource, or of a resource. An entity with a new ID must not
// serve requests.
func (h *handler) turn(turn turnFunc, serves bool) func(*call) (any, error) {
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
		if serves {
			if err := successor.CheckServe(c.r.Context(), c.limiter, at.Entity); err != nil {
				return nil, err
			}
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
	for _, entity := range []string{at.Entity, parent} {
		if err := successor.CheckLimits(c.r.Context(), c.limiter, entity); err != nil {
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
	if err := successor.CheckBucket(c.r.Context(), c.limiter, r.Entity); err != nil {
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
	if err := successor.CheckBucket(c.r.Context(), c.limiter, r.Entity); err != nil {
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
