package zlimit

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// What tests see beside the API: the items behind it, the engine at work, and the configuration of a limiter.

// Bounds and units.
const (
	Millis            = millis
	MaxTokens         = maxTokens
	MaxLimits         = maxLimits
	MaxShards         = maxShards
	MaxMetadata       = maxMetadata
	MaxRetentionDays  = maxRetentionDays
	LeastListPage     = leastListPage
	MaxForgotten      = maxForgotten
	Day               = day
	DefaultFreshness  = defaultFreshness
	RegistryNamespace = registryNamespace
)

// Functions.
var (
	Thousands      = thousands
	NewNamespaceID = layout.NewNamespaceID
	PublicError    = publicError

	ValidateEntity   = validateEntity
	ValidateResource = validateResource
)

// WithListing says whether new buckets enter the index of their resource in the background.
func WithListing(listing bool) Option { return func(o *options) { o.listing = listing } }

// StoreOn returns a store on another one, such as one that fails.
func StoreOn(s store.Store) Store { return store.NewHandle(s, false) }

// EmbeddedStoreOn returns a store that is set up when a limiter opens it.
func EmbeddedStoreOn(s store.Store) Store { return store.NewHandle(s, true) }

// Key returns the part of a usage item's key that stands for the window which starts at a time.
func (w Window) Key(start time.Time) string { return w.key(start) }

// NS returns the id of the limiter's namespace, which its keys begin with.
func (l *RateLimiter) NS() string { return l.ns.id() }

// Calls returns the store that the limiter calls.
func (l *RateLimiter) Calls() store.Store { return l.store }

// Table returns the table that the limiter reads and writes.
func (l *RateLimiter) Table() *table.Table { return l.table }

// Engine returns the engine of the limiter.
func (l *RateLimiter) Engine() *protocol.Engine { return l.engine }

// ResourceKey returns the key of the limits of a resource.
func (l *RateLimiter) ResourceKey(resource string) store.Key {
	return l.ns.at(Level{Resource: resource}).key
}

// LimitsReadAt returns when the limits of a bucket were read that the limiter uses.
func (l *RateLimiter) LimitsReadAt(entity, resource string) time.Time {
	return l.engine.Memory.Bucket(entity, resource).Limits.Load().Detail.(*resolved).readAt
}

// ReadLimitsNow reads the limits of a bucket as they are now.
func (l *RateLimiter) ReadLimitsNow(ctx context.Context, entity, resource string) error {
	_, err := l.cache.After(ctx, l.engine.Memory.Bucket(entity, resource), l.engine.NextEpoch())
	return err
}

// ForgetLevels forgets what is stored at any level, as the cache may at any time.
func (l *RateLimiter) ForgetLevels() { l.configs.InvalidateAll() }

// ReadLimits reads the limits of a bucket, unless they are in memory.
func (l *RateLimiter) ReadLimits(ctx context.Context, entity, resource string) error {
	_, err := l.cache.For(ctx, l.engine.Memory.Bucket(entity, resource))
	return err
}

// ForgetLimits makes the limiter put the limits that it remembers together again, as after a change of any limits.
func (l *RateLimiter) ForgetLimits() { l.generation.Add(1) }

// A ManagedLock is the lock of a run.
type ManagedLock = managedLock

// Lock takes the lock of the namespace.
func (s *ManagedService) Lock(ctx context.Context, lease time.Duration) (ManagedLock, error) {
	return s.lock(ctx, lease)
}

// Renew prolongs a lock.
func (s *ManagedService) Renew(ctx context.Context, lock ManagedLock, lease time.Duration) (ManagedLock, error) {
	return s.renew(ctx, lock, lease)
}

// Unlock gives a lock back.
func (s *ManagedService) Unlock(ctx context.Context, lock ManagedLock) error {
	return s.unlock(ctx, lock)
}

// Record writes which levels are managed.
func (s *ManagedService) Record(ctx context.Context, lock ManagedLock, set ManagedSet) error {
	return s.record(ctx, &lock, set, func(context.Context) error { return nil })
}

// Replace changes a level under a lock.
func (s *ManagedService) Replace(ctx context.Context, lock ManagedLock, before, want Stored) (Stored, error) {
	return s.replace(ctx, lock, before, want)
}

// RaiseVersion raises the version record of the table.
func (l *RateLimiter) RaiseVersion(ctx context.Context, aggregator string) error {
	return publicError("raise the version", l.raiseVersion(ctx, aggregator))
}

// Now returns the time by the limiter's clock.
func (l *RateLimiter) Now() time.Time { return l.now() }

// Clock returns the limiter's clock.
func (l *RateLimiter) Clock() func() time.Time { return l.clock.read }

// SetClock replaces the limiter's clock.
func (l *RateLimiter) SetClock(now func() time.Time) { l.clock.read = now }

// NamespaceName returns the name of the limiter's namespace.
func (l *RateLimiter) NamespaceName() string { return l.options.namespace }

// SetsUp reports whether the limiter was asked to set up its table.
func (l *RateLimiter) SetsUp() bool { return l.options.setup }

// RejectionCache returns how long a rejection may be reported from memory.
func (l *RateLimiter) RejectionCache() time.Duration { return l.options.rejectionCache }

// Tuning returns the settings of the limiter that hardly any program changes.
func (l *RateLimiter) Tuning() Tuning { return l.options.tuning }

// WritesAtOnce returns how many writes of one bucket may be under way before requests share them; 0 for no sharing.
func (l *RateLimiter) WritesAtOnce() int { return l.options.writesAtOnce }

// Freshness returns the freshness that the limiter was given, or [DefaultFreshness].
func (l *RateLimiter) Freshness() time.Duration { return l.options.freshness }

// FreshnessOf returns the freshness of a bucket of an entity's own limits.
func (l *RateLimiter) FreshnessOf(limits []Limit) time.Duration {
	return time.Duration(l.options.configOf(limits, SourceEntity).Freshness) * time.Millisecond
}
