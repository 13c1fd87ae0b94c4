package quota

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// storePoll bounds a sleep on a shared store, since tokens that other processes
// give back wake no caller in this one.
const storePoll = 250 * time.Millisecond

// Wait reserves the request as soon as the limits admit it. Callers with the same
// model and key are served in the order in which they came, so small requests do
// not overtake a large one. Different keys have no order. A request that can
// never pass is rejected immediately with an *ExceededError. A request that would pass only
// after the deadline of ctx, if nothing is given back before, fails immediately with
// context.DeadlineExceeded. When ctx ends, the error wraps its cause. Both errors
// wrap the *ExceededError that stood in the way, if one is known.
func (l *Limiter) Wait(ctx context.Context, r Request) (res Reservation, err error) {
	if err = r.validate(); err != nil {
		return
	}
	p := pair{l.localModel(r.Model), r.Key}
	if l.waiting.busy(p) { // Callers ahead can only make it later.
		if _, err = l.pause(ctx, r, nil); err != nil {
			return
		}
	}
	if err = l.waiting.enter(ctx, p); err != nil {
		err = waitError(r.Model, err, nil)
		return
	}
	defer l.waiting.leave(p)
	var denied *ExceededError
	for {
		freed := l.waiting.freed()
		// A caller who has gone gets nothing, even where there is room.
		if ctx.Err() != nil {
			err = waitError(r.Model, context.Cause(ctx), denied)
			return
		}
		res, err = l.Reserve(ctx, r)
		if denied, _ = split(err); denied == nil || denied.Impossible {
			return
		}
		var d time.Duration
		if d, err = l.pause(ctx, r, denied); err != nil {
			return
		}
		if l.store != nil {
			d = min(d, storePoll)
		}
		select {
		case <-l.cfg.After(max(d, 1)):
		case <-freed:
		case <-ctx.Done():
		}
	}
}

var errTooLate = fmt.Errorf("there is no room before the deadline: %w", context.DeadlineExceeded)

// pause returns how long until the request would be admitted, or an error where
// it would not be before the deadline of ctx.
func (l *Limiter) pause(ctx context.Context, r Request, denied *ExceededError) (time.Duration, error) {
	d, err := l.TimeUntil(ctx, r)
	if err != nil {
		return 0, err
	}
	if deadline, ok := ctx.Deadline(); ok && d >= time.Until(deadline) {
		return 0, waitError(r.Model, errTooLate, denied)
	}
	return d, nil
}

func waitError(model string, cause error, denied *ExceededError) error {
	if denied == nil {
		return fmt.Errorf("quota: wait for model %q: %w", model, cause)
	}
	return fmt.Errorf("quota: wait for model %q: %w (%w)", model, cause, denied)
}

// pair identifies a line of waiting callers.
type pair struct{ model, key string }

// waitQueues lines up the callers of Wait and wakes the first of every line
// when something is given back. The zero value is ready.
type waitQueues struct {
	active atomic.Int64 // callers in Wait; wake is free without any
	mu     sync.Mutex
	lines  map[pair][]chan struct{} // a place is closed when its turn comes
	signal chan struct{}            // closed by wake
}

// busy reports whether callers are in line.
func (q *waitQueues) busy(p pair) bool {
	if q.active.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines[p]) > 0
}

// enter waits for its turn. Unless it returns an error, the caller must leave.
func (q *waitQueues) enter(ctx context.Context, p pair) error {
	turn := make(chan struct{})
	q.active.Add(1)
	q.mu.Lock()
	if q.lines == nil {
		q.lines = map[pair][]chan struct{}{}
	}
	if len(q.lines[p]) == 0 {
		close(turn)
	}
	q.lines[p] = append(q.lines[p], turn)
	q.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		q.remove(p, turn)
		return context.Cause(ctx)
	}
}

// leave gives the turn to the next in line.
func (q *waitQueues) leave(p pair) {
	q.mu.Lock()
	first := q.lines[p][0]
	q.mu.Unlock()
	q.remove(p, first)
}

func (q *waitQueues) remove(p pair, turn chan struct{}) {
	q.active.Add(-1)
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.lines[p], turn)
	line := slices.Delete(q.lines[p], i, i+1)
	if len(line) == 0 {
		delete(q.lines, p)
		return
	}
	q.lines[p] = line
	if i == 0 {
		close(line[0])
	}
}

// freed returns a channel that the next wake closes. Take it before asking, so
// that nothing given back in between is missed.
func (q *waitQueues) freed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.signal == nil {
		q.signal = make(chan struct{})
	}
	return q.signal
}

func (q *waitQueues) wake() {
	if q.active.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.signal != nil {
		close(q.signal)
		q.signal = nil
	}
}
