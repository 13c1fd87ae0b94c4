package aggregator

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// byHour makes an aggregator work as on DynamoDB, whatever its store.
func byHour(a *Aggregator, carries bool) *Aggregator {
	a.byHour, a.hourly.carries = true, carries
	return a
}

// TestRolledUpHistories cuts random histories into random batches as TestHistories does. Some aggregators roll hours up,
// others write all three snapshots of hours that they begin. Hours are rolled up at any time, by several at the same
// time, and any write may fail. The figures are those of the direct sum.
func TestRolledUpHistories(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		if !strings.HasSuffix(t.Name(), "/memory") {
			repeat(t, 4)
		}
		rapid.Check(t, func(t *rapid.T) { checkRolledUpHistory(t, s) })
	})
}

// delays are how long after its last change a batch comes.
var delays = []time.Duration{0, time.Minute, 40 * time.Minute, 62 * time.Minute, 2 * time.Hour, 26 * time.Hour}

// clocks are how far the clock of a roller is ahead of that of a batch beside it, or of the end of the history. The stores
// here have indexes without delay, so clocks may disagree.
var clocks = []time.Duration{-24 * time.Hour, -time.Hour, 0, time.Hour, 48 * time.Hour}

func checkRolledUpHistory(t *rapid.T, s zlimit.Store) {
	empty(t, store.Of(s))
	h := newHistory(t)
	h.pauses = []time.Duration{0, time.Second, 7 * time.Minute, 20 * time.Minute, 50 * time.Minute, 23 * time.Hour, -2 * time.Second}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		h.step()
	}
	at := func(now time.Time) Option { return WithClock(func() time.Time { return now }) }
	followers := make([]follower, len(h.streams))
	for i := range followers {
		followers[i].changes = h.streams[i]
	}
	next := func(to store.Change) *Aggregator {
		now := to.At.Add(rapid.SampledFrom(delays).Draw(t, "delay"))
		a := byHour(newAggregator(t, s, WithConcurrency(1), at(now)), rapid.IntRange(0, 4).Draw(t, "carries") > 0)
		inject(a, disorder(t))
		return a
	}
	roll := func(now time.Time) func() {
		owner := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "roller")
		a := byHour(newAggregator(t, s, WithConcurrency(1), WithName(owner), at(now)), true)
		inject(a, disorder(t))
		return func() { a.roller.rollDue(context.Background(), context.Background()) }
	}
	for range rapid.IntRange(0, 16).Draw(t, "batches") {
		f := &followers[rapid.IntRange(0, len(followers)-1).Draw(t, "partition")]
		if len(f.changes) == 0 {
			continue
		}
		from := rapid.IntRange(0, min(f.done, len(f.changes)-1)).Draw(t, "from")
		to := rapid.IntRange(from+1, len(f.changes)).Draw(t, "to")
		a := next(f.changes[to-1])
		switch rapid.IntRange(0, 5).Draw(t, "how") {
		case 0: // together with another one
			other, again := next(f.changes[to-1]), *f
			var wg sync.WaitGroup
			wg.Go(func() { again.apply(context.Background(), other, 0, min(again.done+3, len(again.changes))) })
			f.apply(context.Background(), a, from, to)
			wg.Wait()
			f.done = max(f.done, again.done)
		case 1: // while hours are rolled up
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(roll(a.options.clock().Add(rapid.SampledFrom(clocks).Draw(t, "ahead"))))
			}
			f.apply(context.Background(), a, from, to)
			wg.Wait()
		case 2:
			roll(h.now.Add(rapid.SampledFrom(clocks).Draw(t, "ahead")))()
		default:
			f.apply(context.Background(), a, from, to)
		}
	}
	a := byHour(newAggregator(t, s, WithConcurrency(1)), true)
	for i := range followers {
		f := &followers[i]
		if f.apply(context.Background(), a, f.done, len(f.changes)); f.done != len(f.changes) {
			t.Fatalf("partition %d ends at %d of %d", i, f.done, len(f.changes))
		}
	}
	a.roller.rollDue(context.Background(), context.Background())
	for _, entity := range []string{"a", "bb"} {
		if diff := cmp.Diff(h.want(entity), snapshotsOf(t, a, entity)); diff != "" {
			t.Fatalf("snapshots of %s (-want +got):\n%s", entity, diff)
		}
	}
	if left := dueHours(t, s); len(left) > 0 {
		t.Fatalf("%d hours are still to be rolled up: %v", len(left), left)
	}
}

// dueHours returns the keys of the records of hours that are to be rolled up.
func dueHours(t rapid.TB, s zlimit.Store) (keys []store.Key) {
	t.Helper()
	for part := range dueParts {
		q := layout.QueryDueHours(part)
		q.Consistent = true
		page := check.Call(store.Of(s).Query(context.Background(), q)).Must(t, "Query()")
		for _, it := range page.Items {
			keys = append(keys, store.KeyOf(it))
		}
	}
	return keys
}
