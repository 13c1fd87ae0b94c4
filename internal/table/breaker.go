package table

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// The conditions that open a breaker, and close it again.
const (
	silentCalls = 5  // calls one after the other that are not answered for the time of silence
	perOvertake = 3  // so many more for each call that another one has overtaken without an answer
	mostSilent  = 32 // calls are enough in any case
	failures    = 10 // outages in a row
	manyKeys    = 3  // distinct partition keys among throttles in a row, so that one hot bucket opens nothing
	firstTrials = 4  // calls under way at once when the store answers again; each answer allows one more
	lastTrials  = 64 // that many are allowed when the breaker closes
	doubtPings  = 8  // questions before it opens: where a quarter of the store is silent, all are of it once in 65,536 times

	firstProbe, longestProbe = 500 * time.Millisecond, 700 * time.Millisecond // the pauses before probes, less up to a fifth
)

// A Breaker decides for the callers of a store whether their calls are worth making. In an outage it refuses them at once, as not
// sent, and asks by itself whether the store is back. It is safe for concurrent use.
//
// A part of the store may be silent while the others answer, such as a server that has some of the keys. So calls are
// watched by their partition keys as well. Those of a silent key are refused, and the breaker asks for the key by
// itself, until it is answered. While several keys are silent, one unanswered call shows that another key is silent.
//
// A breaker is closed, open, or half open. What opens it:
//   - silence: no call is answered for much longer than calls took of late, while several have been under way for half of that time;
//   - outages in a row without an answer between them: refused connections, errors of the server, and timeouts;
//   - throttles of several keys in a row that are not those of a single key.
//
// A failed condition, a refusal and the throttle of a key are answers. A probe that is answered half opens it: a few calls pass at
// once, and one more with each answer, until all do. A trial that fails opens it again, unless a later one was answered before. So does
// silence: no trial is answered for as long as opened it.
type Breaker struct {
	options BreakerOptions
	started time.Time // for times, independent of changes of clocks
	seed    maphash.Seed
	took    latency

	// watch is all that a call looks at while the store answers: 0. Above, it is when the last one of silentCalls was sent, in
	// nanoseconds since the start, none of which is answered. It is negative while the breaker is not closed.
	watch  atomic.Int64
	begun  atomic.Int64 // calls sent since the store answered last
	first  atomic.Int64 // when the first one of them was sent, as watch tells it
	flying atomic.Int64 // calls under way
	last   atomic.Int64 // when a call was sent last, as watch tells it
	ill    atomic.Bool  // failures were counted since the store answered last
	cells  [4096]cell   // of the partition keys
	quiet  atomic.Int64 // silent keys
	round  atomic.Int64 // counts the changes of state: a call of an earlier one is no trial

	mu       sync.Mutex // guards the fields below, and changes of those above except begun
	state    breakerState
	hard     int      // outages in a row, without throttles
	throttle int      // throttles in a row
	keys     []uint64 // of the throttles, hashed, each once; manyKeys at most
	openedAt time.Duration
	refusal  *store.Error  // while it is not closed
	away     chan struct{} // closed while it is open, which those who wait for their turn are told by
	allowed  int           // trials under way at once
	trials   int           // under way
	heardOf  time.Duration // when the last one was sent of the trials that were answered
	unheard  time.Duration // since when no trial was answered while some were sent; 0 where none was sent since the last answer
	doubt    *time.Timer   // of the time of silence since then
	doubted  int64         // the value of watch for which the store was asked
	vouched  bool          // the store answered that, and no call since
	pause    time.Duration
	probes   int
	timer    *time.Timer   // of the next probe
	users    int           // tables that are in use
	asker    *time.Timer   // of the next question for a silent key
	asking   bool          // while keys are silent
	nextAsk  time.Duration // when that may be at the earliest
	back     time.Duration // when a silent key was answered last
	cursor   int           // the cell of the key that is asked for next, or one before it
	probing  sync.WaitGroup
	life     context.Context //nolint:containedctx // of probes; it ends with the last table
	stop     context.CancelFunc
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
	Ping    func(context.Context) error                // asks whether the store answers
	Ask     func(ctx context.Context, pk string) error // asks whether it answers for a partition key; nil if no part is watched
	IntN    func(int) int                              // a source of random numbers in [0, n); nil for that of the system
	// Changed is told when calls are refused from now on, with the cause. When all pass again, it is told nil and the
	// length of the outage.
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
	b := &Breaker{options: o, started: time.Now().Add(-1), seed: maphash.MakeSeed(), away: make(chan struct{})}
	b.life, b.stop = context.WithCancel(context.Background())
	return b
}

