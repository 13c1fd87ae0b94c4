package protocol

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A pace determines when a process may make the next call of one kind: a look at a bucket, or a write of a queue. The more often the store
// throttles such calls, the longer the pause between two calls. A new pace with only its bounds set lets every call begin immediately. It
// is safe for concurrent use. Times are since the engine was made.
type pace struct {
	until atomic.Int64 // no call begins earlier, nanoseconds; 0 if none was ever throttled

	bounds    *bounds
	mu        sync.Mutex // guards the fields below, and changes of until
	pause     time.Duration
	throttled time.Duration // when the pause had that length
	refusal   error         // the throttle of the last call, whose retry waits for the pace; nil if that call was answered
}

// Bounds have the shortest and the longest pause between two calls, and the time in which a pause halves.
type bounds struct{ least, most, fade time.Duration }

// maxThrottles is how often a throttled request is retried, at the pace of such calls.
const maxThrottles = 6

// ofLooks, ofWrites and ofListings are the bounds of paces. A key sustains 3,000 looks and 1,000 writes a second, so each of a thousand
// processes can look three times a second, and write once a second. The pauses of looks and listings halve slowly, since a single process
// of a fleet is seldom throttled. The pause of writes halves fast, since a throttled bucket is split within seconds.
var (
	ofLooks    = bounds{100 * time.Millisecond, 2 * time.Second, 30 * time.Second}
	ofWrites   = bounds{50 * time.Millisecond, 2 * time.Second, 5 * time.Second}
	ofListings = bounds{100 * time.Millisecond, 10 * time.Second, 30 * time.Second}
)

// length returns the present length of the pause, 0 for none.
func (p *pace) length(now time.Duration) time.Duration {
	faded := time.Duration(float64(p.pause) * math.Exp2(-float64(now-p.throttled)/float64(p.bounds.fade)))
	if faded < p.bounds.least/2 {
		return 0
	}
	return faded
}

// throttle notes that a call was throttled: the pause doubles, and begins. During a pause it does nothing, since the call began before the
// pause.
func (p *pace) throttle(now time.Duration, random func(int) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now < time.Duration(p.until.Load()) {
		return
	}
	p.pause, p.throttled = min(max(2*p.length(now), p.bounds.least), p.bounds.most), now
	p.renew(now, random)
}

// renew begins a pause of 0.5 to 1.5 times the length, so that processes do not make their calls at the same moments.
func (p *pace) renew(now time.Duration, random func(int) int) {
	if pause := p.length(now); pause > 0 {
		p.until.Store(int64(now + pause/2 + time.Duration(random(int(pause/time.Millisecond)))*time.Millisecond))
	}
}

// ended notes that a call was not throttled: the next call may begin a pause later.
func (p *pace) ended(c *core) {
	if p.until.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew(c.sinceStart(), c.table.IntN)
}

// refuses notes the throttle of a call, nil if the call was answered.
func (p *pace) refuses(throttle error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = throttle
}

// refused returns the throttle of the last call, nil if that call was answered.
func (p *pace) refused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal
}

// ease shortens the pause after the number of keys has grown by a factor.
func (p *pace) ease(now time.Duration, times int) {
	if p.until.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if pause := p.length(now); pause > p.bounds.least {
		p.pause, p.throttled = max(pause/time.Duration(times), p.bounds.least), now
	}
	if rest := time.Duration(p.until.Load()) - now; rest > 0 {
		p.until.Store(int64(now + rest/time.Duration(times)))
	}
}

// isClosed reports whether no call may begin now.
func (p *pace) isClosed(c *core) bool {
	until := p.until.Load()
	return until != 0 && c.sinceStart() < time.Duration(until)
}

// isStrained reports whether calls were throttled recently.
func (p *pace) isStrained(c *core) bool {
	if p.until.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.length(c.sinceStart()) > 0
}

// pauses returns the greatest total length of n pauses, in milliseconds.
func (p *pace) pauses(c *core, n int) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(n) * 3 * p.length(c.sinceStart()).Milliseconds() / 2
}

// rest returns the time until a call may begin, 0 or less for one that may begin now.
func (p *pace) rest(c *core) time.Duration {
	until := p.until.Load()
	if until == 0 {
		return 0
	}
	return time.Duration(until) - c.sinceStart()
}

// hasTime reports whether a context has time for another try after a throttle, given how long a try takes.
func hasTime(ctx context.Context, takes time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return !bounded || time.Until(deadline) > takes
}

// A lastTry is the moment from which a caller that waits for a pace has no time for another try, see [hasTime]. It never comes if the
// context has no deadline, or while nothing is throttled.
type lastTry struct {
	C     <-chan time.Time
	timer *time.Timer
}

// lastTry returns the last moment at which a call that waits for a pace can begin, given how long it takes.
func (p *pace) lastTry(ctx context.Context, takes time.Duration) (last lastTry) {
	if deadline, bounded := ctx.Deadline(); bounded && p.until.Load() != 0 {
		last.timer = time.NewTimer(max(time.Until(deadline)-takes, 0))
		last.C = last.timer.C
	}
	return last
}

// again makes the moment come once more, soon.
func (l *lastTry) again() { l.timer.Reset(leastGrace) }

func (l *lastTry) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// sinceStart returns the time since the engine was made, independent of changes of clocks.
func (c *core) sinceStart() time.Duration { return time.Since(c.started) }

// rest waits until the pace allows a call, and for a least time. The wait ends early when the engine is closed.
func (c *core) rest(ctx context.Context, p *pace, least time.Duration) {
	c.sleep(ctx, max(p.rest(c), least))
}

// sleep waits for a time, or until the engine is closed.
func (c *core) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	ctx, cancel := c.background.whileOpen(ctx)
	defer cancel()
	_ = c.table.Sleep(ctx, d) // it ends early when the engine is closed
}
