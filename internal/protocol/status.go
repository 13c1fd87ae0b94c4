package protocol

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/hooks"
)

// status is [Engine.Status].
func (ju *judge) status(ctx context.Context, r *Request, family bool) ([]LevelStatus, error) {
	levels, views, err := ju.readLevels(ctx, r, family)
	if err != nil {
		return nil, err
	}
	return ju.statuses(levels, views), nil
}

// timeUntil is [Engine.TimeUntil].
func (ju *judge) timeUntil(ctx context.Context, r *Request) ([]LevelStatus, error) {
	for attempt := range maxRestarts {
		levels, views, err := ju.readLevels(ctx, r, true)
		if err != nil {
			return nil, err
		}
		if err = ju.alignWaiting(ctx, levels, views); err == nil {
			return ju.statuses(levels, views), nil
		}
		if !errors.Is(err, errOutdated) {
			return nil, err
		}
		if err := ju.table.Pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
	return nil, ErrContended
}

// alignWaiting brings the levels that fall short in line.
func (ju *judge) alignWaiting(ctx context.Context, levels []level, views []view) error {
	for i := range levels {
		if ju.covered(&levels[i], &views[i]) {
			continue
		}
		if err := ju.aligner.bringInLine(ctx, &levels[i], &views[i]); err != nil {
			return err
		}
	}
	return nil
}

// readLevels returns the levels of a request, after reading all shards.
func (ju *judge) readLevels(ctx context.Context, r *Request, family bool) (levels []level, views []view, err error) {
	began := ju.NextEpoch()
	if family {
		levels, err = ju.families.levels(ctx, r, began, nil)
	} else {
		levels, err = ju.families.alone(ctx, r, began)
	}
	if err != nil {
		return nil, nil, err
	}
	seen := ju.looks.seenSince(began)
	if err := ju.looks.readStale(ctx, levels, seen); err != nil {
		return nil, nil, err
	}
	views = ju.views(levels, seen)
	for i := range views {
		if hooks.Looks(ctx) {
			break
		}
		if err := views[i].disabled(levels[i].bucket); err != nil {
			return nil, nil, err
		}
	}
	return levels, views, nil
}

// slotStates returns the item that has the slots of a level, if it was seen since the request arrived, or recently enough. The view may
// have an earlier image of it.
func (ju *judge) slotStates(l *level, v *view) []*bucket.State {
	s := l.bucket.shard(0)
	if i := s.last(); i != nil && i.exists && (i.since(l.began) || ju.looks.items.isRecent(s, i, ju.now())) {
		return []*bucket.State{&i.State}
	}
	return v.states
}

func (ju *judge) statuses(levels []level, views []view) []LevelStatus {
	now := ju.now()
	reported := make([]LevelStatus, len(levels))
	for i := range levels {
		l := &levels[i]
		statuses := l.limits.Config.Statuses(nil, views[i].states, l.held(), now)
		statuses = l.limits.Config.SlotStatuses(statuses, ju.slotStates(l, &views[i]), l.demand.Slots(), ju.slotNow())
		for at := range statuses {
			if kept := bucket.Of(l.kept, statuses[at].Name); kept > 0 && statuses[at].Term > 0 {
				statuses[at].KeepSlots(kept)
			}
		}
		reported[i] = LevelStatus{l.bucket.Entity, l.bucket.Resource, int(l.ancestor), int(l.wider), statuses}
	}
	ju.waitTogether(levels, views, reported, now)
	return reported
}

// waitTogether extends the longest of the waits for tokens until all limits have enough at the same time. If that takes a top-up, a prepaid
// limit has the wait.
func (ju *judge) waitTogether(levels []level, views []view, reported []LevelStatus, now int64) {
	var longest, prepaid *bucket.Status
	for i := range reported {
		for j := range reported[i].Statuses {
			s := &reported[i].Statuses[j]
			if s.Term > 0 || s.Mode != bucket.Enforced {
				continue
			}
			if s.Wait > 0 && (longest == nil || s.Wait > longest.Wait) {
				longest = s
			}
			if s.Session >= bucket.Endless && s.Requested > 0 {
				prepaid = s
			}
		}
	}
	if longest == nil {
		return
	}
	asked := make([]bucket.Asked, len(levels))
	for i := range levels {
		asked[i] = bucket.Asked{Config: &levels[i].limits.Config, Shards: views[i].states, Demand: levels[i].held()}
	}
	wait, needsTopUp := bucket.TogetherAfter(asked, now, longest.Wait)
	if needsTopUp && prepaid != nil {
		longest = prepaid
	}
	longest.Wait = wait
}

// statusSpaces are reused: callers keep no statuses.
var statusSpaces = sync.Pool{New: func() any { return new(statusSpace) }}

type statusSpace struct {
	states   []*bucket.State
	statuses []bucket.Status
}

// reportTaken is [Engine.Statuses].
func (ju *judge) reportTaken(r *Receipt, report func(LevelStatus)) {
	now := ju.now()
	space := statusSpaces.Get().(*statusSpace)
	defer statusSpaces.Put(space)
	for i := range r.levels {
		t := &r.levels[i]
		if slices.ContainsFunc(r.levels[i+1:], func(later levelReceipt) bool { return later.isOf(t.bucket) }) {
			continue // of a later round
		}
		space.states, _ = ju.memory.current(t.bucket).states(space.states[:0])
		space.statuses = t.limits.Config.Statuses(space.statuses[:0], space.states, &nothingAsked, now)
		if len(t.limits.Config.Slots) > 0 {
			space.statuses = t.limits.Config.SlotStatuses(space.statuses, space.states, t.held(), ju.slotNow())
		}
		clear(space.states)                     // so that the pool does not keep them alive
		total, _ := totalOf(r.levels, t.bucket) // an earlier sum did not overflow
		for j := range space.statuses {
			if space.statuses[j].Term > 0 {
				continue
			}
			space.statuses[j].Requested = bucket.OfWhole(total, space.statuses[j].Name)
			space.statuses[j].Foreseen = t.isForeseen(&space.statuses[j])
		}
		report(LevelStatus{t.bucket.Entity, t.bucket.Resource, int(t.ancestor), int(t.wider), space.statuses})
	}
}

// statusesSince is [Engine.StatusesSince].
func (ju *judge) statusesSince(ctx context.Context, r *Receipt, epoch int64) ([]LevelStatus, error) {
	var levels []level
	for i := range r.levels {
		t := &r.levels[i]
		if slices.ContainsFunc(r.levels[i+1:], func(later levelReceipt) bool { return later.isOf(t.bucket) }) {
			continue // of a later round
		}
		b := ju.memory.current(t.bucket)
		limits, err := ju.options.Source.For(ctx, b)
		if err != nil {
			return nil, err
		}
		levels = append(levels, level{bucket: b, limits: limits, began: epoch, position: t.position})
	}
	seen := ju.looks.seenSince(epoch)
	if err := ju.looks.readStale(ctx, levels, seen); err != nil {
		return nil, err
	}
	return ju.statuses(levels, ju.views(levels, seen)), nil
}

// isForeseen reports whether a shadow limit would have rejected the request.
func (t *levelReceipt) isForeseen(s *bucket.Status) bool {
	return s.Mode == bucket.Shadow && !t.limits.Config.Bypass && slices.ContainsFunc(t.parts, func(p shardAmounts) bool { return bucket.IsUnowned(p.lives(), s.Name) })
}

// nothingAsked is the demand of a caller that only reads.
var nothingAsked bucket.Demand
