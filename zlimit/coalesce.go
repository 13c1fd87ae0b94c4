package zlimit

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A pool lets callers in one process share writes of one bucket: those that come while a write is under way wait for it,
// and go together in the next one. Nobody waits where nothing is under way. The zero value is ready.
type pool struct {
	mu      sync.Mutex
	busy    bool
	waiting []*rider
}

// A rider is a caller that waits for a write that it shares.
type rider struct {
	pool  *pool
	link  *link
	shard *shard          // to be corrected; nil for a charge
	more  []bucket.Amount // the correction
	taken bool            // by a write that is under way, or done
	left  bool            // the caller gave up while the write was under way
	done  chan error      // holds the outcome; nil for a rider that does not wait
}

// ride writes what a rider wants alone when nothing is under way, or waits to share a write. A caller whose context ends
// does not disturb the others: it leaves the queue, or if the write is under way has what it took given back. A correction,
// which may not be written twice, waits for the outcome then.
func (l *RateLimiter) ride(ctx context.Context, r *rider) error {
	p := r.pool
	p.mu.Lock()
	if !p.busy {
		p.busy = true
		p.mu.Unlock()
		defer l.depart(ctx, p)
		return l.alone(ctx, r)
	}
	r.done = make(chan error, 1)
	p.waiting = append(p.waiting, r)
	p.mu.Unlock()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if p.leave(r) {
			return ctx.Err()
		}
		return <-r.done
	}
}

// alone writes what one rider wants.
func (l *RateLimiter) alone(ctx context.Context, r *rider) error {
	if r.shard != nil {
		return l.correctAlone(ctx, r.link, r.shard, r.more)
	}
	return l.chargeAlone(ctx, r.link)
}

// leave has a rider give up; false when the outcome is known or has to be waited for.
func (p *pool) leave(r *rider) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.taken {
		p.waiting = slices.DeleteFunc(p.waiting, func(other *rider) bool { return other == r })
		return true
	}
	r.left = r.shard == nil && len(r.done) == 0
	return r.left
}

// depart ends a write, and begins the next one if somebody waits for it. It goes on when the limiter is closed, which
// waits for it.
func (l *RateLimiter) depart(ctx context.Context, p *pool) {
	riders := p.board()
	if len(riders) == 0 {
		return
	}
	if !l.begin() {
		for ; len(riders) > 0; riders = p.board() {
			for _, r := range riders {
				r.done <- ErrClosed
			}
		}
		return
	}
	go func() {
		defer l.background.Done()
		for ctx := context.WithoutCancel(ctx); len(riders) > 0; riders = p.board() {
			l.serve(ctx, riders)
		}
	}()
}

// board returns those who wait; nobody ends the pool's work.
func (p *pool) board() []*rider {
	p.mu.Lock()
	defer p.mu.Unlock()
	riders := p.waiting
	p.waiting = nil
	p.busy = len(riders) > 0
	for _, r := range riders {
		r.taken = true
	}
	return riders
}

// serve writes what riders of one pool want, in as few writes as can be.
func (l *RateLimiter) serve(ctx context.Context, riders []*rider) {
	if riders[0].shard != nil {
		l.correctTogether(ctx, riders)
		return
	}
	for len(riders) > 0 {
		var alike, others []*rider
		for _, r := range riders {
			if r.link.limits == riders[0].link.limits {
				alike = append(alike, r)
			} else {
				others = append(others, r)
			}
		}
		l.chargeTogether(ctx, alike)
		riders = others
	}
}

// tell ends a rider's wait. What a caller took that has left is given back, and nobody waits for that.
func (l *RateLimiter) tell(ctx context.Context, r *rider, err error) {
	r.pool.mu.Lock()
	left := r.left
	r.done <- err
	r.pool.mu.Unlock()
	if !left || err != nil {
		return
	}
	l.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		if err := l.giveBack(ctx, r.link); err != nil {
			l.options.logger.Warn("zlimit: what a cancelled request took could not be given back",
				"key", r.link.bucket.shard(0).key.PK, "error", err)
		}
	})
}

