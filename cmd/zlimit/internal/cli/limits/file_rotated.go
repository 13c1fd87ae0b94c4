package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// rotated returns a line for each level that a plan sets and that has no effect, since its entity was rotated. It reads the record of each entity
// whose levels change.
func rotated(ctx context.Context, l *zlimit.RateLimiter, plan *provision.Plan) (lines []string, err error) {
	known := map[string]string{}
	for i := range plan.Changes {
		c := &plan.Changes[i]
		at := c.After.Level
		if at.Entity == "" || !slices.Contains([]provision.Action{provision.Create, provision.Update}, c.Action) {
			continue
		}
		reason, asked := known[at.Entity]
		if !asked {
			var invalid *zlimit.ValidationError
			err := rotation.CheckLimits(ctx, l, at.Entity)
			if errors.As(err, &invalid) {
				reason = invalid.Reason
			} else if err != nil {
				return nil, err
			}
			known[at.Entity] = reason
		}
		if reason != "" {
			lines = append(lines, fmt.Sprintf("%v: %s %s", at, at.Entity, reason))
		}
	}
	return lines, nil
}

// refuseRotated returns an error that names all levels of a plan that have no effect.
func refuseRotated(ctx context.Context, l *zlimit.RateLimiter, plan *provision.Plan) error {
	lines, err := rotated(ctx, l, plan)
	if err != nil || len(lines) == 0 {
		return err
	}
	return fmt.Errorf("limits apply: nothing is applied, since the file sets limits that have no effect: %s", strings.Join(lines, "; "))
}

// noteRotated notes the levels of a plan that apply refuses.
func noteRotated(ctx context.Context, sh *shell.Shell, plan *provision.Plan) error {
	if !slices.ContainsFunc(plan.Changes, func(c provision.Change) bool { return c.After.Level.Entity != "" }) {
		return nil
	}
	dsn, err := sh.Lasting()
	if err != nil {
		return err
	}
	if there := sh.CheckFile(dsn) == nil; !there {
		return nil
	}
	lines, err := shell.Perform(ctx, sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) ([]string, error) { return rotated(ctx, l, plan) })
	if errors.Is(err, zlimit.ErrNamespaceNotFound) || errors.Is(err, zlimit.ErrTableNotFound) { // which are to be created
		return nil
	}
	for _, line := range lines {
		sh.Note("warning: " + line + "; limits apply refuses it")
	}
	return err
}
