package zlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A ManagedService changes stored limits for programs that keep them as code, such as `zlimit limits apply`. Such a
// program takes the lock of the namespace, replaces levels that are as it has seen them, and records which levels it
// manages. It may delete those when they leave its file. It is safe for concurrent use.
//
// Every write asks in its transaction that the program still has the lock, and that the level has not changed since it
// was read. So two programs never write by turns, whatever their clocks say and however long they pause.
type ManagedService struct{ l *RateLimiter }

// A ConfigLevel is a place where limits are stored. Its zero value is the system.
type ConfigLevel struct {
	Entity   string `json:"entity,omitempty"`   // "" for the limits of a resource or of the system
	Resource string `json:"resource,omitempty"` // [DefaultResource] for an entity's limits for every resource
}

// Source returns which of the four levels it is.
func (c ConfigLevel) Source() Source {
	switch {
	case c.Entity == "" && c.Resource == "":
		return SourceSystem
	case c.Entity == "":
		return SourceResource
	case c.Resource == DefaultResource:
		return SourceEntityDefault
	default:
		return SourceEntity
	}
}

// String names the level in words, such as "entity acme, resource gpt-4".
func (c ConfigLevel) String() string {
	switch c.Source() {
	case SourceSystem:
		return "system"
	case SourceResource:
		return "resource " + c.Resource
	case SourceEntityDefault:
		return "entity " + c.Entity
	default:
		return "entity " + c.Entity + ", resource " + c.Resource
	}
}

// Compare orders levels: the system, resources, entities; by name.
func (c ConfigLevel) Compare(other ConfigLevel) int {
	return cmp.Or(strings.Compare(c.Entity, other.Entity), strings.Compare(c.Resource, other.Resource))
}

// text returns the level as the record of what is managed has it.
func (c ConfigLevel) text() string {
	switch c.Source() {
	case SourceSystem:
		return AuditSystem
	case SourceResource:
		return AuditResource(c.Resource)
	default:
		return c.Entity + "#" + c.Resource
	}
}

func parseConfigLevel(text string) (ConfigLevel, bool) {
	if text == AuditSystem {
		return ConfigLevel{}, true
	}
	if resource, ok := strings.CutPrefix(text, auditResourcePrefix); ok {
		return ConfigLevel{Resource: resource}, true
	}
	entity, resource, ok := strings.Cut(text, "#")
	return ConfigLevel{entity, resource}, ok
}

func (c ConfigLevel) validate() error {
	switch c.Source() {
	case SourceSystem:
		return nil
	case SourceResource:
		return validateResource(c.Resource)
	default:
		return validateEntityLevel(c.Entity, c.Resource)
	}
}

// in addresses the level in a namespace.
func (c ConfigLevel) in(ns *namespaceID) configRef {
	switch c.Source() {
	case SourceSystem:
		return ns.systemLevel()
	case SourceResource:
		return ns.resourceLevel(c.Resource)
	default:
		return ns.entityLevel(c.Entity, c.Resource)
	}
}

// A StoredConfig is what is stored at a level.
type StoredConfig struct {
	Level          ConfigLevel   `json:"level"`
	Limits         []Limit       `json:"limits"`
	OnUnavailable  FailurePolicy `json:"on_unavailable"` // Inherit where the level does not say it
	AuditRetention time.Duration `json:"-"`              // of the system; 0 for that of the table
	// Version counts the writes of the level since it was created; 0 for a level without config. [ManagedService.Replace]
	// sets it.
	Version int64 `json:"version"`
	// Managed says that the last write was one of [ManagedService.Replace]. It sets that, too.
	Managed bool `json:"managed"`
}

// IsZero reports whether the level says nothing, whatever its version.
func (c *StoredConfig) IsZero() bool {
	return len(c.Limits) == 0 && c.OnUnavailable == Inherit && c.AuditRetention == 0
}

