package zlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A LimitService keeps the stored limits of a namespace, at four levels. The first level with limits applies to a request as a whole, in
// this order: the entity's level for the resource, the entity's default, the resource's level, the system's; see [Level]. A change reaches
// every process within its [WithConfigTTL], and the process that makes it immediately. It is safe for concurrent use.
//
// Limits are validated before any call: periods are whole seconds, and a level has at most 16 limits. Reading a level costs one consistent
// read. Writing one costs a read and a transaction, conditional on the level as read, of the level, an audit event, and a registry if a
// level comes or goes. A lost race costs both again. Each of the two or three items costs two write units per KB. The indexes cost one for
// the event, two more for a new level of an entity, and one for another new level. Deleting a level that does not exist costs the read.
//
// Older programs do not obey windows of limits and wider resources. The first level with one raises the version required of clients: the
// table then refuses older ones when they start. Once per process, that costs a read, and a write unit if the version changes.
type LimitService struct{ l *RateLimiter }

// Resolved are the limits that apply to an entity and a resource.
type Resolved struct {
	Limits []Limit `json:"limits"`
	Source Source  `json:"source"` // the level that they come from; "" when there are none
	// OnUnavailable is the failure policy that is stored for them; PolicyInherit if no level has one.
	OnUnavailable FailurePolicy `json:"on_unavailable"`
	// DisabledBy is the level that rejects requests, whatever the limits, see [LimitService.Disable]; "" if they are served.
	DisabledBy Source `json:"disabled_by,omitempty"`
	// BypassedBy is the level at which requests are only counted, see [LimitService.Bypass]; "" if limits apply.
	BypassedBy Source `json:"bypassed_by,omitempty"`
	// Cascade is the policy stored for them, see [Config.Cascade]; CascadeInherit if [Entity.Cascade] decides.
	Cascade CascadePolicy `json:"cascade,omitempty"`
}

// Get returns the stored config of a level, an empty one if there is none. A level with limits that this version does
// not support is an [*UnsupportedError].
func (s *LimitService) Get(ctx context.Context, at Level) (Config, error) {
	found, err := s.read(ctx, at)
	if err != nil {
		return Config{}, err
	}
	return found[0].Config, found[0].refused()
}

// Set replaces the whole config of a level, except [Config.Within] and [Config.Cascade]. A config without them keeps the stored ones, so a
// change of limits does not remove a budget over several resources. [LimitService.Update] changes a part, and [ResourceService.Put] takes
// both from a resource.
func (s *LimitService) Set(ctx context.Context, at Level, config Config) error {
	if err := at.validate(); err != nil {
		return err
	}
	if config.IsZero() {
		return nothingGiven("limits")
	}
	if err := config.check(at, "limits"); err != nil {
		return err
	}
	if err := cmp.Or(s.checkFleet(config.Within), s.checkSlots(config.Limits)); err != nil {
		return err
	}
	_, err := s.rewrite(ctx, at, nil, func(i *configItem, by author) (*cachedLevel, []store.Write, error) {
		next := config
		next.Cascade = cmp.Or(config.Cascade, i.cascades())
		if next.Within = cmp.Or(config.Within, i.widerOf()); next.Within != i.widerOf() {
			if err := s.admitWider(ctx, at.Resource, next.Within); err != nil {
				return nil, nil, err
			}
		}
		return i.become(next, nil, by)
	})
	return err
}

