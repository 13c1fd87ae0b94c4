package zlimit

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A LimitService keeps the stored limits of a namespace, at four levels. For a request the first level that has limits
// wins as a whole. The order is the entity's for the resource, the entity's for every resource ([DefaultResource]), the
// resource's, the system's. Changes reach every process within its [WithConfigTTL], and the process that makes them at
// once. It is safe for concurrent use.
//
// Reading a level costs one consistent read. Writing costs a read and a transaction, conditional on what was read. The
// transaction has the level and an audit event, and a registry where a level comes or goes. A lost race costs both
// again. Each of the two or three items costs two write units per KB. The indexes cost one for the event, two more for
// a new level of an entity, and one for another new level. Deleting a level that does not exist costs the read. Limits
// are validated before any of it: whole seconds as periods, at most 16 limits.
type LimitService struct{ l *RateLimiter }

// A SystemConfig holds the limits of last resort, and settings of the whole namespace.
type SystemConfig struct {
	Limits []Limit `json:"limits"`
	// OnUnavailable is the failure policy of requests for which no other level, nor the request, has one. Inherit leaves it
	// to [WithFailurePolicy].
	OnUnavailable FailurePolicy `json:"on_unavailable"`
	// AuditRetention is how long audit events are kept that are written from now on, in whole days; 0 stands for what
	// [RateLimiter.SetAuditRetention] says for the whole table, which is 90 days by default.
	AuditRetention time.Duration `json:"-"`
}

// Resolved are the limits that hold for an entity and a resource.
type Resolved struct {
	Limits []Limit `json:"limits"`
	Source Source  `json:"source"` // the level that they come from; "" when there are none
	// OnUnavailable is the failure policy that is stored for them; Inherit where no level says it.
	OnUnavailable FailurePolicy `json:"on_unavailable"`
}

// SetSystem replaces the system config.
func (s *LimitService) SetSystem(ctx context.Context, c SystemConfig) error {
	if err := c.OnUnavailable.validate(); err != nil {
		return err
	}
	if err := validateRetention(c.AuditRetention); err != nil {
		return err
	}
	return s.set(ctx, s.l.ns.systemLevel(), level{limits: c.Limits, policy: c.OnUnavailable}, c.AuditRetention)
}

// System returns the system config, an empty one where none is stored.
func (s *LimitService) System(ctx context.Context) (SystemConfig, error) {
	found, item, err := s.get(ctx, s.l.ns.systemLevel())
	if err != nil {
		return SystemConfig{}, err
	}
	return SystemConfig{found.limits, found.policy, item.auditRetention()}, nil
}

// DeleteSystem deletes the system config, if there is one.
func (s *LimitService) DeleteSystem(ctx context.Context) error {
	return publicError("delete limits", s.delete(ctx, s.l.ns.systemLevel()))
}

// SetResource replaces the limits of a resource, and leaves its failure policy.
func (s *LimitService) SetResource(ctx context.Context, resource string, limits []Limit) error {
	if err := validateResource(resource); err != nil {
		return err
	}
	return s.setLimits(ctx, s.l.ns.resourceLevel(resource), limits)
}

// Resource returns the limits that are stored for a resource, an empty list for none.
func (s *LimitService) Resource(ctx context.Context, resource string) ([]Limit, error) {
	if err := validateResource(resource); err != nil {
		return nil, err
	}
	found, _, err := s.get(ctx, s.l.ns.resourceLevel(resource))
	return found.limits, err
}

// DeleteResource deletes the limits and the failure policy of a resource, if it has some.
func (s *LimitService) DeleteResource(ctx context.Context, resource string) error {
	if err := validateResource(resource); err != nil {
		return err
	}
	return publicError("delete limits", s.delete(ctx, s.l.ns.resourceLevel(resource)))
}

// Resources yields the resources that have limits of their own, in alphabetical order. It costs one read.
func (s *LimitService) Resources(ctx context.Context) iter.Seq2[string, error] {
	return s.registry(ctx, layout.ResourceRegistryKey{NS: s.l.ns.id()}.Key(), func(item expr.Item) ([]string, error) {
		registry, err := layout.DecodeResourceRegistry(item)
		return registry.Resources, err
	})
}

