package protocol

import (
	"context"
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A judge reports the state of limits, and rejects requests.
type judge struct {
	*core
	looks    *looks
	aligner  *aligner
	lister   *lister
	families *families
	memory   *Memory
}

// predictsRejection returns a level whose last images, however old, reject its demand; nil if there is none. It is then cheaper to read
// that level before the other levels are charged.
func (ju *judge) predictsRejection(levels []level) *level {
	now := ju.now()
	for i := range levels {
		l := &levels[i]
		if l.demand.Empty() {
			continue
		}
		var space [1]*bucket.State
		states, complete := l.bucket.states(space[:0])
		if complete && len(states) > 0 && l.inLine(states, now) && (!l.limits.Config.Covers(states, &l.demand, now) || !ju.coversSlots(l, states)) {
			return l
		}
	}
	return nil
}

// isShort reports whether a rejection of a level may be based on images in memory.
func (ju *judge) isShort(l *level) bool {
	v := ju.looks.view(l.bucket, ju.looks.seenFor(l))
	return len(v.stale) == 0 && len(v.states) > 0 && l.inLine(v.states, ju.now()) && !ju.covered(l, &v)
}

func (l *level) inLine(states []*bucket.State, now int64) bool {
	for _, s := range states {
		if !l.limits.Config.InLine(s, now) {
			return false
		}
	}
	return true
}

// covered reports whether the shards of a view cover the demand of a level. Tokens that this process has still to return count as
// available. So a request is never rejected because of its own charge.
func (ju *judge) covered(l *level, v *view) bool {
	return (l.demand.Empty() || l.limits.Config.Covers(v.states, l.held(), ju.now())) && ju.coversSlots(l, v.states)
}

// coversSlots reports whether a bucket has enough free slots for a level.
func (c *core) coversSlots(l *level, states []*bucket.State) bool {
	return len(l.demand.Slots()) == 0 || l.limits.Config.CoversSlots(states, l.demand.Slots(), c.slotNow())
}

func (ju *judge) views(levels []level, seen recency) []view {
	views := make([]view, len(levels))
	for i := range levels {
		views[i] = ju.looks.view(levels[i].bucket, seen)
	}
	return views
}

// refuse returns the rejection of levels, at least one of which falls short. It uses images from after the arrival of the request, and
// images that are recent enough for a rejection from memory. It reads the other shards. It first brings items in line with their configured
// limits, so that the reported status is correct. It returns errRoom if the images show enough tokens after all, which may have been
// refilled meanwhile.
//
// An outage does not turn a rejection into another error:
//   - If a level was proven to fall short, the request is rejected even if the other levels cannot be read.
//   - If reads of the shards are throttled, the last images decide, however old they are.
//   - If a level falls short by its configured limits, the request is rejected even if its item cannot be brought in line.
//   - If shards prove that a level falls short, the request is rejected immediately, and the other levels are reported as last seen.
func (ju *judge) refuse(ctx context.Context, levels []level, errs []error) error {
	seen := ju.looks.seenFor(&levels[0]) // all levels belong to one request
	if isByShare(errs) {
		return ju.rejectionByShare(ctx, levels, ju.views(levels, seen), errs)
	}
	proven := len(errs) > 0
	if err := ju.looks.readStale(ctx, levels, seen); err != nil {
		if ctx.Err() == nil && (proven && isOutage(err) || IsThrottled(err) && ju.predictsRejection(levels) != nil) {
			return ju.rejection(ctx, levels, ju.views(levels, seen))
		}
		return err
	}
	views, rejected := ju.views(levels, seen), false
	if isOutdated(levels) {
		return errOutdated
	}
	for i := range levels {
		l, v := &levels[i], &views[i]
		if ju.covered(l, v) {
			continue
		}
		err := ju.aligner.bringInLine(ctx, l, v)
		if err != nil && (!isOutage(err) || ctx.Err() != nil) {
			return err
		}
		rejected = rejected || err != nil || !ju.covered(l, v)
	}
	if !rejected {
		return errRoom
	}
	return ju.rejection(ctx, levels, views)
}

// isOutdated reports whether the items of levels show a change by an operator, such as a move to another parent, that may be later than the
// levels.
func isOutdated(levels []level) bool {
	return slices.ContainsFunc(levels, func(l level) bool { return l.bucket.outdates(l.limits) })
}

// rejection returns the rejection with the state of all limits, from views of the levels. It returns errRoom if none of them falls short
// any more: tokens were refilled, or another goroutine has seen returned tokens.
func (ju *judge) rejection(ctx context.Context, levels []level, views []view) error {
	return ju.rejectionOf(ctx, levels, ju.statuses(levels, views))
}

// rejectAsSeen returns a rejection if a level was short in its last images from after the arrival of the request, and nil otherwise. It
// makes no call. The images were not read together, see [view], and it does not count the refill since. So it is used only for requests
// whose time has ended.
func (ju *judge) rejectAsSeen(ctx context.Context, levels []level) error {
	views, bys := make([]view, len(levels)), make([][]bucket.Status, len(levels))
	short := false
	for i := range levels {
		l := &levels[i]
		v := l.bucket.viewOf((*shard).last, func(_ *shard, i *image) bool { return i.since(l.began) })
		views[i] = v
		if at := v.askedAt(); len(v.stale) == 0 && len(v.states) > 0 && l.inLine(v.states, at) && !l.limits.Config.Covers(v.states, l.held(), at) {
			bys[i], short = standing(&l.limits.Config, v.states, l.held(), at, ju.now()), true
		}
	}
	if !short {
		return nil
	}
	reported := ju.statuses(levels, views)
	for i := range reported {
		shorten(reported[i].Statuses, bys[i])
	}
	return ju.rejectionOf(ctx, levels, reported)
}

// rejectionOf returns the rejection with the statuses of levels, or errRoom if no limit falls short.
func (ju *judge) rejectionOf(ctx context.Context, levels []level, reported []LevelStatus) error {
	rejected := false
	for i := range reported {
		if slices.ContainsFunc(reported[i].Statuses, func(s bucket.Status) bool { return s.Short }) {
			ju.lister.listRejected(ctx, levels[i].bucket)
			rejected = true
		}
	}
	if !rejected {
		return errRoom
	}
	return &RejectedError{reported}
}

// rejectSlots returns a rejection for lack of slots, with the state of all limits as last seen. It returns errRoom if slots have become
// free since.
func (ju *judge) rejectSlots(ctx context.Context, levels []level) error {
	return ju.rejectionOf(ctx, levels, ju.statuses(levels, ju.views(levels, ju.looks.seenFor(&levels[0]))))
}

// standing returns the state of limits in shards that were found short at a time. It reports them for the present time: others may have
// taken the refill since, so the reading of the request would show a debt. If the tokens of the request have been refilled by now, the
// reported balance is that of the reading, and the wait is one millisecond.
func standing(c *bucket.Config, shards []*bucket.State, d *bucket.Demand, at, now int64) []bucket.Status {
	statuses := c.Statuses(nil, shards, d, at)
	if now <= at {
		return statuses
	}
	for i, later := range c.Statuses(nil, shards, d, now) {
		s := &statuses[i]
		if !s.Short {
			continue
		}
		if available := s.Available; later.Short {
			*s = later
		} else {
			s.Available, s.Wait = max(available, min(later.Available, 0)), 1
		}
	}
	return statuses
}

// shorten marks reported limits as short if other statuses show them short, with the lower balance and the longer wait of the two.
func shorten(reported, by []bucket.Status) {
	for _, by := range by {
		at := slices.IndexFunc(reported, func(s bucket.Status) bool { return s.Name == by.Name })
		if s := &reported[at]; by.Short {
			s.Short, s.Available, s.Wait = true, min(s.Available, by.Available), max(s.Wait, by.Wait)
		}
	}
}

func isByShare(errs []error) bool {
	return slices.ContainsFunc(errs, func(err error) bool {
		return errors.As(err, new(*shortage))
	})
}

// rejectionByShare returns a rejection of levels, at least one of which was rejected by one or two shards. A limit of such a level is
// reported as in the shard that was last found short, unless all shards as last seen have less. So the reported wait suffices, even if
// others take tokens from the other shards. Another level that falls short by limits that its item does not have yet is brought in line, since
// its refill by them begins with that. It returns errRoom if tokens that this process has still to return cover the shortage.
func (ju *judge) rejectionByShare(ctx context.Context, levels []level, views []view, errs []error) error {
	for i := range levels {
		l, v := &levels[i], &views[i]
		if len(v.states) > 0 && len(v.stale) == 0 && !l.inLine(v.states, ju.now()) && !ju.covered(l, v) && !ju.isStrained(l.bucket) {
			_ = ju.aligner.bringInLine(ctx, l, v) // one that cannot be is reported as last seen
		}
	}
	reported := ju.statuses(levels, views)
	for i, err := range errs {
		var short *shortage
		if !errors.As(err, &short) {
			continue
		}
		l := &levels[i]
		shorten(reported[i].Statuses, standing(&l.limits.Config, []*bucket.State{short.state(l.demand.Waits())}, l.held(), short.at, ju.now()))
	}
	return ju.rejectionOf(ctx, levels, reported)
}