// Enter counts a user of the breaker, who ends its use by [Breaker.Leave].
func (b *Breaker) Enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
}

// Leave ends the use of the breaker by one user, and reports whether it was the last one, which ends its probes.
func (b *Breaker) Leave() (last bool) {
	b.mu.Lock()
	b.users--
	last = b.users == 0
	if last {
		b.stop() // before the lock is released: no probe is scheduled after that
		for _, t := range []*time.Timer{b.timer, b.asker, b.doubt} {
			b.halt(t)
		}
	}
	b.mu.Unlock()
	if last {
		b.probing.Wait()
	}
	return last
}

// insistKey is the key of contexts whose calls are made in outages as well.
type insistKey struct{}

// Insist returns a context whose calls no breaker refuses: those that no failure policy decides about.
func Insist(ctx context.Context) context.Context { return context.WithValue(ctx, insistKey{}, true) }

// Refusal returns an error if a call that began now would be refused. It is nil mostly, which takes one atomic load.
func (b *Breaker) Refusal(ctx context.Context) error {
	if b == nil || !b.isWatched() {
		return nil
	}
	_, err := b.judge(ctx, false)
	return err
}

// refusalOf is [Breaker.Refusal] for calls with a partition key.
func (b *Breaker) refusalOf(ctx context.Context, pk string) error {
	if b.refuses(ctx, b.cellOf(pk), pk) {
		return errSilentPart
	}
	return b.Refusal(ctx)
}

// isWatched reports whether a call has to be judged.
func (b *Breaker) isWatched() bool {
	since := b.watch.Load()
	return since < 0 || since > 0 && b.now()-time.Duration(since) >= b.options.Silence/4
}

// judge returns the error of a refused call, and otherwise whether it is a trial, which is counted if it is sent.
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
		silence := b.silence()
		if !b.isSilentFor(silence) {
			b.doubts(silence) //nolint:contextcheck // as below
			return false, nil
		}
		changed = b.opens(fmt.Errorf("no call was answered for %v", silence))
		b.schedule(0) //nolint:contextcheck // probes outlive the call. Those calls may all have been of a part that is silent
	}
	if b.state == isOpen || b.trials >= b.allowed {
		return false, b.refusal
	}
	if sent {
		b.tries()
	}
	return sent, nil
}

// isSilentFor reports whether enough calls are not answered for a time. Calls of long ago tell nothing of now, and are forgotten.
func (b *Breaker) isSilentFor(d time.Duration) bool {
	since := time.Duration(b.watch.Load())
	if since > 0 && (b.begun.Load() < silentCalls || b.now()-time.Duration(b.last.Load()) > 2*b.options.Timeout) {
		b.begun.Store(0)
		b.watch.Store(0)
		return false
	}
	now := b.now()
	return since > 0 && now-since >= d/2 && now-time.Duration(b.first.Load()) >= d && b.begun.Load() >= b.enough()
}

// doubts has the store asked when no call is answered for half of the time of silence, once in each silence. Where the calls are all of a part that is
// silent, or were lost, the answer shows it before the breaker opens. It gives calls the time of silence once more, and not again before one
// of them is answered: a store may answer nothing but questions. The breaker is locked.
func (b *Breaker) doubts(silence time.Duration) {
	since := b.watch.Load()
	if since <= 0 || since == b.doubted || b.vouched || b.now()-time.Duration(b.first.Load()) < silence/2 {
		return
	}
	b.doubted = since
	for range doubtPings {
		b.after(0, func() {
			ctx, cancel := context.WithTimeout(b.life, silence)
			defer cancel()
			if isAnswer(b.options.Ping(ctx)) && b.life.Err() == nil {
				b.vouch(since)
			}
		})
	}
}

