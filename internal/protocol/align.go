package protocol

import (
	"context"
	"errors"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// An aligner brings the shards of a bucket in line with its limits: it writes the present limits to shards that have others.
type aligner struct {
	*core
	items *items
	looks *looks
}

// viewInLine returns the shards of a level, in line with its limits. It reads shards that were not seen.
func (al *aligner) viewInLine(ctx context.Context, l *level, seen recency) (view, error) {
	if err := al.looks.readStale(ctx, []level{*l}, seen); err != nil {
		return view{}, err
	}
	v := al.looks.view(l.bucket, seen)
	if err := v.disabled(l.bucket); err != nil {
		return view{}, err
	}
	if l.bucket.outdates(l.limits) {
		return view{}, errOutdated
	}
	return v, al.bringInLine(ctx, l, &v)
}

// bringInLine brings the shards of a view in line with the limits of a level, by writes that take nothing. It drops a remembered reading
// that shows them out of line, so that the next view does not plan from it.
func (al *aligner) bringInLine(ctx context.Context, l *level, v *view) error {
	if l.inLine(v.states, al.now()) {
		return nil
	}
	l.bucket.reading.Store(nil)
	if err := al.alignAll(ctx, l, v); err != nil {
		al.part(ctx, l, err)
		return err
	}
	if l.limits.Own && !v.isWhole() {
		l.bucket.aligned.Store(&alignment{&l.limits.Config, al.now()})
	}
	return nil
}

// alignFound brings a bucket in line if an applied write of a shard shows other limits than expected. The condition of a write that leaves
// the stamp alone does not include the limits, which may have changed and changed back since the process saw them. The tokens stay taken.
// If the alignment fails, the next request retries it.
func (al *aligner) alignFound(ctx context.Context, l *level, limits *Limits, next *image) {
	if limits.Config.Matches(&next.State) || limits.Own && (next.Count() == 1 || !l.bucket.alignsAll(limits, al.now())) {
		return
	}
	_, err := al.viewInLine(ctx, l, al.looks.seenSince(al.NextEpoch()))
	if err != nil && !errors.Is(err, errOutdated) {
		al.part(ctx, l, err)
	}
}

// alignAll brings the shards of a view in line: in one transaction, or one after another if others write them meanwhile. Shards that are
// still out of line after a round are retried. Aligned shards show their limits to the next writer.
func (al *aligner) alignAll(ctx context.Context, l *level, v *view) error {
	if done, err := al.alignTogether(ctx, l, v); done || err != nil {
		return err
	}
	limits := l.limits
	return al.table.Optimistic(ctx, func() (done bool, err error) {
		done = true
		for at, s := range v.shards {
			i := v.images[at]
			if limits.Config.InLine(&i.State, al.now()) {
				continue
			}
			if limits, err = al.confirm(ctx, l, limits, i); err != nil {
				return false, err
			}
			i, applied, err := al.align(ctx, l, limits, s, i)
			if err != nil {
				return false, err
			}
			v.images[at], v.states[at] = i, &i.State
			done = done && (applied || limits.Config.InLine(&i.State, al.now()))
		}
		return done, nil
	})
}

// An alignment records when this process brought all shards of a bucket in line with limits of its requests, and with which
// limits.
type alignment struct {
	config *bucket.Config
	at     int64 // epoch milliseconds
}

// alignTime is the time after an alignment within which a shard that is out of line again shows that another process has other limits.
const alignTime = time.Second

// alignsAll reports whether a change of limits, found on one shard, is applied to all shards before a request is answered. A shard with the
// former limits would hold tokens, and add refill, beyond the new limits. Processes whose requests specify different limits would undo each
// other's alignments indefinitely. So each of them aligns all shards at most once per alignTime, and otherwise only the shard that it takes
// from.
func (b *Bucket) alignsAll(l *Limits, now int64) bool {
	last := b.aligned.Load()
	return !l.Own || last == nil || !last.config.Equal(&l.Config) || now-last.at >= alignTime.Milliseconds() || now < last.at
}

// alignTogether brings the shards of a split bucket in line in one transaction, and leaves them even. It returns false if no shard needs
// it, if other writers came first, and if others have changed the shards again since. If shards are aligned one by one, each moves its
// stamp. Refill that full shards cannot hold belongs to the others only from the latest stamp, so the bucket would lose tokens that were
// already reported.
func (al *aligner) alignTogether(ctx context.Context, l *level, v *view) (done bool, err error) {
	now, differs := al.now(), false
	for _, i := range v.images {
		if l.limits.Config.InLine(&i.State, now) {
			continue
		}
		differs = true
		if _, err := al.confirm(ctx, l, l.limits, i); err != nil {
			return false, err
		}
	}
	if !differs || v.isWhole() {
		return false, nil
	}
	parts, ok := l.limits.Config.Gather(v.states, &bucket.Demand{Life: l.demand.Life, Settles: l.demand.Settles}, true, now)
	if !ok || len(parts) < len(v.shards) {
		return false, nil
	}
	var nothing levelReceipt
	if done, err = al.writeParts(ctx, l, v, parts, &nothing); !done || err != nil {
		return false, err
	}
	images, err := al.items.readShards(ctx, v.shards)
	if err != nil {
		return false, err
	}
	for at, i := range images {
		if !i.exists {
			return false, errOutdated // the set of shards has changed
		}
		v.images[at], v.states[at] = i, &i.State
	}
	return l.inLine(v.states, al.now()), nil // others may have changed them again
}

// align brings a shard in line with limits by a write that takes nothing. It returns the image that the write left, or the image that made
// its condition fail.
func (al *aligner) align(ctx context.Context, l *level, limits *Limits, s *shard, i *image) (next *image, applied bool, err error) {
	var plan bucket.Plan
	now := al.now()
	if plan.Decide(&i.State, &limits.Config, &bucket.Demand{Life: l.demand.Life, Settles: l.demand.Settles}, now); !plan.Writes() {
		return nil, false, &CrowdedError{s.Entity, s.Resource}
	}
	next, applied, err = al.items.write(ctx, s, &limits.Lineage, i, &plan, now, nil)
	if err == nil && next == nil {
		next, err = al.items.readShard(ctx, s)
	}
	if err != nil {
		return nil, false, err
	}
	if !next.exists || next.Count() != i.Count() {
		return nil, false, errOutdated // the set of shards has changed
	}
	return next, applied, nil
}

// alignParted brings a bucket in line if some of its shards may have former limits. A shard that is in line does not show that.
func (al *aligner) alignParted(ctx context.Context, l *level) error {
	if !l.bucket.parted.Load() { // the usual case
		return nil
	}
	return al.alignPartedOnce(ctx, l)
}

// alignPartedOnce is [aligner.alignParted], unless another goroutine does it.
func (al *aligner) alignPartedOnce(ctx context.Context, l *level) error {
	if !l.bucket.parted.CompareAndSwap(true, false) {
		return nil
	}
	_, err := al.viewInLine(ctx, l, al.looks.seenSince(al.NextEpoch()))
	if err != nil {
		al.part(ctx, l, err)
	}
	return err
}

// part records that some shards of a bucket may have former limits, since an alignment failed. The next request finishes the change before
// it takes tokens. There may be no request for a long time, or all may lose their races, so the process also continues in the background.
// It does so only for stored limits: limits that requests specify may differ between processes, and apply only to these requests.
func (al *aligner) part(ctx context.Context, l *level, failure error) {
	b := l.bucket
	b.parted.Store(true)
	if l.limits.Own || !isPassing(failure) || !b.aligning.CompareAndSwap(false, true) {
		return
	}
	if !al.background.Tend(ctx, func(ctx context.Context) { al.alignOn(ctx, b) }) {
		b.aligning.Store(false)
	}
}

// isPassing reports whether an alignment that failed may succeed later.
func isPassing(err error) bool {
	return isRepeatable(err) || errors.Is(err, errOutdated) || errors.Is(err, context.Canceled)
}

// alignOnTime bounds how long a process retries an alignment in the background. After that time, all processes know of the change.
const alignOnTime = time.Minute

// alignOn brings a bucket in line in the background. It ends when a request or its own try has succeeded, and when the engine is closed.
func (al *aligner) alignOn(ctx context.Context, b *Bucket) {
	ctx, cancel := al.background.whileOpen(ctx)
	defer cancel()
	began := al.sinceStart()
	for rest := leastRest; ; rest = min(2*rest, mostRest) {
		al.rest(ctx, &b.pace, rest/2+time.Duration(al.table.IntN(int(rest)))) // others may try as well
		var err error
		if ctx.Err() == nil && b.parted.Load() && al.background.Begin() {
			err = al.alignStored(ctx, b)
			al.background.End()
		}
		gaveUp := ctx.Err() != nil || err != nil && !isPassing(err) || al.sinceStart()-began >= alignOnTime
		if b.parted.Load() && !gaveUp {
			continue
		}
		if b.aligning.Store(false); gaveUp || !b.parted.Load() || !b.aligning.CompareAndSwap(false, true) {
			return
		}
	}
}

// alignStored brings a bucket in line with its stored limits.
func (al *aligner) alignStored(ctx context.Context, b *Bucket) error {
	ctx, cancel := context.WithTimeout(ctx, al.options.SettleLimit)
	defer cancel()
	began := al.NextEpoch()
	limits, err := al.options.Source.After(ctx, b, began)
	switch {
	case err != nil:
		return err
	case limits.Config.IsEmpty():
		return &NoLimitsError{Entity: b.Entity, Resource: b.Resource}
	case limits.Disabled:
		return &DisabledError{b.Entity, b.Resource}
	}
	return al.alignParted(ctx, &level{bucket: b, limits: limits, demand: bucket.Demand{Life: al.life(began)}, began: began})
}
