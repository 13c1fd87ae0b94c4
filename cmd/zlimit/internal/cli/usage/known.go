package usage

import (
	"context"
	"errors"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// keptYears bounds how far back usage shows that an entity is known.
const keptYears = 10

// isKnown reports whether an entity has a record, limits, a bucket, a change or usage. It makes five calls at most.
func isKnown(ctx context.Context, l *zlimit.RateLimiter, entity string, now time.Time) (bool, error) {
	if _, err := l.Entities.Get(ctx, entity); !errors.Is(err, zlimit.ErrEntityNotFound) {
		return err == nil, err
	}
	for _, err := range l.Limits.List(ctx, zlimit.LevelQuery{Entity: entity, NamesOnly: true}) {
		return err == nil, err
	}
	for _, err := range l.Entities.Buckets(ctx, entity) {
		return err == nil, err
	}
	for _, err := range l.Audit.Events(ctx, entity, zlimit.AuditQuery{Limit: 1}) {
		return err == nil, err
	}
	for _, err := range l.Usage.Snapshots(ctx, zlimit.UsageQuery{
		Entity: entity, Window: zlimit.WindowMonthly, From: zlimit.WindowMonthly.Start(now).AddDate(-keptYears, 0, 0), To: now,
	}) {
		return err == nil, err
	}
	return false, nil
}
