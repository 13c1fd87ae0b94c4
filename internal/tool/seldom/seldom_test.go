package seldom_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/tool/seldom"
)

// TestLine writes a line every second for five minutes: six lines come of it, which report how many did not.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		logger := slog.New(slog.NewTextHandler(&text, nil))
		var l seldom.Line
		if l.Over() {
			t.Error("Over() of a line that never came = true")
		}
		for range 301 {
			l.Log(t.Context(), logger, slog.LevelWarn, "away", "n", 1)
			time.Sleep(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 6 || strings.Contains(lines[0], "left_out") || !strings.Contains(lines[5], "n=1 left_out=59") {
			t.Errorf("%d lines:\n%s", len(lines), &text)
		}
		if !l.Over() || l.Over() {
			t.Error("Over() is not true once")
		}
		for range 2 {
			l.Log(t.Context(), logger, slog.LevelWarn, "away again")
			time.Sleep(time.Minute)
		}
		if strings.Count(text.String(), "away again") != 1 || !l.Over() {
			t.Errorf("the lines of a second row are not one, a minute after the last of the first:\n%s", &text)
		}
	})
}
