package protocol

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A lead is the time by which the clock of this process is ahead of others.
type lead struct {
	by    int64         // milliseconds
	epoch int64         // when that was learned
	until time.Duration // when it no longer applies, since the engine was made
}

const (
	// fixGap is the minimum time after which a process may set back the refill stamp of an item again. Each time, up to one capacity may be
	// refilled twice. A stamp that is ahead again within fixGap is left alone: the balance can be taken, and nothing is refilled until the
	// clock has reached the stamp.
	fixGap = time.Hour
	// leadTime is how long a process follows the time of the others, since its own clock may be corrected meanwhile. It ends after the time
	// from which the others may set stamps back again.
	leadTime = fixGap + time.Minute
)

// A following is how far the stamps of a bucket were ahead of the clock of this process when it saw them.
type following struct {
	by     int64         // the most since the time below, milliseconds
	before int64         // the most in the period before that
	since  time.Duration // since the engine was made
}

const (
	// maxAheadMS bounds how far a process follows a stamp ahead of its clock, milliseconds. It is about twice the
	// difference of clocks that are set by the dates of replies.
	maxAheadMS = 2000
	// minAheadMS is the least lead that a process follows, milliseconds. If limits change within one millisecond, the stamp still advances
	// by one.
	minAheadMS = 5
	// aheadTime is the least time for which a process follows a lead.
	aheadTime = time.Minute
)

// follow returns how far this process follows the stamps of a bucket, given a new image. A late image shows less than the lead of the
// stamp's process, so the greatest recent lead counts. A follower is never ahead of that process. So processes that follow it and each
// other fall back, and do not drift ahead. A stamp that is further ahead than correct clocks can differ is not followed.
//
// A process does not follow its own stamps: otherwise a clock that moves back and forth would drive itself ahead. If the clock of a
// follower is set forward, its stamps are ahead of every clock, by at most maxAheadMS.
func (c *core) follow(s *shard, i *image) int64 {
	b := s.bucket
	seen := i.RefilledAt - i.seenAt
	if s.wrote.Load() == i.RefilledAt {
		seen = 0
	}
	if seen > 0 { // others may have written the stamp during a call of a store that answers immediately
		seen = min(seen, i.RefilledAt-c.now())
	}
	if seen < minAheadMS || seen > maxAheadMS {
		seen = 0
	}
	f := b.following.Load()
	if f == nil && seen == 0 {
		return 0
	}
	next := following{since: c.sinceStart()}
	if f != nil {
		switch age := next.since - f.since; {
		case age < aheadTime:
			next = *f
		case age < 2*aheadTime:
			next.before = f.by
		}
	}
	if next.by = max(next.by, seen); f == nil || next != *f {
		b.following.CompareAndSwap(f, &next) // another goroutine has seen as much, or this one sees it again
	}
	return max(next.by, next.before)
}

// mayLead reports whether [core.follow] may find a lead: the stamp of the image is ahead, or a stamp of the bucket was ahead recently.
func (s *shard) mayLead(i *image) bool {
	return i.RefilledAt-i.seenAt >= minAheadMS || s.bucket.following.Load() != nil
}

// fixes are the items whose refill stamp this process set back recently, in forgotten buckets too. It is safe
// for concurrent use.
type fixes struct {
	until atomic.Int64 // no entry counts after that time, nanoseconds since the engine was made

	mu  sync.RWMutex             // guards what follows
	at  map[string]time.Duration // when, since the engine was made, by partition key
	all time.Duration            // until when every item counts as set back, since there were too many to remember
}

// maxFixes bounds the items that are remembered.
const maxFixes = 1 << 16

// hasFixed reports whether this process has set back the refill stamp of a shard within fixGap, or may have.
func (c *core) hasFixed(s *shard) bool {
	return c.fixes.until.Load() != 0 && c.hasFixedRecently(s) // false for most processes
}