// Update changes the config of a level: change gets the stored config, or an empty one, and edits it. No concurrent
// change is lost: Update writes on the condition that the level is unchanged since it was read, and otherwise reads the
// level and calls change again. After 64 lost races it returns [ErrContended].
//
// If change returns an error, Update returns that error and writes nothing. A config that ends up empty deletes the
// level. The change function must not use the config after it has returned.
func (s *LimitService) Update(ctx context.Context, at Level, change func(*Config) error) error {
	if err := at.validate(); err != nil {
		return err
	}
	if change == nil {
		return &ValidationError{Field: "change", Value: "nil", Reason: "must not be nil"}
	}
	var refused error
	_, err := s.rewrite(ctx, at, nil, func(i *configItem, by author) (*cachedLevel, []store.Write, error) {
		config, err := i.config()
		if err != nil {
			return nil, nil, err
		}
		if refused = change(&config); refused != nil {
			return nil, nil, refused
		}
		if err := cmp.Or(config.check(at, "limits"), s.checkSlots(config.Limits)); err != nil {
			return nil, nil, err
		}
		if config.Within != i.widerOf() {
			if err := s.admitWider(ctx, at.Resource, config.Within); err != nil {
				return nil, nil, err
			}
		}
		return i.become(config, nil, by)
	})
	if refused != nil {
		return refused
	}
	return err
}

// Delete deletes the config of a level, if there is any, except [Config.Within] and [Config.Cascade], which [LimitService.Update] changes.
// Delete does not check whether other resources lie within the level's resource: their requests that name its limits then fail with a
// [*ValidationError], unless another level has such limits.
func (s *LimitService) Delete(ctx context.Context, at Level) error {
	if err := at.validate(); err != nil {
		return err
	}
	_, err := s.rewrite(ctx, at, nil, func(i *configItem, by author) (*cachedLevel, []store.Write, error) {
		return i.become(Config{Within: i.widerOf(), Cascade: i.cascades()}, nil, by)
	})
	return err
}

// Resolve returns the limits that apply to an entity and a resource, from memory while they are fresh. It returns [ErrNoLimits] if no level
// of the entity has any, even if its parents or a wider resource have some: see [RateLimiter.Available]. Resolved.OnUnavailable and
// Resolved.DisabledBy are set then, too.
func (s *LimitService) Resolve(ctx context.Context, entity, resource string) (Resolved, error) {
	r := Request{Entity: entity, Resource: resource}
	if err := s.l.check(r.validateNames()); err != nil {
		return Resolved{}, err
	}
	limits, err := s.l.cache.For(ctx, s.l.engine.Memory.Bucket(entity, resource))
	if err != nil {
		return Resolved{}, publicError("resolve limits", err)
	}
	found := limits.Detail.(*resolved)
	all := Resolved{slices.Clone(found.limits), found.source, found.policy, found.disabledBy, found.bypassedBy, found.cascade}
	if len(all.Limits) == 0 {
		return all, noLimits(entity, resource)
	}
	return all, nil
}

// Invalidate forgets the limits in memory for an entity and a resource, and the limits of the resource and of the
// system. The next request of that bucket reads them again.
func (s *LimitService) Invalidate(entity, resource string) {
	s.l.changed() // before, so that a read under way is not remembered
	for _, c := range s.l.ns.levelsOf(entity, resource) {
		s.l.configs.Invalidate(c.key)
	}
}

// InvalidateAll forgets all stored limits that are in memory: the next request of each bucket reads them again.
func (s *LimitService) InvalidateAll() {
	s.l.changed() // before, so that a read under way is not remembered
	s.l.configs.InvalidateAll()
}

// CacheStats returns the counts of the cache of stored limits.
func (s *LimitService) CacheStats() CacheStats {
	return CacheStats{
		Hits:    s.l.stats.hits.Load(),
		Misses:  s.l.stats.misses.Load(),
		Stale:   s.l.stats.stale.Load(),
		Entries: s.l.configs.EstimatedSize(),

		StaleSeconds: time.Duration(s.l.stats.staleAge.Load()).Seconds(),
	}
}

// A configItem is the item of one level, whichever it is, as it was read to be changed.
type configItem struct {
	configRef
	item     expr.Item // as it is stored; nil for a level without config
	limits   *[]bucket.StoredLimit
	sessions *[]bucket.StoredLimit // limits with sessions, which are apart
	version  *int64
	declared *int64 // the version that Apply wrote last; nil if it does not write
	managed  *int64 // the version that a file of limits wrote last
	policy   *string
	zone     *string
	toggle   *expr.Value // whether requests are served; nil where the level cannot say it
	cascade  *expr.Value // whether parents are charged; nil where the level cannot say it
	within   *string     // the wider resource; nil where the level is none of a resource
	days     *int64      // that audit events are kept; nil where the level does not say
	encode   func() expr.Item
	refused  *layout.RefusedError // what other programs limit by here, and this one does not; nil for nothing
}

