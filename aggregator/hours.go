package aggregator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/zlimit"
)

// If the store charges for writes, a batch writes only snapshots of hours. An hour carries the amounts that are not yet in its day and its
// month. When the hour ends, it is closed, and added to both, see rollup.go.
//
// An hour may also be whole: begun by a program that writes all three snapshots, or with WithoutRollUp. It carries nothing, and its changes
// go directly to day and month. So do changes that arrive after an hour was closed. Both are added to the hour last: a change that the hour
// contains is in the day and the month, or is carried.

// An hour is the work of a batch on the snapshot of an hour.
type hour struct {
	*snapshot
	state layout.HourState // as it was last seen
	left  []event          // not yet found, or put, in the hour
	now   []event          // that go directly to day and month
	begun bool             // by this batch, or by an earlier try of it
	late  bool             // closed, or so long over that it might be missed by those who look for it
}

var (
	errSilent = errors.New("the item does not say what it contains")
	errHeld   = errors.New("aggregator: an earlier change of the shard is not counted yet")
)

// An hourly counter counts changes in hours that carry them to their days and months.
type hourly struct {
	*base
	counter *counter
	adder   *adder
	carries bool  // the hours begun by a batch are rolled up when they end
	noted   notes // the hours that this process has noted for rolling up
}

// countHours counts changes in their hours, and also in days and months if the hours do not carry them.
func (hr *hourly) countHours(ctx context.Context, snapshots []*snapshot, b *batch) {
	hours := hr.look(ctx, snapshots, b)
	slices.SortStableFunc(hours, func(g, h *hour) int { return g.order(h.snapshot) })
	counting, cancel := earlier(ctx) // hours begun by then are noted
	defer cancel()
	inParallel(hr.options.concurrency, hours, func(h *hour) {
		if err := hr.countHour(counting, h, b); err != nil {
			h.fail(b, h.left, err)
		}
		h.late = h.state.Closed || hr.adder.isLate(h.snapshot) // by the clock after the last reply
	})
	hr.counter.countAll(ctx, hr.parents(hours, b), b)
	inParallel(hr.options.concurrency, hours, func(h *hour) { hr.countLate(ctx, h, b) })
	hr.follow(ctx, hours, b)
}

func (h *hour) fail(b *batch, events []event, err error) {
	for _, e := range events {
		b.fail(e.index, err)
	}
}

// look reads the hours of a batch as they were moments ago, at a tenth of the price of a write. It reads the day and
// the month of an hour that is not there yet, too. When a program that writes all three has come to these and no
// further, the hour has to be whole. A write notices hours that a read did not find, and a failed read does no harm.
func (hr *hourly) look(ctx context.Context, snapshots []*snapshot, b *batch) []*hour {
	hours := make([]*hour, len(snapshots))
	for i, s := range snapshots {
		hours[i] = &hour{snapshot: s, left: s.events, state: layout.HourState{Exists: !hr.carries}}
	}
	if !hr.carries { // every hour is taken for a whole one until it turns out to carry something
		return hours
	}
	inParallel(hr.options.concurrency, slices.Collect(slices.Chunk(hours, store.MaxRead)), func(chunk []*hour) {
		keys := make([]store.Key, len(chunk))
		for i, h := range chunk {
			keys[i] = h.key()
		}
		items, err := hr.table.ReadEventually(ctx, keys...)
		if err != nil {
			return
		}
		var fresh []*hour
		for i, h := range chunk {
			if h.state = layout.HourStateOf(items[i]); !h.state.Exists {
				fresh = append(fresh, h)
			} else if h.state.Carried != "" {
				h.skip(newer(h.left, layout.CountedChanges(items[i])), b)
			}
		}
		for i, h := range chunk {
			h.begins = items[i] == nil
		}
		hr.lookAbove(ctx, fresh)
	})
	return hours
}

// lookAbove makes those hours whole whose day or month contains some of the changes.
func (hr *hourly) lookAbove(ctx context.Context, hours []*hour) {
	for chunk := range slices.Chunk(hours, store.MaxRead/2) {
		var keys []store.Key
		for _, h := range chunk {
			keys = append(keys, h.above(zlimit.WindowDaily).key(), h.above(zlimit.WindowMonthly).key())
		}
		items, err := hr.table.ReadEventually(ctx, keys...)
		if err != nil {
			return
		}
		for i, item := range items {
			if h := chunk[i/2]; len(newer(h.left, layout.CountedChanges(item))) < len(h.left) {
				h.state.Exists = true
			}
		}
	}
}

// above returns the snapshot of the day or the month of an hour.
func (s *snapshot) above(w zlimit.Window) *snapshot {
	return &snapshot{bucket: s.bucket, window: w, start: w.Start(s.start), events: s.events}
}

// skip goes on with the events that the hour does not contain.
func (h *hour) skip(rest []event, b *batch) {
	if len(rest) < len(h.left) { // an earlier try may have begun it and gone no further
		h.begun = true
		b.start(h.snapshot)
	}
	h.left = rest
}

