package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// errLost ends the work on a partition whose lease may be another consumer's.
var errLost = errors.New("the lease was lost")

// A holding is a partition that this consumer has: one goroutine reads it and calls Apply, another writes the lease.
type holding struct {
	c         *Consumer
	partition string
	since     time.Time // from when the lease holds

	once sync.Once
	stop chan struct{} // closed when the partition is to be given back

	mu       sync.Mutex
	lease    Lease          // as it was written last
	position store.Sequence // up to which changes are applied
	progress Progress
	hasRead  bool // all of the partition once, so that progress says up to when changes are applied
}

// newHolding returns the holding of a lease. silence is for how long the lease had not been written before. Changes of
// that time may not be applied.
func newHolding(c *Consumer, l Lease, since time.Time, silence time.Duration) *holding {
	return &holding{
		c: c, partition: l.Partition, since: since, stop: make(chan struct{}), lease: l, position: l.Position,
		progress: Progress{Partition: l.Partition, CaughtUp: c.Now().Add(-silence)},
	}
}

// release makes the holding give the partition back once the batch under way is applied.
func (h *holding) release() { h.once.Do(func() { close(h.stop) }) }

func (h *holding) releasing() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

// term is for how long a consumer relies on a lease. It is less than others wait for, since no two clocks run at quite
// the same speed.
func (h *holding) term() time.Duration { return h.c.Term - h.c.Term/10 }

// run keeps the partition until its end, until it is to be given back, or until the lease is lost. It returns which.
func (h *holding) run(ctx context.Context) Kind {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	expiry := time.AfterFunc(time.Until(h.since.Add(h.term())), func() { cancel(errLost) })
	defer expiry.Stop()
	ended := make(chan bool, 1)
	go func() { ended <- h.read(work) }()

	beat := time.NewTicker(h.c.Term / 3)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			start := time.Now()
			switch err := h.save(work, keep); {
			case err == nil:
				expiry.Reset(time.Until(start.Add(h.term())))
				beat.Reset(h.c.Term / 3)
			case errors.Is(err, errLost):
				cancel(err)
			default:
				beat.Reset(h.c.Term / 9) // sooner
			}
		case finished := <-ended:
			return h.end(context.WithoutCancel(ctx), finished)
		}
	}
}

// save writes the lease with the position reached and a change to it. It returns errLost when another consumer has the
// lease, and other errors when it may try again. The write has a condition: it is safe to try even when the lease may
// be lost.
func (h *holding) save(ctx context.Context, change func(*Lease)) error {
	h.mu.Lock()
	next := h.lease
	next.Position = h.position
	if known := h.progress.known(); h.hasRead {
		next.AppliedTo = known.UnixMilli()
	}
	h.mu.Unlock()
	change(&next)
	for range 2 {
		next.Beats++
		found, saved, err := h.c.Leases.Save(ctx, next)
		if err != nil {
			if ctx.Err() == nil {
				h.trouble(err)
			}
			return err
		}
		// An earlier write whose reply was lost may have been this one, or one that left the lease here.
		done := saved || found.matches(next)
		if !done && found.Owner != h.c.Name {
			return errLost
		}
		h.mu.Lock()
		h.lease = found
		h.mu.Unlock()
		if done {
			h.forget(ctx, found.Position)
			return nil
		}
		next.Beats = found.Beats
	}
	return errLost
}

func keep(*Lease) {}

// forget makes the store drop applied changes, if it keeps changes for consumers alone. They share one lease, which
// holds its position.
func (h *holding) forget(ctx context.Context, upTo store.Sequence) {
	source, ok := h.c.Source.(store.Forgetter)
	if !ok || upTo == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, h.c.Term/9)
	defer cancel()
	if err := source.Forget(ctx, h.partition, upTo); err != nil && ctx.Err() == nil {
		h.trouble(err)
	}
}

// end gives the partition back. If that fails, others have it after a term.
func (h *holding) end(ctx context.Context, finished bool) Kind {
	ctx, cancel := context.WithTimeout(ctx, h.c.Term/3)
	defer cancel()
	kind, expires := Released, time.Time{}
	if finished {
		kind, expires = Finished, h.c.Now().Add(keepFinished)
	}
	for pause := firstPause; ; pause *= 2 {
		err := h.save(ctx, func(l *Lease) { l.Owner, l.Finished, l.ExpiresAt = "", finished, expires })
		switch {
		case err == nil:
			return kind
		case errors.Is(err, errLost) || !sleep(ctx, nil, pause):
			return Lost
		}
	}
}

// read applies the changes of the partition, and reports whether it has come to its end.
func (h *holding) read(ctx context.Context) (finished bool) {
	at := store.Position{After: h.position}
	pause := firstPause
	for !h.releasing() && ctx.Err() == nil {
		batch, to, err := h.gather(ctx, at)
		if !h.deliver(ctx, batch) {
			return false
		}
		h.reach(to)
		at = to.at
		switch {
		case err != nil && ctx.Err() == nil:
			h.trouble(err)
			sleep(ctx, h.stop, pause)
			pause = min(2*pause, longestPause)
			continue
		case to.end:
			return true
		case to.quiet:
			sleep(ctx, h.stop, h.c.Poll)
		}
		pause = firstPause
	}
	return false
}

