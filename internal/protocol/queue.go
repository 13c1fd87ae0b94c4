package protocol

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A writeQueue lets callers of one process share writes of one bucket, or of one shard. While few writes are under way,
// each caller writes at once by itself. Callers that come later wait, and share the next write.
type writeQueue struct {
	bucket      *Bucket
	corrections bool // writes of the queue settle what was taken

	mu      sync.Mutex
	alone   int       // writes under way, each of one caller
	serving bool      // a goroutine writes for those who wait
	crowded bool      // the last shared write was of so many that one write under way is enough
	waiting []*waiter // in the order in which their requests came
	pace    pace      // of writes
}

func newQueue(b *Bucket, corrections bool) writeQueue {
	return writeQueue{bucket: b, corrections: corrections, pace: pace{bounds: &ofWrites}}
}

// crowd is the number of callers of one shared write that makes a queue crowded. Later callers then wait as soon as one
// write is under way: two writes serve them all, where each would have its own.
const crowd = 8

// A waiter is a caller that waits for a write that it shares.
type waiter struct {
	queue      *writeQueue
	level      *level // of a take
	taking     *taking
	correction *correction // of a settlement, on the shard
	shard      *shard
	claimed    bool       // by a write that is under way, or done
	abandoned  bool       // the caller gave up while the write was under way
	done       chan error // holds the outcome; nil for a caller that does not wait
}

// Waiting returns the number of callers that wait to share a write of the bucket.
func (b *Bucket) Waiting() (waiting int) {
	waiting = b.queue.length()
	for _, s := range *b.shards.Load() {
		if s != nil {
			waiting += s.queue.length()
		}
	}
	return waiting
}

func (q *writeQueue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// begin reports whether a caller has a write of its own, which [Engine.finish] ends.
func (q *writeQueue) begin(it *items) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mayBegin(it)
}

// mayBegin is begin for a queue that is locked. Where the store has throttled writes of late, one is under way at a time.
func (q *writeQueue) mayBegin(it *items) bool {
	most := it.options.WritesAtOnce
	if q.crowded || q.pace.isStrained(it) {
		most = 1
	}
	if q.serving || len(q.waiting) > 0 || q.alone >= most || q.pace.isClosed(it) {
		return false
	}
	q.alone++
	return true
}

// A place is what a waiter does next.
type place uint8

const (
	toWait  place = iota // for the outcome of a write that is shared
	toWrite              // by itself
	toServe              // begins the shared writes, which no goroutine makes yet, and waits for the outcome
)

// join puts a waiter into the queue, in the order in which requests came. A request that begins anew thus keeps its
// place, and is not passed again and again.
func (q *writeQueue) join(it *items, w *waiter) place {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mayBegin(it) {
		return toWrite
	}
	at := len(q.waiting)
	for ; at > 0 && w.began() < q.waiting[at-1].began(); at-- {
	}
	q.waiting = slices.Insert(q.waiting, at, w)
	if q.alone > 0 || q.serving {
		return toWait
	}
	q.serving = true
	return toServe
}

// began returns the epoch when the request of a waiter came; 0 for a correction, all of which go together.
func (w *waiter) began() int64 {
	if w.level == nil {
		return 0
	}
	return w.level.began
}

// shareWrite lets a caller wait until a write is done that it shares. A caller whose context ends does not disturb the
// others. Before the write begins, the caller leaves the queue. After that, what it took is given back. The outcome of
// a correction is unknown then: it may not be written twice.
func (e *Engine) shareWrite(ctx context.Context, w *waiter) error {
	q := w.queue
	w.done = make(chan error, 1)
	switch q.join(&e.items, w) {
	case toWrite:
		defer e.finish(ctx, q)
		return e.direct(ctx, w)
	case toServe:
		e.serveAll(ctx, q)
	case toWait:
	}
	select {
	case err := <-w.done:
		if err != nil { // all who shared the write look again, or begin anew
			_ = e.table.Yield(ctx) // the outcome is known, whether or not the context has ended
		}
		return err
	case <-ctx.Done():
		if q.leave(w) {
			return ctx.Err()
		}
		select {
		case err := <-w.done:
			return err
		default: // the write of a correction goes on
			return &store.Error{Op: "a shared write", Unavailable: true, Unknown: true, Err: ctx.Err()}
		}
	}
}