// SetEntity replaces the limits of an entity for a resource, or with [DefaultResource] for every resource that it has no
// limits for. It leaves the failure policy of the level. The entity need not exist.
func (s *LimitService) SetEntity(ctx context.Context, entity, resource string, limits []Limit) error {
	if err := validateEntityLevel(entity, resource); err != nil {
		return err
	}
	return s.setLimits(ctx, s.l.ns.entityLevel(entity, resource), limits)
}

// Entity returns the limits that are stored for an entity and a resource, an empty list for none.
func (s *LimitService) Entity(ctx context.Context, entity, resource string) ([]Limit, error) {
	if err := validateEntityLevel(entity, resource); err != nil {
		return nil, err
	}
	found, _, err := s.get(ctx, s.l.ns.entityLevel(entity, resource))
	return found.limits, err
}

// DeleteEntity deletes the limits and the failure policy of an entity for a resource, if it has some.
func (s *LimitService) DeleteEntity(ctx context.Context, entity, resource string) error {
	if err := validateEntityLevel(entity, resource); err != nil {
		return err
	}
	return publicError("delete limits", s.delete(ctx, s.l.ns.entityLevel(entity, resource)))
}

// EntitiesWith yields the entities that have limits of their own for a resource, in alphabetical order. It reads the
// table's index page by page as the loop goes on; the index may be moments behind.
func (s *LimitService) EntitiesWith(ctx context.Context, resource string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := validateConfigResource(resource); err != nil {
			yield("", err)
			return
		}
		for item, err := range s.l.query(ctx, "list entities", layout.QueryEntitiesWithConfig(s.l.ns.id(), resource)) {
			if err != nil {
				yield("", err)
				return
			}
			if k, ok := layout.ParseEntityConfigKey(store.KeyOf(item)); ok && !yield(k.Entity, nil) {
				return
			}
		}
	}
}

// ResourcesWith yields the resources that any entity has limits of its own for, in alphabetical order.
// [DefaultResource] is one of them where it is used. It costs one read.
func (s *LimitService) ResourcesWith(ctx context.Context) iter.Seq2[string, error] {
	return s.registry(ctx, layout.EntityConfigRegistryKey{NS: s.l.ns.id()}.Key(), func(item expr.Item) ([]string, error) {
		registry, err := layout.DecodeEntityConfigRegistry(item)
		var names []string
		for _, r := range registry.Resources {
			if r.Entities > 0 {
				names = append(names, r.Name)
			}
		}
		return names, err
	})
}