// open returns the item of a level for reading and changing; nil stands for a level without config. With a
// [*layout.RefusedError] comes the item for reading alone.
func (c configRef) open(item expr.Item) (i *configItem, err error) {
	i = &configItem{configRef: c, item: item}
	switch c.source {
	case SourceSystem:
		system := layout.SystemConfig{Key: layout.SystemConfigKey{NS: c.ns}}
		if item != nil {
			system, err = layout.DecodeSystemConfig(item)
		}
		i.limits, i.sessions = &system.Limits, &system.Sessions
		i.version, i.managed = &system.ConfigVersion, &system.ManagedVersion
		i.policy, i.zone, i.days, i.encode = &system.OnUnavailable, &system.Zone, &system.AuditRetentionDays, system.Encode
	case SourceResource:
		resource := layout.ResourceConfig{Key: layout.ResourceConfigKey{NS: c.ns, Resource: c.Resource}}
		if item != nil {
			resource, err = layout.DecodeResourceConfig(item)
		}
		i.limits, i.sessions = &resource.Limits, &resource.Sessions
		i.version, i.managed = &resource.ConfigVersion, &resource.ManagedVersion
		i.within = &resource.Within
		i.declared, i.policy, i.zone, i.encode = &resource.DeclaredVersion, &resource.OnUnavailable, &resource.Zone, resource.Encode
		i.toggle, i.cascade = &resource.Switch, &resource.Cascade
	default:
		entity := layout.EntityConfig{Key: layout.EntityConfigKey{NS: c.ns, Entity: c.Entity, Resource: c.storedResource()}}
		if item != nil {
			entity, err = layout.DecodeEntityConfig(item)
		}
		i.limits, i.sessions = &entity.Limits, &entity.Sessions
		i.version, i.managed = &entity.ConfigVersion, &entity.ManagedVersion
		i.policy, i.zone, i.encode = &entity.OnUnavailable, &entity.Zone, entity.Encode
		i.toggle, i.cascade = &entity.Switch, &entity.Cascade
	}
	if layout.Readable(err) != nil {
		return nil, err
	}
	errors.As(err, &i.refused)
	return i, err
}

// isManaged reports whether a file of limits wrote the level last.
func (i *configItem) isManaged() bool { return *i.managed == *i.version && *i.version > 0 }

// isDeclared reports whether Apply wrote the level last.
func (i *configItem) isDeclared() bool {
	return i.declared != nil && *i.declared == *i.version && *i.version > 0
}

// config returns the config of the item. Its list of limits is not nil.
func (i *configItem) config() (config Config, err error) {
	config.Limits, config.AuditRetention, config.Within, config.Cascade = []Limit{}, i.auditRetention(), i.widerOf(), i.cascades()
	if *i.policy != "" {
		if config.OnUnavailable, err = ParseFailurePolicy(*i.policy); err != nil {
			return Config{}, &store.ItemError{Key: i.key, Attribute: "on_unavailable", Err: err}
		}
	}
	for _, l := range i.storedLimits() {
		limit, err := ofStored(l, *i.zone)
		if err != nil {
			return Config{}, &store.ItemError{Key: i.key, Err: err}
		}
		if slices.ContainsFunc(config.Limits, func(l Limit) bool { return l.Name == limit.Name }) {
			return Config{}, &store.ItemError{Key: i.key, Err: invalid("stored limit", limit.Name, "is there twice, also as a session quota")}
		}
		config.Limits = append(config.Limits, limit)
	}
	return config, nil
}

