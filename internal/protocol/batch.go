package protocol

import (
	"context"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A claim is a caller's demand on a level.
type claim struct {
	level *level
	to    *levelReceipt
	place place
}

func (c *claim) came() int64 { return c.level.began }

// isLike reports whether two claims have the same place and equal limits, and only count the same limits. A claim with slots needs the
// clock, so it shares no write with a claim without them.
func (c *claim) isLike(other *claim) bool {
	return c.place.shard == other.place.shard && c.place.whole == other.place.whole &&
		c.level.limits.sameAs(other.level.limits) && c.level.demand.CountsAlike(&other.level.demand) &&
		(len(c.level.demand.Slots()) > 0) == (len(other.level.demand.Slots()) > 0)
}

// A payment is a correction of the tokens taken from a shard.
type payment struct {
	*correction
	on *shard
}

func (*payment) came() int64 { return 0 }

// isLike reports whether two payments may be added up: they correct the same lives, and no limit is refunded by one and charged by the
// other. After a reset of a limit, refunds are dropped and charges count. A sum of the two would be wrong.
func (p *payment) isLike(other *payment) bool {
	return slices.Equal(p.lives, other.lives) && bucket.Alike(p.amounts, other.amounts)
}

// sameAs reports whether two limits are equal in value, so that their takes may share a write.
func (l *Limits) sameAs(other *Limits) bool {
	return l == other || l.Config.Equal(&other.Config) && l.Lineage == other.Lineage && l.Own == other.Own
}

var _ writer[*claim] = (*levelTaker)(nil)

// write implements [writer].
func (tk *levelTaker) write(ctx context.Context, c *claim) error {
	return tk.takeAlone(ctx, c.level, c.to, c.place)
}

// writeTogether takes for waiters with equal limits. Each write is for the waiters whose demands fit into one shard, in the order of their
// arrival. The others continue until they are admitted or fall short. An unknown outcome applies to the waiters whose amounts the write
// takes. So does a throttle, if the others have fallen short.
func (tk *levelTaker) writeTogether(ctx context.Context, q *queue[*claim], waiters []*waiter[*claim]) {
	var to levelReceipt
	p := partyOf(waiters, &to)
	p.queue = q
	for len(p.waiters) > 0 {
		err := tk.takeDirect(ctx, &p)
		switch {
		case err == nil:
			p.portion()
			if err = tk.slots.handOut(ctx, &p); err != nil {
				for _, w := range p.fit {
					tk.refunds.giveBack(ctx, w.job.to)
				}
			}
			tk.shared.deliver(ctx, q, p.leave(), err)
		case IsUnknown(err), IsThrottled(err) && tk.goesByShare(&p):
			tk.shared.deliver(ctx, q, p.leave(), err)
		default:
			tk.shared.deliver(ctx, q, p.waiters, err)
			return
		}
	}
}

// undo implements [writer]: it returns the tokens of a caller that gave up.
func (tk *levelTaker) undo(ctx context.Context, c *claim) { tk.refunds.giveBack(ctx, c.to) }