// vouch notes that the store answers questions, which were asked when calls were not answered since a time.
func (b *Breaker) vouch(since int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != isClosed || !b.watch.CompareAndSwap(since, 0) {
		return
	}
	b.begun.Store(0)
	b.vouched = true
	b.ill.Store(true) // so that the next answer takes it back
}

// enough returns the number of calls one after the other that are not answered where the store is silent. Where a part of it is, some
// in a row are of that part by chance. The store answers others meanwhile, which overtake those.
func (b *Breaker) enough() int64 {
	overtaken := max(b.flying.Load()-b.begun.Load(), 0)
	return min(silentCalls+perOvertake*overtaken, mostSilent)
}

// silence returns the time without an answer after which the store is silent.
func (b *Breaker) silence() time.Duration {
	return min(max(b.options.Silence, b.long()), b.options.Timeout)
}

// long returns a time that is much longer than calls took of late.
func (b *Breaker) long() time.Duration {
	if usual := b.took.usual(); usual > 0 {
		return max(2*usual, b.options.Timeout/100)
	}
	return b.options.Timeout / 10
}

func (b *Breaker) now() time.Duration { return time.Since(b.started) }

// A NotMade is the error of a call that a store did not try. It tells nothing of the store.
type NotMade struct{ Err error }

// Error returns the reason.
func (e *NotMade) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *NotMade) Unwrap() error { return e.Err }

// errSilentPart is the error of a call that is not made since others with such keys are not answered.
var errSilentPart = &store.Error{Op: "call", Unavailable: true, Err: fmt.Errorf("%w for these keys: no call was answered", errOpen)}

// A sending is a call of the store that was sent.
type sending struct {
	at    time.Duration
	round int64
	trial bool
	cell  cellKey
}

// sends notes that a call is sent, unless it returns an error: the call is refused.
func (b *Breaker) sends(ctx context.Context, pk string) (s sending, err error) {
	if s.cell = b.cellOf(pk); b.refuses(ctx, s.cell, pk) {
		return s, errSilentPart
	}
	s.round = b.round.Load()
	if b.isWatched() {
		if s.trial, err = b.judge(ctx, true); err != nil {
			return s, err
		}
		s.round = b.round.Load()
	}
	s.at = b.now()
	b.flying.Add(1)
	b.last.Store(int64(s.at))
	b.sentTo(s.cell, s.at)
	switch b.begun.Add(1) {
	case 1:
		b.first.Store(int64(s.at))
	case silentCalls:
		b.watch.CompareAndSwap(0, int64(s.at))
	}
	return s, nil
}

// ended notes how a call ended that was sent, of items with a partition key. The context is that of its caller.
func (b *Breaker) ended(ctx context.Context, s sending, pk string, err error) {
	took := b.now() - s.at
	b.flying.Add(-1)
	switch outcome := store.OutcomeOf(err); {
	case err != nil && errors.As(err, new(*NotMade)):
		b.abandoned(s, 0)
	case err != nil && ctx.Err() != nil && (outcome == store.Ended || outcome == store.Unknown || outcome == store.Unavailable):
		b.abandoned(s, took)
	case outcome == store.Throttled && !isOfOneKey(err), outcome == store.Unavailable, outcome == store.Unknown:
		b.failed(s, pk, err) //nolint:contextcheck // probes outlive the call
	case outcome == store.Ended:
		b.abandoned(s, took)
	default:
		if err == nil {
			b.took.add(took)
		}
		b.answered(s)
	}
}

// isOfOneKey reports whether a throttle says that it is one of keys, or of an index, and not of the table or the account.
func isOfOneKey(err error) bool {
	return slices.ContainsFunc(store.ErrorsIn(err), func(e *store.Error) bool {
		return len(e.Throttles) > 0 && !slices.ContainsFunc(e.Throttles, func(t store.Throttle) bool {
			return !t.Index && (t.Limit == store.OfTable || t.Limit == store.OfAccount)
		})
	})
}