// storedLimits returns the limits of the item, of which it holds session quotas apart.
func (i *configItem) storedLimits() []bucket.StoredLimit {
	limits := slices.Concat(*i.limits, *i.sessions)
	for at := range limits {
		l := &limits[at]
		l.Capacity, l.Burst = cmp.Or(max(l.Burst, 0), l.Capacity), 0
	}
	if len(*i.sessions) > 0 {
		slices.SortFunc(limits, func(a, b bucket.StoredLimit) int { return strings.Compare(a.Name, b.Name) })
	}
	return limits
}

func (i *configItem) setLimits(limits []bucket.StoredLimit) {
	*i.limits, *i.sessions = nil, nil
	for _, l := range limits {
		into := i.limits
		if l.Session != 0 {
			into = i.sessions
		}
		*into = append(*into, l)
	}
}

// widerOf returns the resource that the one of the item lies within, "" for none.
func (i *configItem) widerOf() string {
	if i.within == nil {
		return ""
	}
	return *i.within
}

func (i *configItem) cascades() CascadePolicy {
	if i.cascade == nil {
		return CascadeInherit
	}
	return cascadePolicy(*i.cascade)
}

// ofStored returns a limit that is stored in an item with a zone.
func ofStored(l bucket.StoredLimit, zone string) (Limit, error) {
	limit := Limit{Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, Floors: l.Floors}
	switch {
	case l.Shadow:
		limit.Mode = ModeShadow
	case l.Soft:
		limit.Mode = ModeSoft
	}
	if l.Term > 0 && l.Term <= int64(maxTerm/time.Second) {
		limit.Term = time.Duration(l.Term) * time.Second
		return limit, limit.validate("stored limit", time.Second)
	}
	switch {
	case l.Session != 0:
		if l.Session < 0 || l.Session > int64(grammar.MaxSession/time.Second) {
			return Limit{}, invalid("stored limit["+l.Name+"] session", strconv.FormatInt(l.Session, 10), "must be from 1 to 1000000000 seconds")
		}
		limit.Session = time.Duration(l.Session) * time.Second
	case l.Times != "":
		times, err := layout.ReadTimes(l.Times, zone)
		if err != nil {
			return Limit{}, invalid("stored limit["+l.Name+"] resets", l.Times, err.Error())
		}
		limit.Resets, limit.Zone, limit.Carry = times.String(), times.Zone(), l.Carry
	case l.RefillPeriod > 0 && l.RefillPeriod <= int64(math.MaxInt64/time.Second):
		limit.RefillPeriod = time.Duration(l.RefillPeriod) * time.Second
	}
	if l.Windows != "" {
		windows, err := layout.ReadWindows(l.Windows, zone)
		if err != nil {
			return Limit{}, invalid("stored limit["+l.Name+"] windows", l.Windows, err.Error())
		}
		limit.Windows, limit.Zone = windows.String(), windows.Zone()
	}
	return limit, limit.validate("stored limit", time.Second)
}

// toStored is the reverse of ofStored.
func toStored(l Limit) (stored bucket.StoredLimit, zone string) {
	p := l.params()
	stored = bucket.StoredLimit{
		Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: p.RefillPeriod / millis, Session: p.Session,
		Term: int64(l.Term / time.Second), Carry: l.Carry, Floors: l.Floors, Soft: l.Mode != ModeEnforced, Shadow: l.Mode == ModeShadow,
	}
	if p.Times != nil {
		stored.Times, zone = p.Times.Compact(), p.Times.Zone()
	}
	if p.Windows != nil {
		stored.Windows, zone = p.Windows.Compact(), p.Windows.Zone()
	}
	return stored, zone
}

// read returns the content of an item; nil stands for a level without config.
func (c configRef) read(item expr.Item) (Stored, error) {
	open, err := c.open(item)
	if err = layout.Readable(err); err != nil {
		return Stored{}, err
	}
	found := Stored{Level: c.Level, Version: *open.version, Switch: open.switched()}
	if open.refused != nil {
		found.Unsupported = unsupported(open.refused).Features
	} else {
		found.Managed, found.Declared = open.isManaged(), open.isDeclared()
		found.Config, err = open.config()
	}
	return found, err
}

