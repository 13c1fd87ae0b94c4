package zlimit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Switch decides whether requests of a level are served. The first level with a switch decides, in the order of
// [Source]: the entity for the resource, the entity, the resource.
type Switch string

// The values of a [Switch].
const (
	SwitchInherit  Switch = ""         // the next level decides; requests are served if none does
	SwitchEnabled  Switch = "enabled"  // requests are served, even if the next level refuses them
	SwitchDisabled Switch = "disabled" // requests are refused
	SwitchBypassed Switch = "bypass"   // requests are served and counted, and no limit refuses them
)

func (w Switch) value() expr.Value {
	switch w {
	case SwitchInherit:
		return expr.Value{}
	case SwitchBypassed:
		return expr.S(layout.Bypass)
	default:
		return expr.Bool(w == SwitchDisabled)
	}
}

// switchValue returns the value of the item's switch.
func (i *configItem) switchValue() expr.Value {
	if i.toggle == nil {
		return expr.Value{}
	}
	return *i.toggle
}

// switched returns the item's switch. An unknown text counts as enabled, as other programs have it.
func (i *configItem) switched() Switch {
	switch toggle := i.switchValue(); {
	case toggle.Kind() == expr.KindNone:
		return SwitchInherit
	case toggle.True():
		return SwitchDisabled
	case toggle.Kind() == expr.KindS && toggle.Text() == layout.Bypass:
		return SwitchBypassed
	default:
		return SwitchEnabled
	}
}

// A seenLevel is what a level says besides its limits, as it was read.
type seenLevel struct {
	version         int64
	toggle, cascade expr.Value // its switch, and whether parents are charged
}

// seen returns what the item says now.
func (i *configItem) seen() (seen seenLevel) {
	seen.version, seen.toggle = *i.version, i.switchValue()
	if i.cascade != nil {
		seen.cascade = *i.cascade
	}
	return seen
}

// unchanged returns the condition that the item is as it was read: of a write that replaces or deletes it. It compares the switch and the
// cascade besides the version, since other programs change these two and leave the version. The level of the system has neither, and a
// condition of its own.
func (i *configItem) unchanged(call interface {
	Unswitched()
	Switched(to expr.Value)
	Unruled()
	Ruled(to expr.Value)
	Bind() (expr.Bound, error)
}, system func(version int64) (expr.Bound, error), seen seenLevel,
) (expr.Bound, error) {
	if i.toggle == nil {
		return system(seen.version)
	}
	if seen.toggle.Kind() == expr.KindNone {
		call.Unswitched()
	} else {
		call.Switched(seen.toggle)
	}
	if seen.cascade.Kind() == expr.KindNone {
		call.Unruled()
	} else {
		call.Ruled(seen.cascade)
	}
	return call.Bind()
}

// deciding returns the index of the level that says whether requests are served, the first one that does, and its switch. If none does
// it returns [SwitchInherit].
func deciding(levels []*cachedLevel) (at int, toggle Switch) {
	at = slices.IndexFunc(levels, func(v *cachedLevel) bool { return v.toggle != SwitchInherit })
	if at < 0 {
		return at, SwitchInherit
	}
	return at, levels[at].toggle
}

// A SwitchReport is the progress of a change that takes effect immediately: a switch, or a move of an entity.
type SwitchReport struct {
	// Buckets is the number of items of buckets for which the change is in effect in every process: this call or an
	// earlier one has marked them.
	Buckets int `json:"buckets"`
	// Everywhere is when the change is in effect for all buckets, even for buckets that a process with the former config creates meanwhile.
	Everywhere time.Time `json:"everywhere"`
}

// Disable rejects all requests at a level with [ErrDisabled]: of an entity, of a resource, or of an entity for a
// resource. Requests of the children of a disabled entity are rejected, too, if they are charged to it. Leases that
// were admitted before are settled.
//
// The level stores the switch, and its limits do not change. Then the buckets are marked, so that the next write of
// any process fails, and no process waits for its [WithConfigTTL]. A process writes nothing for requests that it knows
// to be rejected. It checks once a second whether they still are.
//
// The call may be repeated, and resumes where it was interrupted: it marks the items that are not marked yet.
// [LimitService.Enable] and [LimitService.Bypass] mark all again. After each item it calls progress, one call at a
// time, unless that is nil. An audit event records who disabled the level, see [AuditService].
//
// The call costs a change of the level, as [LimitService.Set] does. Each item of a bucket costs a write unit, and reads
// of the levels of its entity. On DynamoDB the buckets of a resource are found by a consistent scan of the whole table:
// twice the reads that [NamespaceService.PurgeCost] reports. The buckets of an entity are found in an index.
func (s *LimitService) Disable(ctx context.Context, at Level, progress func(SwitchReport)) (SwitchReport, error) {
	return s.setSwitch(ctx, at, SwitchDisabled, progress)
}