// registry yields the names in a registry item.
func (s *LimitService) registry(
	ctx context.Context, key store.Key, names func(expr.Item) ([]string, error),
) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		items, err := s.l.table.Read(ctx, key)
		var list []string
		if err == nil && items[0] != nil {
			list, err = names(items[0])
		}
		if err != nil {
			yield("", publicError("list resources", err))
			return
		}
		for _, name := range slices.Sorted(slices.Values(list)) {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Resolve returns the limits that hold for an entity and a resource, from memory while they are fresh; [ErrNoLimits] where no
// level has some.
func (s *LimitService) Resolve(ctx context.Context, entity, resource string) (Resolved, error) {
	r := Request{Entity: entity, Resource: resource}
	if err := r.validateNames(); err != nil {
		return Resolved{}, err
	}
	if s.l.closed.Load() {
		return Resolved{}, ErrClosed
	}
	limits, err := s.l.cache.For(ctx, s.l.engine.Bucket(entity, resource))
	if err != nil {
		return Resolved{}, publicError("resolve limits", err)
	}
	found := limits.Detail.(*resolved)
	if len(found.limits) == 0 {
		return Resolved{OnUnavailable: found.policy}, noLimits(entity, resource)
	}
	return Resolved{slices.Clone(found.limits), found.source, found.policy}, nil
}

// Invalidate forgets the limits in memory that hold for an entity and a resource, with those of the resource and of the
// system. The next request of that bucket reads them again.
func (s *LimitService) Invalidate(entity, resource string) {
	s.l.generation.Add(1) // before, so that a read under way is not remembered
	for _, c := range s.l.ns.levelsOf(entity, resource) {
		s.l.configs.Invalidate(c.key)
	}
}

// InvalidateAll forgets all stored limits that are in memory: the next request of each bucket reads them again.
func (s *LimitService) InvalidateAll() {
	s.l.generation.Add(1) // before, so that a read under way is not remembered
	s.l.configs.InvalidateAll()
}

// CacheStats returns the counts of the cache of stored limits.
func (s *LimitService) CacheStats() CacheStats {
	return CacheStats{
		Hits:    s.l.stats.hits.Load(),
		Misses:  s.l.stats.misses.Load(),
		Stale:   s.l.stats.stale.Load(),
		Entries: s.l.configs.EstimatedSize(),
	}
}

// A configRef addresses one config.
type configRef struct {
	source   Source
	key      store.Key
	entity   string
	resource string
	ns       string
}

func (n *namespaceID) systemLevel() configRef {
	return configRef{source: SourceSystem, key: layout.SystemConfigKey{NS: n.id()}.Key(), ns: n.id()}
}

func (n *namespaceID) resourceLevel(resource string) configRef {
	return configRef{SourceResource, layout.ResourceConfigKey{NS: n.id(), Resource: resource}.Key(), "", resource, n.id()}
}

func (n *namespaceID) entityLevel(entity, resource string) configRef {
	source := SourceEntity
	if resource == DefaultResource {
		source = SourceEntityDefault
	}
	key := layout.EntityConfigKey{NS: n.id(), Entity: entity, Resource: resource}.Key()
	return configRef{source, key, entity, resource, n.id()}
}

// sourceRecord marks the record of an entity, which is read with its limits.
const sourceRecord Source = ""

// record addresses the record of an entity.
func (n *namespaceID) record(entity string) configRef {
	return configRef{source: sourceRecord, key: layout.EntityKey{NS: n.id(), Entity: entity}.Key()}
}

// levelsOf returns the levels of an entity and a resource in order of precedence, and the entity's record.
func (n *namespaceID) levelsOf(entity, resource string) []configRef {
	return []configRef{
		n.entityLevel(entity, resource),
		n.entityLevel(entity, DefaultResource),
		n.resourceLevel(resource),
		n.systemLevel(),
		n.record(entity),
	}
}

// A configItem is the item of one level, whichever it is.
type configItem struct {
	limits   *[]layout.ConfigLimit
	version  *int64
	declared *int64 // the version that Apply wrote last; nil where it does not write
	managed  *int64 // the version that a file of limits wrote last
	policy   *string
	days     *int64 // that audit events are kept; nil where the level does not say
	encode   func() expr.Item
}

// open returns the item of a level for reading and changing; nil stands for a level without config.
func (c configRef) open(item expr.Item) (configItem, error) {
	switch c.source {
	case SourceSystem:
		system := layout.SystemConfig{Key: layout.SystemConfigKey{NS: c.ns}}
		if item != nil {
			var err error
			if system, err = layout.DecodeSystemConfig(item); err != nil {
				return configItem{}, err
			}
		}
		return configItem{
			limits: &system.Limits, version: &system.ConfigVersion, managed: &system.ManagedVersion,
			policy: &system.OnUnavailable, days: &system.AuditRetentionDays, encode: system.Encode,
		}, nil
	case SourceResource:
		resource := layout.ResourceConfig{Key: layout.ResourceConfigKey{NS: c.ns, Resource: c.resource}}
		if item != nil {
			var err error
			if resource, err = layout.DecodeResourceConfig(item); err != nil {
				return configItem{}, err
			}
		}
		return configItem{
			limits: &resource.Limits, version: &resource.ConfigVersion, managed: &resource.ManagedVersion,
			declared: &resource.DeclaredVersion, policy: &resource.OnUnavailable, encode: resource.Encode,
		}, nil
	default:
		entity := layout.EntityConfig{Key: layout.EntityConfigKey{NS: c.ns, Entity: c.entity, Resource: c.resource}}
		if item != nil {
			var err error
			if entity, err = layout.DecodeEntityConfig(item); err != nil {
				return configItem{}, err
			}
		}
		return configItem{
			limits: &entity.Limits, version: &entity.ConfigVersion, managed: &entity.ManagedVersion,
			policy: &entity.OnUnavailable, encode: entity.Encode,
		}, nil
	}
}

// decode returns the level that an item holds, nil for a level without config.
func (c configRef) decode(item expr.Item) (*level, error) {
	found := &level{}
	if item == nil {
		return found, nil
	}
	if c.source == sourceRecord {
		entity, err := layout.DecodeEntity(item)
		found.owner = layout.Owner{Cascade: entity.Cascade, Parent: entity.Parent}
		return found, err
	}
	open, err := c.open(item)
	if err != nil {
		return nil, err
	}
	found.version = *open.version
	if *open.policy != "" {
		if found.policy, err = ParseFailurePolicy(*open.policy); err != nil {
			return nil, fmt.Errorf("%s: %w", c.key.PK, err)
		}
	}
	for _, stored := range *open.limits {
		limit := Limit{Name: stored.Name, Capacity: stored.Capacity, RefillAmount: stored.RefillAmount}
		if stored.Burst > 0 {
			limit.Capacity = stored.Burst
		}
		if stored.RefillPeriod > 0 && stored.RefillPeriod <= int64(math.MaxInt64/time.Second) {
			limit.RefillPeriod = time.Duration(stored.RefillPeriod) * time.Second
		}
		if err := limit.validate("stored limit", time.Second); err != nil {
			return nil, fmt.Errorf("%s: %w", c.key.PK, err)
		}
		found.limits = append(found.limits, limit)
	}
	return found, nil
}

// fill makes the item hold a level, as its next version. Limits that Apply wrote last remain those of Apply where the
// failure policy alone changes.
func (i configItem) fill(want level, retention time.Duration) {
	limits := make([]layout.ConfigLimit, 0, len(want.limits))
	for _, l := range want.limits {
		limits = append(limits, layout.ConfigLimit{
			Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: int64(l.RefillPeriod / time.Second),
		})
	}
	policy := ""
	if want.policy != Inherit {
		policy = want.policy.String()
	}
	if i.declared != nil && *i.declared == *i.version && *i.policy != policy && sameLimits(*i.limits, limits) {
		*i.declared++
	}
	*i.limits, *i.policy = limits, policy
	if i.days != nil {
		*i.days = int64(retention / day)
	}
	*i.version++
}

// sameLimits reports whether two lists have the same limits, in any order.
func sameLimits(a, b []layout.ConfigLimit) bool {
	byName := func(a, b layout.ConfigLimit) int { return strings.Compare(a.Name, b.Name) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), byName), slices.SortedFunc(slices.Values(b), byName))
}

