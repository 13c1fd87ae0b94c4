package protocol

import (
	"context"
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Operators can change balances directly. Such a change is one transaction over all shards, with further writes of the caller. So it takes
// effect immediately in every process, and is applied completely or not at all.

// A Change is an operator's change of the balances of a bucket.
type Change struct {
	Limits []string        // the limits that become full; nil for all of the bucket
	Gifts  []bucket.Amount // amounts that are added to limits instead; nil for none
	Until  int64           // when the gifts expire, see [bucket.ManualChange]
	// With returns further writes for the transaction. Its arguments are the changes of the limits, and the number of shards. The number is
	// 0 for a bucket that does not exist. Such a bucket is full, so it is created only for gifts beyond its capacity.
	With func(changes []bucket.BalanceChange, shards int) ([]store.Write, error)
}

// Change tries a change once. It reads all shards and the stored limits. Shards get the stored parameters of the limits that they have.
// Change returns false if other writers came first. An exact try requires the balances of limits, see [bucket.Config.Change].
func (e *Engine) Change(ctx context.Context, entity, resource string, r *Change, exact bool) (done bool, err error) {
	b := e.Memory.Bucket(entity, resource)
	done, err = e.aligner.change(ctx, b, r, exact)
	return done, unlessMoved(err)
}

// change is [Engine.Change].
func (al *aligner) change(ctx context.Context, b *Bucket, r *Change, exact bool) (done bool, err error) {
	epoch := al.NextEpoch()
	seen := al.looks.seenSince(epoch)
	if err := al.looks.readStale(ctx, []level{{bucket: b, began: epoch}}, seen); err != nil {
		return false, err
	}
	v := al.looks.view(b, seen)
	limits, err := al.options.Source.After(ctx, b, al.NextEpoch())
	if err != nil {
		return false, err
	}
	if len(v.states) == 0 {
		return al.changeNothing(ctx, b, r, limits)
	}
	config, now := al.byHand(limits, &v), al.now()
	names, err := r.names(config.Params, limits)
	if err != nil {
		return false, err
	}
	by := r.manual(names)
	parts, changes, err := config.Change(v.states, &by, exact, al.life(epoch), now)
	if err != nil {
		return false, err
	}
	changes = bucket.Rejoined(changes)
	if parts == nil {
		return false, &CrowdedError{b.Entity, b.Resource}
	}
	with, err := r.With(changes, len(v.states))
	if err != nil {
		return false, err
	}
	return al.items.transact(ctx, v.planned(parts, limits), with, al.table.Transact)
}

// manual returns the change for the limits with these names.
func (r *Change) manual(names []string) bucket.ManualChange {
	if r.Gifts != nil {
		names = nil
	}
	return bucket.ManualChange{Full: names, Gifts: r.Gifts, Until: r.Until}
}

// changeNothing is change for a bucket that does not exist. It creates the bucket if the gifts exceed its capacity.
func (al *aligner) changeNothing(ctx context.Context, b *Bucket, r *Change, limits *Limits) (done bool, err error) {
	names, err := r.names(nil, limits)
	if err != nil {
		return false, err
	}
	by, now := r.manual(names), al.now()
	plan, changes, err := limits.Config.Found(&by, al.life(al.NextEpoch()), now)
	if err != nil {
		return false, err
	}
	s := b.shard(0)
	absent, err := layout.Insert()
	first, shards := store.Write{Kind: store.Check, Key: s.key, Expr: absent}, 0
	if plan != nil {
		first, err = s.Write(plan, limits.Lineage)
		shards = 1
	}
	if err != nil {
		return false, err
	}
	with, err := r.With(bucket.Rejoined(changes), shards)
	if err != nil {
		return false, err
	}
	done, err = al.table.Transact(ctx, append([]store.Write{first}, with...))
	if plan != nil && (done || IsUnknown(err)) {
		s.image.Store(nil) // a transaction returns no images
	}
	return done, err
}

// names returns the names of the limits that change. They exist in the bucket, or are stored.
func (r *Change) names(known []bucket.Params, limits *Limits) (names []string, err error) {
	if r.Limits == nil && r.Gifts == nil && known != nil {
		return namesOf(known), nil
	}
	for _, p := range limits.Config.Params {
		if !slices.ContainsFunc(known, func(k bucket.Params) bool { return k.Name == p.Name }) {
			known = append(known, p)
		}
	}
	names = namesOf(known)
	asked := slices.Clone(r.Limits)
	for _, a := range r.Gifts {
		asked = append(asked, a.Limit)
	}
	if asked == nil {
		return names, nil
	}
	for _, name := range asked {
		if !slices.Contains(names, name) {
			known = slices.DeleteFunc(known, func(p bucket.Params) bool { return bucket.IsPart(p.Name) })
			return nil, &UnknownLimitError{Limit: name, Known: known, Slots: limits.Config.FindSlots(name) != nil}
		}
	}
	for _, name := range names { // with its shares
		if bucket.IsPart(name) && slices.Contains(asked, bucket.LimitOf(name)) {
			asked = append(asked, name)
		}
	}
	return asked, nil
}

func namesOf(params []bucket.Params) (names []string) {
	for i := range params {
		names = append(names, params[i].Name)
	}
	return names
}

// byHand returns the limits for the shards of a view in a manual change: the limits of the shards, with the stored parameters and shares of
// the same names. Limits that only requests specify are not stored, and stay as they are.
func (al *aligner) byHand(limits *Limits, v *view) *bucket.Config {
	c := al.items.keep(v.states[0])
	for _, s := range v.states {
		for _, p := range s.Params() {
			if !slices.ContainsFunc(c.Params, func(k bucket.Params) bool { return k.Name == p.Name }) {
				c.Params = append(c.Params, p)
			}
		}
		c.Mixed = c.Mixed || al.options.Mixed
	}
	taken := false
	for i := range c.Params {
		for _, p := range limits.Config.Params {
			if p.Name == c.Params[i].Name {
				c.Params[i], taken = p, true
			}
		}
	}
	c.Redivide(&limits.Config)
	if taken && !v.states[0].Disabled { // a disabled bucket does not expire
		c.ExpiryFactor = limits.Config.ExpiryFactor
	}
	return c
}

// exactTries is the number of tries that require balances.
const exactTries = 4

// maxDoubts is the number of tries whose outcome may stay unknown.
const maxDoubts = 8

// ChangeOnce tries a change until it is applied. Before each try it checks whether an earlier one was applied, since its reply
// may have been lost.
func (e *Engine) ChangeOnce(ctx context.Context, entity, resource string, r *Change, already func(context.Context) (bool, error)) error {
	tries := 0
	var doubt []error
	return e.core.table.Optimistic(ctx, func() (done bool, err error) {
		if done, err = already(ctx); done {
			return true, nil
		}
		if err != nil {
			return false, errors.Join(append(doubt, err)...)
		}
		tries++
		done, err = e.Change(ctx, entity, resource, r, tries <= exactTries)
		if IsUnknown(err) && len(doubt) < maxDoubts && ctx.Err() == nil {
			doubt = append(doubt, err)
			return false, nil
		}
		return done, err
	})
}
