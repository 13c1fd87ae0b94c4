package protocol

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A queue lets callers of one process share writes of one bucket, or of one shard. While few writes are under way, each caller makes its
// own write immediately. Later callers wait, and share the next write.
type queue[T job[T]] struct {
	bucket   *Bucket
	settling bool // jobs are corrections: they are retried after any throttle, and wait for a write under way

	mu      sync.Mutex
	round   int           // of the writes that count as under way; the next round begins when all of them are late
	moved   time.Duration // when one of these writes last began or ended, since the engine was made
	watch   *time.Timer   // ends a round whose writes are late; nil while no caller waits
	alone   int           // writes under way with one caller each
	served  bool          // a goroutine writes for the waiting callers
	crowded bool          // the last shared write had enough callers that one write at a time suffices
	waiting []*waiter[T]  // in the order in which their requests arrived
	pace    *pace         // of writes
}

// A job is what a caller wants to be written: a [*claim] or a [*payment].
type job[T any] interface {
	// came returns the epoch when the request arrived, which orders jobs; 0 for jobs in any order.
	came() int64
	// isLike reports whether two jobs of a queue may share a write.
	isLike(other T) bool
}

// A writer does jobs.
type writer[T job[T]] interface {
	// write does one job.
	write(ctx context.Context, j T) error
	// writeTogether does jobs of a queue that may share a write, and delivers their outcomes.
	writeTogether(ctx context.Context, q *queue[T], waiters []*waiter[T])
	// undo undoes a job whose caller has given up. It outlives the context.
	undo(ctx context.Context, j T)
}

func newQueue[T job[T]](b *Bucket, settling bool) queue[T] {
	return queue[T]{bucket: b, settling: settling, pace: &pace{bounds: &ofWrites}}
}

// crowdCallers is the number of callers of a shared write that makes a queue crowded. Later callers then wait as soon as one write is under
// way: they all share the next write, and need none of their own.
const crowdCallers = 8

// A waiter is a caller that waits for a shared write.
type waiter[T any] struct {
	job       T
	claimed   bool       // by a write that is under way or done
	abandoned bool       // the caller gave up while the write was under way
	done      chan error // holds the outcome; nil for a caller that does not wait
}

// Waiting returns the number of callers that wait to share a write of the bucket.
func (b *Bucket) Waiting() (waiting int) {
	waiting = b.queue.length()
	for _, s := range *b.shards.Load() {
		if s != nil {
			waiting += s.queue.length()
			if s.takes != nil {
				waiting += s.takes.length()
			}
		}
	}
	return waiting
}

func (q *queue[T]) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// begin reports whether a caller may make its own write, and returns the round of that write, which [sharing.finish] ends.
func (q *queue[T]) begin(c *core) (round int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.round, q.mayBegin(c)
}

// mayBegin is begin for a locked queue. After recent throttles, only one write is under way at a time, otherwise as many as the option
// allows. The shards of a used-up bucket share that number.
func (q *queue[T]) mayBegin(c *core) bool {
	most := c.options.WritesAtOnce
	if q.crowded || q.pace.isStrained(c) {
		most = 1
	} else if q.bucket.isSplit() && q.bucket.isUsedUp() {
		most = max(1, most/q.bucket.shardCount())
	}
	under := q.alone
	if q.served {
		under++
	}
	if len(q.waiting) > 0 || under >= most || q.pace.isClosed(c) {
		return false
	}
	q.alone++
	q.moved = c.sinceStart()
	return true
}

// A role is the next step of a waiter.
type role uint8

const (
	toWait  role = iota // waits for the outcome of a shared write
	toWatch             // is the first to wait: watches the writes under way, and waits
	toWrite             // makes its own write
	toServe             // starts the goroutine of the shared writes, and waits for the outcome
)

// join puts a waiter into the queue, in the order in which requests arrived. So a request that starts over keeps its place, and is not
// overtaken again and again.
func (q *queue[T]) join(c *core, w *waiter[T]) (to role, round int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mayBegin(c) {
		return toWrite, q.round
	}
	at := len(q.waiting)
	for ; at > 0 && w.job.came() < q.waiting[at-1].job.came(); at-- {
	}
	q.waiting = slices.Insert(q.waiting, at, w)
	switch {
	case q.alone == 0 && !q.served:
		q.served = true
		q.moved = c.sinceStart()
		return toServe, q.round
	case q.watch == nil:
		return toWatch, q.round
	default:
		return toWait, q.round
	}
}

