package aggregator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An hour that carries something is rolled up when it ends. It is closed first: its figures are final from then on.
// The day and the month get it with one write each. The write also notes the hour there, on condition that the hour is
// not noted. So an hour may be rolled up any number of times, at any time, by any number of aggregators, and counts
// once. No clock matters to that.

// lateness is the time after an hour's end in which the hour may still begin without an immediate roll-up. dueAfter is the
// time after its end at which a roller looks for it. The time between them must exceed the difference of clocks plus
// the lag of the index by which hours are found.
const (
	maxLateness = 5 * time.Minute
	dueAfter    = 15 * time.Minute
)

// An adder closes hours that have ended, and adds them to their days and months.
type adder struct {
	*base
	counter *counter
}

// isLate reports whether an hour that was written by now might be missed by those who look for it.
func (ad *adder) isLate(s *snapshot) bool {
	return ad.options.clock().After(s.window.End(s.start).Add(maxLateness))
}

// rollUp rolls hours up, and returns the failed ones. An hour takes three writes: one to close it, and one each for its
// day and its month. It takes a read of both, at a tenth of a write's price each. An hour that is rolled up already
// takes the first write and the reads.
func (ad *adder) rollUp(ctx context.Context, hours []*hour, b *batch) map[*hour]error {
	var mu sync.Mutex
	failed := map[*hour]error{}
	each := func(hours []*hour, do func(*hour) error) {
		inParallel(ad.options.concurrency, hours, func(h *hour) {
			if err := do(h); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[h] = err
			}
		})
	}
	each(hours, func(h *hour) error { return ad.closeHour(ctx, h, b) })
	closed := slices.DeleteFunc(slices.Clone(hours), func(h *hour) bool { return failed[h] != nil || !h.state.Closed })
	seen := ad.hoursSeen(ctx, closed)
	each(closed, func(h *hour) error { return ad.addHour(ctx, h, seen, b) })
	return failed
}

// closeHour makes the figures of an hour final. A missing hour, or a whole one, stays as it is.
func (ad *adder) closeHour(ctx context.Context, h *hour, b *batch) error {
	if h.state.Closed {
		return nil
	}
	now := ad.options.clock()
	expiresAt := ad.counter.kept(h.window, h.start).ExpiresAt
	if expiresAt > 0 { // there is time left to roll it up
		expiresAt = max(expiresAt, now.Add(minRetention).Unix())
	}
	w, err := layout.WriteClose(h.key(), now, expiresAt)
	if err != nil {
		return err
	}
	b.note(func(r *Batch) { r.Writes++ })
	r, err := ad.table.PatientWrite(ctx, w)
	if err != nil {
		return fmt.Errorf("aggregator: close the hour %s: %w", name(h.snapshot), err)
	}
	h.state = layout.HourStateOf(r.Item)
	return nil
}

// parentWindows are the windows whose snapshots get the figures of an hour.
var parentWindows = []zlimit.Window{zlimit.WindowDaily, zlimit.WindowMonthly}

// hoursSeen returns which hours of their day the days and months of hours had moments ago, by their keys. A write
// notices hours that a read did not find, and a failed read does no harm.
func (ad *adder) hoursSeen(ctx context.Context, hours []*hour) map[store.Key]expr.Item {
	seen := map[store.Key]expr.Item{}
	var keys []store.Key
	for _, h := range hours {
		for _, w := range parentWindows {
			key := h.above(w).key()
			if _, found := seen[key]; !found {
				seen[key] = nil
				keys = append(keys, key)
			}
		}
	}
	for chunk := range slices.Chunk(keys, store.MaxRead) {
		items, err := ad.table.ReadEventually(ctx, chunk...)
		if err != nil {
			break
		}
		for i, item := range items {
			seen[chunk[i]] = item
		}
	}
	return seen
}

// addHour adds the figures of a closed hour to its day and its month, as they were seen.
func (ad *adder) addHour(ctx context.Context, h *hour, seen map[store.Key]expr.Item, b *batch) error {
	carried, err := layout.ParseCarried(h.state.Carried)
	if err != nil {
		ad.reportSpoilt(h.snapshot, h.start, err)
		return nil
	}
	for _, w := range parentWindows {
		s := h.above(w)
		b.start(s) // an earlier try may have begun it and gone no further
		d := &layout.HourDelta{
			NS: s.bucket.NS, Entity: s.bucket.Entity, Resource: s.bucket.Resource, Window: string(w), Start: s.start,
			Kept: ad.counter.kept(w, s.start), Hour: h.start, Carried: carried,
		}
		s.begins = seen[s.key()] == nil
		if err := ad.addTo(ctx, s, d, layout.HoursContained(seen[s.key()], h.start), b); err != nil {
			return fmt.Errorf("aggregator: roll up the hour %s into %s: %w", name(h.snapshot), name(s), err)
		}
	}
	b.note(func(r *Batch) { r.RolledUp++ })
	return nil
}

// addTo adds an hour to the snapshot of a day or a month that does not contain it. It takes one UpdateItem, and one
// more whenever the snapshot has changed.
func (ad *adder) addTo(ctx context.Context, s *snapshot, d *layout.HourDelta, seen string, b *batch) error {
	for lost := 1; ; lost++ {
		done, err := layout.ContainsHour(seen, d.Hour)
		if err != nil {
			ad.reportSpoilt(s, d.Hour, err)
			return nil
		}
		if done {
			return nil
		}
		w, err := d.Write(seen)
		if err != nil {
			return err
		}
		b.note(func(r *Batch) { r.Writes++ })
		r, err := ad.counter.write(ctx, s, w)
		if err != nil || r.Applied {
			return err
		}
		found := layout.HoursContained(r.Item, d.Hour)
		switch {
		case found == seen:
			return errSilent
		case lost == table.MaxAttempts:
			return table.ErrContended
		}
		seen = found
		if err := ad.table.Pause(ctx, lost); err != nil {
			return err
		}
	}
}

// reportSpoilt logs that an hour is left out of days and months, since an item cannot be read. Trying again would not help,
// and would hold up the other hours.
func (ad *adder) reportSpoilt(s *snapshot, hour time.Time, err error) {
	k := s.key()
	ad.options.logger.Error("aggregator: a snapshot cannot be read, and an hour is missing in days and months",
		"pk", k.PK, "sk", k.SK, "hour", hour, "error", err)
}