// chargeTogether charges riders of the same limits in one write. When they ask for too much together, those that fit are
// charged, first come first served, and the others one by one, on what the bucket was seen to have meanwhile. So is each
// when the limits turn out to have changed, and to lack one that somebody asks for.
func (l *RateLimiter) chargeTogether(ctx context.Context, riders []*rider) {
	whole, err := joined(riders)
	if len(riders) > 1 && err == nil {
		err = l.chargeAlone(ctx, whole)
	}
	var exceeded *ExceededError
	var invalid *ValidationError
	switch {
	case len(riders) == 1, errors.As(err, &invalid):
		l.chargeEach(ctx, riders)
	case errors.As(err, &exceeded):
		fit, rest := fitting(riders, exceeded.Statuses)
		if len(fit) > 0 {
			l.chargeTogether(ctx, fit)
		}
		l.chargeEach(ctx, rest)
	default:
		taken := slices.Clone(whole.parts)
		for _, r := range riders {
			r.link.limits, r.link.shard = whole.limits, whole.shard
			if taken != nil {
				r.link.parts = portion(taken, r.link.demand.Amounts)
			}
			l.tell(ctx, r, err)
		}
	}
}

// chargeEach charges riders one by one.
func (l *RateLimiter) chargeEach(ctx context.Context, riders []*rider) {
	for _, r := range riders {
		l.tell(ctx, r, l.alone(ctx, r))
	}
}

// joined returns a link that asks for what riders ask for together; a [*ValidationError] when that is more than can be
// counted.
func joined(riders []*rider) (whole *link, err error) {
	first := riders[0].link
	whole = &link{bucket: first.bucket, limits: first.limits, asked: first.bucket.calls.Load()}
	for _, r := range riders {
		if whole.demand.Amounts, err = sum(whole.demand.Amounts, r.link.demand.Amounts); err != nil {
			return nil, err
		}
	}
	return whole, nil
}

// fitting divides riders into those that fit into what is available, in their order, and the others: at least one.
func fitting(riders []*rider, statuses Statuses) (fit, rest []*rider) {
	available := make([]bucket.Amount, len(statuses))
	for i, s := range statuses {
		available[i] = bucket.Amount{Limit: s.Limit.Name, Tokens: s.Available * millis}
	}
	for _, r := range riders {
		fits := len(fit) < len(riders)-1 || len(rest) > 0
		for _, a := range r.link.demand.Amounts {
			fits = fits && a.Tokens <= tokensOf(available, a.Limit)
		}
		if !fits {
			rest = append(rest, r)
			continue
		}
		fit = append(fit, r)
		for i := range available {
			available[i].Tokens -= tokensOf(r.link.demand.Amounts, available[i].Limit)
		}
	}
	return fit, rest
}

// portion takes amounts out of what was taken of several shards, and returns of which.
func portion(taken []part, amounts []bucket.Amount) (parts []part) {
	for i := range taken {
		var share []bucket.Amount
		left := slices.Clone(taken[i].amounts)
		for at := range left {
			if n := min(left[at].Tokens, tokensOf(amounts, left[at].Limit)); n > 0 {
				left[at].Tokens -= n
				share = append(share, bucket.Amount{Limit: left[at].Limit, Tokens: n})
			}
		}
		taken[i].amounts = left
		if share == nil {
			continue
		}
		parts = append(parts, part{taken[i].shard, share})
		amounts, _ = sum(amounts, negated(share))
	}
	return parts
}

// correctTogether writes the corrections of riders to one shard in one write. All of them hear what became of it.
func (l *RateLimiter) correctTogether(ctx context.Context, riders []*rider) {
	first := riders[0]
	total := first.more
	for i, r := range riders[1:] {
		next, err := sum(total, r.more)
		if err != nil { // more than can be counted at once
			l.correctTogether(ctx, riders[i+1:])
			riders = riders[:i+1]
			break
		}
		total = next
	}
	var err error
	if d := (bucket.Demand{Amounts: total}); !d.Empty() {
		err = l.correctAlone(ctx, first.link, first.shard, total)
	}
	for _, r := range riders {
		l.tell(ctx, r, err)
	}
}