// Enable checks requests at a level against its limits again, even if a wider level rejects them. Otherwise it works like
// [LimitService.Disable]. [LimitService.LeaveSwitch] leaves the decision to the wider level.
func (s *LimitService) Enable(ctx context.Context, at Level, progress func(SwitchReport)) (SwitchReport, error) {
	return s.setSwitch(ctx, at, SwitchEnabled, progress)
}

// Bypass admits all requests at a level, whatever its balances: of an entity, of a resource, or of an entity for a
// resource. Requests are counted but take nothing from the balance. They are admitted even if a wider level is
// disabled. Slots are still acquired, since a lock that can be bypassed protects nothing. Parents that the requests are
// charged to follow their own levels. Otherwise it works like [LimitService.Disable].
//
// The first level of this kind raises the version that the table requires of clients to 0.17.0, see [LimitService].
func (s *LimitService) Bypass(ctx context.Context, at Level, progress func(SwitchReport)) (SwitchReport, error) {
	return s.setSwitch(ctx, at, SwitchBypassed, progress)
}

// LeaveSwitch leaves the decision about requests at a level to the next wider level. Otherwise it works like [LimitService.Disable].
func (s *LimitService) LeaveSwitch(ctx context.Context, at Level, progress func(SwitchReport)) (SwitchReport, error) {
	return s.setSwitch(ctx, at, SwitchInherit, progress)
}

// setSwitch stores a switch, and marks the buckets that it may be about.
func (s *LimitService) setSwitch(ctx context.Context, at Level, to Switch, progress func(SwitchReport)) (SwitchReport, error) {
	if at == (Level{}) {
		return SwitchReport{}, &ValidationError{Field: "level", Value: at.String(), Reason: "must name an entity, a resource or both"}
	}
	if err := at.validate(); err != nil {
		return SwitchReport{}, err
	}
	if hooks.Restamps(ctx) {
		return s.bind(ctx, at, false, progress)
	}
	_, err := s.rewrite(ctx, at, nil, func(i *configItem, by author) (*cachedLevel, []store.Write, error) {
		config, err := i.config()
		if err != nil {
			return nil, nil, err
		}
		if i.switched() == to {
			return &cachedLevel{Config: config, toggle: to, version: *i.version}, nil, nil
		}
		return i.becomeSwitched(config, to.value(), nil, by)
	})
	if err != nil || hooks.Admits(ctx) {
		return SwitchReport{}, err
	}
	return s.bind(ctx, at, to == SwitchDisabled, progress)
}

// bind makes what is stored for a level take effect immediately, with a mark on each of its buckets: attribute cg, a generation that
// the condition of every write compares.
func (s *LimitService) bind(ctx context.Context, at Level, disables bool, progress func(SwitchReport)) (SwitchReport, error) {
	o := s.l.options
	report := SwitchReport{Everywhere: s.l.now().Add(o.configTTL + o.callTimeout + o.maxLead())}
	err := s.markAll(ctx, at, disables, func() {
		report.Buckets++
		if progress != nil {
			progress(report)
		}
	})
	if !disables {
		s.l.engine.Enabled()
	}
	return report, publicError("mark buckets", err)
}

// marksAtOnce is the number of buckets that are marked in parallel. Each mark reads the level again, whose key
// sustains 3,000 reads a second. A scan of one segment would go through the partitions of a table one after another,
// and a partition sustains 1,000 marks a second. So the segments are scanned in parallel, once the first page has not
// shown all of them.
const (
	marksAtOnce = 16
	segments    = 16
)