// Same reports whether two configs say the same. The order of their limits does not count, nor do their versions.
func (c *StoredConfig) Same(other *StoredConfig) bool {
	byName := func(a, b Limit) int { return strings.Compare(a.Name, b.Name) }
	return c.OnUnavailable == other.OnUnavailable && c.AuditRetention == other.AuditRetention &&
		slices.Equal(slices.SortedFunc(slices.Values(c.Limits), byName), slices.SortedFunc(slices.Values(other.Limits), byName))
}

// validate checks a config that is to be stored.
func (c *StoredConfig) validate() error {
	if err := c.Level.validate(); err != nil {
		return err
	}
	if c.IsZero() {
		return nil
	}
	if err := c.OnUnavailable.validate(); err != nil {
		return err
	}
	if err := validateRetention(c.AuditRetention); err != nil {
		return err
	}
	if c.AuditRetention != 0 && c.Level.Source() != SourceSystem {
		return &ValidationError{Field: "audit retention", Value: c.AuditRetention.String(), Reason: "is for the system alone"}
	}
	want := level{limits: c.Limits, policy: c.OnUnavailable}
	return want.check(c.Level.Source(), "limits of "+c.Level.String())
}

// A ManagedSet lists the levels of a namespace that a file of limits manages.
type ManagedSet struct {
	Levels []ConfigLevel `json:"levels"` // in the order of [ConfigLevel.Compare]
	// Pending are levels that a run may have written before it broke off. The levels among them that it wrote are managed;
	// their [StoredConfig.Managed] says so.
	Pending     []ConfigLevel `json:"pending,omitempty"`
	LastApplied time.Time     `json:"last_applied,omitzero"` // zero for never
	Hash        string        `json:"hash,omitempty"`        // of the declaration that was applied last
}

// A ManagedLock is the right to change what is managed in a namespace.
type ManagedLock struct {
	ID        string    `json:"id"`
	Holder    string    `json:"holder"` // who took it; "" when that is unknown
	Acquired  time.Time `json:"acquired_at"`
	ExpiresAt time.Time `json:"expires_at"` // from then on another program may take it
}

// Errors of a [ManagedService].
var (
	// ErrLocked says that another program has the lock; the error is a [*LockedError].
	ErrLocked = errors.New("zlimit: limits are being changed")
	// ErrLockLost says that the lock expired and that another program took it. Nothing more can be written with it.
	ErrLockLost = errors.New("zlimit: the lock expired, and another program took it")
	// ErrLevelChanged says that a level is not as the program has seen it.
	ErrLevelChanged = errors.New("zlimit: limits were changed by another writer")
)

// A LockedError reports the lock that another program has. It is [ErrLocked].
type LockedError struct {
	Lock ManagedLock `json:"lock"`
}

// Error says who has the lock, and for how long.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%v by %s since %s; the lock expires at %s", ErrLocked, cmp.Or(e.Lock.Holder, "a program without a name"),
		e.Lock.Acquired.UTC().Format(time.RFC3339), e.Lock.ExpiresAt.UTC().Format(time.RFC3339))
}

// Unwrap returns [ErrLocked].
func (e *LockedError) Unwrap() error { return ErrLocked }

// Read returns what is stored at levels, in their order, consistently. It costs a batch read of an item for each level,
// 100 to a call, a read unit per 4 KB of each.
func (s *ManagedService) Read(ctx context.Context, levels ...ConfigLevel) ([]StoredConfig, error) {
	if s.l.closed.Load() {
		return nil, ErrClosed
	}
	keys := make([]store.Key, len(levels))
	for i, c := range levels {
		if err := c.validate(); err != nil {
			return nil, err
		}
		keys[i] = c.in(&s.l.ns).key
	}
	items, err := s.l.table.ReadChunks(ctx, keys)
	if err != nil {
		return nil, publicError("read limits", err)
	}
	configs := make([]StoredConfig, len(levels))
	for i, c := range levels {
		if configs[i], _, err = s.config(c, items[i]); err != nil {
			return nil, publicError("read limits", err)
		}
	}
	return configs, nil
}

