package protocol

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// An exhausted bucket that a whole fleet asks for keeps its keys throttled: by the reads that prove rejections, and by the
// writes for what flows in. Whoever is throttled learns nothing, and a failure policy for outages would admit what the bucket
// rejects. So a process that is throttled rejects by the last images instead, and asks the less often the more it is throttled.

// A hold is for how long a process tells the rejections of a bucket from its last images. It is safe for concurrent use; its
// zero value holds nothing.
type hold struct {
	mu        sync.Mutex
	throttled int64   // when the store throttled the bucket last, epoch milliseconds
	pause     float64 // between two looks at the bucket, milliseconds, as it was then
	until     int64   // epoch milliseconds
	exhausted int64   // when a look found the bucket exhausted last, epoch milliseconds
}

// Bounds of the pause between two looks, milliseconds. A fleet of a thousand processes needs a third of a second for what a
// key serves. What is given back to a bucket may be overlooked for one and a half pauses.
const (
	leastPause = 250
	mostPause  = 4000
)

// fadeTime is the time in which a pause halves, milliseconds. It is long: one process of a fleet is throttled seldom.
const fadeTime = 30_000

// soon is the time within which a second throttle is more than a chance, milliseconds.
const soon = 1000

// length returns the pause as it is by now, 0 for none.
func (h *hold) length(now int64) float64 {
	faded := h.pause * math.Exp2(-float64(max(now-h.throttled, 0))/fadeTime)
	if faded < leastPause/2 {
		return 0
	}
	return faded
}

// throttle notes that the store throttles the bucket. A single throttle holds nothing, and nor does any number of them while
// the clock stands still. Those of calls that were under way when the hold began do not lengthen it.
func (h *hold) throttle(now int64, random func(int) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := now - h.throttled
	if since <= 0 || now < h.until {
		return
	}
	if pause := h.length(now); pause > 0 {
		h.pause = min(2*pause, mostPause)
	} else if h.pause = 0; since < soon {
		h.pause = leastPause
	}
	h.throttled = now
	h.renew(now, random)
}

// look notes that the bucket was looked at, and found exhausted.
func (h *hold) look(now int64, random func(int) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.exhausted = now
	if now >= h.until {
		h.renew(now, random)
	}
}

// wasExhausted reports whether a look found the bucket exhausted of late.
func (h *hold) wasExhausted(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.exhausted > 0 && now-h.exhausted < rateTime.Milliseconds()
}

// renew holds from now on for half a pause to one and a half, so that processes do not look in step.
func (h *hold) renew(now int64, random func(int) int) {
	if pause := int(h.length(now)); pause > 0 {
		h.until = now + int64(pause/2+random(pause))
	}
}

// holds reports whether rejections are told from the last images.
func (h *hold) holds(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now < h.until
}

// noteThrottle notes an error of a call for shards.
func (e *Engine) noteThrottle(err error, shards ...*shard) {
	if !isKeyThrottled(err) {
		return
	}
	for _, s := range shards {
		s.bucket.hold.throttle(e.now(), e.table.IntN)
	}
}

// drained returns the shards of a level as they probably are: without what is scarce, since others take it as fast as it flows
// in. It reports whether the level falls short of its demand then. That takes a look that found the bucket exhausted of late,
// and images that show little more than the demand, of shards that others write as well.
func (e *Engine) drained(l *level) (states []*bucket.State, short bool) {
	now := e.now()
	if l.demand.Empty() || !l.bucket.hold.wasExhausted(now) {
		return nil, false
	}
	shared, c := false, &l.limits.Config
	l.bucket.walk(func(s *shard, i *image) {
		if i == nil || !i.exists {
			return
		}
		shared = shared || !s.traffic.isAlone()
		state := i.State
		state.Limits, state.RefilledAt = slices.Clone(i.Limits), now
		for at := range state.Limits {
			state.Limits[at].Tokens = i.Available(&i.Limits[at], i.seenAt)
		}
		states = append(states, &state)
	})
	if !shared || !l.inLine(states, now) {
		return states, false
	}
	for _, a := range l.demand.Amounts {
		if !isScarce(c, states, a, now) {
			continue
		}
		short = true
		for _, s := range states {
			for at := range s.Limits {
				if known := &s.Limits[at]; known.Name == a.Limit {
					known.Tokens = min(known.Tokens, 0)
				}
			}
		}
	}
	return states, short
}