// decode returns the level of an item as requests see it; other levels may add to it. It is an empty one without an
// item.
func (c configRef) decode(item expr.Item) (*cachedLevel, error) {
	switch {
	case item == nil:
		return &cachedLevel{}, nil
	case c.source == sourceRecord:
		entity, err := layout.DecodeEntity(item)
		return &cachedLevel{lineage: entity.Lineage()}, err
	}
	open, err := c.open(item)
	if layout.Readable(err) != nil {
		return nil, err
	}
	config, err := open.config()
	return &cachedLevel{Config: config, toggle: open.switched(), version: *open.version, refused: open.refused}, err
}

// fill makes the item say a config, as its next version. Limits that Apply wrote last still belong to Apply if
// something else alone changes.
func (i *configItem) fill(want Config) {
	before, err := i.config()
	if err == nil && i.declared != nil && *i.declared == *i.version && slices.Equal(inOrder(before.Limits), want.Limits) && !before.Same(&want) {
		*i.declared++
	}
	limits, zone := make([]bucket.StoredLimit, 0, len(want.Limits)), ""
	for _, l := range want.Limits {
		stored, of := toStored(l)
		limits, zone = append(limits, stored), cmp.Or(zone, of)
	}
	policy := ""
	if want.OnUnavailable != PolicyInherit {
		policy = want.OnUnavailable.String()
	}
	i.setLimits(limits)
	*i.policy, *i.zone = policy, zone
	if i.within != nil {
		*i.within = want.Within
	}
	if i.cascade != nil && i.cascades() != want.Cascade {
		*i.cascade = want.Cascade.value()
	}
	if i.days != nil {
		*i.days = int64(want.AuditRetention / day)
	}
	*i.version++
}

// become returns the writes that give a level a config, which was checked, and the level after them. An empty config
// deletes the level, which takes no write if there is none. It does not delete a level with a switch for its
// requests: the level then stays as it is. The new version is also stored in *also, which is i.declared or i.managed, unless that is nil.
func (i *configItem) become(want Config, also *int64, by author) (next *cachedLevel, writes []store.Write, err error) {
	return i.becomeSwitched(want, i.switchValue(), also, by)
}

// becomeSwitched is become for a change that also sets the level's switch for requests.
func (i *configItem) becomeSwitched(want Config, toggle expr.Value, also *int64, by author) (next *cachedLevel, writes []store.Write, err error) {
	w := store.Write{Kind: store.Put, Key: i.key}
	difference, action := int64(0), ActionLimitsSet
	var before expr.Item
	seen, says := i.seen(), toggle.Kind() != expr.KindNone
	switch {
	case want.IsZero() && !says && i.item == nil:
		return &cachedLevel{}, nil, nil
	case want.IsZero() && !says:
		w.Kind, difference, action = store.Delete, -1, ActionLimitsDeleted
		w.Expr, err = i.unchanged(layout.RemoveLevel(seen.version), layout.RemoveConfig, seen)
		next = &cachedLevel{}
	default:
		if i.item != nil {
			before = i.auditEntry("").details
		}
		i.fill(want)
		if i.toggle != nil {
			*i.toggle = toggle
		}
		if also != nil {
			*also = *i.version
		}
		if i.days != nil {
			by.retention = want.AuditRetention
		}
		w.Item = i.encode()
		if i.item == nil {
			difference = 1
			w.Expr, err = layout.Insert()
		} else {
			w.Expr, err = i.unchanged(layout.ReplaceLevel(seen.version), layout.ReplaceConfig, seen)
		}
		next = &cachedLevel{Config: want, toggle: i.switched(), version: *i.version}
	}
	if err != nil {
		return nil, nil, err
	}
	if writes, err = i.withRegistry(w, difference); err == nil {
		made := i.auditEntry(action)
		made.replaces(before)
		writes, err = by.with(made, writes...)
	}
	return next, writes, err
}