// config returns what an item holds, and the item for changing.
func (s *ManagedService) config(c ConfigLevel, item expr.Item) (StoredConfig, configItem, error) {
	config := StoredConfig{Level: c}
	ref := c.in(&s.l.ns)
	open, err := ref.open(item)
	if err != nil {
		return config, open, err
	}
	found, err := ref.decode(item)
	if err != nil {
		return config, open, err
	}
	config.Limits, config.OnUnavailable, config.AuditRetention = found.limits, found.policy, open.auditRetention()
	config.Version = *open.version
	config.Managed = item != nil && *open.managed == *open.version
	return config, open, nil
}

// Lock takes the lock of the namespace for a time, which [ManagedService.Renew] prolongs. Another program that has it is a
// [*LockedError]; a lock that has expired is taken over. It costs one conditional write: two write units at most, and
// one for an index when the lock is new.
func (s *ManagedService) Lock(ctx context.Context, lease time.Duration) (ManagedLock, error) {
	if err := s.check(lease); err != nil {
		return ManagedLock{}, err
	}
	now := s.l.now().UTC()
	lock := ManagedLock{ID: s.l.eventIDs.next(now), Holder: s.l.principal(ctx), Acquired: now.Truncate(time.Second)}
	free, err := layout.TakeProvisionerLock(now.Unix())
	if err == nil {
		err = s.writeLock(ctx, &lock, lease, free, func(item layout.ProvisionerLock) error { return &LockedError{lockOf(&item)} })
	}
	return lock, publicError("lock the limits", err)
}

// Renew prolongs a lock; [ErrLockLost] when another program has taken it. It costs one conditional write.
func (s *ManagedService) Renew(ctx context.Context, lock ManagedLock, lease time.Duration) (ManagedLock, error) {
	if err := s.check(lease); err != nil {
		return lock, err
	}
	kept, err := layout.KeepProvisionerLock(lock.ID)
	if err == nil {
		err = s.writeLock(ctx, &lock, lease, kept, func(layout.ProvisionerLock) error { return ErrLockLost })
	}
	return lock, publicError("keep the lock of the limits", err)
}

// Unlock gives a lock back, if the program still has it. It costs one conditional write.
func (s *ManagedService) Unlock(ctx context.Context, lock ManagedLock) error {
	if s.l.closed.Load() {
		return ErrClosed
	}
	held, err := layout.ReleaseProvisionerLock(lock.ID)
	if err == nil {
		_, err = s.l.table.PatientWrite(ctx, store.Write{Kind: store.Delete, Key: s.lockKey(), Expr: held})
	}
	return publicError("unlock the limits", err)
}

// check returns the error of a call that must not be made.
func (s *ManagedService) check(lease time.Duration) error {
	if s.l.closed.Load() {
		return ErrClosed
	}
	if lease < time.Second || lease > day {
		return &ValidationError{Field: "lease", Value: lease.String(), Reason: "must be from a second to a day"}
	}
	return nil
}

func (s *ManagedService) lockKey() store.Key { return layout.ProvisionerLockKey{NS: s.l.ns.id()}.Key() }

// writeLock writes a lock that is to expire after a lease. A lock that was written without an answer is found again by
// its ID.
func (s *ManagedService) writeLock(
	ctx context.Context, lock *ManagedLock, lease time.Duration, condition expr.Bound, taken func(layout.ProvisionerLock) error,
) error {
	lock.ExpiresAt = s.l.now().UTC().Add(lease).Truncate(time.Second)
	item := layout.ProvisionerLock{
		Key: layout.ProvisionerLockKey{NS: s.l.ns.id()}, Lock: lock.ID, Holder: lock.Holder,
		AcquiredAt: layout.FormatTime(lock.Acquired), ExpiresAt: lock.ExpiresAt.Unix(),
	}
	result, err := s.l.table.PatientWrite(ctx, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode(), Expr: condition})
	if err != nil || result.Applied {
		return err
	}
	if result.Item == nil {
		return ErrLockLost
	}
	found, err := layout.DecodeProvisionerLock(result.Item)
	if err != nil || found.Lock == lock.ID {
		return err
	}
	return taken(found)
}

