package protocol

import (
	"context"
	"errors"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Once makes a request with an id take its amounts only once: they are written in one transaction with a record that is created only
// once.
type Once struct {
	// Already reads the record, and reports whether it exists.
	Already func(context.Context) (bool, error)
	// Record returns the write of the record for a receipt. The write requires that the record does not exist.
	Record func(*Receipt) (store.Write, error)

	Repeated bool // set by [Engine.Take] if the record existed; the receipt is then empty
}

// errOnceSlots reports that a request with an id needs slots.
var errOnceSlots = errors.New("a request with an id asks for slots")

// IsOnceSlots reports whether a request was not decided because it has an id and needs slots.
func IsOnceSlots(err error) bool { return errors.Is(err, errOnceSlots) }

// takeOnce takes from every level and writes the record, or does nothing. It is one try, like [admitter.takeLevels]. It reports whether the
// record existed.
//
// Another call with the id may have been under way when the record was first read, and may be the reason why a limit falls short. So the
// record is read again before a rejection, and after a transaction that failed or was not answered.
func (ad *admitter) takeOnce(ctx context.Context, r *Request, levels []level, receipts []levelReceipt) (repeated bool, err error) {
	if asksSlots(levels) {
		return false, errOnceSlots
	}
	plans, err := ad.planOnce(ctx, levels, receipts)
	if errors.As(err, new(*RejectedError)) {
		if repeated, failed := r.Once.Already(ctx); repeated || failed != nil {
			return repeated, failed
		}
	}
	if err != nil {
		return false, err
	}
	receipt := Receipt{levels: receipts}
	receipt.of(r.Priority)
	record, err := r.Once.Record(&receipt)
	if err != nil {
		return false, err
	}
	done, err := ad.items.transact(ctx, plans, []store.Write{record}, ad.table.Transact)
	forget(plans) // the next try plans from other images
	if done {
		ad.seeOnce(ctx, plans)
		return false, nil
	}
	if err != nil && (!IsUnknown(err) || ctx.Err() != nil) {
		return false, err
	}
	if repeated, failed := r.Once.Already(ctx); repeated || failed != nil && err == nil {
		return repeated, failed
	}
	if err == nil {
		err = errOutdated
	}
	return false, err
}

// seeOnce reads the items after a transaction, so that a lease can report the state of its limits.
func (ad *admitter) seeOnce(ctx context.Context, plans []planned) {
	shards := make([]*shard, len(plans))
	for i := range plans {
		shards[i] = plans[i].shard
	}
	if len(shards) > 0 {
		_, _ = ad.items.readShards(ctx, shards) // without images, the next request reads
	}
}

// planOnce plans the writes of all levels, and notes in the receipts what they take.
func (ad *admitter) planOnce(ctx context.Context, levels []level, receipts []levelReceipt) (plans []planned, err error) {
	seen := ad.looks.seenFor(&levels[0])
	if err := ad.looks.readStale(ctx, levels, seen); err != nil {
		return nil, err
	}
	errs, short := make([]error, len(levels)), false
	for i := range levels {
		l := &levels[i]
		if l.demand.Empty() {
			receipts[i].took(l, nil, nil, nil)
			continue
		}
		v, err := ad.viewEnabled(ctx, l, seen)
		if err != nil {
			return nil, err
		}
		more, err := ad.planLevel(l, &v, &receipts[i])
		if errs[i] = err; errors.Is(err, errShort) {
			short = true
			if l.bucket.pendingRefunds.owes.Load() {
				if err := ad.refunds.returnDue(ctx, l.bucket); err != nil {
					return nil, err
				}
				return nil, errOutdated
			}
		} else if err != nil {
			return nil, err
		}
		plans = append(plans, more...)
	}
	if short {
		return nil, ad.judge.refuse(ctx, levels, errs)
	}
	return plans, nil
}

// viewEnabled returns a view of a level with items in line. An image from before the request does not prove that the bucket is disabled.
func (ad *admitter) viewEnabled(ctx context.Context, l *level, seen recency) (view, error) {
	v, err := ad.taker.aligner.viewInLine(ctx, l, seen)
	if errors.As(err, new(*DisabledError)) {
		return ad.taker.aligner.viewInLine(ctx, l, ad.looks.seenSince(l.began))
	}
	return v, err
}

// planLevel plans the writes of one level from a view of its items: to one item that has the whole demand, or to several. It returns
// errShort if the level falls short, and errOutdated if the view is outdated.
func (ad *admitter) planLevel(l *level, v *view, to *levelReceipt) ([]planned, error) {
	c, now := &l.limits.Config, ad.now()
	chosen := *l
	chosen.demand = *l.demand.Through(c, v.states, now)
	if !c.Covers(v.states, &chosen.demand, now) {
		return nil, errShort
	}
	if len(v.states) == 0 {
		p := planned{shard: l.bucket.shard(0), plan: new(bucket.Plan), limits: l.limits}
		if p.plan.Decide(nil, c, &chosen.demand, now); !p.plan.Writes() {
			return nil, errShort
		}
		to.took(&chosen, p.shard, chosen.demand.Amounts, &lives{all: p.plan.Item.Lives(nil)})
		return []planned{p}, nil
	}
	at, ok := c.Roomiest(v.states, &chosen.demand, now)
	if v.isWhole() {
		at, ok = 0, true
	} else if ok && c.Opens(v.states, &chosen.demand, now) {
		ok = false // the shards open a session together
	}
	if ok {
		p := planned{shard: v.shards[at], plan: new(bucket.Plan), limits: l.limits}
		if p.plan.Decide(v.states[at], c, &chosen.demand, now); p.plan.Writes() {
			known := p.plan.Lives(v.states[at], p.shard.livesOf(v.images[at]).list())
			to.took(&chosen, p.shard, chosen.demand.Amounts, &lives{all: known})
			return []planned{p}, nil
		}
		if v.isWhole() {
			return nil, errShort
		}
	}
	parts, ok := c.Gather(v.states, &chosen.demand, false, now)
	if !ok {
		return nil, errOutdated
	}
	to.tookParts(&chosen, v, parts)
	return v.planned(parts, l.limits), nil
}
