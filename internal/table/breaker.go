package table

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// The conditions that open a breaker, and close it again.
const (
	failures    = 10 // outages in a row
	manyKeys    = 3  // distinct partition keys among throttles in a row, so that one hot bucket opens nothing
	firstTrials = 4  // concurrent calls when the store answers again; each answer allows one more
	lastTrials  = 64 // that many are allowed when the breaker closes
	doubtPings  = 8  // pings before it opens: if a quarter of the store is silent, all of them hit it once in 65,536 times

	firstProbe, longestProbe = 500 * time.Millisecond, 700 * time.Millisecond // the pauses before probes, less up to a fifth
)

// A Breaker decides whether calls of a store are made. In an outage it rejects them immediately, as not sent, and probes in the background
// whether the store is back. It is safe for concurrent use.
//
// A part of the store may be silent while the rest answers, such as a server that has some of the keys. So the breaker also tracks calls by
// partition key. It rejects calls of a silent key, and probes the key until it is answered. While several keys are silent, one unanswered
// call suffices for another key to count as silent.
//
// A breaker is closed, open, or half open. What opens it:
//   - silence: no call is answered for much longer than calls took recently, while several have waited for at least half of that time;
//   - outages in a row without an answer between them: refused connections, errors of the server, and timeouts;
//   - throttles in a row of several keys, unless the store names single keys as the reason.
//
// A failed condition, a rejection and the throttle of a key are answers. An answered probe makes the breaker half open: a few concurrent
// calls pass as trials, and each answer allows one more, until all calls pass. A failed trial opens it again, unless a later one has been
// answered. Silence opens it again as well, if no trial is answered for the time that counts as silence.
type Breaker struct {
	options BreakerOptions
	traffic traffic
	keys    keyWatch
	tasks   *tasks
	ill     atomic.Bool  // failures were counted since the last answer
	looking atomic.Bool  // a timer will evaluate silence without a call
	round   atomic.Int64 // counts the changes of state: a call of an earlier one is no trial

	mu       sync.Mutex // guards the fields below, ill, round, and changes of traffic.watch; locked before the one of keys
	state    breakerState
	outages  outages
	trials   trials
	openedAt time.Duration
	refusal  *store.Error  // while it is not closed
	away     chan struct{} // closed while it is open, to notify callers that wait for their turn
	doubt    *time.Timer   // fires if no trial is answered for the time of silence
	doubted  int64         // the value of traffic.watch for which the store was pinged
	askedAt  time.Duration // when it was pinged
	vouched  bool          // the store answered the ping, but no call since
	pause    time.Duration
	probes   int
	timer    *time.Timer // of the next probe
	users    int         // open tables that use it
}

type breakerState uint8

const (
	isClosed breakerState = iota
	isOpen
	isHalfOpen
)

// BreakerOptions are the configuration of a breaker.
type BreakerOptions struct {
	Timeout time.Duration // of one call
	// Silence is the time without an answer after which the store counts as silent; 0 for a quarter of the
	// timeout. Calls are usually much faster. It runs from the first unanswered call.
	Silence time.Duration
	Ping    func(context.Context) error                // pings the store
	Ask     func(ctx context.Context, pk string) error // reads a partition key; nil if keys are not tracked
	IntN    func(int) int                              // a source of random numbers in [0, n); nil for the default
	// Changed is called with the cause when the breaker opens, and with nil and the length of the outage when it closes.
	Changed func(cause error, lasted time.Duration)
}

// NewBreaker returns a breaker of a store. It is closed.
func NewBreaker(o BreakerOptions) *Breaker {
	if o.IntN == nil {
		o.IntN = rand.IntN
	}
	if o.Silence == 0 {
		o.Silence = o.Timeout / 4
	}
	b := &Breaker{options: o, tasks: newTasks(), away: make(chan struct{})}
	b.traffic.timeout, b.traffic.least, b.traffic.started = o.Timeout, o.Silence, time.Now().Add(-1)
	b.outages.seed = maphash.MakeSeed()
	b.keys.traffic, b.keys.tasks, b.keys.ask, b.keys.intN, b.keys.seed = &b.traffic, b.tasks, o.Ask, o.IntN, b.outages.seed
	return b
}