func lockOf(it *layout.ProvisionerLock) ManagedLock {
	return ManagedLock{it.Lock, it.Holder, layout.ParseTime(it.AcquiredAt), time.Unix(it.ExpiresAt, 0).UTC()}
}

// Set returns which levels are managed; the zero set where none ever was. It costs one consistent read.
func (s *ManagedService) Set(ctx context.Context) (ManagedSet, error) {
	if s.l.closed.Load() {
		return ManagedSet{}, ErrClosed
	}
	items, err := s.l.table.Read(ctx, layout.ProvisionerKey{NS: s.l.ns.id()}.Key())
	if err != nil {
		return ManagedSet{}, publicError("read what is managed", err)
	}
	set, _, err := s.set(items[0])
	return set, publicError("read what is managed", err)
}

func (s *ManagedService) set(item expr.Item) (ManagedSet, layout.Provisioner, error) {
	record := layout.Provisioner{Key: layout.ProvisionerKey{NS: s.l.ns.id()}}
	var set ManagedSet
	if item == nil {
		return set, record, nil
	}
	record, err := layout.DecodeProvisioner(item)
	if err != nil {
		return set, record, err
	}
	if record.ManagedSystem {
		set.Levels = append(set.Levels, ConfigLevel{})
	}
	for _, v := range record.ManagedResources {
		set.Levels = append(set.Levels, ConfigLevel{Resource: v.Text()})
	}
	for _, entity := range record.ManagedEntities {
		for _, v := range entity.Value.Elements() {
			set.Levels = append(set.Levels, ConfigLevel{entity.Name, v.Value.Text()})
		}
	}
	slices.SortFunc(set.Levels, ConfigLevel.Compare)
	for _, v := range record.Pending {
		if c, ok := parseConfigLevel(v.Text()); ok {
			set.Pending = append(set.Pending, c)
		}
	}
	set.LastApplied, set.Hash = layout.ParseTime(record.LastApplied), record.AppliedHash
	return set, record, nil
}

// Record writes which levels are managed, in place of what was recorded before. It needs the lock: [ErrLockLost] when
// another program has it. The record is an item of at most 400 KB, some thousands of levels; more is a
// [*ValidationError]. It costs a read and a transaction of the record, two write units per KB, and a check of the lock,
// two write units.
func (s *ManagedService) Record(ctx context.Context, lock ManagedLock, set ManagedSet) error {
	if s.l.closed.Load() {
		return ErrClosed
	}
	for _, c := range slices.Concat(set.Levels, set.Pending) {
		if err := c.validate(); err != nil {
			return err
		}
	}
	return publicError("record what is managed", s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := s.readLocked(ctx, lock, layout.ProvisionerKey{NS: s.l.ns.id()}.Key())
		if err != nil {
			return false, err
		}
		_, record, err := s.set(items[0])
		if err != nil {
			return false, err
		}
		set.fill(&record)
		item := record.Encode()
		if _, err := store.CheckSize(record.Key.Key().Join(item)); err != nil {
			return false, &ValidationError{Field: "managed levels", Value: fmt.Sprint(len(set.Levels)), Reason: err.Error()}
		}
		return s.write(ctx, lock, store.Write{Kind: store.Put, Key: record.Key.Key(), Item: item})
	}))
}

// fill makes the record hold the set.
func (m *ManagedSet) fill(record *layout.Provisioner) {
	record.ManagedSystem, record.ManagedResources, record.ManagedEntities, record.Pending = false, nil, nil, nil
	levels := slices.Compact(slices.SortedFunc(slices.Values(m.Levels), ConfigLevel.Compare))
	for i := 0; i < len(levels); i++ {
		switch c := levels[i]; c.Source() {
		case SourceSystem:
			record.ManagedSystem = true
		case SourceResource:
			record.ManagedResources = append(record.ManagedResources, expr.S(c.Resource))
		default:
			resources := []expr.Value{expr.S(c.Resource)}
			for ; i+1 < len(levels) && levels[i+1].Entity == c.Entity; i++ {
				resources = append(resources, expr.S(levels[i+1].Resource))
			}
			record.ManagedEntities = append(record.ManagedEntities, expr.Attribute{Name: c.Entity, Value: expr.List(resources...)})
		}
	}
	for _, c := range m.Pending {
		record.Pending = append(record.Pending, expr.S(c.text()))
	}
	record.LastApplied, record.AppliedHash = layout.FormatTime(m.LastApplied), m.Hash
}

