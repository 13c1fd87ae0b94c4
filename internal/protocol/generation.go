package protocol

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
)

// An operator's change takes effect immediately if the items of a bucket are marked with a generation after the change was stored. Every
// write requires the generation of the image that it was planned from. A process that finds a later generation first reads the stored
// limits consistently. So it then plans with limits that were read after the change.

// A generation is the latest one that this process has seen in the items of a bucket.
type generation struct {
	at   int64      // the value of the stamp, epoch milliseconds
	seen int64      // epoch when it was first seen
	move parentMove // the latest move of the entity that was seen
}

// A parentMove is a move of an entity to another parent, which the items of its buckets show. Moves by this module also stamp the items.
type parentMove struct {
	generation int64 // the generation of the parent
	seen       int64 // epoch when it was first seen
}

// readAfter is the age from which a generation needs no second read, milliseconds. Limits that were read so much later show the change,
// whatever the difference between the clocks of operator and reader.
const readAfter = 10_000

// meet notes the generation that an image shows.
func (b *Bucket) meet(i *image) {
	if i.Generation() == 0 && i.Moved() == 0 {
		return
	}
	for {
		last := b.generation.Load()
		var next generation
		if last != nil {
			next = *last
		}
		if i.Generation() > next.at {
			next.at, next.seen = i.Generation(), i.arrived
		}
		if i.Moved() > next.move.generation {
			next.move = parentMove{i.Moved(), i.arrived}
		}
		if last != nil && next == *last {
			return
		}
		if latest := next; b.generation.CompareAndSwap(last, &latest) {
			return
		}
	}
}

// outdates reports whether limits may have been read before an operator's last change of a bucket.
func (b *Bucket) outdates(l *Limits) bool {
	last := b.generation.Load()
	return last != nil && (last.at > 0 && l.Epoch <= last.seen && l.ReadAt < last.at+readAfter || last.move.outdates(l))
}

// outdates reports whether limits may have been read before a move. If another program has created the entity again, the record may be
// older than the move that an item shows.
func (m *parentMove) outdates(l *Limits) bool {
	return l.Lineage.Generation < m.generation && l.Epoch <= m.seen
}

// since returns the epoch after which limits must be read to show the change and the move.
func (g *generation) since() int64 { return max(g.seen, g.move.seen) }

// storedLimits returns the stored limits of a bucket, after the last change by an operator. It returns a [*DisabledError] if requests are
// rejected, see also [hooks.Look]. If an image shows that, no limits are needed.
func (fs *families) storedLimits(ctx context.Context, b *Bucket, began int64) (*Limits, error) {
	if hooks.Looks(ctx) {
		return fs.options.Source.After(ctx, b, began)
	}
	if err := fs.looks.isDisabled(ctx, b, began); err != nil {
		return nil, err
	}
	limits, err := fs.options.Source.For(ctx, b)
	if err == nil && b.outdates(limits) {
		if err := fs.looks.isDisabled(ctx, b, began); err != nil { // the image may have arrived with the limits
			return nil, err
		}
		limits, err = fs.options.Source.After(ctx, b, b.generation.Load().since())
	}
	if err == nil && limits.Disabled {
		err = &DisabledError{b.Entity, b.Resource}
	}
	return limits, err
}

// disabledFor is the age up to which an image proves that requests are rejected, unless this process has ended a switch since.
// After that time, the next request looks, so each process notices an enabled bucket with one read a second.
const disabledFor = time.Second

// unlessDisabled returns an image of a shard that is not disabled: the given one, or a later one. It returns a [*DisabledError] if the
// shard is disabled, and if the store does not answer whether it still is.
func (lk *looks) unlessDisabled(ctx context.Context, s *shard, i *image, began int64) (*image, error) {
	if i == nil || !i.Disabled {
		return i, nil
	}
	age, enabled := lk.now()-i.askedAt, !i.since(lk.enabled.Load())
	if !i.since(began) && (i.asked == 0 || enabled || age < 0 || age >= disabledFor.Milliseconds()) {
		next, err := lk.lookSince(ctx, s, began)
		switch {
		case err != nil && !isOutage(err):
			return nil, err
		case err == nil && (!next.exists || !next.Disabled):
			return next, nil
		}
	}
	return nil, &DisabledError{s.Entity, s.Resource}
}

// isDisabled returns a [*DisabledError] if the first shard of a bucket is disabled.
func (lk *looks) isDisabled(ctx context.Context, b *Bucket, began int64) error {
	first := b.first.image.Load()
	if first == nil || !first.Disabled { // the usual case
		return nil
	}
	_, err := lk.unlessDisabled(ctx, b.first, first, began)
	return err
}

// refusesAny returns a [*DisabledError] if one of several levels is disabled, so that nothing is taken from the others.
func (lk *looks) refusesAny(ctx context.Context, levels []level) error {
	for i := range levels {
		if err := lk.isDisabled(ctx, levels[i].bucket, levels[i].began); err != nil {
			return err
		}
	}
	return nil
}

// disabled returns a [*DisabledError] if one of the shards of a view is disabled.
func (v *view) disabled(b *Bucket) error {
	for _, s := range v.states {
		if s.Disabled {
			return &DisabledError{b.Entity, b.Resource}
		}
	}
	return nil
}