// direct writes what one caller wants.
func (e *Engine) direct(ctx context.Context, w *waiter) error {
	if w.correction != nil {
		return e.settleDirect(ctx, w.correction, w.shard, w.correction.amounts)
	}
	return e.takeDirect(ctx, w.level, w.taking)
}

// leave lets a waiter give up. It returns false when the outcome is known, or is that of a correction.
func (q *writeQueue) leave(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.claimed {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *waiter) bool { return other == w })
		return true
	}
	w.abandoned = w.correction == nil && len(w.done) == 0
	return w.abandoned
}

// finish ends a write of one caller. When others wait and are not served yet, it begins the writes that they share.
func (e *Engine) finish(ctx context.Context, q *writeQueue) {
	if q.end() {
		e.serveAll(ctx, q)
	}
}

// serveAll writes in the background for those who wait, until the queue is empty. A write begins when the pace of the queue
// allows it. Callers that come during the pause share it, so that a throttled bucket takes fewer writes for as many callers.
//
// Closing the engine waits for these writes. While other work is under way in the background, they begin even after that,
// since the work may wait for one of them: tokens that are being given back do.
func (e *Engine) serveAll(ctx context.Context, q *writeQueue) {
	if !e.Begin() && !e.GoOn() {
		for waiters := q.claim(); len(waiters) > 0; waiters = q.claim() {
			for _, w := range waiters {
				w.done <- ErrClosed
			}
		}
		return
	}
	go func() {
		defer e.End()
		ctx := context.WithoutCancel(ctx)
		for {
			e.rest(ctx, &q.pace, 0)
			waiters := q.claim()
			if len(waiters) == 0 {
				return
			}
			e.serve(ctx, waiters)
		}
	}()
}

// end counts a write of one caller as done. It returns true when others wait and no goroutine serves them: the caller does then.
func (q *writeQueue) end() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alone--
	if q.serving || len(q.waiting) == 0 {
		return false
	}
	q.serving = true
	return true
}

// claim takes those who wait out of the queue. Without any, the queue is not served any more.
func (q *writeQueue) claim() []*waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiters := q.waiting
	q.waiting, q.serving = nil, len(waiters) > 0
	if q.serving {
		q.crowded = len(waiters) >= crowd
	}
	for _, w := range waiters {
		w.claimed = true
	}
	return waiters
}

// triesAgain reports whether a write that the store throttled is tried again, at the pace of the queue. A request does so in a
// crowd alone: elsewhere its policy decides at once. A correction has no policy, and always does.
func (q *writeQueue) triesAgain(err error) bool {
	return isWriteThrottled(err) && (q.corrections || q.bucket.isCrowded())
}

// ended notes what became of a write of the queue. What made no write, such as a rejection from memory, changes no pace; nor
// does a throttle after which the caller does not try again.
func (q *writeQueue) ended(it *items, err error) {
	switch {
	case err == nil:
		q.pace.ended(it)
	case q.triesAgain(err):
		q.pace.throttle(it.sinceStart(), it.table.IntN)
	}
}

// serve writes what waiters of one queue want, in as few writes as possible.
func (e *Engine) serve(ctx context.Context, waiters []*waiter) {
	if waiters[0].correction != nil {
		e.settleBatch(ctx, waiters)
		return
	}
	for len(waiters) > 0 {
		var alike, others []*waiter
		for _, w := range waiters {
			if w.level.limits.sameAs(waiters[0].level.limits) {
				alike = append(alike, w)
			} else {
				others = append(others, w)
			}
		}
		e.takeBatch(ctx, alike)
		waiters = others
	}
}

// sameAs reports whether two limits are equal in value, so that their takes may share a write.
func (l *Limits) sameAs(other *Limits) bool {
	return l == other || l.Config.Equal(&other.Config) && l.Owner == other.Owner && l.Own == other.Own
}

// moreWrites bounds the writes after the first one of a batch that does not fit.
const moreWrites = 2

// takeBatch takes for waiters of equal limits in one write. When they ask for more than the bucket has, the next write is
// for those that fit, first come first served. When another process comes first, one more write follows. The others fall
// short by what the bucket was seen to have after they came. [Engine.Take] begins anew for one that fits after all.
func (e *Engine) takeBatch(ctx context.Context, waiters []*waiter) {
	fit, short, err := narrow(waiters, func(w []*waiter) error { return e.takeTogether(ctx, w) }, e.fitting)
	e.deliverAll(ctx, fit, err)
	e.deliverAll(ctx, short, errShort)
}

