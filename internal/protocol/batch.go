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

// isLike reports whether two claims are for one place, by equal limits, with the same of them counted alone. Those with slots share no writes with others,
// which need no clock.
func (c *claim) isLike(other *claim) bool {
	return c.place.shard == other.place.shard && c.place.whole == other.place.whole &&
		c.level.limits.sameAs(other.level.limits) && c.level.demand.CountsAlike(&other.level.demand) &&
		(len(c.level.demand.Slots()) > 0) == (len(other.level.demand.Slots()) > 0)
}

// A payment is a correction of the tokens taken of a shard.
type payment struct {
	*correction
	on *shard
}

func (*payment) came() int64 { return 0 }

// isLike reports whether two payments may be added up: they correct the same lives, and none gives back a limit that
// the other takes. Of a limit that was reset meanwhile, refunds are dropped and charges count. A sum would drop both.
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

// writeTogether takes for waiters of equal limits. Each write serves the waiters whose demands fit into one shard, first come
// first served. The others continue until they are served or fall short. An unknown outcome applies to the waiters whose amounts
// the write had. So does a throttle, if the others fell short of what remained.
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

// undo implements [writer]: it gives back the tokens of a caller that gave up.
func (tk *levelTaker) undo(ctx context.Context, c *claim) { tk.refunds.giveBack(ctx, c.to) }
