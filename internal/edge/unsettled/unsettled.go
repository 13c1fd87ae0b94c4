// Package unsettled logs what integrations could not do with leases, once a minute and not for each.
package unsettled

import (
	"context"
	"errors"
	"log/slog"

	"github.com/zlimit/zlimit-go/internal/tool/seldom"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Log writes a line a minute at most for leases left unsettled by an outage. It has another line for other failures, so that the
// first does not hide the second. Each has the number of those since the line before, as "left_out". The zero value is ready. It is
// safe for concurrent use.
type Log struct{ away, failed seldom.Line }

// Error writes a line with an error, unless one of the same kind was written in the last minute.
func (l *Log) Error(ctx context.Context, logger *slog.Logger, text string, err error, args ...any) {
	l.log(ctx, logger, slog.LevelError, text, err, args)
}

// Warn is [Log.Error] for what matters less.
func (l *Log) Warn(ctx context.Context, logger *slog.Logger, text string, err error, args ...any) {
	l.log(ctx, logger, slog.LevelWarn, text, err, args)
}

func (l *Log) log(ctx context.Context, logger *slog.Logger, level slog.Level, text string, err error, args []any) {
	line := &l.failed
	if errors.As(err, new(*zlimit.UnavailableError)) {
		line = &l.away
	}
	line.Log(ctx, logger, level, text, append(args, "error", err)...)
}
