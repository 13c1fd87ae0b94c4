package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// look reads the leases, and at times the partitions. It takes free partitions up to a fair share, and gives back the
// rest. work is the context of its readers.
func (c *Consumer) look(ctx, work context.Context) {
	err := c.balance(ctx, work)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.Report(Event{Kind: Trouble, Err: err})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wasAway := c.trouble != nil
	if c.trouble = err; err == nil {
		c.looked = time.Now()
		if wasAway {
			c.Report(Event{Kind: Back})
		}
	}
}

func (c *Consumer) balance(ctx, work context.Context) error {
	c.adoptLate(ctx)
	leases, err := c.readLeases(ctx)
	if err != nil {
		return err
	}
	now := time.Now() // after the leases were read: silence must not seem longer than it is
	c.seen.see(leases, now)
	c.seen.believe(leases, c.Term, now)
	for i := range leases {
		if l := &leases[i]; l.Broken != "" {
			c.Report(Event{Kind: Unreadable, Partition: l.Partition, Err: errors.New(l.Broken)})
		}
	}
	fresh, err := c.discover(ctx, leases, now)

	open := append(open(leases), fresh...)
	share := c.share(leases, len(open), now)
	mine := 0
	c.each(func(h *holding) {
		if !h.releasing() {
			if mine++; mine > share {
				h.release()
			}
		}
	})
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for i := range open {
		if mine < share && c.free(&open[i], now) {
			if took, claimErr := c.claim(work, open[i]); took {
				mine++
			} else {
				err = errors.Join(err, claimErr)
			}
		}
	}
	c.noteUnheld(leases, now)
	c.noteWaiting(open, mine, now)
	return errors.Join(err, c.announce(ctx, mine == 0, c.seen.testify(leases, now)))
}

// noteUnheld notes the partitions that no consumer seems to have: a living one writes its leases every third of the term.
func (c *Consumer) noteUnheld(leases []Lease, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unheld = c.unheld[:0]
	for i := range leases {
		if l := &leases[i]; l.isOpen() && c.holdings[l.Partition] == nil && c.seen.silence(l, now) > c.Term/2 {
			c.unheld = append(c.unheld, Progress{
				Partition: l.Partition, Position: l.Position, CaughtUp: c.Now().Add(-c.seen.silence(l, now)), Unheld: true,
			})
		}
	}
}

// noteWaiting reports that the consumer waits for a lease of another, once for each other one. A process that was killed keeps its leases
// for a term.
func (c *Consumer) noteWaiting(open []Lease, mine int, now time.Time) {
	if mine > 0 {
		c.waitsFor = ""
		return
	}
	var first *Lease // that ends first
	silence := time.Duration(0)
	for i := range open {
		l := &open[i]
		if l.Owner == "" || l.Owner == c.Name {
			continue
		}
		c.mu.Lock()
		is := c.seen.silence(l, now)
		c.mu.Unlock()
		if first == nil || is > silence {
			first, silence = l, is
		}
	}
	if first == nil || first.Owner == c.waitsFor {
		return
	}
	c.waitsFor = first.Owner
	c.Report(Event{Kind: Waiting, Partition: first.Partition, From: first.Owner, Until: c.Now().Add(c.Term - silence)})
}

// open returns the leases of partitions that are to be read. A lease whose partition is not listed any more is among
// them, since a consumer has to notice the changes lost with it. One that cannot be read is not.
func open(leases []Lease) (open []Lease) {
	for i := range leases {
		if leases[i].isOpen() {
			open = append(open, leases[i])
		}
	}
	return open
}

// share returns the number of partitions that each consumer should have at most.
func (c *Consumer) share(leases []Lease, open int, now time.Time) int {
	consumers := map[string]bool{c.Name: true}
	for i := range leases {
		if l := &leases[i]; l.Owner != "" && !l.Finished && l.Partition != listing && c.seen.silence(l, now) < c.Term {
			consumers[l.Owner] = true
		}
	}
	return (open + len(consumers) - 1) / len(consumers)
}

// free reports whether a partition can be taken: its lease has no owner, or was not written for a term. A lease may
// also carry the name of this consumer, which does not have it. Such a lease comes from a write whose reply was lost.
func (c *Consumer) free(l *Lease, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.holdings[l.Partition] != nil:
		return false
	case l.Owner == "" || l.Owner == c.Name:
		return true
	default:
		return c.seen.silence(l, now) >= c.Term
	}
}

// claim takes a partition, unless another consumer is faster.
func (c *Consumer) claim(work context.Context, l Lease) (bool, error) {
	start := time.Now()
	before := l.Owner
	c.mu.Lock()
	silence := c.seen.silence(&l, start)
	c.mu.Unlock()
	l.Owner = c.Name
	l.Beats++
	found, saved, err := c.Leases.Save(work, l)
	if err != nil || !saved {
		return false, err
	}
	h := newHolding(c, found, start, silence)
	c.mu.Lock()
	c.holdings[l.Partition] = h
	c.mu.Unlock()
	c.Report(Event{Kind: Claimed, Partition: l.Partition, From: before})
	c.running.Go(func() {
		end := h.run(work)
		c.mu.Lock()
		delete(c.holdings, l.Partition)
		c.mu.Unlock()
		c.Report(Event{Kind: end, Partition: l.Partition})
		if end == Finished { // its children can be read
			c.adopt(work, l.Partition)
			c.hurry()
		}
	})
	return true, nil
}

// announce writes a record for the other consumers: this one waits for partitions, and they are to leave it some.
// Consumers that have partitions are known by their leases.
//
// An earlier process of the same name may have left its record, perhaps withdrawn. The first write finds that record,
// and the second takes it over.
func (c *Consumer) announce(ctx context.Context, waiting bool, testimony store.Sequence) error {
	if !waiting {
		return nil
	}
	for range 2 {
		next := c.waiting
		next.Partition, next.Owner = waitingMark+c.Name, c.Name
		next.Position = testimony
		next.Finished, next.ExpiresAt = false, c.Now().Add(keepWaiting)
		next.Beats++
		found, saved, err := c.Leases.Save(ctx, next)
		if err != nil {
			return err
		}
		if c.waiting = found; saved {
			return nil
		}
	}
	return nil // another process has the same name
}

// leave withdraws the record of announce. A failure is reported, and does no harm: the record expires.
func (c *Consumer) leave(ctx context.Context) {
	if c.waiting.Beats == 0 {
		return
	}
	c.waiting.Finished = true
	c.waiting.Beats++
	if _, _, err := c.Leases.Save(ctx, c.waiting); err != nil && ctx.Err() == nil {
		c.Report(Event{Kind: Trouble, Err: err})
	}
}
