package zlimit

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// An outageLog logs when the store goes away and comes back, and once a minute what happened to the requests meanwhile. It is safe for
// concurrent use.
type outageLog struct {
	logger   *slog.Logger
	observer Observer // nil for none
	clock    func() time.Time
	started  time.Time

	mu      sync.Mutex // guards what follows
	open    bool
	outages uint64
	counts  outageCounts  // since the limiter was made
	told    outageCounts  // already logged, or of times that are not logged
	isTold  bool          // that requests are decided without the store
	next    time.Duration // when it is logged again at the earliest; times are since the start
	last    time.Duration // when a request was noted
	soonest time.Duration // when the beginning of an outage is logged again at the earliest
	isAway  bool          // the store is away according to the last line
	untold  uint64        // outages that began sooner
	cause   error         // of the last one of them
	later   *time.Timer   // logs them; nil while there are none
	closed  bool
}

// outageCounts are requests that the store did not decide.
type outageCounts struct{ allowed, failed, unknown, stale uint64 }

func (c outageCounts) less(other outageCounts) outageCounts {
	return outageCounts{c.allowed - other.allowed, c.failed - other.failed, c.unknown - other.unknown, c.stale - other.stale}
}

// The thresholds of logging: first after a number of requests, and then at an interval. Fewer requests report their
// own errors.
const (
	toldAfterRequests = 10
	toldEvery         = time.Minute // for one outage as well: a store that comes and goes is logged once a minute
)

func newOutageLog(o *options) *outageLog {
	return &outageLog{logger: o.logger, observer: o.observer, clock: o.clock, started: time.Now()} //nolint:forbidigo // pauses are by the clock of the machine
}

// newBreaker returns the breaker of a store. A store that is silent for longer than a request may take decides no better than the
// failure policy.
func newBreaker(s store.Store, o *options, log *outageLog) *table.Breaker {
	timeout := cmp.Or(o.callTimeout, defaultCallTimeout(s))
	decision := o.decision
	if decision == 0 && o.policy == PolicyAllow {
		decision = allowDecision
	}
	silence := timeout / 4
	if decision > 0 {
		// Once it is noticed, no request has to wait until the end of its time.
		silence = min(max(decision*4/5, timeout/10), silence)
	}
	return table.NewBreaker(table.BreakerOptions{
		Timeout: timeout, Silence: silence, IntN: o.hooks.Random, Changed: log.changed,
		Ping: func(ctx context.Context) error {
			// The open connections may be dead, and each of them would swallow a probe.
			if r, ok := s.(store.Redialer); ok {
				r.Redial()
			}
			return s.Ping(ctx)
		},
		Ask: func(ctx context.Context, pk string) error {
			// No item has this key. A consistent read asks the replica for writes, which may be silent while others
			// answer.
			_, err := s.Read(ctx, []store.Key{{PK: pk, SK: "#"}}, true)
			return err
		},
	})
}

// note counts a request left by an error without the store, or with limits that could not be read again.
func (o *outageLog) note(ctx context.Context, c outageCounts, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Since(o.started)
	if now-o.last > toldEvery {
		o.told, o.isTold = o.counts, false
	}
	o.last = now
	o.counts.allowed += c.allowed
	o.counts.failed += c.failed
	o.counts.unknown += c.unknown
	o.counts.stale += c.stale
	since := o.counts.less(o.told)
	if now < o.next || !o.isTold && since.allowed+since.failed+since.stale < toldAfterRequests {
		return
	}
	o.isTold, o.next, o.told = true, now+toldEvery, o.counts
	o.logger.LogAttrs(ctx, slog.LevelWarn, "zlimit: requests are decided without the store", append(since.attributes(), slog.Any("error", cause))...)
}

func (c outageCounts) attributes() []slog.Attr {
	return []slog.Attr{
		slog.Uint64("allowed", c.allowed), slog.Uint64("failed", c.failed), slog.Uint64("unknown", c.unknown), slog.Uint64("stale_limits", c.stale),
	}
}

// changed logs that calls of the store are not made from now on because of an error, or made again after a time.
func (o *outageLog) changed(cause error, lasted time.Duration) {
	event := Event{Kind: EventOutage, Operation: "close", Time: o.clock(), Duration: lasted, Result: ResultOK}
	o.mu.Lock()
	if o.open = cause != nil; o.open {
		o.outages++
		o.opened(cause)
		event.Operation, event.Result, event.Err = "open", ResultUnavailable, cause
	} else if o.isAway {
		attributes := append([]slog.Attr{slog.Duration("after", lasted)}, o.counts.less(o.told).attributes()...)
		o.logger.LogAttrs(context.Background(), slog.LevelInfo, "zlimit: the store answers again", attributes...)
		o.told, o.isTold, o.isAway = o.counts, false, false
	}
	o.mu.Unlock()
	if o.observer != nil {
		o.observer(context.Background(), event)
	}
}

// opened logs that an outage began, now or once a minute has passed since the last such line. The log is locked, as for the next one.
func (o *outageLog) opened(cause error) {
	now := time.Since(o.started)
	if now >= o.soonest && o.later == nil {
		o.soonest, o.isAway = now+toldEvery, true
		o.logger.Warn("zlimit: the store is unavailable; calls are not made until it answers again", "error", cause)
		return
	}
	o.untold++
	if o.cause = cause; o.later == nil && !o.closed {
		o.later = time.AfterFunc(o.soonest-now, o.sumUp)
	}
}

// sumUp logs the outages of the last minute that were not logged.
func (o *outageLog) sumUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.later == nil {
		return
	}
	attributes := []any{slog.Uint64("times", o.untold), slog.Bool("answers", !o.open), slog.Any("error", o.cause)}
	for _, count := range o.counts.less(o.told).attributes() {
		attributes = append(attributes, count)
	}
	o.logger.Warn("zlimit: the store was unavailable again", attributes...)
	o.soonest, o.isAway, o.told = time.Since(o.started)+toldEvery, o.open, o.counts
	o.untold, o.later = 0, nil
}

// close logs the rest.
func (o *outageLog) close() {
	o.mu.Lock()
	o.closed = true
	isLeft := o.later != nil && o.later.Stop()
	o.mu.Unlock()
	if isLeft {
		o.sumUp()
	}
}

// state returns whether the store is unavailable, and how often it became so.
func (o *outageLog) state() (open bool, outages uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open, o.outages
}