// leave lets a waiter give up. It returns false if the outcome is known, or if the job is a settlement.
func (q *queue[T]) leave(w *waiter[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.claimed {
		q.drop(w)
		return true
	}
	w.abandoned = !q.settling && len(w.done) == 0
	return w.abandoned
}

// awaited returns the waiters whose callers have not given up: the same list if none has.
func (q *queue[T]) awaited(waiters []*waiter[T]) []*waiter[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	gone := func(w *waiter[T]) bool { return w.abandoned }
	if !slices.ContainsFunc(waiters, gone) {
		return waiters
	}
	return slices.DeleteFunc(slices.Clone(waiters), gone)
}

// deliver passes the outcome to a waiter. It reports whether the caller has given up.
func (q *queue[T]) deliver(w *waiter[T], err error) (abandoned bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.done <- err
	return w.abandoned
}

// untilLate returns the time until all writes under way are late, given the time after which one is late. While the store throttles the
// bucket, its calls wait for their pace, and none is late. The queue is locked.
func (q *queue[T]) untilLate(c *core, late time.Duration) time.Duration {
	if q.pace.isStrained(c) || q.bucket.pace.isStrained(c) {
		return late
	}
	return q.moved + late - c.sinceStart()
}

// endRound begins a new round if all writes under way are late. They no longer count, and the caller serves the waiting callers.
func (q *queue[T]) endRound(c *core, late time.Duration) (round int, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.unwatch()
		return 0, false
	}
	if rest := q.untilLate(c, late); rest > 0 {
		q.watch.Reset(rest)
		return 0, false
	}
	q.unwatch()
	q.round++
	q.alone, q.served, q.moved = 0, true, c.sinceStart()
	return q.round, true
}

// unwatch stops watching for late writes. The queue is locked.
func (q *queue[T]) unwatch() {
	if q.watch != nil {
		q.watch.Stop()
		q.watch = nil
	}
}

// end counts a write of one caller as done. It returns true if others wait and no goroutine serves them, which the caller must then do. A
// write of a round that has ended does not count any more.
func (q *queue[T]) end(c *core, round int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if round != q.round {
		return false
	}
	q.alone--
	q.moved = c.sinceStart()
	if q.served || len(q.waiting) == 0 {
		return false
	}
	q.served = true
	return true
}

