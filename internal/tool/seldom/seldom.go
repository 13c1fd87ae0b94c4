// Package seldom writes lines of log once a minute that would otherwise come for each item of an outage.
package seldom

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// pause is the time between two lines.
const pause = time.Minute

// A Line is a line of log that an outage brings again and again. The zero value is ready. It is safe for concurrent use.
type Line struct {
	mu    sync.Mutex
	last  time.Time // when it was written last
	left  int       // times that it was not, since then
	isOut bool      // it was written since Over
}

// Log writes the line, unless it was written in the last minute. With a line comes the number of those since the one before that were
// not written, as "left_out".
func (l *Line) Log(ctx context.Context, logger *slog.Logger, level slog.Level, text string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() && time.Since(l.last) < pause {
		l.left++
		return
	}
	if l.left > 0 {
		args = append(slices.Clip(args), "left_out", l.left)
	}
	l.last, l.left, l.isOut = time.Now(), 0, true
	logger.Log(ctx, level, text, args...)
}

// Over reports whether the line was written since the last call of Over: then its end is worth a line, too.
func (l *Line) Over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasOut := l.isOut
	l.isOut = false
	return wasOut
}
