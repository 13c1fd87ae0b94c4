package api

import (
	"cmp"
	"context"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
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
	return on(func(c *call, narrower *zlimit.Level) (any, error) {
		at, err := c.level()
		at.Resource = cmp.Or(at.Resource, narrower.Resource)
		if err == nil && serves {
			err = rotation.CheckServe(c.r.Context(), c.limiter, at.Entity)
		}
		if err != nil {
			return nil, err
		}
		return orError(turn(c.limiter.Limits, c.r.Context(), at, nil))
	})
}

// orError returns a reply, and none with an error.
func orError[T any](reply T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return &reply, nil
}

// setParent serves POST /v1/entities/{entity}/parent.
func (h *handler) setParent(c *call, q *struct{ Parent string }) (any, error) {
	at, err := c.level()
	if err == nil && q.Parent != "" {
		err = c.mayName(q.Parent)
	}
	for _, entity := range []string{at.Entity, q.Parent} {
		if err == nil {
			err = rotation.CheckLimits(c.r.Context(), c.limiter, entity)
		}
	}
	if err != nil {
		return nil, err
	}
	return orError(c.limiter.Entities.SetParent(c.r.Context(), at.Entity, q.Parent))
}

// topUp serves POST /v1/topup.
func (h *handler) topUp(c *call, q *zlimit.TopUpRequest) (any, error) {
	if err := c.operation(q.Entity, &q.OperationID); err != nil {
		return nil, err
	}
	return orError(c.limiter.Limits.TopUp(c.r.Context(), *q))
}

// reset serves POST /v1/reset.
func (h *handler) reset(c *call, q *zlimit.ResetRequest) (any, error) {
	if err := c.operation(q.Entity, &q.OperationID); err != nil {
		return nil, err
	}
	return orError(c.limiter.Limits.Reset(c.r.Context(), *q))
}

// operation checks a manual change of a bucket. Its ID is that of the body, or stands for the idempotency key.
func (c *call) operation(entity string, id *string) error {
	key, err := c.idempotencyKey()
	if err != nil {
		return err
	}
	if key != "" && *id != "" {
		return invalid("operation_id", *id, "must be left out beside Idempotency-Key")
	}
	*id = cmp.Or(*id, key)
	if err := c.mayName(entity); err != nil {
		return err
	}
	return rotation.CheckBucket(c.r.Context(), c.limiter, entity)
}