// claim removes the jobs that share the next write from the queue: the first one, and all jobs like it. The others keep waiting. If it
// returns none, the goroutine of this round no longer serves the queue.
func (q *queue[T]) claim(c *core, round int) (claimed []*waiter[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if round != q.round {
		return nil
	}
	claimed, q.waiting = alike(q.waiting)
	q.moved = c.sinceStart()
	if len(claimed) == 0 {
		q.served = false
	} else {
		q.crowded = len(claimed) >= crowdCallers
	}
	if len(q.waiting) == 0 {
		q.unwatch()
	}
	for _, w := range claimed {
		w.claimed = true
	}
	return claimed
}

// alike divides waiters into those that may share a write with the first one, and the others.
func alike[T job[T]](waiters []*waiter[T]) (alike, others []*waiter[T]) {
	at := slices.IndexFunc(waiters, func(w *waiter[T]) bool { return !w.job.isLike(waiters[0].job) })
	if at < 0 {
		return waiters, nil
	}
	alike = slices.Clone(waiters[:at])
	for _, w := range waiters[at:] {
		if w.job.isLike(waiters[0].job) {
			alike = append(alike, w)
		} else {
			others = append(others, w)
		}
	}
	return alike, others
}

// triesAgain reports whether a throttled write is retried, at the pace of the queue. The write of a request that does not wait is retried
// only in a bucket with many writers. Otherwise the failure policy decides immediately. A settlement has no policy, so it is always
// retried, even if a transaction was throttled, for which the store names no reason.
func (q *queue[T]) triesAgain(c *core, err error, waits bool) bool {
	return isWriteThrottled(err) && (q.settling || waits || c.isSought(q.bucket)) || q.settling && isKeyThrottled(err)
}

// ended notes the outcome of a write of the queue. A job without a write, such as a rejection from memory, changes no pace. Neither does a
// throttle that is not retried.
func (q *queue[T]) ended(c *core, err error, waits bool) {
	switch {
	case err == nil:
		if q.pace.until.Load() != 0 {
			q.pace.refuses(nil)
			q.pace.ended(c)
		}
	case q.triesAgain(c, err, waits):
		q.pace.refuses(err)
		q.pace.throttle(c.sinceStart(), c.table.IntN)
	}
}

// withdraw lets a waiter leave if its time ends before the next write, which the pace delays after a throttle. It returns that throttle, or
// nil for a waiter that keeps waiting.
func (q *queue[T]) withdraw(c *core, w *waiter[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	refusal := q.pace.refused()
	if w.claimed || refusal == nil || !q.pace.isClosed(c) {
		return nil
	}
	q.drop(w)
	return refusal
}

// away is [stall.away] for callers of a queue. A correction has no policy, and keeps waiting.
func (q *queue[T]) away(ctx context.Context, c *core) <-chan struct{} {
	if q.settling {
		return nil
	}
	return q.bucket.stall.away(ctx, c)
}

// leaves lets a waiter leave unless a write has claimed it, and reports whether it left.
func (q *queue[T]) leaves(w *waiter[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.claimed {
		q.drop(w)
	}
	return !w.claimed
}

// drop removes a waiter from the queue, which is locked.
func (q *queue[T]) drop(w *waiter[T]) {
	q.waiting = slices.DeleteFunc(q.waiting, func(other *waiter[T]) bool { return other == w })
}

// A sharing writes the jobs of one kind, for all queues of an engine.
type sharing[T job[T]] struct {
	*core
	writer[T]
	late func() time.Duration // the time after which a write is late
}

// await waits until a shared write has done the caller's job. If the caller's context ends before the write begins, the caller leaves the
// queue. If it ends later, the tokens are given back, and the outcome of a settlement is unknown, since it must not be written twice. The
// other callers are not affected.
func (sh *sharing[T]) await(ctx context.Context, q *queue[T], j T) error {
	w := &waiter[T]{job: j, done: make(chan error, 1)}
	switch to, round := q.join(sh.core, w); to {
	case toWrite:
		defer sh.finish(ctx, q, round)
		return sh.write(ctx, j)
	case toServe:
		sh.serve(ctx, q, round)
	case toWatch:
		sh.watch(ctx, q)
	case toWait:
	}
	last := q.pace.lastTry(ctx, sh.reserve(q))
	defer last.stop()
	for away := q.away(ctx, sh.core); ; {
		select {
		case err := <-w.done:
			if err != nil { // callers of a shared write read again, or start over
				_ = sh.table.Yield(ctx) // the outcome is known, whether or not the context has ended
			}
			return err
		case <-last.C:
			if throttle := q.withdraw(sh.core, w); throttle != nil {
				return throttle
			}
			last.again() // a write is under way
		case <-away:
			if q.leaves(w) {
				return table.ErrWithheld
			}
			away = nil
		case <-ctx.Done():
			return sh.leave(ctx, q, w)
		}
	}
}

// leave returns the outcome for a caller whose context ends during its wait.
func (*sharing[T]) leave(ctx context.Context, q *queue[T], w *waiter[T]) error {
	if q.leave(w) {
		return ctx.Err()
	}
	select {
	case err := <-w.done:
		return err
	default: // the write goes on
		return &store.Error{Op: "a shared write", Unavailable: true, Unknown: true, Err: ctx.Err()}
	}
}

// finish ends a write of one caller. If others wait and no goroutine serves them, it starts the shared writes.
func (sh *sharing[T]) finish(ctx context.Context, q *queue[T], round int) {
	if q.end(sh.core, round) {
		sh.serve(ctx, q, round)
	}
}

// watch ends the round of the writes under way when all of them are late. A lost reply concerns only the callers of that write, and must
// not delay the others.
func (sh *sharing[T]) watch(ctx context.Context, q *queue[T]) {
	ctx = context.WithoutCancel(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watch != nil || len(q.waiting) == 0 {
		return
	}
	q.watch = time.AfterFunc(q.untilLate(sh.core, sh.late()), func() {
		if round, ended := q.endRound(sh.core, sh.late()); ended {
			sh.serve(ctx, q, round)
		}
	})
}

// serve writes in the background for the waiting callers, until the queue is empty. A write begins when the pace of the queue allows it.
// Callers that arrive during the pause share the write, so a throttled bucket gets fewer writes for the same number of callers.
//
// Closing the engine waits for these writes. While other work is under way in the background, shared writes begin even after the engine was
// closed. That work may depend on them, as the return of tokens does.
func (sh *sharing[T]) serve(ctx context.Context, q *queue[T], round int) {
	if sh.background.GoOn(ctx, func(ctx context.Context) { sh.serveAll(ctx, q, round) }) {
		return
	}
	for waiters := q.claim(sh.core, round); len(waiters) > 0; waiters = q.claim(sh.core, round) {
		for _, w := range waiters {
			w.done <- ErrClosed
		}
	}
}

// serveAll writes for the waiting callers, until the queue is empty.
func (sh *sharing[T]) serveAll(ctx context.Context, q *queue[T], round int) {
	for {
		sh.rest(ctx, q.pace, 0)
		waiters := q.claim(sh.core, round)
		if len(waiters) == 0 {
			return
		}
		sh.writeTogether(ctx, q, waiters)
	}
}

// deliver passes the same outcome to waiters of a queue. Tokens of a caller that gave up are returned in the background. The delivering
// goroutine counts as work in the background, so GoOn also starts this return while the engine is being closed.
func (sh *sharing[T]) deliver(ctx context.Context, q *queue[T], waiters []*waiter[T], err error) {
	for _, w := range waiters {
		if !q.deliver(w, err) || err != nil {
			continue
		}
		sh.background.GoOn(ctx, func(ctx context.Context) { sh.undo(ctx, w.job) })
	}
}

// patiently makes a write of a queue, and retries it while the store throttles it: up to maxThrottles times for a throttled key, and once
// for an index. It does not retry in the last moments of the context: the outcome of such a write would be unknown, while a throttle proves
// that nothing was written. After the engine was closed, a request is not retried either, since no pace delays its tries then.
func (sh *sharing[T]) patiently(ctx context.Context, q *queue[T], waits bool, write func() error) error {
	tries, indexTries := maxThrottles, 1
	for {
		err := write()
		switch {
		case q.triesAgain(sh.core, err, waits) && tries > 0 && sh.mayRetry(ctx, q):
			tries--
		case isIndexThrottled(err) && indexTries > 0:
			indexTries--
			if ok, ended := sh.restForIndex(ctx); !ok {
				return cmp.Or(ended, err)
			}
		default:
			return err
		}
	}
}

// mayRetry reports whether a throttled write may be retried.
func (sh *sharing[T]) mayRetry(ctx context.Context, q *queue[T]) bool {
	return (q.settling || sh.background.isOpen()) && hasTime(ctx, sh.reserve(q))
}

// reserve returns how long before the end of a context the last try of a write begins. A settlement has more time than a request, and waits
// for a slow answer.
func (sh *sharing[T]) reserve(q *queue[T]) time.Duration {
	if q.settling {
		return min(sh.table.Timeout(), sh.options.SettleLimit) / mostGracePart
	}
	return sh.grace()
}

// indexRest is the mean time between a write that an index throttles and the next try. When an index has fallen behind, DynamoDB throttles
// all writes of the table for about a second, whichever buckets have caused that.
const indexRest = time.Second

// restForIndex waits for 0.5 to 1.5 times indexRest, so that processes do not retry at the same moment. It returns false if the context has
// no time for that, so that the failure policy can still decide, and if the context ends.
func (c *core) restForIndex(ctx context.Context) (ok bool, ended error) {
	rest := indexRest/2 + time.Duration(c.table.IntN(int(indexRest/time.Millisecond)))*time.Millisecond
	if deadline, bounded := ctx.Deadline(); bounded && time.Until(deadline) <= rest {
		return false, nil
	}
	ended = c.table.Sleep(ctx, rest)
	return ended == nil, ended
}