// Enter adds a user of the breaker, which must call [Breaker.Leave].
func (b *Breaker) Enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
}

// Leave removes a user of the breaker, and reports whether it was the last one. The last one ends the probes.
func (b *Breaker) Leave() (last bool) {
	b.mu.Lock()
	b.users--
	last = b.users == 0
	if last {
		b.tasks.end()
	}
	b.mu.Unlock()
	if last {
		b.tasks.running.Wait()
	}
	return last
}

// insistKey is the key of contexts whose calls are also made in outages.
type insistKey struct{}

// Insist returns a context whose calls no breaker rejects. It is for calls without a failure policy.
func Insist(ctx context.Context) context.Context { return context.WithValue(ctx, insistKey{}, true) }

// Insists reports whether no breaker rejects the calls of a context.
func Insists(ctx context.Context) bool { return ctx.Value(insistKey{}) != nil }

// Refusal returns an error if a call that began now would be rejected. While the store answers, it takes one atomic load.
func (b *Breaker) Refusal(ctx context.Context) error {
	if b == nil || !b.traffic.isWatched() {
		return nil
	}
	_, err := b.judge(ctx, false)
	return err
}

// refusalOf is [Breaker.Refusal] for calls with a partition key.
func (b *Breaker) refusalOf(ctx context.Context, pk string) error {
	if b.keys.refuses(ctx, b.keys.cellOf(pk), pk) {
		return errSilentPart
	}
	return b.Refusal(ctx)
}

// judge returns the error of a rejected call, and otherwise whether the call is a trial, which counts if it is sent.
func (b *Breaker) judge(ctx context.Context, sent bool) (trial bool, err error) {
	if ctx.Value(insistKey{}) != nil {
		return false, nil
	}
	var changed func()
	b.mu.Lock()
	defer func() {
		b.mu.Unlock()
		if changed != nil {
			changed()
		}
	}()
	if b.state == isClosed {
		silence := b.traffic.silence()
		isSilent, isBrief := b.traffic.isSilentFor(silence), b.traffic.gaveUp.Load()
		if !isSilent || isBrief {
			b.doubts(silence, isBrief) //nolint:contextcheck // as below
		}
		if !isSilent || isBrief && b.traffic.now()-b.askedAt < b.patience(silence) {
			return false, nil
		}
		changed = b.opens(fmt.Errorf("no call was answered for %v", silence))
		b.schedule(0) //nolint:contextcheck // probes outlive the call. Those calls may all have been of a part that is silent
	}
	if b.state == isOpen || b.trials.underWay >= b.trials.allowed {
		return false, b.refusal
	}
	if sent && b.trials.begin(b.traffic.now()) {
		b.doubtAfter(b.traffic.silence())
	}
	return sent, nil
}

// doubts pings the store after no call was answered for half of the time of silence, once in each silence. If the calls were lost, or all
// belong to a silent part, an answer shows that before the breaker opens. The answer gives calls the time of silence once more, and not
// again until one of them is answered, since a store may answer only pings. Callers that gave up early prove less: the store may be slower
// than they wait. Then only an unanswered ping opens the breaker, and each answer gives calls the time again. The breaker is locked.
func (b *Breaker) doubts(silence time.Duration, isBrief bool) {
	since := b.traffic.watch.Load()
	if since <= 0 || since == b.doubted || b.vouched && !isBrief || b.traffic.now()-time.Duration(b.traffic.first.Load()) < silence/2 {
		return
	}
	b.doubted, b.askedAt = since, b.traffic.now()
	pings, bound := doubtPings, silence
	if isBrief {
		pings, bound = 1, b.patience(silence)
	}
	for range pings {
		b.tasks.after(0, func() {
			if isAnswer(b.tasks.bounded(bound, b.options.Ping)) && b.tasks.life.Err() == nil {
				b.vouch(since, isBrief)
			}
		})
	}
}

