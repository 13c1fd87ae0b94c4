package table

import (
	"sync"
	"sync/atomic"
	"time"
)

// What makes silence.
const (
	silentCalls = 5  // unanswered calls in a row
	perOvertake = 3  // this many more for each call that another one has overtaken without an answer
	mostSilent  = 32 // calls are enough in any case
)

// A traffic has what calls show about the silence of a store: when unanswered calls were sent, and how long others took. It is safe for
// concurrent use without a lock.
type traffic struct {
	timeout time.Duration // of one call
	least   time.Duration // of the time of silence
	started time.Time     // for times, independent of changes of clocks
	took    latency

	// watch is all that a call reads while the store answers: it is then 0. A positive value means that silentCalls calls are unanswered,
	// and is when the last of them was sent, in nanoseconds since the start. It is negative while the breaker is not closed.
	watch  atomic.Int64
	begun  atomic.Int64 // calls sent since the last answer
	first  atomic.Int64 // when the first of them was sent, as in watch
	flying atomic.Int64 // calls under way
	last   atomic.Int64 // when the last call was sent, as in watch
	gaveUp atomic.Bool  // callers of unanswered calls have given up early
}

func (t *traffic) now() time.Duration { return time.Since(t.started) }

// sent notes that a call is sent at a time.
func (t *traffic) sent(at time.Duration) {
	t.flying.Add(1)
	t.last.Store(int64(at))
	switch t.begun.Add(1) {
	case 1:
		t.first.Store(int64(at))
	case silentCalls:
		t.watch.CompareAndSwap(0, int64(at))
	}
}

// heard notes that the store answers. It writes nothing while all calls are answered.
func (t *traffic) heard() {
	if t.begun.Load() != 0 {
		t.begun.Store(0)
	}
	if t.gaveUp.Load() {
		t.gaveUp.Store(false)
	}
}

// forget discards the unanswered calls.
func (t *traffic) forget() {
	t.heard()
	t.watch.Store(0)
}

// isWatched reports whether a call needs a decision of the breaker.
func (t *traffic) isWatched() bool {
	return t.watch.Load() != 0 && t.isDue()
}

// isDue is [traffic.isWatched] while calls may be unanswered.
func (t *traffic) isDue() bool {
	since := t.watch.Load()
	return since < 0 || since > 0 && t.now()-time.Duration(since) >= t.least/4
}

// isSilentFor reports whether enough calls have been unanswered for a time. Old calls prove nothing about the present, and are discarded.
func (t *traffic) isSilentFor(d time.Duration) bool {
	since := time.Duration(t.watch.Load())
	if since > 0 && (t.begun.Load() < silentCalls || t.now()-time.Duration(t.last.Load()) > 2*t.timeout) {
		t.forget()
		return false
	}
	now := t.now()
	return since > 0 && now-since >= d/2 && now-time.Duration(t.first.Load()) >= d && t.begun.Load() >= t.enough()
}

// enough returns the number of unanswered calls in a row that make the store silent. If only a part of it is silent, several calls in a row
// may belong to that part by chance. The store then answers other calls, which overtake them, and the number is higher.
func (t *traffic) enough() int64 {
	overtaken := max(t.flying.Load()-t.begun.Load(), 0)
	return min(silentCalls+perOvertake*overtaken, mostSilent)
}

// silence returns the time without an answer after which the store is silent.
func (t *traffic) silence() time.Duration { return min(max(t.least, t.long()), t.timeout) }

// long returns a time that is much longer than recent calls took.
func (t *traffic) long() time.Duration {
	if usual := t.took.usual(); usual > 0 {
		return max(2*usual, t.brief())
	}
	return t.timeout / 10
}

// brief returns a time within which a store may answer. Callers that give up sooner prove nothing.
func (t *traffic) brief() time.Duration { return t.timeout / 100 }

// A latency is how long calls took recently. It is safe for concurrent use.
type latency struct {
	mu           sync.Mutex
	mean, spread time.Duration // smoothed
}

// add notes how long a call took that succeeded.
func (l *latency) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mean == 0 {
		l.mean, l.spread = d, d/2
		return
	}
	l.spread += ((l.mean - d).Abs() - l.spread) / 4
	l.mean += (d - l.mean) / 8
}

// usual returns the time after which TCP considers a segment lost (RFC 6298): the mean plus four times the deviation. So it adapts to a
// slow store with the first slow reply. It is 0 before the first call.
func (l *latency) usual() time.Duration { return l.of(1) }

// of returns the same time for a number of calls in a row, which are not all late.
func (l *latency) of(calls int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(calls)*l.mean + 4*l.spread
}
