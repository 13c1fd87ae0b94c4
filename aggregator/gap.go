package aggregator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// The kinds of gaps in what is counted, as the table has them.
const (
	gapUncounted = "uncounted" // before the first aggregator
	gapLost      = "lost"      // the stream had forgotten changes
	gapSkipped   = "skipped"   // a change was left out
)

// beginning is the partition of the gap before the first aggregator. No partition has this name.
const beginning = "@begin"

// streamKept is how long DynamoDB keeps the changes of a stream.
const streamKept = 24 * time.Hour

// noteGap notes that changes were not counted. A gap that is noted already stays as it is. It makes one write.
func (bs *base) noteGap(ctx context.Context, kind, partition string, from, to time.Time) error {
	item := layout.StreamGap{Key: layout.StreamGapKey{Since: int(from.UnixMilli()), Partition: partition}, To: to.UnixMilli(), Kind: kind}
	absent, err := layout.Insert()
	if err == nil {
		_, err = bs.table.Write(ctx, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode(), Expr: absent})
	}
	return err
}

// noteBegin notes up to when nothing was counted, since no aggregator had read the stream yet. A stream of DynamoDB has the changes of a
// day, or those since it was made, whose time is in the names of its partitions.
func (a *Aggregator) noteBegin(ctx context.Context, partitions []store.Partition) error {
	now := a.options.clock()
	begin := time.Time{}
	for _, p := range partitions {
		since := now
		label, _, _ := strings.Cut(p.ID, "/")
		if made, ok := madeAt(label); ok {
			since = made
			if oldest := now.Add(-streamKept); made.Before(oldest) {
				since = oldest
			}
		}
		if since.After(begin) {
			begin = since
		}
	}
	if begin.IsZero() {
		begin = now
	}
	return a.noteGap(ctx, gapUncounted, beginning, time.UnixMilli(0), begin)
}

// madeAt returns when a stream was made by its label: a time, or seconds since the epoch on engines for tests.
func madeAt(label string) (time.Time, bool) {
	if made, err := time.Parse("2006-01-02T15:04:05.000", label); err == nil {
		return made, true
	}
	seconds, err := strconv.ParseFloat(label, 64)
	return time.UnixMilli(int64(seconds * 1000)).UTC(), err == nil && seconds > 1e9 && seconds < 1e11
}

// skips reports whether a change that fails is left out. It is left out once that is noted.
func (a *Aggregator) skips(c store.Change, failed error) bool {
	if !isRefusal(failed) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := a.noteGap(ctx, gapSkipped, string(c.Sequence), c.At, c.At.Add(time.Millisecond)); err != nil {
		a.log(ctx, &a.outages.failing, news[stream.Skipped].level, "aggregator: a change that is left out could not be noted, and is tried again", err)
		return false
	}
	return true
}

// noteTimeout bounds the write that notes a change left out.
const noteTimeout = 10 * time.Second