// get returns a level as the store has it, an empty one where there is no such config.
func (s *LimitService) get(ctx context.Context, c configRef) (*level, configItem, error) {
	if s.l.closed.Load() {
		return &level{}, configItem{}, ErrClosed
	}
	items, err := s.l.table.Read(ctx, c.key)
	if err != nil {
		return &level{}, configItem{}, publicError("read limits", err)
	}
	open, err := c.open(items[0])
	if err != nil {
		return &level{}, configItem{}, publicError("read limits", err)
	}
	found, err := c.decode(items[0])
	if err != nil {
		return &level{}, configItem{}, publicError("read limits", err)
	}
	if found.limits == nil {
		found.limits = []Limit{}
	}
	return found, open, nil
}

// setLimits replaces the limits of a level, and leaves its failure policy.
func (s *LimitService) setLimits(ctx context.Context, c configRef, limits []Limit) error {
	want := level{limits: limits}
	if err := want.check(c.source, "limits"); err != nil {
		return err
	}
	return publicError("set limits", s.change(ctx, c, func(item expr.Item, by author) (*level, []store.Write, error) {
		found, err := c.decode(item)
		if err != nil {
			return nil, nil, err
		}
		open, err := c.open(item)
		if err != nil {
			return nil, nil, err
		}
		next := level{limits: want.limits, policy: found.policy}
		open.fill(next, 0)
		return s.replace(c, item, open, next, by)
	}))
}

// set replaces a level.
func (s *LimitService) set(ctx context.Context, c configRef, want level, retention time.Duration) error {
	if err := want.check(c.source, "limits"); err != nil {
		return err
	}
	return publicError("set limits", s.change(ctx, c, func(item expr.Item, by author) (*level, []store.Write, error) {
		open, err := c.open(item)
		if err != nil {
			return nil, nil, err
		}
		open.fill(want, retention)
		if open.days != nil {
			by.retention = retention
		}
		return s.replace(c, item, open, want, by)
	}))
}

