package zlimit

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
)

// In a fleet each process meets each bucket seldom. It would read the entity's levels with nearly each request: three
// items, mostly missing. So the first item of a bucket repeats the levels read by one process, and the time of the
// read. A process that meets the bucket reads the item alone, and uses its levels for as long as its own memory.
// The limits of the resource and of the system are few, and each process reads those itself.

// isShared reports whether the level is one for many entities. Items of buckets do not repeat it.
func (c configRef) isShared() bool { return c.source == SourceSystem || c.source == SourceResource }

// repeat returns the levels for the bucket to repeat: nil if nothing is gained, or a level came from an item itself.
func (c *limitCache) repeat(configs []configRef, levels []*cachedLevel) *protocol.Repeat {
	if !c.l.table.Partitioned() { // reads cost nothing
		return nil
	}
	var all layout.EntityLevels
	readAt := levels[0].readAt
	for i, v := range levels {
		switch source := configs[i].source; {
		case configs[i].isShared():
			continue
		case v.learned || v.refused != nil:
			return nil
		case source == SourceEntity:
			all.Resource = v.copied()
		case source == SourceEntityDefault:
			all.Default = v.copied()
		default:
			all.Cascade, all.Parent, all.Moved, all.Of = v.lineage.Cascade, v.lineage.Parent, v.lineage.Generation, v.lineage.Incarnation
		}
		if v.readAt.Before(readAt) {
			readAt = v.readAt
		}
	}
	repeated, err := all.Repeat(readAt.UnixMilli())
	if err != nil {
		return nil
	}
	fresh := c.l.options.configTTL - c.l.options.renewal()
	return &protocol.Repeat{Repeated: *repeated, Until: readAt.Add(fresh).UnixMilli()}
}

// copied returns the level as items of buckets repeat it, nil for one that says nothing.
func (v *cachedLevel) copied() *layout.LevelCopy {
	if v.version == 0 && len(v.Limits) == 0 && v.OnUnavailable == PolicyInherit && v.toggle == SwitchInherit && v.Cascade == CascadeInherit {
		return nil
	}
	made := &layout.LevelCopy{Version: v.version}
	if v.OnUnavailable != PolicyInherit {
		made.OnUnavailable = v.OnUnavailable.String()
	}
	if v.toggle != SwitchInherit {
		disabled := v.toggle == SwitchDisabled
		made.Disabled, made.Bypass = &disabled, v.toggle == SwitchBypassed
	}
	if v.Cascade != CascadeInherit {
		charges := v.Cascade == CascadeAlways
		made.Cascade = &charges
	}
	for _, l := range v.Limits {
		stored, zone := toStored(l)
		made.Limits, made.Zone = append(made.Limits, stored), cmp.Or(made.Zone, zone)
	}
	return made
}

// decodeCopy returns the level that an item repeats.
func (c configRef) decodeCopy(all *layout.EntityLevels) (*cachedLevel, error) {
	var made *layout.LevelCopy
	switch c.source {
	case sourceRecord:
		lineage := layout.Lineage{Cascade: all.Cascade, Parent: all.Parent, Generation: all.Moved, Incarnation: all.Of}
		return &cachedLevel{lineage: lineage, learned: true}, nil
	case SourceEntity:
		made = all.Resource
	default:
		made = all.Default
	}
	if made == nil {
		return &cachedLevel{learned: true}, nil
	}
	item, err := c.open(nil)
	if err != nil {
		return nil, err
	}
	*item.version, *item.policy, *item.zone = made.Version, made.OnUnavailable, made.Zone
	item.setLimits(made.Limits)
	if made.Disabled != nil {
		*item.toggle = expr.Bool(*made.Disabled)
		if made.Bypass {
			*item.toggle = SwitchBypassed.value()
		}
	}
	if made.Cascade != nil {
		*item.cascade = expr.Bool(*made.Cascade)
	}
	config, err := item.config()
	return &cachedLevel{Config: config, toggle: item.switched(), version: made.Version, learned: true}, err
}

// learn takes the due levels of the entity from the item of its bucket, which repeats them. It notes whether the
// repetition is recent, so that the item alone would have done. Other levels are read from the store.
func (rd *levelReading) learn(ctx context.Context, item expr.Item) {
	all, readAt := layout.RepeatedBy(item)
	recent := all != nil
	for i := 0; i < len(rd.configs) && recent; i++ {
		if rd.configs[i].isShared() {
			continue
		}
		copied, err := rd.configs[i].decodeCopy(all)
		if err != nil {
			recent = false
			break
		}
		copied.readAt = rd.knownSince(readAt)
		if recent = !rd.isDue(copied, rd.now); recent && rd.isDue(rd.levels[i], rd.now) {
			rd.keep(ctx, i, copied)
		}
	}
	rd.repeats.note(recent)
}

// knownSince returns the latest time of another process's read of levels, in epoch milliseconds, given the time by that
// process's clock. It is the zero time for levels that may have been read before a change by this process.
func (c *limitCache) knownSince(readAt int64) time.Time {
	at := time.UnixMilli(readAt).Add(-c.l.options.maxLead())
	if at.UnixNano() <= c.l.changedAt.Load() {
		return time.Time{}
	}
	return at
}

// changed notes that stored limits were changed through this limiter, or are to be read again.
func (l *RateLimiter) changed() {
	l.changedAt.Store(l.now().UnixNano())
	l.generation.Add(1)
}

// A repeatLuck records whether the items of buckets mostly repeated the levels that a process recently had to read.
// Reading an item first without success costs a request one more round trip. It is safe for concurrent use.
type repeatLuck struct{ score atomic.Int32 }

// mostLuck bounds the memory: the majority of the last reads or so decides.
const mostLuck = 8

func (r *repeatLuck) note(repeated bool) {
	for {
		score := r.score.Load()
		next := max(score-1, -mostLuck)
		if repeated {
			next = min(score+1, mostLuck)
		}
		if r.score.CompareAndSwap(score, next) {
			return
		}
	}
}

func (r *repeatLuck) expected() bool { return r.score.Load() > 0 }