// patience returns how long the breaker waits for a ping that decides.
func (b *Breaker) patience(silence time.Duration) time.Duration {
	return max(silence, b.options.Timeout/4)
}

// vouch notes that the store answers pings, which were sent since calls were not answered from a time.
func (b *Breaker) vouch(since int64, isBrief bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != isClosed || !b.traffic.watch.CompareAndSwap(since, 0) {
		return
	}
	b.traffic.heard()
	if !isBrief {
		b.vouched = true
		b.ill.Store(true) // so that the next answer takes it back
	}
}

// A NotMade is the error of a call that was not tried. It proves nothing about the store.
type NotMade struct{ Err error }

// Error returns the reason.
func (e *NotMade) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *NotMade) Unwrap() error { return e.Err }

// errSilentPart is the error of a call that is not made, since other calls with such keys are not answered.
var errSilentPart = &store.Error{Op: "call", Unavailable: true, Err: fmt.Errorf("%w for these keys: no call was answered", errOpen)}

// A sending is a call of the store that was sent.
type sending struct {
	at    time.Duration
	round int64
	trial bool
	cell  cellKey
}

// sends notes that a call is sent. If it returns an error, the call is rejected.
func (b *Breaker) sends(ctx context.Context, pk string) (s sending, err error) {
	if s.cell = b.keys.cellOf(pk); b.keys.refuses(ctx, s.cell, pk) {
		return s, errSilentPart
	}
	s.round = b.round.Load()
	if b.traffic.isWatched() {
		if s.trial, err = b.judge(ctx, true); err != nil {
			return s, err
		}
		s.round = b.round.Load()
	}
	s.at = b.traffic.now()
	b.keys.sentTo(s.cell, s.at)
	b.traffic.sent(s.at)
	return s, nil
}

// ended notes the outcome of a call with a partition key. The context is the caller's.
func (b *Breaker) ended(ctx context.Context, s sending, pk string, err error) {
	took := b.traffic.now() - s.at
	b.traffic.flying.Add(-1)
	switch outcome := store.OutcomeOf(err); {
	case err != nil && errors.As(err, new(*NotMade)):
		b.abandoned(s, pk, 0) //nolint:contextcheck // as below
	case err != nil && ctx.Err() != nil && (outcome == store.Ended || outcome == store.Unknown || outcome == store.Unavailable):
		b.abandoned(s, pk, took) //nolint:contextcheck // looks outlive the call
	case outcome == store.Throttled && !isOfOneKey(err), outcome == store.Unavailable, outcome == store.Unknown:
		b.failed(s, pk, err) //nolint:contextcheck // probes outlive the call
	case outcome == store.Ended:
		b.abandoned(s, pk, took) //nolint:contextcheck // as above
	default:
		if err == nil {
			b.traffic.took.add(took)
		}
		b.answered(s)
	}
}

// isOfOneKey reports whether a throttle names keys or an index as the reason, and not the table or the account.
func isOfOneKey(err error) bool {
	return slices.ContainsFunc(store.ErrorsIn(err), func(e *store.Error) bool {
		return len(e.Throttles) > 0 && !slices.ContainsFunc(e.Throttles, func(t store.Throttle) bool {
			return !t.Index && (t.Limit == store.OfTable || t.Limit == store.OfAccount)
		})
	})
}