// markAll marks the buckets of a level, and calls a function after each item, one call at a time. With disables it skips items that are
// marked as disabled already. It then marks the shards that split off during the walk.
func (s *LimitService) markAll(ctx context.Context, at Level, disables bool, marked func()) error {
	if at.Source() == SourceEntity {
		return s.markShards(ctx, layout.BucketKey{NS: s.l.ns.id(), Entity: at.Entity, Resource: at.Resource}, marked)
	}
	var mu sync.Mutex
	shardsOf := markedShards{}
	err := s.walk(ctx, at, func(ctx context.Context, k layout.BucketKey, item expr.Item) error {
		shards, err := 1, error(nil)
		if !disables || !item.Get(layout.AttrBucketDisabled).True() {
			shards, err = s.mark(ctx, k, false)
		}
		if err == nil && shards > 0 {
			mu.Lock()
			defer mu.Unlock()
			marked()
			shardsOf.add(k, shards)
		}
		return err
	})
	for err == nil {
		k, some := shardsOf.missed()
		if !some {
			break
		}
		shards, failed := s.mark(ctx, k, false)
		if failed == nil && shards > 0 {
			marked()
		}
		shardsOf.add(k, shards)
		err = failed
	}
	return err
}

// A markedShards notes which shards of divided buckets a walk has marked. A shard that is true is marked. One that is
// false is yet to be marked: the walk has not listed it, and only the count of shards in its origin shows that it has split off.
type markedShards map[layout.BucketKey]bool

// add notes a shard that was marked, and its origin's count of shards.
func (d markedShards) add(k layout.BucketKey, shards int) {
	if k.Shard == 0 && shards == 1 {
		return
	}
	d[k] = true
	for _, number := range bucket.Branches(nil, k.Shard, shards) {
		k.Shard = number
		if _, known := d[k]; !known {
			d[k] = false
		}
	}
}

// missed returns a shard that was not marked.
func (d markedShards) missed() (k layout.BucketKey, some bool) {
	for k, marked := range d {
		if !marked {
			return k, true
		}
	}
	return k, false
}

// walk calls a function for each item of a level's buckets, several concurrently. The item is in its state after the
// call of walk, or has its keys alone.
func (s *LimitService) walk(ctx context.Context, at Level, each func(context.Context, layout.BucketKey, expr.Item) error) error {
	ns := s.l.ns.id()
	calls, ctx := errgroup.WithContext(ctx)
	reads, reading := errgroup.WithContext(ctx)
	pages := func(read func(context.Context, store.Cursor) (store.Page, error)) error {
		for from := store.Cursor(nil); ; {
			page, err := patiently(reading, s.l, func(ctx context.Context) (store.Page, error) { return read(ctx, from) })
			if err != nil {
				return err
			}
			for _, item := range page.Items {
				k, ok := layout.ParseBucketKey(store.KeyOf(item))
				if ok && k.NS == ns && (at.Entity == "" || k.Entity == at.Entity) && (at.Resource == "" || k.Resource == at.Resource) {
					calls.Go(func() error { return each(ctx, k, item) })
				}
			}
			if from = page.Next; from == nil {
				return nil
			}
		}
	}
	calls.SetLimit(marksAtOnce)
	if scanner, ok := s.l.store.(store.Scanner); ok && at.Entity == "" && s.l.table.Partitioned() {
		all, err := patiently(ctx, s.l, func(ctx context.Context) (store.Page, error) {
			return scanner.Scan(ctx, store.Scan{Prefix: ns + "/", Consistent: true})
		})
		if err != nil {
			return cmp.Or(calls.Wait(), err)
		}
		parts := segments
		if all.Next == nil { // a table of one page has no use for segments, each of which costs a read
			parts = 1
		}
		for i := range parts {
			reads.Go(func() error {
				return pages(func(ctx context.Context, from store.Cursor) (store.Page, error) {
					if parts == 1 {
						return all, nil
					}
					return scanner.Scan(ctx, store.Scan{Prefix: ns + "/", Segment: i, Segments: segments, Consistent: true, Continue: from})
				})
			})
		}
	} else {
		q := layout.QueryBucketsOfEntity(ns, at.Entity, "")
		if at.Entity == "" {
			q = layout.QueryBucketsOfResource(ns, at.Resource, "")
		}
		reads.Go(func() error {
			return pages(func(ctx context.Context, from store.Cursor) (store.Page, error) {
				q.Continue = from
				return s.l.store.Query(ctx, q)
			})
		})
	}
	err := reads.Wait()
	return cmp.Or(calls.Wait(), err)
}

// patiently makes a call that reads a page, again while the store is away for a moment.
func patiently(ctx context.Context, l *RateLimiter, read func(context.Context) (store.Page, error)) (page store.Page, err error) {
	err = l.table.Patiently(ctx, func(ctx context.Context) (err error) {
		page, err = read(ctx)
		return err
	})
	return page, err
}