// answered notes an answer of the store.
func (b *Breaker) answered(s sending) {
	b.heard(s.cell)
	if b.begun.Load() != 0 {
		b.begun.Store(0)
	}
	if since := b.watch.Load(); !b.ill.Load() && (since == 0 || since > 0 && b.watch.CompareAndSwap(since, 0)) {
		return
	}
	b.mu.Lock()
	var changed func()
	switch b.state {
	case isClosed:
		b.recovers()
		b.watch.Store(0)
	case isOpen:
		b.halfOpens()
	case isHalfOpen:
		if s.trial && s.round == b.round.Load() {
			b.trials--
			b.heardOf = max(b.heardOf, s.at)
			b.hears()
			if b.allowed++; b.allowed >= lastTrials {
				changed = b.closes()
			}
		}
	}
	b.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// abandoned notes a call whose caller gave up. Unless it was under way for long, it tells nothing.
func (b *Breaker) abandoned(s sending, took time.Duration) {
	if !s.trial && took >= b.long() {
		return // it counts as one that is not answered
	}
	b.heard(s.cell)
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.round != b.round.Load() {
		return
	}
	if s.trial {
		if b.trials--; b.trials == 0 && took < b.long() {
			b.unheard = 0 // none of them tells anything
		}
	} else if b.state == isClosed && b.begun.Load() > 0 && b.begun.Add(-1) < silentCalls {
		b.watch.Store(0)
	}
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
		return // it began before the last change of state, and tells nothing of now
	}
	if b.now()-s.at < b.silence() {
		b.heard(s.cell) // a call that fails soon is no silence
	} else if !s.trial && s.cell.isKnown() && s.at >= b.back {
		if s.cell.silent.Load() != nil {
			return // one of a key that is known to be silent
		}
		b.hush(s.cell.cell, pk)
	}
	switch {
	case s.trial:
		b.trials--
		if s.at >= b.heardOf { // otherwise later ones were answered, and a part alone is silent
			b.opensAgain()
		}
	case b.state != isClosed:
	case store.OutcomeOf(err) == store.Throttled:
		b.ill.Store(true)
		b.begun.Store(0) // a throttle is no silence
		b.watch.Store(0)
		b.throttle++
		if key := maphash.String(b.seed, withoutNumber(pk)); pk != "" && len(b.keys) < manyKeys && !slices.Contains(b.keys, key) {
			b.keys = append(b.keys, key)
		}
	default:
		b.ill.Store(true)
		b.hard++
	}
	if b.state == isClosed && (b.hard >= max(failures, int(b.enough())) || b.hard+b.throttle >= failures && len(b.keys) == manyKeys) {
		changed = b.opens(err)
		b.scheduleNext()
	}
}

// withoutNumber returns a partition key without a number at its end, behind a #. By such numbers the items of one bucket differ, which are
// hot together.
func withoutNumber(pk string) string {
	if rest := strings.TrimRight(pk, "0123456789"); len(rest) < len(pk) && strings.HasSuffix(rest, "#") {
		return rest
	}
	return pk
}