// withRegistry adds the change of the registry to a write that creates (difference 1) or deletes (-1) a config.
func (i *configItem) withRegistry(w store.Write, difference int64) ([]store.Write, error) {
	r := store.Write{Kind: store.Update}
	var err error
	switch {
	case i.source == SourceSystem, difference == 0:
		return []store.Write{w}, nil
	case i.source == SourceResource && difference > 0:
		key := layout.ResourceRegistryKey{NS: i.ns}
		r.Key = key.Key()
		r.Expr, err = layout.ListResource(key, []string{i.Resource})
	case i.source == SourceResource:
		r.Key = layout.ResourceRegistryKey{NS: i.ns}.Key()
		r.Expr, err = layout.UnlistResource([]string{i.Resource})
	default:
		key := layout.EntityConfigRegistryKey{NS: i.ns}
		call := layout.CountEntityConfig(key)
		call.Change(i.storedResource(), difference)
		r.Key = key.Key()
		r.Expr, err = call.Bind()
	}
	return []store.Write{w, r}, err
}

// rewrite reads a level, writes what plan makes of it, and begins again when another writer came first. It then puts the
// new level into memory, and returns it. With a lock it writes on condition that the program still has the lock.
func (s *LimitService) rewrite(
	ctx context.Context, at Level, lock *managedLock, plan func(*configItem, author) (*cachedLevel, []store.Write, error),
) (next *cachedLevel, err error) {
	if s.l.closed.Load() {
		return nil, ErrClosed
	}
	ref := s.l.ns.at(at)
	keys := []store.Key{ref.key}
	if lock != nil {
		keys = append(keys, s.l.Managed.lockKey())
	}
	var cascades CascadePolicy // before
	err = s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, by, err := s.l.readToChange(ctx, keys...)
		if err == nil && lock != nil {
			err = lock.heldBy(items[1])
		}
		if err != nil {
			return false, err
		}
		open, err := ref.open(items[0])
		if err != nil {
			return false, err
		}
		var writes []store.Write
		cascades = open.cascades()
		if next, writes, err = plan(open, by); err != nil {
			return false, err
		}
		if lock != nil && len(writes) > 0 {
			if writes, err = s.l.Managed.with(lock, writes...); err != nil {
				return false, err
			}
		}
		for _, w := range writes {
			if err := s.l.askFor(ctx, layout.OldestClient(w.Key, w.Item)); err != nil {
				return false, err
			}
		}
		epoch := s.l.epoch.Add(1)
		if done, err = s.l.table.Transact(ctx, writes); !done || err != nil {
			return false, err
		}
		if ref.source == SourceSystem {
			s.l.retained.Store(nil)
		}
		s.l.cache.learn(ref.key, next, epoch)
		return true, nil
	})
	if err = publicError("set limits", err); errors.Is(err, ErrContended) {
		err = fmt.Errorf("%w: %v", err, at)
	}
	if err == nil && next.Cascade != cascades {
		_, err = s.bind(ctx, at, false, nil) // other programs use the copies in the buckets
	}
	return next, err
}

// learn makes a level the one in memory that was written after an epoch.
func (c *limitCache) learn(key store.Key, next *cachedLevel, epoch int64) {
	next.readAt, next.epoch = c.l.now(), epoch
	c.l.configs.Set(key, next)
	c.l.changed()
}

// read returns the stored configs of levels, in their order, consistently.
func (s *LimitService) read(ctx context.Context, levels ...Level) ([]Stored, error) {
	refs, keys := make([]configRef, len(levels)), make([]store.Key, len(levels))
	for i, v := range levels {
		if err := v.validate(); err != nil {
			return nil, err
		}
		refs[i] = s.l.ns.at(v)
		keys[i] = refs[i].key
	}
	if s.l.closed.Load() {
		return nil, ErrClosed
	}
	items, err := s.l.table.ReadChunks(ctx, keys)
	if err != nil {
		return nil, publicError("read limits", err)
	}
	found := make([]Stored, len(levels))
	for i, ref := range refs {
		if found[i], err = ref.read(items[i]); err != nil {
			return nil, publicError("read limits", err)
		}
	}
	return found, nil
}