// place is what gather came to.
type place struct {
	at    store.Position
	end   bool // of the partition
	quiet bool // nothing more to read for now

	readAt time.Time // when the last page was asked for
}

// maxIdle is how many times a batch gather reads, of changes that are not to be applied, before the position is noted.
const maxIdle = 8

// gather reads up to a batch of changes. With an error it returns the changes read before.
func (h *holding) gather(ctx context.Context, at store.Position) (batch []store.Change, to place, err error) {
	to.at = at
	for read := 0; len(batch) < h.c.Batch && read < maxIdle*h.c.Batch && !to.end && !to.quiet && !h.releasing(); {
		to.readAt = h.c.Now() // before: a change that is made meanwhile may not be on the page
		page, err := h.c.Source.Changes(ctx, h.partition, to.at, h.c.Batch-len(batch))
		if err != nil {
			return batch, to, err
		}
		if page.Gap {
			if err := h.lose(ctx, &page, to.readAt); err != nil {
				return batch, to, err
			}
			h.update(func(p *Progress) { p.Gaps++ })
			h.c.Report(Event{Kind: Gap, Partition: h.partition})
		}
		to.quiet = len(page.Changes) == 0 && page.Next.After == to.at.After
		to.at, to.end = page.Next, page.End
		read += len(page.Changes)
		for i := range page.Changes {
			if c := &page.Changes[i]; !h.c.Leases.Holds(c.Key) && h.c.Wants(c) {
				batch = append(batch, *c)
			}
		}
	}
	return batch, to, nil
}

// lose notes from when to when changes were lost: up to the first one of a page, or else up to when the page was read.
func (h *holding) lose(ctx context.Context, page *store.ChangePage, readAt time.Time) error {
	h.mu.Lock()
	from := time.UnixMilli(h.lease.AppliedTo)
	if known := h.progress.known(); h.hasRead {
		from = known
	}
	h.mu.Unlock()
	to := readAt
	if len(page.Changes) > 0 && page.Changes[0].At.Before(to) {
		to = page.Changes[0].At
	}
	if to.Before(from) { // by the clocks of the store and of an earlier consumer
		from = to
	}
	return h.c.Lose(ctx, h.partition, from, to)
}

// reach notes that everything up to a place is applied.
func (h *holding) reach(to place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.position = to.at.After
	h.progress.Oldest = time.Time{}
	h.progress.Err = nil
	if to.quiet || to.end {
		h.progress.CaughtUp, h.hasRead = to.readAt, true
	}
}

// deliver applies a batch. Changes that fail are tried again, until they succeed or are skipped. The result is false
// when the partition was lost or is to be given back before that.
func (h *holding) deliver(ctx context.Context, batch []store.Change) bool {
	pause := firstPause
	if len(batch) > 0 {
		h.update(func(p *Progress) { p.Oldest = batch[0].At })
	}
	for attempt := 1; len(batch) > 0; attempt++ {
		errs := h.c.Apply(ctx, batch)
		if ctx.Err() != nil {
			return false
		}
		rest := h.settle(batch, errs, attempt)
		if len(rest) == 0 {
			break
		}
		if len(rest) < len(batch) {
			attempt, pause = 0, firstPause
		}
		batch = rest
		if !sleep(ctx, h.stop, pause) {
			return false
		}
		pause = min(2*pause, longestPause)
	}
	return ctx.Err() == nil
}

// settle notes which changes of a batch were applied or are skipped, and returns the others.
func (h *holding) settle(batch []store.Change, errs []error, attempt int) (rest []store.Change) {
	if len(errs) != 0 && len(errs) != len(batch) {
		errs = slices.Repeat([]error{fmt.Errorf("%d results for %d changes", len(errs), len(batch))}, len(batch))
	}
	stuck := attempt >= h.c.StuckAfter
	var failure error
	var applied, skipped int64
	var last, position *store.Change
	for i := range batch {
		c := &batch[i]
		switch {
		case len(errs) == 0 || errs[i] == nil:
			applied++
			last = c
		case stuck && h.c.Skip != nil && h.c.Skip(*c, errs[i]):
			skipped++
			h.c.Report(Event{Kind: Skipped, Partition: h.partition, Change: c, Failed: 1, Attempt: attempt, Err: errs[i]})
		default:
			if rest = append(rest, *c); failure == nil {
				failure = errs[i]
			}
		}
		if len(rest) == 0 {
			position = c
		}
	}
	h.update(func(p *Progress) {
		p.Applied += applied
		p.Skipped += skipped
		if last != nil {
			p.LastChange = last.At
		}
		if position != nil {
			h.position = position.Sequence
		}
		p.Failing, p.Err, p.Stuck = "", failure, stuck && failure != nil
		if failure != nil {
			p.Failing, p.Oldest = rest[0].Sequence, rest[0].At
		}
	})
	if failure != nil {
		kind := Failing
		if stuck {
			kind = Stuck
		}
		h.c.Report(Event{Kind: kind, Partition: h.partition, Change: &rest[0], Failed: len(rest), Attempt: attempt, Err: failure})
	}
	return rest
}

// trouble notes an error of the store.
func (h *holding) trouble(err error) {
	h.update(func(p *Progress) { p.Err = err })
	h.c.Report(Event{Kind: Trouble, Partition: h.partition, Err: err})
}

func (h *holding) update(f func(*Progress)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.progress)
}
