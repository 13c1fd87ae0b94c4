package zlimit

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A clock has the time of a limiter: the time of its store, as far as the replies show it, or of its machine. The
// time is set back by more than lead at most once in clockGap, since the refill would flow in again each time. A clock
// set back again within that gap stands still. It is safe for concurrent use.
type clock struct {
	read   func() time.Time
	store  store.Clock   // nil if the limiter uses read alone
	lead   time.Duration // how far a refill stamp may be ahead; a clock that is set back further sets stamps back
	logger *slog.Logger

	warned  atomic.Bool
	latest  atomic.Int64 // latest returned time, epoch nanoseconds; at most clockTick behind the latest one
	setBack atomic.Int64 // when the time was set back last, nanoseconds since processStart; 0 for never
}

const (
	// maxSilentSkew is the difference between the clocks of the machine and of the store beyond which the limiter warns.
	maxSilentSkew = 2 * time.Second
	// clockTick is how far the time moves before it is noted.
	clockTick = 100 * time.Millisecond
	clockGap  = time.Hour
)

func (l *RateLimiter) now() time.Time { return l.clock.now() }

// processStart is when the process began, by a clock that is never set.
var processStart = time.Now() //nolint:forbidigo // its monotonic reading, which no clock setting changes

func (c *clock) now() time.Time {
	now := c.read()
	if c.store != nil {
		now = c.corrected(now)
	}
	told, latest := now.UnixNano(), c.latest.Load()
	switch {
	case latest == 0 || told > latest+int64(clockTick):
		c.latest.Store(told) // of two concurrent goroutines either will do
	case time.Duration(latest-told) > c.lead-clockTick && !c.mayGoBack(told):
		return time.Unix(0, latest)
	}
	return now
}

// slotTime returns the time for slots, and its greatest error: the middle of the range that the replies of the store
// allow. Stores without a time of their own are on the machine of their callers, whose clock is right by definition. So is a
// clock that an option sets. It is false as long as the time is not known.
func (c *clock) slotTime() (now time.Time, wrong time.Duration, known bool) {
	now = c.read()
	if c.store == nil {
		return now, 0, true
	}
	least, most, known := c.store.Bounds()
	return now.Add(least + (most-least)/2), (most-least)/2 + 1, known
}

// mayGoBack sets the time back, unless that happened within clockGap.
func (c *clock) mayGoBack(to int64) bool {
	now, last := int64(time.Since(processStart)), c.setBack.Load()
	if last != 0 && now-last < int64(clockGap) || !c.setBack.CompareAndSwap(last, max(now, 1)) {
		return false
	}
	c.latest.Store(to)
	return true
}

// corrected returns a time of the machine by the clock of the store.
func (c *clock) corrected(now time.Time) time.Time {
	offset, known := c.store.Offset()
	if !known || offset == 0 {
		return now
	}
	if offset.Abs() > maxSilentSkew && c.warned.CompareAndSwap(false, true) {
		c.logger.Warn("zlimit: the clock of this machine differs from the store's, by which the limiter goes", "offset", offset)
	}
	return now.Add(offset)
}
