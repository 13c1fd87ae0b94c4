package zlimit

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// How a slow store is known by requests that are not decided in time.
const (
	lateRequests     = 8 // requests in a row, after which the failure policy decides the next ones immediately
	timeoutsPerTrial = 2 // decision timeouts between those that are tried all the same
	timeoutsPerPause = 2 // decision timeouts without a request, after which the late ones are out of date
)

// A lateness records whether requests are decided in time. A store that takes longer than all requests have is away for
// them. Their calls would go on in the background for nothing, and would come back as a storm when the store is fast
// again. Late requests are forgotten when none follows them for a while: the store may be fast again, and only a request that
// its caller waits for shows it. It is safe for concurrent use.
type lateness struct {
	started time.Time     // for times, independent of changes of clocks
	row     atomic.Int64  // requests that were not decided in time, since one was
	since   atomic.Int64  // when the first of them was not
	last    atomic.Int64  // when a request came last, since some were late
	judging sync.Mutex    // guards next, and makes a judgement of a request one step
	next    time.Duration // when one is tried again
}

// judge reports whether the failure policy decides a request immediately, given the request's time. It also reports
// whether the request is tried all the same. A part of the store may be slow while requests of others are decided in
// time. So the policy decides only when no request was decided in time for as long as a request has.
func (l *lateness) judge(bound time.Duration) (refused, tried bool) {
	if l.row.Load() < lateRequests {
		return false, false
	}
	l.judging.Lock() // of two requests after a pause, none counts the other one as before the pause
	defer l.judging.Unlock()
	if l.row.Load() < lateRequests {
		return false, false
	}
	now := l.now()
	if last := time.Duration(l.last.Swap(int64(now))); now-last > timeoutsPerPause*bound {
		l.row.Store(0)
		return false, false
	}
	if now < time.Duration(l.since.Load())+bound {
		return false, false
	}
	if tried = now >= l.next; tried {
		l.next = now + timeoutsPerTrial*bound
	}
	return !tried, tried
}

func (l *lateness) now() time.Duration { return time.Since(l.started) }

// decided notes a request that was decided in time.
func (l *lateness) decided() {
	if l.row.Load() != 0 {
		l.row.Store(0)
	}
}

// passed notes a request that the store's breaker decides about: there is no pause in requests.
func (l *lateness) passed() {
	if l.row.Load() >= lateRequests {
		l.last.Store(int64(l.now()))
	}
}

// late notes a request that was not.
func (l *lateness) late() {
	now := int64(l.now())
	l.last.Store(now)
	if l.row.Add(1) == 1 {
		l.since.Store(now)
	}
}

// errTooSlow is the outage of requests that the policy decides immediately. One that is tried continues in the background, with an unknown
// outcome.
func errTooSlow(tried bool, bound time.Duration) error {
	return &store.Error{Op: "decide", Unavailable: true, Unknown: tried, Err: fmt.Errorf("not waited for, since the last requests were not decided within %v", bound)}
}

// errStalled is the outage of a request whose time is over, of a bucket whose calls are all throttled. It continues in the background, with an
// unknown outcome.
var errStalled error = &store.Error{
	Op: "decide", Unavailable: true, Unknown: true, Err: errors.New("not waited for, since the store has throttled all calls of the bucket"),
}
