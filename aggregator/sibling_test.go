package aggregator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestUnsupportedBucketsAreLeft has a bucket that would be refilled, once zae-limiter limits by it: it is counted, told once, and
// left as it is.
func TestUnsupportedBucketsAreLeft(t *testing.T) {
	var left, counted int
	var log bytes.Buffer
	g := newGarden(t, newMemory(t), WithLogger(slog.New(slog.NewTextHandler(&log, nil))), WithObserver(func(b Batch) {
		left += b.Left
		counted += b.Counted
	}))
	created := store.Change{Key: g.shard.Key(), New: g.item(0), At: g.now}
	marked := g.setTo(0, "b_rpm_sched", expr.S("2h9x500"))
	before := g.item(0)
	g.now = g.now.Add(6 * time.Second)
	g.seen(created, marked)
	g.seen(g.setTo(0, "b_rpm_sched", expr.S("2h9x500")))
	if diff := cmp.Diff(before, g.item(0)); diff != "" {
		t.Errorf("the bucket was written:\n%s", diff)
	}
	if got := strings.Count(log.String(), "left alone"); left != 2 || counted == 0 || got != 1 {
		t.Errorf("left %d times, counted %d changes, logged %d times, want 2, some and 1:\n%s", left, counted, got, log.String())
	}
}
