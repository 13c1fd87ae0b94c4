package protocol

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A writeQueue lets callers of one process share writes of one bucket, or of one shard. Callers that come while a write
// is under way wait for it, and share the next one. A caller that finds no write under way does not wait. The zero
// value is ready.
type writeQueue struct {
	mu      sync.Mutex
	busy    bool
	waiting []*waiter
}

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

// do writes what a caller wants alone when no write is under way, or waits to share one. A caller whose context ends
// does not disturb the others. Before the write begins, the caller leaves the queue. After that, what it took is given
// back; a correction waits for the outcome instead, since it may not be written twice.
func (e *Engine) do(ctx context.Context, w *waiter) error {
	q := w.queue
	q.mu.Lock()
	if !q.busy {
		q.busy = true
		q.mu.Unlock()
		defer e.finish(ctx, q)
		return e.direct(ctx, w)
	}
	w.done = make(chan error, 1)
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		if q.leave(w) {
			return ctx.Err()
		}
		return <-w.done
	}
}

// direct writes what one caller wants.
func (e *Engine) direct(ctx context.Context, w *waiter) error {
	if w.correction != nil {
		return e.settleDirect(ctx, w.correction, w.shard, w.correction.amounts)
	}
	return e.takeDirect(ctx, w.level, w.taking)
}

// leave lets a waiter give up. It returns false when the outcome is known or has to be waited for.
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

// finish ends a write, and begins the next one if callers wait for it. The next one goes on in the background, which
// closing the engine waits for.
func (e *Engine) finish(ctx context.Context, q *writeQueue) {
	waiters := q.takeWaiting()
	if len(waiters) == 0 {
		return
	}
	if !e.Begin() {
		for ; len(waiters) > 0; waiters = q.takeWaiting() {
			for _, w := range waiters {
				w.done <- ErrClosed
			}
		}
		return
	}
	go func() {
		defer e.End()
		for ctx := context.WithoutCancel(ctx); len(waiters) > 0; waiters = q.takeWaiting() {
			e.serve(ctx, waiters)
		}
	}()
}

// takeWaiting claims the waiters of the queue. Without any, the queue becomes idle.
func (q *writeQueue) takeWaiting() []*waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiters := q.waiting
	q.waiting = nil
	q.busy = len(waiters) > 0
	for _, w := range waiters {
		w.claimed = true
	}
	return waiters
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

// takeBatch takes for waiters of equal limits in one write. When they ask for more than the bucket has, those that fit
// are served together, first come first served. The others are served by what the bucket was seen to have then.
func (e *Engine) takeBatch(ctx context.Context, waiters []*waiter) {
	whole, err := joined(waiters)
	if len(waiters) == 1 || err != nil {
		e.takeEach(ctx, waiters)
		return
	}
	var to taking
	err = e.takeDirect(ctx, &whole, &to)
	if errors.Is(err, errShort) {
		fit, rest := e.fitting(&whole, waiters)
		if len(fit) == len(waiters) || len(fit) <= 1 {
			e.takeEach(ctx, waiters)
			return
		}
		e.takeBatch(ctx, fit)
		e.takeEach(ctx, rest)
		return
	}
	parts := make([][]bucket.Amount, len(to.parts))
	for i, p := range to.parts {
		parts[i] = slices.Clone(p.amounts)
	}
	for _, w := range waiters {
		if err == nil {
			w.taking.took(w.level, nil, nil)
			for i, amounts := range bucket.Portion(parts, w.level.demand.Amounts) {
				if len(amounts) > 0 {
					w.taking.parts = append(w.taking.parts, shardAmounts{to.parts[i].shard, amounts})
				}
			}
		}
		e.deliver(ctx, w, err)
	}
}

// takeEach takes for waiters one by one.
func (e *Engine) takeEach(ctx context.Context, waiters []*waiter) {
	for _, w := range waiters {
		e.deliver(ctx, w, e.takeDirect(ctx, w.level, w.taking))
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
func (e *Engine) fitting(l *level, waiters []*waiter) (fit, rest []*waiter) {
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

// deliver tells a waiter the outcome. What a caller took that gave up is given back in the background.
func (e *Engine) deliver(ctx context.Context, w *waiter, err error) {
	w.queue.mu.Lock()
	abandoned := w.abandoned
	w.done <- err
	w.queue.mu.Unlock()
	if !abandoned || err != nil {
		return
	}
	e.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.SettleLimit)
		defer cancel()
		e.giveBack(ctx, w.taking)
	})
}
