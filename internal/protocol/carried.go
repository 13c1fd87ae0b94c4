package protocol

import (
	"context"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/tool/wire"
)

// A receipt can be written as data, and settled by another process. The data has the buckets, the shards, the amounts of each limit, and
// the lives that they were taken from. It does not have the parameters of limits: a correction uses the parameters of the item. If the item
// is missing, the stored limits are read when the receipt is settled.

// Write writes a receipt without its slots.
func (r *Receipt) Write(w *wire.Writer) {
	w.Int(int64(len(r.levels)))
	for i := range r.levels {
		t := &r.levels[i]
		w.Text(t.bucket.Entity)
		w.Text(t.bucket.Resource)
		w.Int(int64(t.round))
		w.Int(int64(t.ancestor))
		w.Int(int64(t.wider))
		limits := t.limits.Config.Limits()
		w.Int(int64(len(limits)))
		for j := range limits {
			w.Text(limits[j].Name)
		}
		parts := t.parts
		if len(parts) == 0 { // further charges may go to any shard
			parts = []shardAmounts{*t.charged("")}
		}
		w.Int(int64(len(parts)))
		for j := range parts {
			parts[j].write(w)
		}
	}
}

// write writes the part of a level receipt for one shard, or for any.
func (p *shardAmounts) write(w *wire.Writer) {
	number := anyShard
	if p.shard != nil {
		number = int64(p.shard.Shard)
	}
	w.Int(number)
	w.Int(int64(len(p.amounts)))
	for _, a := range p.amounts {
		w.Text(a.Limit)
		for _, n := range [...]int64{a.Tokens, a.FromChildren, a.FromNarrower, a.Refusals} {
			w.Int(n)
		}
	}
	lives := p.lives()
	w.Int(int64(len(lives)))
	for _, l := range lives {
		w.Text(l.Limit)
		w.Flag(l.Unowned)
		if l.Unowned {
			continue
		}
		w.Int(l.Number)
		w.Int(l.Period)
		if l.Period != 0 {
			w.Int(l.Period - l.From)
		}
		w.Int(l.Since)
		if w.Int(l.Until); l.Until != 0 {
			w.Int(l.Kept)
		}
	}
}

// anyShard is the shard number of a part that may be charged to any shard.
const anyShard int64 = -1

// maxShard is the greatest number of a shard that a receipt may have.
const maxShard = 1<<16 - 1

// ReadReceipt reads a receipt that [Receipt.Write] has written. The function check validates the names of each bucket before they are used.
// ReadReceipt returns false for data in any other form.
func (e *Engine) ReadReceipt(data *wire.Reader, check func(entity, resource string) error) (*Receipt, bool) {
	r := new(Receipt)
	for range data.Count() {
		entity, resource := data.Text(), data.Text()
		t := levelReceipt{round: int32(data.Within(0, MaxBuckets*maxRounds)), position: position{int8(data.Within(0, MaxDepth)), int8(data.Within(0, MaxWidth))}}
		limits := new(Limits)
		for range data.Count() {
			limits.Config.Params = append(limits.Config.Params, bucket.Params{Name: data.Text()})
		}
		parts := data.Count()
		if !data.OK() || check(entity, resource) != nil || len(r.levels) > 0 && t.round < r.levels[len(r.levels)-1].round {
			return nil, false
		}
		t.bucket, t.limits = e.Memory.Bucket(entity, resource), limits
		for range parts {
			t.parts = append(t.parts, readPart(data, t.bucket))
		}
		if _, err := t.total(); err != nil || !data.OK() {
			return nil, false
		}
		r.levels = append(r.levels, t)
	}
	for i := range r.levels {
		if _, err := totalOf(r.levels, r.levels[i].bucket); err != nil {
			return nil, false
		}
	}
	return r, data.OK()
}

// readPart reads what [shardAmounts.write] has written.
func readPart(data *wire.Reader, b *Bucket) (p shardAmounts) {
	if number := data.Within(anyShard, maxShard); number != anyShard && data.OK() {
		p.shard = b.shard(int(number))
	}
	for range data.Count() {
		a := bucket.Amount{Limit: data.Text(), Tokens: data.Int(), FromChildren: data.Int(), FromNarrower: data.Int(), Refusals: data.Int()}
		p.amounts = append(p.amounts, a)
	}
	known := new(lives)
	for range data.Count() {
		l := bucket.Life{Limit: data.Text(), Unowned: data.Flag()}
		if !l.Unowned {
			if l.Number, l.Period = data.Int(), data.Int(); l.Period != 0 {
				l.From = l.Period - data.Int()
			}
			l.Since = data.Int()
			if l.Until = data.Int(); l.Until != 0 {
				l.Kept = data.Within(0, math.MaxInt64)
			}
		}
		known.all = append(known.all, l)
	}
	p.known = known
	return p
}

// SettleRead settles a receipt that was read from data, as [Engine.Settle] does.
func (e *Engine) SettleRead(ctx context.Context, s *Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, e.core.options.SettleLimit)
	defer cancel()
	if err := e.settler.findLimits(ctx, s); err != nil {
		return err
	}
	return e.settler.settleAll(ctx, s)
}

// findLimits reads the limits of the buckets of a receipt that was read from data, and sets them in its corrections.
func (st *settler) findLimits(ctx context.Context, s *Settlement) error {
	var group errgroup.Group
	for i := range s.due {
		group.Go(func() error {
			limits, err := st.options.Source.For(ctx, s.due[i].bucket)
			if err == nil {
				s.due[i].limits = limits
			}
			return err
		})
	}
	return group.Wait()
}

// configured returns the amounts of limits that a new item would have. The limits of a receipt that was read from data may have been
// deleted meanwhile.
func (l *Limits) configured(amounts []bucket.Amount) []bucket.Amount {
	has := func(a bucket.Amount) bool {
		return slices.ContainsFunc(l.Config.Params, func(p bucket.Params) bool { return p.Name == a.Limit })
	}
	if !slices.ContainsFunc(amounts, func(a bucket.Amount) bool { return !has(a) }) {
		return amounts
	}
	return slices.DeleteFunc(slices.Clone(amounts), func(a bucket.Amount) bool { return !has(a) })
}
