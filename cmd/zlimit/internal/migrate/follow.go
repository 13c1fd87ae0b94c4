package migrate

import (
	"context"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

const (
	streamPrefix = "stream/"
	// clockMargin bounds the error of the known difference to the source's clock. Changes so long before the start are
	// in the copies.
	clockMargin  = 30 * time.Second
	batchChanges = 500 // changes that are read in one call
	maxSkipped   = 10 * batchChanges
)

// CatchUp applies the changes of the source since the start, up to those that are made after the call. It ends while programs write, if it
// applies changes faster than they make them. It returns [ErrGap] when changes were lost; the copy then begins again.
//
// The items that follow from a change are derived from the source as it is now, not from the image of the change. A
// change that is read twice therefore does no harm.
func (m *Migration) CatchUp(ctx context.Context) error { return m.follow(ctx, 0, endless) }

// Follow is [Migration.CatchUp], again and again until the context ends, whose error it returns.
func (m *Migration) Follow(ctx context.Context) error { return m.follow(ctx, endless, endless) }

// endless is longer than any run.
const endless = time.Duration(1<<63 - 1)

// follow reads the change stream until the source was not written for a time, during which all changes were read. It
// returns [ErrBusy] when that does not happen in time.
func (m *Migration) follow(ctx context.Context, quiet, timeout time.Duration) error {
	if m.config.Offline || m.Phase() != Following {
		return nil
	}
	streamer, ok := m.config.Source.(store.Streamer)
	if !ok {
		return ErrStream
	}
	f := follower{m: m, streamer: streamer, at: map[string]store.Position{}, skipped: map[string]int{}, behind: map[string]time.Duration{}}
	began := m.config.Now()
	for last := began; ; {
		if err := m.ledger.beat(ctx); err != nil {
			return err
		}
		changed, ended, err := f.round(ctx)
		now := m.config.Now()
		if changed {
			last = now
		}
		switch {
		case err != nil:
			return err
		case !ended && now.Sub(last) >= quiet:
			return nil
		case now.Sub(began) > timeout:
			return ErrBusy
		case changed:
			continue
		}
		if err := m.config.Sleep(ctx, m.config.Poll); err != nil {
			return err
		}
	}
}

// A follower reads the change stream.
type follower struct {
	m        *Migration
	streamer store.Streamer
	at       map[string]store.Position // with the iterators, which are not kept
	skipped  map[string]int            // changes without a meaning since it was noted how far a partition was read
	behind   map[string]time.Duration  // age of the change of a partition that was read last; none at its end so far
	head     time.Time                 // when the round began, by the clock of the source
}

// round reads all partitions up to where they were as it began. It reports whether anything changed that the target follows from, and
// whether a partition ended, whose children come in the next round.
func (f *follower) round(ctx context.Context) (changed, ended bool, err error) {
	f.head = f.m.calls.sourceTime()
	var partitions []store.Partition
	err = f.m.source.Patiently(ctx, func(ctx context.Context) (err error) {
		partitions, err = f.streamer.Partitions(ctx)
		return err
	})
	if err != nil {
		return false, false, err
	}
	listed := map[string]bool{}
	for _, p := range partitions {
		listed[p.ID] = true
	}
	for _, p := range partitions {
		// The changes of an item go on in a child after those in its parent.
		if f.m.ledger.part(streamPrefix+p.ID).Done || listed[p.Parent] && !f.m.ledger.part(streamPrefix+p.Parent).Done {
			continue
		}
		more, err := f.partition(ctx, p.ID)
		if err != nil {
			return false, false, err
		}
		changed = changed || more
		ended = ended || f.m.ledger.part(streamPrefix+p.ID).Done
	}
	return changed, ended, nil
}

// partition reads a partition up to its end so far, or to a change that was made after the round began. Programs that go on writing
// would otherwise keep it from ending.
func (f *follower) partition(ctx context.Context, id string) (changed bool, err error) {
	for {
		if err := f.m.ledger.beat(ctx); err != nil {
			return changed, err
		}
		part := f.m.ledger.part(streamPrefix + id)
		at, ok := f.at[id]
		if !ok {
			at = store.Position{After: store.Sequence(part.Position)}
		}
		var page store.ChangePage
		err = f.m.source.Patiently(ctx, func(ctx context.Context) (err error) {
			page, err = f.streamer.Changes(ctx, id, at, batchChanges)
			return err
		})
		if err != nil {
			return changed, err
		}
		if page.Gap && part.Position != "" {
			return changed, f.m.restart(ctx)
		}
		f.at[id] = page.Next
		latest := f.latest(id, &page)
		if len(page.Changes) == 0 && !page.End {
			return changed, nil
		}
		counts := decodeCounts(part.Counts)
		relevant, err := f.apply(ctx, page.Changes, counts)
		if err != nil {
			delete(f.at, id)
			return changed, err
		}
		changed = changed || relevant || page.End
		if f.skipped[id] += len(page.Changes); !relevant && !page.End && f.skipped[id] < maxSkipped {
			continue // in place, a note of it would be the next change
		}
		f.skipped[id] = 0
		part.Position, part.Done = string(page.Next.After), page.End
		if err := f.m.ledger.savePart(ctx, part, counts); err != nil || page.End || relevant && !latest.Before(f.head) {
			return changed, err
		}
	}
}

// latest returns when the last change of a page was made, and notes how far behind the source the target is with it.
func (f *follower) latest(id string, page *store.ChangePage) (at time.Time) {
	delete(f.behind, id)
	if n := len(page.Changes); n > 0 {
		at = page.Changes[n-1].At
		f.behind[id] = max(0, f.m.calls.sourceTime().Sub(at))
	}
	most := time.Duration(0)
	for _, d := range f.behind {
		most = max(most, d)
	}
	f.m.ledger.setBehind(most)
	return at
}

// apply brings the target in line with the source, where changes say that it may differ.
func (f *follower) apply(ctx context.Context, changes []store.Change, counts Counts) (relevant bool, err error) {
	started := layout.ParseTime(f.m.ledger.record.StartedAt).Add(-clockMargin)
	w := work{}
	for i := range changes {
		c := &changes[i]
		if c.At.Before(started) || !f.concerns(c) {
			continue
		}
		counts[CountChanges]++
		if f.m.derivation.adds(c.Key) {
			w.addRemoved(c.Key)
			continue
		}
		w.add(c.Key)
		if c.Old != nil { // what followed from it may have to go
			for _, it := range f.m.derivation.alone(c.Old).Items {
				w.affected[it.Key] = true
			}
		}
	}
	if len(w.groups)+len(w.singles) == 0 {
		return false, nil
	}
	return true, f.m.copier.bring(ctx, w, counts)
}

// concerns reports whether anything of the target may follow from an item that changed.
func (f *follower) concerns(c *store.Change) bool {
	if f.m.derivation.adds(c.Key) { // by this migration, except what programs delete together with an entity
		return isMoved(c.Key) && c.New == nil && !f.m.derivation.expired(c.Old)
	}
	switch recordOf(c.Key) {
	case ownRecord, versionRecord, registryRecord, unknownRecord:
		return false
	default:
		return true
	}
}

// alone returns what would follow from an item if it were the only one.
func (dv *derivation) alone(item expr.Item) Result {
	if _, ok := group(store.KeyOf(item)); ok {
		return dv.added(dv.rules.Group([]expr.Item{item}, func(layout.BucketKey) bool { return false }))
	}
	return dv.one(item)
}

// restart begins the copy again.
func (m *Migration) restart(ctx context.Context) error {
	if err := m.ledger.write(ctx, func(next *layout.Migration) {
		next.Phase, next.StartedAt = Copying, layout.FormatTime(m.calls.sourceTime())
	}); err != nil {
		return err
	}
	m.ledger.mu.Lock()
	var names []string
	for name := range m.ledger.parts {
		names = append(names, name)
	}
	m.ledger.mu.Unlock()
	for _, name := range names {
		part := m.ledger.part(name)
		if strings.HasPrefix(name, streamPrefix) {
			part.Position = "" // of forgotten changes
		}
		part.AfterPK, part.AfterSK, part.Done = "", "", false
		if err := m.ledger.savePart(ctx, part, decodeCounts(part.Counts)); err != nil {
			return err
		}
	}
	return ErrGap
}