// countHour adds events to an hour that is not closed: one UpdateItem, and one more whenever the hour is not as it was
// seen. Events missing from a closed hour are left.
func (hr *hourly) countHour(ctx context.Context, h *hour, b *batch) error {
	for lost := 0; len(h.left) > 0 && !h.state.Closed; {
		u, rest := hr.counter.usage(h.snapshot, h.left)
		carries := h.state.Carried != "" || !h.state.Exists
		w, fits, err := writeOf(u, h.state, carries)
		if err != nil {
			return fmt.Errorf("aggregator: count usage in %s: %w", name(h.snapshot), err)
		}
		if !fits {
			if err := hr.adder.closeHour(ctx, h, b); err != nil {
				return err
			}
			continue
		}
		b.note(func(r *Batch) { r.Writes++ })
		r, err := hr.counter.write(ctx, h.snapshot, w)
		if err != nil {
			return fmt.Errorf("aggregator: count usage in %s: %w", name(h.snapshot), err)
		}
		h.begins = false
		before := h.state
		h.state = layout.HourStateOf(r.Item)
		if r.Applied {
			if layout.CountedEvents(r.Item) == u.Events {
				h.begun = true
				b.start(h.snapshot)
			}
			if !carries {
				h.now = append(h.now, h.left[:len(h.left)-len(rest)]...)
			}
			h.left = rest
			continue
		}
		rest = newer(h.left, layout.CountedChanges(r.Item))
		if h.state == before && len(rest) == len(h.left) {
			return fmt.Errorf("aggregator: count usage in %s: %w", name(h.snapshot), errSilent)
		}
		if h.state.Exists && h.state.Carried == "" {
			h.now = append(h.now, contained(h.left, layout.CountedChanges(r.Item))...)
		}
		h.skip(rest, b)
		if lost++; lost >= table.MaxAttempts {
			return fmt.Errorf("aggregator: count usage in %s: %w", name(h.snapshot), table.ErrContended)
		}
		if err := hr.table.Pause(ctx, lost); err != nil {
			return err
		}
	}
	return nil
}

// writeOf returns the write that adds usage to an hour. It returns false when the hour cannot carry that much, or when
// its carried amounts cannot be read.
func writeOf(u *layout.UsageDelta, seen layout.HourState, carries bool) (w store.Write, fits bool, err error) {
	if !carries {
		w, err = u.WriteWhole()
		return w, true, err
	}
	carried, err := layout.ParseCarried(seen.Carried)
	if err != nil { // rollUp reports it
		return w, false, nil //nolint:nilerr // the caller closes the hour
	}
	sum, fits := carried.Plus(u)
	if !fits {
		return w, false, nil
	}
	w, err = u.Carry(seen, sum)
	return w, true, err
}

// name returns how errors name the item of a snapshot.
func name(s *snapshot) string {
	k := s.key()
	return k.PK + " " + k.SK
}

// contained returns the events that an item has counted of their shards.
func contained(events []event, counted map[int]store.Sequence) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.sequence > counted[e.shard] })
}

// parents returns the snapshots of days and months that get events directly: events of whole hours, and events from after the close of
// their hour. A snapshot that contains a change contains the earlier ones of the same shard. Events behind an uncounted one fail, since
// the uncounted one may have to go into the same snapshot.
func (hr *hourly) parents(hours []*hour, b *batch) []*snapshot {
	failed := map[layout.BucketKey]store.Sequence{} // the first of each shard
	for _, h := range hours {
		for i := range h.left {
			e := &h.left[i]
			if !b.hasFailed(e.index) {
				continue
			}
			if s, found := failed[h.shard(e)]; !found || e.sequence < s {
				failed[h.shard(e)] = e.sequence
			}
		}
	}
	f := fold{windows: []zlimit.Window{zlimit.WindowMonthly, zlimit.WindowDaily}}
	for _, h := range hours {
		if h.state.Closed {
			h.now = append(h.now, h.left...)
		}
		for _, e := range h.now {
			if s, found := failed[h.shard(&e)]; found && s < e.sequence {
				b.fail(e.index, errHeld)
			}
			if !b.hasFailed(e.index) {
				f.add(h.bucket, h.start, e)
			}
		}
	}
	return f.finish()
}

func (h *hour) shard(e *event) layout.BucketKey {
	s := h.bucket
	s.Shard = e.shard
	return s
}

// countLate adds events to a closed hour that are in its day and its month by now.
func (hr *hourly) countLate(ctx context.Context, h *hour, b *batch) {
	if !h.state.Closed {
		return
	}
	late := *h.snapshot
	late.events = slices.DeleteFunc(slices.Clone(h.left), func(e event) bool { return b.hasFailed(e.index) })
	left, err := hr.counter.count(ctx, &late, b)
	h.fail(b, left, err)
}

// follow ensures that the hours of a batch are rolled up: it rolls up late hours itself, and records the others.
func (hr *hourly) follow(ctx context.Context, hours []*hour, b *batch) {
	var due, begun []*hour
	for _, h := range hours {
		switch {
		case h.state.Carried == "":
		case h.late:
			due = append(due, h)
		case h.begun:
			begun = append(begun, h)
		}
	}
	for h, err := range hr.adder.rollUp(ctx, due, b) {
		h.fail(b, h.events, err)
	}
	for h, err := range hr.noteAll(ctx, begun) {
		h.fail(b, h.events, err)
	}
}
