package protocol

import (
	"context"
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// foreseen reports whether the last images of one of the levels, however old, reject its demand. Then it is cheaper to look
// again before the other levels are taken from.
func (e *Engine) foreseen(levels []level) bool {
	now := e.now()
	for i := range levels {
		l := &levels[i]
		if l.demand.Empty() {
			continue
		}
		var space [1]*bucket.State
		states, complete := l.bucket.states(space[:0])
		if complete && len(states) > 0 && l.inLine(states, now) && !l.limits.Config.Covers(states, &l.demand, now) {
			return true
		}
	}
	return false
}

// isShort reports whether a rejection of a level may be told from images in memory.
func (e *Engine) isShort(l *level) bool {
	v := e.view(l.bucket, e.seenFor(l))
	return len(v.stale) == 0 && len(v.states) > 0 && l.inLine(v.states, e.now()) && !e.covered(l, &v)
}

func (l *level) inLine(states []*bucket.State, now int64) bool {
	for _, s := range states {
		if !l.limits.Config.InLine(s, now) {
			return false
		}
	}
	return true
}

// covered reports whether the shards of a level, as a view has them, have its demand.
func (e *Engine) covered(l *level, v *view) bool {
	return l.demand.Empty() || l.limits.Config.Covers(v.states, &l.demand, e.now())
}

// views returns a view of each level.
func (e *Engine) views(levels []level, seen sight) []view {
	views := make([]view, len(levels))
	for i := range levels {
		views[i] = e.view(levels[i].bucket, seen)
	}
	return views
}

// refuse returns the rejection of levels one of which falls short, told from a view of all of them. The view has each
// shard as it was seen since the request came, or recently enough for a rejection from memory. The other shards are
// read. Items that differ from their configured limits are brought in line, so that the status that refuse tells holds.
// It returns errRoom when the view shows enough tokens after all, also when they flowed in while it was looked at.
//
// An outage does not turn a rejection into another error:
//   - A level that was proven to fall short rejects the request, though the others cannot be read.
//   - So do the last images, however old, when the read of the shards is throttled.
//   - A level that falls short by its configured limits rejects it, though its item cannot be brought in line.
func (e *Engine) refuse(ctx context.Context, levels []level, proven bool) error {
	seen := e.seenFor(&levels[0]) // all of one request
	if err := e.readStale(ctx, levels, seen); err != nil {
		if ctx.Err() == nil && (proven && isOutage(err) || IsThrottled(err) && e.foreseen(levels)) {
			return e.rejection(levels, e.views(levels, seen))
		}
		return err
	}
	views, rejected := e.views(levels, seen), false
	for i := range levels {
		l, v := &levels[i], &views[i]
		if e.covered(l, v) {
			continue
		}
		err := e.bringInLine(ctx, l, v)
		if err != nil && (!isOutage(err) || ctx.Err() != nil) {
			return err
		}
		rejected = rejected || err != nil || !e.covered(l, v)
	}
	if !rejected {
		return errRoom
	}
	return e.rejection(levels, views)
}

// rejection tells where the limits of levels stand, by views of them. It returns errRoom when none of them falls short any
// more: time has gone on since a level did, or another goroutine has seen tokens come back.
func (e *Engine) rejection(levels []level, views []view) error {
	told := e.statuses(levels, views)
	for i := range told {
		if slices.ContainsFunc(told[i].Statuses, func(s bucket.Status) bool { return s.Wait > 0 }) {
			return &RejectedError{told}
		}
	}
	return errRoom
}

func (e *Engine) statuses(levels []level, views []view) []LevelStatus {
	now := e.now()
	told := make([]LevelStatus, len(levels))
	for i := range levels {
		l := &levels[i]
		statuses := l.limits.Config.Statuses(nil, views[i].states, &l.demand, now)
		told[i] = LevelStatus{l.bucket.Entity, l.bucket.Resource, statuses}
	}
	return told
}

// readStale reads the shards of levels that were not seen late enough, or not together, those of all levels together. It
// makes one consistent batch read, and one more for each level of a tree that was not known.
func (e *Engine) readStale(ctx context.Context, levels []level, seen sight) error {
	for reads, throttles := 0, 0; reads < maxRounds; {
		var stale []*shard
		for i := range levels {
			stale = append(stale, e.view(levels[i].bucket, seen).stale...)
		}
		if len(stale) == 0 {
			return nil
		}
		own, err := e.lookAt(ctx, stale)
		switch {
		case isKeyThrottled(err) && throttles < patience:
			throttles++
		case err != nil:
			return err
		case own:
			reads++
		}
	}
	return nil // all were read, and none of the reads found a tree that stands still
}

// maxRounds bounds the reads of one view: the tree has at most six levels.
const maxRounds = 8

// Status returns where the limits of an entity and resource stand, and with family those of its parents. It makes a
// consistent read of every shard, and writes nothing.
func (e *Engine) Status(ctx context.Context, r *Request, family bool) ([]LevelStatus, error) {
	levels, views, err := e.readLevels(ctx, r, family)
	if err != nil {
		return nil, err
	}
	return e.statuses(levels, views), nil
}

// Wait returns where the limits stand that a request asks for, with the wait of each. An item that differs from its
// configured limits is brought in line where a wait is told, so that the wait holds.
func (e *Engine) Wait(ctx context.Context, r *Request) ([]LevelStatus, error) {
	for attempt := range maxRestarts {
		levels, views, err := e.readLevels(ctx, r, true)
		if err != nil {
			return nil, err
		}
		if err = e.alignWaiting(ctx, levels, views); err == nil {
			return e.statuses(levels, views), nil
		}
		if !errors.Is(err, errOutdated) {
			return nil, err
		}
		if err := e.table.Pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
	return nil, ErrContended
}

// alignWaiting brings levels in line that fall short.
func (e *Engine) alignWaiting(ctx context.Context, levels []level, views []view) error {
	for i := range levels {
		if e.covered(&levels[i], &views[i]) {
			continue
		}
		if err := e.bringInLine(ctx, &levels[i], &views[i]); err != nil {
			return err
		}
	}
	return nil
}

// readLevels returns the levels of a request, with all shards as the store has them.
func (e *Engine) readLevels(ctx context.Context, r *Request, family bool) (levels []level, views []view, err error) {
	began := e.NextEpoch()
	if family {
		levels, err = e.levels(ctx, r, began, nil)
	} else {
		levels = make([]level, 1)
		levels[0], err = e.firstLevel(ctx, r, began)
	}
	if err != nil {
		return nil, nil, err
	}
	seen := e.seenSince(began)
	if err := e.readStale(ctx, levels, seen); err != nil {
		return nil, nil, err
	}
	return levels, e.views(levels, seen), nil
}
