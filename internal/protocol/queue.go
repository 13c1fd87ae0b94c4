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

// A queue lets callers of one process share writes of one bucket, or of one shard. While few writes are under way, each
// caller writes immediately on its own. Callers that come later wait, and share the next write.
type queue[T job[T]] struct {
	bucket   *Bucket
	settling bool // jobs are corrections: a caller tries again after any throttle, and waits for a write under way

	mu      sync.Mutex
	round   int           // of the writes that count as under way; the next one begins when all of them are late
	moved   time.Duration // when one of them last began or ended, since the engine was made
	watch   *time.Timer   // while callers wait: ends a round of writes that take long
	alone   int           // writes under way, each of one caller
	served  bool          // a goroutine writes for those who wait
	crowded bool          // the last shared write was of enough callers that one write under way suffices
	waiting []*waiter[T]  // in the order in which their requests came
	pace    *pace         // of writes
}

// A job is the order of a caller: a [*claim] or a [*payment].
type job[T any] interface {
	// came returns the epoch when the request came, which orders jobs; 0 for jobs in any order.
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

// crowdCallers is the number of callers of one shared write that makes a queue crowded. Later callers then wait as soon as one
// write is under way: two writes serve them all, where each would have its own.
const crowdCallers = 8

// A waiter is a caller that waits for a shared write.
type waiter[T any] struct {
	job       T
	claimed   bool       // by a write that is under way, or done
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

// begin reports whether a caller has a write of its own, and the round of the write, which [sharing.finish] ends.
func (q *queue[T]) begin(c *core) (round int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.round, q.mayBegin(c)
}

// mayBegin is begin for a queue that is locked. If the store has recently throttled writes, one is under way at a time, and else as many as
// the option allows. The shards of a bucket that is used up share that number.
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
	toWait  role = iota // for the outcome of a write that is shared
	toWatch             // as the first one who waits: watches those ahead, and waits
	toWrite             // by itself
	toServe             // begins the shared writes, which no goroutine makes yet, and waits for the outcome
)

// join puts a waiter into the queue, in the order in which requests came. A request that starts over thus keeps its
// place, and is not passed again and again.
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

// leave lets a waiter give up. It returns false when the outcome is known, or is that of a settlement.
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

// deliver passes the outcome to a waiter. It reports whether the caller has given up.
func (q *queue[T]) deliver(w *waiter[T], err error) (abandoned bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.done <- err
	return w.abandoned
}

// untilLate returns the time until all writes under way are late, given the time after which one is. Where the store
// throttles the bucket, its calls wait for their pace, and none is late. The queue is locked.
func (q *queue[T]) untilLate(c *core, late time.Duration) time.Duration {
	if q.pace.isStrained(c) || q.bucket.pace.isStrained(c) {
		return late
	}
	return q.moved + late - c.sinceStart()
}

// endRound begins a round in which none of the writes under way counts, if all of them are late. The caller then serves those who
// wait.
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

// unwatch ends the watch over writes that are late. The queue is locked.
func (q *queue[T]) unwatch() {
	if q.watch != nil {
		q.watch.Stop()
		q.watch = nil
	}
}

// end counts a write of one caller as done. It returns true when others wait and no goroutine serves them: the caller does then.
// A write of a round that has ended does not count any more.
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

// claim takes those out of the queue who share the next write: jobs like the first one. The others wait on. Without any, the
// queue is not served any more, or not by a goroutine of this round.
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

// alike parts waiters into those who may share a write with the first one, and the others.
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

// triesAgain reports whether a write that the store throttled is tried again, at the pace of the queue. A request that does not wait
// does so only in a bucket with many writers: elsewhere its policy decides immediately. A settlement has no policy, and always does: also
// where a transaction was throttled, for which the store names no reason.
func (q *queue[T]) triesAgain(c *core, err error, waits bool) bool {
	return isWriteThrottled(err) && (q.settling || waits || c.isSought(q.bucket)) || q.settling && isKeyThrottled(err)
}

// ended notes what became of a write of the queue. A job without a write, such as a rejection from memory, changes no
// pace. Nor does a throttle without another try.
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

// withdraw lets a waiter leave whose time does not last until the next write, since the store throttled the last one and the pace holds the
// next one back. It returns that throttle, and nil for a waiter that waits on.
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

// away is [stall.away] for callers of a queue. A correction has no policy, and waits on.
func (q *queue[T]) away(ctx context.Context, c *core) <-chan struct{} {
	if q.settling {
		return nil
	}
	return q.bucket.stall.away(ctx, c)
}

// leaves lets a waiter leave that no write has claimed, and reports whether it does.
func (q *queue[T]) leaves(w *waiter[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.claimed {
		q.drop(w)
	}
	return !w.claimed
}

// drop takes a waiter out of the queue, which is locked.
func (q *queue[T]) drop(w *waiter[T]) {
	q.waiting = slices.DeleteFunc(q.waiting, func(other *waiter[T]) bool { return other == w })
}

// A sharing writes jobs of one kind, of all queues of an engine.
type sharing[T job[T]] struct {
	*core
	writer[T]
	late func() time.Duration // after which a write is late
}

// await lets a caller wait until a write is done that it shares. A caller whose context ends does not disturb the
// others. Before the write begins, the caller leaves the queue. After that, its tokens are given back. The outcome of a
// settlement is unknown then: it may not be written twice.
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
			if err != nil { // all who shared the write look again, or start over
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

// leave returns the outcome for a caller whose context ends while it waits.
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

// finish ends a write of one caller. When others wait and are not served yet, it begins the writes that they share.
func (sh *sharing[T]) finish(ctx context.Context, q *queue[T], round int) {
	if q.end(sh.core, round) {
		sh.serve(ctx, q, round)
	}
}

// watch ends the round of the writes that callers of a queue wait behind when all of those are late. A lost reply
// concerns the callers who share that write. The others must not wait for it.
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

// serve writes in the background for those who wait, until the queue is empty. A write begins when the pace of the
// queue allows it. Callers that come during the pause share the write, so a throttled bucket takes fewer writes for as
// many callers.
//
// Closing the engine waits for these writes. While other work is under way in the background, they begin even after
// that. The work may wait for one of them, as tokens being given back do.
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

// serveAll writes for those who wait, until the queue is empty.
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

// deliver passes the same outcome to waiters of a queue. Tokens of a caller that gave up are given back in the background.
// The delivering goroutine counts as work in the background, so that GoOn counts this as well while the engine is being
// closed.
func (sh *sharing[T]) deliver(ctx context.Context, q *queue[T], waiters []*waiter[T], err error) {
	for _, w := range waiters {
		if !q.deliver(w, err) || err != nil {
			continue
		}
		sh.background.GoOn(ctx, func(ctx context.Context) { sh.undo(ctx, w.job) })
	}
}

// patiently makes a write of a queue until the store does not throttle it. It tries maxThrottles times more for a throttled key, and
// once more for an index. It does not try again in the last moments of the context: what becomes of such a write would not be known, and a
// throttle proves that nothing was written. Nor does a request once the engine is closed, since no pace holds its tries back then.
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

// mayRetry reports whether a throttled write is tried again.
func (sh *sharing[T]) mayRetry(ctx context.Context, q *queue[T]) bool {
	return (q.settling || sh.background.isOpen()) && hasTime(ctx, sh.reserve(q))
}

// reserve returns how long before the end of a context the last write of a queue begins. A caller that settles has more time than most, and
// waits for a slow answer.
func (sh *sharing[T]) reserve(q *queue[T]) time.Duration {
	if q.settling {
		return min(sh.table.Timeout(), sh.options.SettleLimit) / mostGracePart
	}
	return sh.grace()
}

// indexRest is the mean time between a write throttled by an index and the next try. DynamoDB holds writes of a table
// back for about a second when an index has fallen behind, whichever buckets brought that about.
const indexRest = time.Second

// restForIndex waits for half of indexRest to one and a half, so that processes do not come again in step. It returns false when the
// context has no time for that: the failure policy decides then, while there is time. It also does when the context ends.
func (c *core) restForIndex(ctx context.Context) (ok bool, ended error) {
	rest := indexRest/2 + time.Duration(c.table.IntN(int(indexRest/time.Millisecond)))*time.Millisecond
	if deadline, bounded := ctx.Deadline(); bounded && time.Until(deadline) <= rest {
		return false, nil
	}
	ended = c.table.Sleep(ctx, rest)
	return ended == nil, ended
}