// hasFixedRecently is [core.hasFixed] for a process that has set back some stamp.
func (c *core) hasFixedRecently(s *shard) bool {
	f, now := &c.fixes, c.sinceStart()
	if now >= time.Duration(f.until.Load()) {
		return false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	last, ok := f.at[s.key.PK]
	return ok && now-last < fixGap || now < f.all
}

// noteStamp notes the refill stamp of a write that moved it and was applied, or may have been. It also notes whether the write set the
// stamp back.
func (c *core) noteStamp(s *shard, plan *bucket.Plan) {
	s.wrote.Store(plan.Now)
	if plan.Kind == bucket.Advance && plan.Now < plan.RefilledAt {
		c.fixes.note(s.key.PK, c.sinceStart())
	}
}

// note notes that an item was set back at a time.
func (f *fixes) note(pk string, now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until.Store(int64(now + fixGap))
	if len(f.at) >= maxFixes {
		maps.DeleteFunc(f.at, func(_ string, at time.Duration) bool { return now-at >= fixGap })
	}
	if len(f.at) >= maxFixes {
		f.all = now + fixGap
		return
	}
	if f.at == nil {
		f.at = map[string]time.Duration{}
	}
	f.at[pk] = now
}

// compare detects from an image that another process has set back a refill stamp of this process: the stamp of the image is earlier than
// the last one that this process wrote. Others do that if the stamp is further ahead of their clocks than any correct clock would write it.
// So when this process wrote the stamp, its clock was ahead by at least the difference. Without this correction, the process would move the
// stamp ahead again, and the refill in between would be added each time.
func (c *core) compare(s *shard, i, own *image) {
	if !i.since(own.arrived) {
		return
	}
	by := own.RefilledAt - i.RefilledAt
	isAnother := i.Writes() <= own.Writes() // item, created after this one was deleted, by a clock that may differ a little
	if isAnother && by <= c.options.MaxLead.Milliseconds() || !s.stamped.CompareAndSwap(own, nil) {
		return
	}
	if last := c.ahead.Load(); last != nil && c.sinceStart() < last.until {
		if own.asked > last.epoch {
			by += last.by // the stamp was written by the corrected time
		} else {
			by = max(by, last.by)
		}
	}
	c.ahead.Store(&lead{by, c.NextEpoch(), c.sinceStart() + leadTime})
	c.options.Logger.Warn("zlimit: others set back a refill stamp of this process, whose clock is ahead", "key", s.key.PK,
		"milliseconds", by)
}

// All tries of a request use the clock reading at its arrival. Refill that arrives later, even before the reply to a failed condition, is
// for later requests. So if a condition fails on a stamp that the request knew, the request is rejected, and requests do not race for each
// token.
const (
	// maxHeld is how long a reading counts, milliseconds. A request that takes longer has waited for a queue, or for a throttle.
	maxHeld = 1000
	// maxStepBack is how far the clock may go back meanwhile, milliseconds. A larger step means that the clock was corrected.
	maxStepBack = 1000
)

// heldAt returns the clock reading that a request uses: the reading at its arrival, or the present time if that is too old.
func heldAt(came, now int64) int64 {
	if now > came+maxHeld || now < came-maxStepBack {
		return now
	}
	return came
}

// NextEpoch returns a number greater than all earlier ones. Epochs order what a process knows. The result of a call is as new as the epoch
// that was drawn before the call.
func (c *core) NextEpoch() int64 { return c.options.Epoch.Add(1) }

// life returns the number of the lives that a request may start, from the epoch of its arrival; see [bucket.Limit.Life]. Clocks may stand
// still or differ, so the number is a 32-bit hash of data that only this process has.
func (c *core) life(epoch int64) int64 {
	x := (c.salt<<32 ^ uint64(epoch)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x>>32) + 1
}

// now returns the time in epoch milliseconds: by the clock of this process, less its known lead.
func (c *core) now() int64 {
	now := c.options.Now().UnixMilli()
	if l := c.ahead.Load(); l != nil && c.sinceStart() < l.until {
		now -= l.by
	}
	return now
}