// readLocked returns items, and [ErrLockLost] when the program does not have the lock.
func (s *ManagedService) readLocked(ctx context.Context, lock ManagedLock, keys ...store.Key) ([]expr.Item, error) {
	items, err := s.l.table.Read(ctx, append(keys, s.lockKey())...)
	if err != nil {
		return nil, err
	}
	return items, s.held(lock, items[len(keys)])
}

// held returns [ErrLockLost] unless the item of the lock is that of a lock.
func (s *ManagedService) held(lock ManagedLock, item expr.Item) error {
	if item == nil {
		return ErrLockLost
	}
	found, err := layout.DecodeProvisionerLock(item)
	if err == nil && found.Lock != lock.ID {
		err = ErrLockLost
	}
	return err
}

// write does writes in one transaction, on condition that the program has the lock.
func (s *ManagedService) write(ctx context.Context, lock ManagedLock, writes ...store.Write) (done bool, err error) {
	held, err := layout.HoldProvisionerLock(lock.ID)
	if err != nil {
		return false, err
	}
	return s.l.table.Transact(ctx, append(writes, store.Write{Kind: store.Check, Key: s.lockKey(), Expr: held}))
}

// Replace brings a level from what the program has seen of it to what it wants, and returns that with its new version.
// A config that says nothing deletes the level. It returns [ErrLevelChanged] when the level does not say what before
// says, or has another version. It returns [ErrLockLost] when another program has the lock. In either case nothing was
// written.
//
// It costs what a call of [LimitService] costs, a read unit and two write units more for the lock.
func (s *ManagedService) Replace(
	ctx context.Context, lock ManagedLock, before, want StoredConfig,
) (after StoredConfig, err error) {
	if s.l.closed.Load() {
		return StoredConfig{}, ErrClosed
	}
	if before.Level != want.Level {
		return StoredConfig{}, &ValidationError{Field: "level", Value: want.Level.String(), Reason: "must be the one before, " + before.Level.String()}
	}
	if err := want.validate(); err != nil {
		return StoredConfig{}, err
	}
	c := want.Level.in(&s.l.ns)
	after = StoredConfig{Level: want.Level}
	err = s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, by, err := s.l.readToChange(ctx, c.key, s.lockKey())
		if err == nil {
			err = s.held(lock, items[1])
		}
		if err != nil {
			return false, err
		}
		found, open, err := s.config(want.Level, items[0])
		if err != nil {
			return false, err
		}
		if found.Version != before.Version || !found.Same(&before) {
			return false, fmt.Errorf("%w: %v", ErrLevelChanged, want.Level)
		}
		next, writes, err := s.l.Limits.managed(c, items[0], open, &want, by)
		if err != nil || len(writes) == 0 {
			return err == nil, err
		}
		epoch := s.l.epoch.Add(1)
		if done, err = s.write(ctx, lock, writes...); !done || err != nil {
			return false, err
		}
		if c.source == SourceSystem {
			s.l.retained.Store(nil)
		}
		s.l.cache.learn(c.key, next, epoch)
		after = want
		after.Version, after.Managed = next.version, next.version > 0
		return true, nil
	})
	return after, publicError("set limits", err)
}

// managed returns the writes that make a level what a file wants of it.
func (s *LimitService) managed(c configRef, item expr.Item, open configItem, want *StoredConfig, by author) (*level, []store.Write, error) {
	if want.IsZero() {
		return s.remove(c, item, by)
	}
	next := level{limits: want.Limits, policy: want.OnUnavailable}
	if err := next.check(c.source, "limits"); err != nil {
		return nil, nil, err
	}
	open.fill(next, want.AuditRetention)
	*open.managed = *open.version
	if open.days != nil {
		by.retention = want.AuditRetention
	}
	return s.replace(c, item, open, next, by)
}