// check validates limits that are to be stored, and puts them in order.
func (v *level) check(source Source, field string) error {
	if len(v.limits) == 0 && v.policy == Inherit && source != SourceSystem {
		return &ValidationError{Field: field, Value: "", Reason: "must hold at least one limit; deleting is a call of its own"}
	}
	if err := validateLimits(field, v.limits, time.Second); err != nil {
		return err
	}
	v.limits = slices.SortedFunc(slices.Values(v.limits), func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// replace returns the writes that put a level, which open was filled with, in place of an item, or where there is none.
func (s *LimitService) replace(
	c configRef, item expr.Item, open configItem, next level, by author,
) (*level, []store.Write, error) {
	w := store.Write{Kind: store.Put, Key: c.key, Item: open.encode()}
	next.version = *open.version
	var err error
	if item != nil {
		w.Expr, err = layout.ReplaceConfig(next.version - 1)
	} else {
		w.Expr, err = layout.Insert()
	}
	writes := []store.Write{w}
	if item == nil && err == nil {
		writes, err = s.withRegistry(c, w, 1)
	}
	if err == nil {
		writes, err = by.with(c.change(ActionLimitsSet, open), writes...)
	}
	return &next, writes, err
}

// delete deletes a level, if it exists.
func (s *LimitService) delete(ctx context.Context, c configRef) error {
	return s.change(ctx, c, func(item expr.Item, by author) (*level, []store.Write, error) { return s.remove(c, item, by) })
}

// remove returns the writes that delete a level whose item this is; none where there is no item.
func (s *LimitService) remove(c configRef, item expr.Item, by author) (*level, []store.Write, error) {
	if item == nil {
		return &level{}, nil, nil
	}
	open, err := c.open(item)
	if err != nil {
		return nil, nil, err
	}
	w := store.Write{Kind: store.Delete, Key: c.key}
	if w.Expr, err = layout.RemoveConfig(*open.version); err != nil {
		return nil, nil, err
	}
	writes, err := s.withRegistry(c, w, -1)
	if err == nil {
		writes, err = by.with(c.change(ActionLimitsDeleted, open), writes...)
	}
	return &level{}, writes, err
}

// withRegistry adds to a write that creates (difference 1) or deletes (-1) a config what its registry says of it.
func (s *LimitService) withRegistry(c configRef, w store.Write, difference int64) ([]store.Write, error) {
	r := store.Write{Kind: store.Update}
	var err error
	switch {
	case c.source == SourceSystem:
		return []store.Write{w}, nil
	case c.source == SourceResource && difference > 0:
		key := layout.ResourceRegistryKey{NS: c.ns}
		r.Key = key.Key()
		r.Expr, err = layout.ListResource(key, []string{c.resource})
	case c.source == SourceResource:
		r.Key = layout.ResourceRegistryKey{NS: c.ns}.Key()
		r.Expr, err = layout.UnlistResource([]string{c.resource})
	default:
		key := layout.EntityConfigRegistryKey{NS: c.ns}
		call := layout.CountEntityConfig(key)
		call.Change(c.resource, difference)
		r.Key = key.Key()
		r.Expr, err = call.Bind()
	}
	return []store.Write{w, r}, err
}

// change reads a level, writes what plan makes of it, and begins again when another writer came first. It then puts the
// new level into memory.
func (s *LimitService) change(
	ctx context.Context, c configRef, plan func(expr.Item, author) (*level, []store.Write, error),
) error {
	if s.l.closed.Load() {
		return ErrClosed
	}
	return s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, by, err := s.l.readToChange(ctx, c.key)
		if err != nil {
			return false, err
		}
		next, writes, err := plan(items[0], by)
		if err != nil {
			return false, err
		}
		epoch := s.l.epoch.Add(1)
		if done, err = s.l.table.Transact(ctx, writes); !done || err != nil {
			return false, err
		}
		if c.source == SourceSystem {
			s.l.retained.Store(nil)
		}
		s.l.cache.learn(c.key, next, epoch)
		return true, nil
	})
}

// learn makes a level the one in memory that was written after an epoch.
func (c *limitCache) learn(key store.Key, next *level, epoch int64) {
	next.readAt, next.epoch = c.l.now(), epoch
	c.l.configs.Set(key, next)
	c.l.generation.Add(1)
}

func validateEntityLevel(entity, resource string) error {
	if err := validateEntity("entity", entity); err != nil {
		return err
	}
	return validateConfigResource(resource)
}