// narrow takes for waiters together, then for those that fit, up to moreWrites times. It returns those for which it took last
// with what came of it, and those that were left out before.
func narrow(
	waiters []*waiter, take func([]*waiter) error, fitting func([]*waiter) (fit, rest []*waiter),
) (last, short []*waiter, err error) {
	err = take(waiters)
	for range moreWrites {
		if !errors.Is(err, errShort) || len(waiters) == 1 {
			break
		}
		fit, rest := fitting(waiters)
		if len(fit) == 0 {
			break
		}
		waiters, short = fit, append(short, rest...)
		err = take(waiters)
	}
	return waiters, short, err
}

// takeTogether takes for waiters of equal limits in one write, all or none.
func (e *Engine) takeTogether(ctx context.Context, waiters []*waiter) error {
	if len(waiters) == 1 {
		return e.takeDirect(ctx, waiters[0].level, waiters[0].taking)
	}
	whole, err := joined(waiters)
	if err != nil { // more than can be counted, and so more than there is
		return errShort
	}
	var to taking
	if err := e.takeDirect(ctx, &whole, &to); err != nil {
		return err
	}
	if len(to.parts) == 1 {
		for _, w := range waiters {
			w.taking.took(w.level, to.parts[0].shard, w.level.demand.Amounts)
		}
		return nil
	}
	parts := make([][]bucket.Amount, len(to.parts))
	for i, p := range to.parts {
		parts[i] = slices.Clone(p.amounts)
	}
	for _, w := range waiters {
		w.taking.took(w.level, nil, nil)
		for i, amounts := range bucket.Portion(parts, w.level.demand.Amounts) {
			if len(amounts) > 0 {
				w.taking.parts = append(w.taking.parts, shardAmounts{to.parts[i].shard, amounts})
			}
		}
	}
	return nil
}

// deliverAll tells waiters the same outcome.
func (e *Engine) deliverAll(ctx context.Context, waiters []*waiter, err error) {
	for _, w := range waiters {
		e.deliver(ctx, w, err)
	}
}

// joined returns a level that asks for what waiters ask for together. All of them came before it.
func joined(waiters []*waiter) (whole level, err error) {
	whole = *waiters[0].level
	whole.demand.Amounts = nil
	for _, w := range waiters {
		whole.began = max(whole.began, w.level.began)
		if whole.demand.Amounts, err = bucket.Sum(whole.demand.Amounts, w.level.demand.Amounts); err != nil {
			return level{}, err
		}
	}
	return whole, nil
}

// fitting divides waiters into those whose demands fit into what the bucket was last seen to have, and the others.
func (e *Engine) fitting(waiters []*waiter) (fit, rest []*waiter) {
	l := waiters[0].level
	demands := make([]*bucket.Demand, len(waiters))
	for i, w := range waiters {
		demands[i] = &w.level.demand
	}
	states, _ := l.bucket.states(nil)
	for i, fits := range l.limits.Config.Fitting(states, demands, e.now()) {
		if fits {
			fit = append(fit, waiters[i])
		} else {
			rest = append(rest, waiters[i])
		}
	}
	return fit, rest
}

// settleBatch writes the corrections of waiters on one shard in one write. All of them hear what became of it.
func (e *Engine) settleBatch(ctx context.Context, waiters []*waiter) {
	first := waiters[0]
	total := first.correction.amounts
	for i, w := range waiters[1:] {
		next, err := bucket.Sum(total, w.correction.amounts)
		if err != nil { // more than can be counted at once
			e.settleBatch(ctx, waiters[i+1:])
			waiters = waiters[:i+1]
			break
		}
		total = next
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.SettleLimit)
	defer cancel()
	var err error
	if d := (bucket.Demand{Amounts: total}); !d.Empty() {
		err = e.settleDirect(ctx, first.correction, first.shard, total)
	}
	for _, w := range waiters {
		e.deliver(ctx, w, err)
	}
}

// deliver tells a waiter the outcome. When its caller gave up, what was taken is given back in the background. The goroutine
// that delivers counts as work in the background, so that goOn counts this as well while the engine is being closed.
func (e *Engine) deliver(ctx context.Context, w *waiter, err error) {
	w.queue.mu.Lock()
	abandoned := w.abandoned
	w.done <- err
	w.queue.mu.Unlock()
	if !abandoned || err != nil {
		return
	}
	e.GoOn()
	go func() {
		defer e.End()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.SettleLimit)
		defer cancel()
		e.giveBack(ctx, w.taking)
	}()
}