// answered notes an answer of the store.
func (b *Breaker) answered(s sending) {
	b.keys.heard(s.cell)
	b.traffic.heard()
	if since := b.traffic.watch.Load(); !b.ill.Load() && (since == 0 || since > 0 && b.traffic.watch.CompareAndSwap(since, 0)) {
		return
	}
	b.mu.Lock()
	var changed func()
	switch b.state {
	case isClosed:
		b.recovers()
		b.traffic.watch.Store(0)
	case isOpen:
		b.setState(isHalfOpen)
	case isHalfOpen:
		if s.trial && s.round == b.round.Load() {
			b.trials.answered(s.at, b.traffic.now())
			if b.trials.allowed >= lastTrials {
				changed = b.closes()
			}
		}
	}
	b.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// abandoned notes a call whose caller gave up. Unless it was under way for long, it proves nothing, but may be a reason to ping the store.
func (b *Breaker) abandoned(s sending, pk string, took time.Duration) {
	if !s.trial && took >= max(b.traffic.long(), b.traffic.silence()/2) {
		b.looks(s.cell, pk)
		return // it counts as one that is not answered
	}
	b.keys.heard(s.cell)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.round != b.round.Load():
	case s.trial:
		b.trials.abandoned(took < b.traffic.long())
	case b.state != isClosed:
	case took >= b.traffic.brief():
		b.traffic.gaveUp.Store(true)
	case b.traffic.begun.Load() > 0 && b.traffic.begun.Add(-1) < silentCalls:
		b.traffic.watch.Store(0)
	}
}

// looks schedules an evaluation of silence for when enough time has passed since the unanswered calls, even if no call follows. Otherwise
// the first call after the return of the store would be rejected, and the store would be pinged only then.
func (b *Breaker) looks(c cellKey, pk string) {
	b.keys.looks(c, pk)
	since := time.Duration(b.traffic.watch.Load())
	if since <= 0 || !b.looking.CompareAndSwap(false, true) {
		return
	}
	silence := b.traffic.silence()
	at := max(time.Duration(b.traffic.first.Load())+silence, since+silence/2)
	b.tasks.after(at-b.traffic.now(), func() {
		b.looking.Store(false)
		if b.traffic.isWatched() {
			_, _ = b.judge(context.Background(), false)
		}
	})
}

// failed notes an outage of one call.
func (b *Breaker) failed(s sending, pk string, err error) {
	b.mu.Lock()
	var changed func()
	defer func() {
		b.mu.Unlock()
		if changed != nil {
			changed()
		}
	}()
	if s.round != b.round.Load() {
		return // it began before the last change of state, and says nothing about now
	}
	if b.traffic.now()-s.at < b.traffic.silence() {
		b.keys.heard(s.cell) // a call that fails soon is no silence
	} else if !s.trial && b.keys.unanswered(s.cell, pk, s.at) {
		return // it says nothing about others
	}
	switch {
	case s.trial:
		b.trials.underWay--
		if s.at >= b.trials.heardOf { // otherwise later ones were answered, and a part alone is silent
			b.opensAgain()
		}
	case b.state != isClosed:
	default:
		isThrottle := store.OutcomeOf(err) == store.Throttled
		if b.ill.Store(true); isThrottle {
			b.traffic.forget() // a throttle is no silence
		}
		b.outages.add(pk, isThrottle)
	}
	switch {
	case b.state != isClosed:
	case !b.outages.areEnough(b.traffic.enough()):
		b.looks(s.cell, pk)
	case b.traffic.now()-s.at < b.traffic.silence():
		changed = b.opens(err)
		b.scheduleNext()
	default: // the failed calls were sent long ago, and the store may be back
		changed = b.opens(err)
		b.schedule(0)
	}
}

// recovers forgets failures. The breaker is locked.
func (b *Breaker) recovers() {
	b.outages.reset()
	b.vouched = false
	b.ill.Store(false)
}

// Away returns a channel that is closed while the breaker is open. It is nil for a context whose calls no breaker refuses.
func (b *Breaker) Away(ctx context.Context) <-chan struct{} {
	if ctx.Value(insistKey{}) != nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.away
}

// setState changes the state. The breaker is locked, as for all that follow.
func (b *Breaker) setState(to breakerState) {
	if wasOpen := b.state == isOpen; to == isOpen && !wasOpen {
		close(b.away)
	} else if to != isOpen && wasOpen {
		b.away = make(chan struct{})
	}
	b.tasks.halt(b.doubt)
	b.state, b.trials = to, trials{allowed: firstTrials}
	b.round.Add(1)
	b.traffic.heard()
	if to == isClosed {
		b.traffic.watch.Store(0)
	} else {
		b.traffic.watch.Store(-1)
	}
}

