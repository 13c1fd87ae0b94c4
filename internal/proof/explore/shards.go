package explore

import (
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// rounding returns the most by which rounding may part the shards of a bucket from the ideal one, in millitokens. Each
// share of the refill is rounded by less than one, at the beginning and at the end.
func (w *witness) rounding(entity string) int64 {
	if n := int64(len(w.shards[entity])); n > 1 {
		return 2 * n
	}
	return 0
}

// move takes an amount from the ideal bucket of a limit at a time. The write was of a shard that could not hold some of its
// refill. A limit new to the ideal bucket begins with the shards' balance; another one is a change.
func (w *witness) move(r *running, at account, limit bucket.Params, now, due, spilled int64) {
	i := w.ideals[at]
	if i == nil {
		sum, _ := w.sum(at, &limit, now)
		w.ideals[at] = &ideal{tokens: sum, at: now, limit: limit}
		w.changes[at] = r
		return
	}
	i.under += spilled
	w.refill(at, i, now)
	if i.limit != limit {
		i.change(limit)
		w.changes[at] = r
	}
	i.take(now, due)
}

// refill lets an ideal bucket fill up to a time. A shard without the limit is full, and gains nothing. While a change of
// the limit goes on, a shard that does not have it yet fills by the old one.
func (w *witness) refill(at account, i *ideal, now int64) {
	_, changes := w.changes[at]
	for _, s := range w.shards[at.entity] {
		switch l := limitOf(s, at.limit); {
		case l == nil:
			i.under += flow(i.at, now, share(i.limit.RefillAmount, s), i.limit.RefillPeriod)
		case changes && paramsOf(l) != i.limit:
			i.over += flow(i.at, now, share(l.RefillAmount, s), l.RefillPeriod)
			i.under += flow(i.at, now, share(i.limit.RefillAmount, s), i.limit.RefillPeriod)
		}
	}
	i.until(now)
}

// agree reports whether all shards of a bucket have the same parameters of a limit.
func (w *witness) agree(at account, p *bucket.Params) bool {
	for _, s := range w.shards[at.entity] {
		if l := limitOf(s, at.limit); l == nil || paramsOf(l) != *p {
			return false
		}
	}
	return true
}

// inTree reports whether a shard is one that the bucket of an entity has now, or had when it was deleted.
func (w *witness) inTree(entity string, shard int) bool {
	shards := w.shards[entity]
	for shard > 0 {
		from := shards[bucket.Origin(shard)]
		if from != nil && !slices.Contains(bucket.Branches(nil, from.Shard, from.Count()), shard) {
			return false
		}
		shard = bucket.Origin(shard)
	}
	return true
}

// settled ends changes of limits. When all shards have the new one, their balances are known again: a lowered capacity
// cuts each of them to its share.
func (w *witness) settled(present int64) {
	for at, r := range w.changes {
		i, now := w.ideals[at], w.present(at.entity, present)
		if w.agree(at, &i.limit) {
			if sum, least, most := w.bounds(at, i, now); least <= sum && sum <= most {
				*i = ideal{tokens: sum, at: now, limit: i.limit}
			}
			delete(w.changes, at)
		} else if r.completed() {
			i.parted = true
			delete(w.changes, at)
		} else if next := w.after(r, at.entity); next != nil {
			w.blame("in line", "%s: %q leaves shards of %s with other limits of %s, after %q changed some of them and failed",
				w.name(next), next.Op, at.entity, at.limit, r.Op)
			delete(w.changes, at)
		}
	}
}

// after returns an admitted request of an entity that the same actor made after a failed operation; nil for none. That
// operation's part in a change of limits is then complete.
func (w *witness) after(failed *running, entity string) *running {
	if failed == nil || !failed.judged || w.program.Initial.Coalescing {
		return nil
	}
	for _, r := range w.ops {
		if r.actor == failed.actor && r.number > failed.number && r.Kind == Take && len(r.Own) == 0 && r.completed() && r.err == nil &&
			slices.Contains(w.kin.family(r), entity) {
			return r
		}
	}
	return nil
}

// sum returns the balance of a limit over the shards of a bucket, and the refill that they could not hold since
// their stamps.
func (w *witness) sum(at account, p *bucket.Params, now int64) (sum, spilled int64) {
	for number, s := range w.shards[at.entity] {
		if !w.inTree(at.entity, number) {
			continue
		}
		has, more := level(s, p, now)
		sum += has
		spilled += more
	}
	return sum, spilled
}

// compare holds the shards of each bucket against the ideal bucket.
func (w *witness) compare(present int64) {
	for at, i := range w.ideals {
		now := w.present(at.entity, present)
		sum, least, most := w.bounds(at, i, now)
		rule := "lost"
		switch {
		case sum >= least && sum <= most:
			i.parted = i.parted && !w.agree(at, &i.limit)
			continue
		case i.parted:
			rule = "shard by shard"
		case sum > most:
			rule = "minted"
		}
		w.blame(rule, "the %d shards of %s have %d of %s together, the ideal bucket at least %d and at most %d",
			len(w.shards[at.entity]), at.entity, sum, at.limit, least, most)
		w.ideals[at] = &ideal{tokens: sum, at: now, limit: i.limit, parted: !w.agree(at, &i.limit)} // for what else there is to see
	}
}

// present returns a time, or the latest stamp of an entity's shards. That may be ahead: a change of limits moves each stamp.
func (w *witness) present(entity string, now int64) int64 {
	for _, s := range w.shards[entity] {
		now = max(now, s.RefilledAt)
	}
	return now
}

// bounds returns the balance of a limit over the shards of a bucket at a time, and its bounds. An unused allowance
// of the ideal bucket ends now.
func (w *witness) bounds(at account, i *ideal, now int64) (sum, least, most int64) {
	is := *i
	w.refill(at, &is, now)
	sum, spilled := w.sum(at, &is.limit, now)
	if _, changes := w.changes[at]; !changes && !w.agree(at, &is.limit) {
		spilled = 0
	}
	if is.over == i.over && is.under == i.under {
		off := sum + spilled - is.tokens
		i.over, i.under = min(i.over, max(off, 0)), min(i.under, max(-off, 0))
	}
	slack := w.rounding(at.entity)
	return sum, is.tokens - is.under - spilled - slack, is.tokens + is.over + slack
}
