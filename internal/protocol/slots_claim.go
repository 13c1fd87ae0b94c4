package protocol

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// A process that holds slots hands them on to its own callers immediately, so another process would rarely find one free. So if the line of
// a process was not served for [slotTurn] while others hold slots, the process claims some by a write: the item then states how many slots
// are kept for it as they become free. The other processes take only the remaining slots. One process at a time has a claim on a limit. The
// claim ends when the process takes the slots. A claim is advice: no write requires it, and the number of slots is never exceeded without
// it.

// claimant returns the number of this process in claims.
func (c *core) claimant() int64 { return int64(c.salt) + 1 }

// claim claims slots for the first caller of a line if a claim is due, and returns the time until the next look.
func (p *Place) claim(ctx context.Context) (pause time.Duration) {
	pause = p.probe/2 + time.Duration(p.table.IntN(int(p.probe)))
	s := p.bucket.shard(0)
	i, now := s.image.Load(), p.slotNow()
	if i == nil || !i.exists {
		return pause
	}
	call := layout.Keep()
	writes := false
	for _, a := range p.asks {
		of := i.FindSlots(a.Limit)
		if of == nil {
			continue
		}
		mine := of.IsClaimedBy(p.claimant(), now)
		if of.IsClaimed(now) {
			p.bucket.line.sawClaim(p.elapsed(), of.Fence)
		}
		if mine {
			pause = min(pause, claimProbe/2+time.Duration(p.table.IntN(int(claimProbe))))
		}
		if p.isPoor(of, now, mine) {
			call.Claim(a.Limit, a.Tokens, p.claimant(), now+p.life, of.ClaimedUntil, of.Enrolled)
			writes = true
		}
	}
	if !writes {
		if due := p.untilDue(); due > 0 {
			pause = min(pause, due)
		}
		return pause
	}
	_, applied, err := p.waits.slotKeeper.keep(ctx, s, i, &call, now)
	if applied && err == nil {
		p.bucket.line.claimed()
		pause = min(pause, claimProbe)
	}
	return pause
}

// isPoor reports whether the line should claim slots, or renew its claim.
func (p *Place) isPoor(of *bucket.Slots, now int64, mine bool) bool {
	switch {
	case mine:
		return of.ClaimedUntil-now < p.life/2
	case of.IsClaimed(now):
		return false
	}
	own := p.bucket.tended.held(of.Name)
	others := of.Capacity - of.Free - own
	if own >= bucket.Of(p.asks, of.Name) { // enough slots will be handed on to the caller
		return 2*own < others && p.bucket.line.mayClaim(p.elapsed(), of.Fence, true)
	}
	return others > 0 && p.untilDue() <= 0 && p.bucket.line.mayClaim(p.elapsed(), of.Fence, false)
}

const (
	// claimServes is the least number of admissions between two claims, since a slot that passes to another process costs two more writes
	// than one that is handed on.
	claimServes = 8
	// claimRest is the time after which another claim is due even if there were fewer.
	claimRest = 2 * time.Second
)

// mayClaim reports whether enough slots were taken since the last claim of any process, which the last fencing number shows. A line that is
// being served must also have served enough of its own callers.
func (l *slotLine) mayClaim(now time.Duration, fence int64, serves bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (l.claimedAt == 0 || fence-l.claimedFence >= claimServes || now-l.claimedAt >= claimRest) && (!serves || l.serves-l.claims >= claimServes)
}

// sawClaim notes that slots are claimed, by any process.
func (l *slotLine) sawClaim(now time.Duration, fence int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimedAt, l.claimedFence = max(now, 1), fence
}

// claimed notes that this process has claimed slots.
func (l *slotLine) claimed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims = l.serves
}

// untilDue returns the time until the first caller of a line can no longer be overtaken, 0 or less for none.
func (p *Place) untilDue() time.Duration {
	l := &p.bucket.line
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(p.first, l.served) + slotTurn - p.elapsed()
}

// held returns how many slots of a limit this process holds.
func (d *tended) held(limit string) (held int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.holds {
		if h.limit == limit && h.phase != gone {
			held += h.amount
		}
	}
	return held
}

// unclaim ends the claims of this process, in the background, since none of its callers waits any more.
func (p *Place) unclaim(ctx context.Context) {
	s := p.bucket.shard(0)
	i, now := s.image.Load(), p.slotNow()
	if i == nil || !i.exists {
		return
	}
	call := layout.Keep()
	writes := false
	for _, a := range p.asks {
		if of := i.FindSlots(a.Limit); of != nil && of.IsClaimedBy(p.claimant(), now) {
			call.Unclaim(a.Limit)
			writes = true
		}
	}
	if !writes {
		return
	}
	p.background.Go(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, p.options.SettleLimit)
		defer cancel()
		_, _, _ = p.waits.slotKeeper.keep(ctx, s, i, &call, now) // otherwise the claim expires
	})
}