// errOpen says that a call was not made.
var errOpen = errors.New("not sent, since the store is unavailable")

// opens opens the breaker because of an error, and returns the function that reports it. A probe has to be scheduled.
func (b *Breaker) opens(cause error) func() {
	b.setState(isOpen)
	b.keys.reset()
	b.openedAt, b.pause, b.probes = b.traffic.now(), firstProbe, 0
	b.refusal = &store.Error{Op: "call", Unavailable: true, Err: fmt.Errorf("%w: %w", errOpen, plain(cause))}
	return func() { b.report(cause, 0) }
}

// plain returns an error without its statement about a call: a refused call has another outcome.
func plain(err error) error { return errors.New(err.Error()) }

func (b *Breaker) report(cause error, lasted time.Duration) {
	if b.options.Changed != nil {
		b.options.Changed(cause, lasted)
	}
}

func (b *Breaker) opensAgain() {
	b.setState(isOpen)
	b.pause = min(b.pause*5/4, longestProbe)
}

// closes closes the breaker, and returns the function that reports it.
func (b *Breaker) closes() func() {
	b.setState(isClosed)
	b.recovers()
	b.tasks.halt(b.timer)
	lasted := b.traffic.now() - b.openedAt
	return func() { b.report(nil, lasted) }
}

// doubtAfter looks after a time whether trials are answered.
func (b *Breaker) doubtAfter(rest time.Duration) {
	b.tasks.halt(b.doubt)
	b.doubt = b.tasks.after(rest, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.state != isHalfOpen || b.trials.unheard == 0 {
			return
		}
		if rest := b.trials.unheard + b.traffic.silence() - b.traffic.now(); rest > 0 {
			b.doubtAfter(rest)
			return
		}
		b.opensAgain()
	})
}

// scheduleNext schedules a probe of the store after the usual pause.
func (b *Breaker) scheduleNext() {
	b.schedule(b.pause - time.Duration(b.options.IntN(int(b.pause/5/time.Millisecond)))*time.Millisecond) // apart from other processes
}

// schedule schedules a probe of the store after a time.
func (b *Breaker) schedule(rest time.Duration) {
	opened := b.openedAt
	b.timer = b.tasks.after(rest, func() { b.probe(opened) })
}

// probe asks whether the store answers, for the outage that began at a time. The first probe has little time, since it may be of a part
// that is silent. Every fourth has the time of a call, for a store that came back slow. A store may come back while a probe is under way,
// and never answer that. It is asked soon after in either case.
func (b *Breaker) probe(opened time.Duration) {
	b.mu.Lock()
	round := b.round.Load()
	b.probes++
	bound, isLong := b.options.Timeout/2, b.probes%4 == 0
	if b.probes == 1 {
		bound = b.traffic.silence()
	}
	if isLong { // the next one does not wait for it
		bound = b.options.Timeout
		b.scheduleNext()
	}
	b.mu.Unlock()
	err := b.tasks.bounded(bound, b.options.Ping)
	var changed func()
	b.mu.Lock()
	switch answers := isAnswer(err); {
	case b.tasks.life.Err() != nil || b.state == isClosed || b.openedAt != opened:
		b.mu.Unlock()
		return
	case b.state == isOpen && answers:
		b.setState(isHalfOpen)
	case b.state == isOpen:
		b.pause = min(b.pause*5/4, longestProbe)
	case answers && b.trials.underWay == 0 && b.trials.unheard == 0 && b.round.Load() == round:
		changed = b.closes()
	}
	if changed == nil && !isLong {
		b.scheduleNext()
	}
	b.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// isAnswer reports whether the store answered a call, and can serve others.
func isAnswer(err error) bool {
	switch store.OutcomeOf(err) {
	case store.Throttled, store.Unavailable, store.Unknown, store.Ended:
		return false
	default:
		return true
	}
}