// markShards marks the shards of one bucket. A shard is marked before the shards split off from it are listed: one
// that splits off later copies the mark.
func (s *LimitService) markShards(ctx context.Context, k layout.BucketKey, marked func()) error {
	numbers := []int{0}
	for i := 0; i < len(numbers); i++ {
		k.Shard = numbers[i]
		shards, err := s.mark(ctx, k, i == 0)
		if err != nil {
			return err
		}
		if shards == 0 {
			continue
		}
		marked()
		numbers = bucket.Branches(numbers, k.Shard, shards)
	}
	return nil
}

// mark marks an item of a bucket by the limits stored by now, and returns the number of shards in it: 0 where there
// is no item. Where asked to, it makes the item of a bucket whose requests are refused, so that no process with the
// former config makes one.
func (s *LimitService) mark(ctx context.Context, k layout.BucketKey, makes bool) (shards int, err error) {
	var last bucket.State // the item, as the last write has shown it
	former := ""          // entity of which it copies the parent
	err = s.l.table.Optimistic(ctx, func() (bool, error) {
		now := s.l.now().UnixMilli()
		at := max(now, last.Generation()+1)
		toggle, lineage, err := s.decision(ctx, k)
		if err != nil {
			return false, err
		}
		refuses := toggle == SwitchDisabled
		call := layout.Mark(at)
		switch toggle {
		case SwitchDisabled:
			pk, sk := k.NamespaceIndex()
			call.Disable(true, pk, sk)
		case SwitchBypassed:
			call.Excuse(now + s.l.options.markTime().Milliseconds())
		default:
			call.Enable()
		}
		own(call, lineage, &last, former)
		w := store.Write{Kind: store.Update, Key: k.Key()}
		if w.Expr, err = call.Bind(); err != nil {
			return false, err
		}
		result, err := s.l.table.PatientWrite(ctx, w)
		if err != nil {
			return false, err
		}
		if result.Item == nil && !result.Applied {
			if !makes || !refuses {
				return true, nil
			}
			var plan bucket.Plan
			plan.Create(&bucket.Config{}, &bucket.Demand{}, 0, 1, now)
			plan.Item.Disabled = true
			plan.Item.Change(func(n *bucket.Notes) { n.Generation = at })
			if w, err = k.Write(&plan, lineage); err != nil {
				return false, err
			}
			result, err = s.l.table.PatientWrite(ctx, w)
			shards = 1
			return result.Applied, err
		}
		item, state, err := layout.ReadBucket(result.Item)
		if layout.Readable(err) != nil {
			return false, err
		}
		shards, last, former = state.Count(), state, item.Incarnation
		return result.Applied, nil
	})
	return shards, err
}

// own makes a mark copy the parent of an entity, and whether it is charged, for programs that use the copy. A later
// move that the item, as last seen, shows is kept. Nothing of a former entity is kept.
func own(call layout.MarkCall, o layout.Lineage, last *bucket.State, former string) {
	switch {
	case o.Generation == 0:
		if o.Parent == "" || last.Moved() != 0 {
			return
		}
		call.Charge(o.Charges(), 0)
	case last.Moved() <= o.Generation:
		call.Own(o.Charges(), o.Generation, o.Incarnation)
	case former != o.Incarnation:
		call.Inherit(o.Charges(), o.Generation, o.Incarnation, former)
	default:
		return
	}
	if o.Parent == "" {
		call.Alone()
	} else {
		call.Under(o.Parent)
	}
}

// decision reads which switch holds for a bucket, and the entity's lineage.
func (s *LimitService) decision(ctx context.Context, k layout.BucketKey) (toggle Switch, lineage layout.Lineage, err error) {
	refs := s.l.ns.levelsOf(k.Entity, k.Resource)
	keys := make([]store.Key, len(refs))
	for i := range refs {
		keys[i] = refs[i].key
	}
	var items []expr.Item
	err = s.l.table.Patiently(ctx, func(ctx context.Context) (err error) {
		items, err = s.l.table.Read(ctx, keys...)
		return err
	})
	if err != nil {
		return SwitchInherit, lineage, err
	}
	levels := make([]*cachedLevel, len(refs))
	for i := range refs {
		if levels[i], err = refs[i].decode(items[i]); err != nil {
			return SwitchInherit, lineage, err
		}
	}
	_, toggle = deciding(levels)
	lineage, _ = charging(levels)
	return toggle, lineage, nil
}
