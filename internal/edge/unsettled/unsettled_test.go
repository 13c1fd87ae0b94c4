package unsettled_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/unsettled"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestLog, leases cannot be settled in an outage of two minutes, with a mistake between them. A line a minute
// reports the outage, and one line the mistake.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		logger := slog.New(slog.NewTextHandler(&text, nil))
		var l unsettled.Log
		for i := range 120 {
			l.Error(t.Context(), logger, "not settled", &zlimit.UnavailableError{Op: "commit", Err: errors.New("away")}, "op", "commit")
			if i == 30 {
				l.Error(t.Context(), logger, "not settled", errors.New("a mistake"))
			}
			time.Sleep(time.Second)
		}
		l.Error(t.Context(), logger, "not settled", &zlimit.UnavailableError{Op: "commit", Err: errors.New("away")}, "op", "commit")
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 4 || !strings.Contains(lines[1], "a mistake") || strings.Contains(lines[1], "left_out") ||
			!strings.Contains(lines[2], "level=ERROR") || !strings.Contains(lines[2], "op=commit") || !strings.Contains(lines[2], "left_out=59") {
			t.Errorf("%d lines:\n%s", len(lines), &text)
		}
	})
}
