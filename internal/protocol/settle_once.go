package protocol

import (
	"context"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// SettleOnce writes the corrections of a receipt that was read from data, and a record, in one transaction. It writes all of them, or
// nothing. Before each try except the first, already reports whether the record exists. Of two calls with records of the same key, only one
// succeeds, by the condition of the record.
func (e *Engine) SettleOnce(ctx context.Context, s *Settlement, record store.Write, already func(context.Context) (bool, error)) error {
	st := &e.settler
	return st.withinLimit(ctx, func(ctx context.Context) error {
		if err := st.findLimits(ctx, s); err != nil {
			return err
		}
		first := true
		return st.table.Optimistic(ctx, func() (done bool, err error) {
			if !first {
				if done, err := already(ctx); done || err != nil {
					return done, err
				}
			}
			first = false
			return st.settleTogether(ctx, s, record)
		})
	})
}

// settleTogether makes one try of [Engine.SettleOnce]. It returns false if other writers came first. If a correction also has amounts of
// the same limit that are only counted, a later write adds these.
func (st *settler) settleTogether(ctx context.Context, s *Settlement, record store.Write) (done bool, err error) {
	plans, rest := []planned(nil), Settlement{}
	var known []*Bucket
	for i := range s.due {
		if b := s.due[i].bucket; !slices.ContainsFunc(known, b.is) {
			known = append(known, b)
			more, ok, err := st.plan(ctx, s.of(b), &rest)
			if !ok || err != nil {
				return false, err
			}
			plans = append(plans, more...)
		}
	}
	done, err = st.items.transact(ctx, plans, []store.Write{record}, st.table.PatientTransact)
	forget(plans) // the next try plans from other images
	if done {
		err = st.settleAll(ctx, &rest)
	}
	return done, err
}

// of returns the corrections of a bucket.
func (s *Settlement) of(b *Bucket) (all []correction) {
	for i := range s.due {
		if s.due[i].bucket.is(b) {
			all = append(all, s.due[i])
		}
	}
	return all
}

// plan plans the corrections of one bucket from its present items, as [settler.settleAnywhere] would write them. It returns false if the
// items changed while they were read. It adds corrections that do not fit into the writes to rest.
func (st *settler) plan(ctx context.Context, all []correction, rest *Settlement) (plans []planned, ok bool, err error) {
	b, limits, epoch := st.memory.current(all[0].bucket), all[0].limits, st.NextEpoch()
	seen := st.looks.seenSince(epoch)
	if err := st.looks.readStale(ctx, []level{{bucket: b, limits: limits, began: epoch}}, seen); err != nil {
		return nil, false, err
	}
	v, now := st.looks.view(b, seen), st.now()
	if len(v.stale) > 0 {
		return nil, false, nil
	}
	home := 0
	if len(v.states) > 0 && all[0].shard != nil {
		home = max(slices.IndexFunc(v.shards, func(s *shard) bool { return s.Shard == all[0].shard.Shard }), 0)
	}
	var due bucket.Demand
	for _, counts := range []bool{false, true} { // corrections of balances come first
		for i := range all {
			one := bucket.Demand{Amounts: limits.configured(all[i].amounts)}
			if len(v.states) > 0 {
				one.GiveBack(all[i].amounts, all[i].lives, v.states[home])
			}
			if counts == (len(one.Amounts) == 0) && !due.Join(&one) {
				rest.due = append(rest.due, all[i])
			}
		}
	}
	switch {
	case due.Empty(), len(v.states) == 0 && due.Returns(): // the next item will start full, which includes the refund
		return nil, true, nil
	case v.isWhole():
		due.Unchecked, due.Settles, due.Life = true, true, st.life(epoch)
		config, state, s := &limits.Config, (*bucket.State)(nil), b.shard(0)
		if len(v.states) > 0 {
			state, s = v.states[0], v.shards[0]
			config = st.items.keep(state)
		}
		p := planned{shard: s, plan: new(bucket.Plan), limits: limits}
		p.plan.Decide(state, config, &due, now)
		return []planned{p}, p.plan.Writes(), nil
	default:
		parts, ok := bucket.Spread(st.items.keep, v.states, home, &due, now)
		return v.planned(parts, limits), ok, nil
	}
}