// isScarce reports whether shards have little more of a limit than one amount.
func isScarce(c *bucket.Config, states []*bucket.State, a bucket.Amount, now int64) bool {
	several := bucket.Demand{Amounts: []bucket.Amount{{Limit: a.Limit, Tokens: min(a.Tokens, math.MaxInt64/crowd) * crowd}}}
	return a.Tokens > 0 && !c.Covers(states, &several, now)
}

// areScarce reports whether one of several levels has little more than its demand, as last seen.
func (e *Engine) areScarce(levels []level) bool {
	now := e.now()
	return slices.ContainsFunc(levels, func(l level) bool {
		states, _ := l.bucket.states(nil)
		return slices.ContainsFunc(l.demand.Amounts, func(a bucket.Amount) bool { return isScarce(&l.limits.Config, states, a, now) })
	})
}

// isContested reports whether others have probably taken what flowed into a shard since it was last seen to fall short of the
// demand of a level. A look is then cheaper than a write.
func (e *Engine) isContested(l *level, s *shard, i *image, now int64) bool {
	if i == nil || !i.exists || !s.traffic.isOutdated(now) {
		return false
	}
	plan := plans.Get().(*bucket.Plan)
	defer plans.Put(plan)
	plan.Decide(&i.State, &l.limits.Config, &l.demand, i.seenAt)
	return plan.Kind == bucket.Reject
}

// isShort reports whether one of several levels falls short: as its last images tell, or as it probably is.
func (e *Engine) isShort(levels []level) bool {
	if e.foreseen(levels) {
		return true
	}
	for i := range levels {
		if _, short := e.drained(&levels[i]); short {
			return true
		}
	}
	return false
}

// held rejects levels one of which is held, and probably falls short. It makes no call.
func (e *Engine) held(levels []level) error {
	holds := func(l level) bool { return l.bucket.hold.holds(e.now()) }
	if slices.ContainsFunc(levels, holds) && e.isShort(levels) {
		return e.rejectionAsSeen(levels)
	}
	return nil
}

// afterThrottle decides about levels that could not be taken from, since the store throttled a call. A look at them, which
// others of the process share, may show that they fall short; when it is throttled as well, the last images do. Where it shows
// that there is little left, the request begins anew. Otherwise the outcome is the throttle.
func (e *Engine) afterThrottle(ctx context.Context, levels []level, throttled error) error {
	if ctx.Err() != nil || IsUnknown(throttled) {
		return throttled
	}
	if err := e.held(levels); err != nil {
		return err
	}
	err := e.readStale(ctx, levels, e.seenSince(e.NextEpoch()))
	if err == nil {
		err = e.refuse(ctx, levels, false)
	}
	switch {
	case errors.As(err, new(*RejectedError)):
		return err
	case e.isShort(levels):
		return e.rejectionAsSeen(levels)
	case errors.Is(err, errRoom) && e.areScarce(levels):
		return &scarceError{throttled}
	default:
		return throttled
	}
}

// A scarceError says that a request was throttled that may be admitted or rejected moments later.
type scarceError struct{ throttled error }

func (e *scarceError) Error() string { return e.throttled.Error() }
func (*scarceError) Unwrap() error   { return errRoom }

// rejectionAsSeen tells where the limits of levels probably stand.
func (e *Engine) rejectionAsSeen(levels []level) error {
	told := e.statuses(levels)
	if e.foreseen(levels) {
		return &RejectedError{told}
	}
	for i := range levels {
		if states, short := e.drained(&levels[i]); short {
			l := &levels[i]
			told[i].Statuses = l.limits.Config.Statuses(nil, states, &l.demand, e.now())
		}
	}
	return &RejectedError{told}
}