// recovers forgets failures. The breaker is locked, as for all that follow.
func (b *Breaker) recovers() {
	b.hard, b.throttle, b.keys, b.vouched = 0, 0, b.keys[:0], false
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

func (b *Breaker) turn(to breakerState) {
	if wasOpen := b.state == isOpen; to == isOpen && !wasOpen {
		close(b.away)
	} else if to != isOpen && wasOpen {
		b.away = make(chan struct{})
	}
	b.halt(b.doubt)
	b.state, b.trials, b.unheard = to, 0, 0
	b.round.Add(1)
	b.begun.Store(0)
	if to == isClosed {
		b.watch.Store(0)
	} else {
		b.watch.Store(-1)
	}
}

// errOpen says that a call was not made.
var errOpen = errors.New("not sent, since the store is unavailable")

// opens opens the breaker because of an error, and returns what tells of it. A probe has to be scheduled.
func (b *Breaker) opens(cause error) func() {
	b.turn(isOpen)
	for i := range b.cells {
		b.forget(&b.cells[i]) // a part tells nothing while all is silent
	}
	b.openedAt, b.pause, b.probes = b.now(), firstProbe, 0
	b.refusal = &store.Error{Op: "call", Unavailable: true, Err: fmt.Errorf("%w: %w", errOpen, plain(cause))}
	return func() { b.tell(cause, 0) }
}

// plain returns an error without its statement about a call: a refused call has another outcome.
func plain(err error) error { return errors.New(err.Error()) }

func (b *Breaker) tell(cause error, lasted time.Duration) {
	if b.options.Changed != nil {
		b.options.Changed(cause, lasted)
	}
}

func (b *Breaker) opensAgain() {
	b.turn(isOpen)
	b.pause = min(b.pause*5/4, longestProbe)
}

func (b *Breaker) halfOpens() {
	b.turn(isHalfOpen)
	b.allowed, b.heardOf = firstTrials, 0
}

// closes closes the breaker, and returns what tells of it.
func (b *Breaker) closes() func() {
	b.turn(isClosed)
	b.recovers()
	b.halt(b.timer)
	lasted := b.now() - b.openedAt
	return func() { b.tell(nil, lasted) }
}

// tries counts a trial. The breaker opens again when no trial is answered for the time of silence.
func (b *Breaker) tries() {
	if b.trials++; b.unheard == 0 {
		b.unheard = b.now()
		b.doubtAfter(b.silence())
	}
}

// hears notes that a trial was answered. The others have the time of silence from now on.
func (b *Breaker) hears() {
	if b.unheard = 0; b.trials > 0 {
		b.unheard = b.now()
	}
}

// doubtAfter looks after a time whether trials are answered.
func (b *Breaker) doubtAfter(rest time.Duration) {
	b.halt(b.doubt)
	b.doubt = b.after(rest, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.state != isHalfOpen || b.unheard == 0 {
			return
		}
		if rest := b.unheard + b.silence() - b.now(); rest > 0 {
			b.doubtAfter(rest)
			return
		}
		b.opensAgain()
	})
}

// after calls a function after a time, unless the use of the breaker has ended or ends before.
func (b *Breaker) after(rest time.Duration, do func()) *time.Timer {
	if b.life.Err() != nil {
		return nil
	}
	b.probing.Add(1)
	return time.AfterFunc(rest, func() {
		defer b.probing.Done()
		do()
	})
}

// halt stops a timer of after, which may be nil or have fired.
func (b *Breaker) halt(t *time.Timer) {
	if t != nil && t.Stop() {
		b.probing.Done()
	}
}

// scheduleNext has the store probed after the usual pause.
func (b *Breaker) scheduleNext() {
	b.schedule(b.pause - time.Duration(b.options.IntN(int(b.pause/5/time.Millisecond)))*time.Millisecond) // apart from other processes
}

// schedule has the store probed after a time.
func (b *Breaker) schedule(rest time.Duration) {
	opened := b.openedAt
	b.timer = b.after(rest, func() { b.probe(opened) })
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
		bound = b.silence()
	}
	if isLong { // the next one does not wait for it
		bound = b.options.Timeout
		b.scheduleNext()
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.life, bound)
	err := b.options.Ping(ctx)
	cancel()
	var changed func()
	b.mu.Lock()
	switch answers := isAnswer(err); {
	case b.life.Err() != nil || b.state == isClosed || b.openedAt != opened:
		b.mu.Unlock()
		return
	case b.state == isOpen && answers:
		b.halfOpens()
	case b.state == isOpen:
		b.pause = min(b.pause*5/4, longestProbe)
	case answers && b.trials == 0 && b.unheard == 0 && b.round.Load() == round:
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

// A latency is how long calls took of late. It is safe for concurrent use.
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

// usual returns the time after which TCP takes a segment for lost (RFC 6298): the mean, and four times the deviation. So it follows a
// store that becomes slow with the first slow reply. It is 0 before the first call.
func (l *latency) usual() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mean + 4*l.spread
}
