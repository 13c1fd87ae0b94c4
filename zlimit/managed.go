package zlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A ManagedService changes stored limits for programs that keep them as code, such as `zlimit limits apply`. In a
// [ManagedService.Run] such a program replaces levels that no one else has changed, and records the levels that it
// manages. It may delete these when they are removed from its file. It is safe for concurrent use.
type ManagedService struct{ l *RateLimiter }

// A ManagedRun is the right of one program to change the managed levels of a namespace. The transaction of every write
// requires the run's lock of the namespace, and the level as it was read. So the writes of two programs never
// interleave, whatever their clocks and pauses. A run is for one goroutine.
type ManagedRun struct {
	s       *ManagedService
	lock    managedLock
	renewed time.Time
}

// The lock of a run.
const (
	runLease   = time.Minute     // after which the lock of a dead program is free
	unlockTime = 5 * time.Second // to give the lock back when the caller's context has ended
)

// Run calls change while it holds the lock of the namespace. If another run holds it, Run returns a [*LockedError]. The
// lock lasts for a minute, and writes extend it. If a run pauses for longer and another program takes the lock, the
// writes of the run return [ErrLockLost].
//
// Run returns the error of change, and the error of releasing the lock. It costs a conditional write at its start, at
// its end and every 20 seconds. Each costs two write units, and one for an index when the lock is new.
func (s *ManagedService) Run(ctx context.Context, change func(context.Context, *ManagedRun) error) (err error) {
	if change == nil {
		return &ValidationError{Field: "change", Value: "nil", Reason: "must not be nil"}
	}
	r := &ManagedRun{s: s, renewed: s.l.now()}
	if r.lock, err = s.lock(ctx, runLease); err != nil {
		return err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
		defer cancel()
		err = errors.Join(err, s.unlock(late, r.lock))
	}()
	return change(ctx, r)
}

// prolong renews the lock where a third of its time is over.
func (r *ManagedRun) prolong(ctx context.Context) error {
	now := r.s.l.now()
	if now.Sub(r.renewed) < runLease/3 {
		return nil
	}
	lock, err := r.s.renew(ctx, r.lock, runLease)
	if err == nil {
		r.lock, r.renewed = lock, now
	}
	return err
}

// Replace changes a level from the state that the program has read to the wanted state, and returns the latter with its
// new version. An empty config deletes the level. Replace returns [ErrLevelChanged] if the level differs from before,
// or has another version. It returns [ErrLockLost] if another program has the lock. In either case nothing was written.
// The program must check whether a resource may lie within the wider one of [Config.Within] before it writes any level,
// since the levels of a file are written one after another.
//
// Replace costs as much as a call of [LimitService], plus a read unit and two write units for the lock.
func (r *ManagedRun) Replace(ctx context.Context, before, want Stored) (after Stored, err error) {
	if err := r.prolong(ctx); err != nil {
		return Stored{}, err
	}
	return r.s.replace(ctx, r.lock, before, want)
}

// Record replaces the names of the managed levels. It returns [ErrLockLost] if another program has the lock. It costs a
// read and a transaction of the record, at two write units per KB, and a check of the lock, at two write units. With
// more than 64 KB of names, about a thousand levels, the record is stored in parts of about 32 KB, and each part that
// changes is a separate transaction. An interrupted Record does no harm: Pending is recorded before the levels are
// written, and written levels are marked as managed.
func (r *ManagedRun) Record(ctx context.Context, set ManagedSet) error {
	if err := r.prolong(ctx); err != nil {
		return err
	}
	return r.s.record(ctx, &r.lock, set, r.prolong)
}

// A managedLock is the right to change the managed levels of a namespace.
type managedLock struct {
	ID        string
	Holder    string // who took it; "" when that is unknown
	Acquired  time.Time
	ExpiresAt time.Time // from then on another program may take it
}

// Errors of a [ManagedService].
var (
	// ErrLocked says that another program has the lock; the error is a [*LockedError].
	ErrLocked = errors.New("zlimit: limits are being changed")
	// ErrLockLost says that the lock expired, and another program took it. Nothing more can be written with it.
	ErrLockLost = errors.New("zlimit: the lock expired, and another program took it")
	// ErrLevelChanged says that a level is not as the program has seen it.
	ErrLevelChanged = errors.New("zlimit: limits were changed by another writer")
)

// A LockedError reports the run of another program. It is [ErrLocked].
type LockedError struct {
	Holder    string    `json:"holder"` // who started the run; "" if unknown
	Acquired  time.Time `json:"acquired_at"`
	ExpiresAt time.Time `json:"expires_at"` // when its lock expires, unless the run continues
}

// Error says who has the lock, and for how long.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%v by %s since %s; the lock expires at %s", ErrLocked, cmp.Or(e.Holder, "a program without a name"),
		e.Acquired.UTC().Format(time.RFC3339), e.ExpiresAt.UTC().Format(time.RFC3339))
}

// Unwrap returns [ErrLocked].
func (e *LockedError) Unwrap() error { return ErrLocked }

// Read returns the stored configs of levels, in their order, consistently. It costs a batch read of an item for each
// level, 100 to a call, a read unit per 4 KB of each. A level that this version cannot apply is reported by
// [Stored.Unsupported].
func (s *ManagedService) Read(ctx context.Context, levels ...Level) ([]Stored, error) {
	return s.l.Limits.read(ctx, levels...)
}

// lock takes the lock of the namespace for a time, which renew prolongs. Another program's lock is a [*LockedError]; an
// expired one is taken over. It costs one conditional write: two write units at most, and one for an index when the
// lock is new.
func (s *ManagedService) lock(ctx context.Context, lease time.Duration) (managedLock, error) {
	if err := s.check(lease); err != nil {
		return managedLock{}, err
	}
	holder, err := s.l.principal(ctx)
	if err != nil {
		return managedLock{}, err
	}
	now := s.l.now().UTC()
	lock := managedLock{ID: s.l.eventIDs.next(now), Holder: holder, Acquired: now.Truncate(time.Second)}
	free, err := layout.TakeProvisionerLock(now.Unix())
	if err == nil {
		err = s.writeLock(ctx, &lock, lease, free, func(item layout.ProvisionerLock) error {
			held := lockOf(&item)
			return &LockedError{held.Holder, held.Acquired, held.ExpiresAt}
		})
	}
	return lock, publicError("lock the limits", err)
}

// renew prolongs a lock; [ErrLockLost] when another program has taken it. It costs one conditional write.
func (s *ManagedService) renew(ctx context.Context, lock managedLock, lease time.Duration) (managedLock, error) {
	if err := s.check(lease); err != nil {
		return lock, err
	}
	kept, err := layout.KeepProvisionerLock(lock.ID)
	if err == nil {
		err = s.writeLock(ctx, &lock, lease, kept, func(layout.ProvisionerLock) error { return ErrLockLost })
	}
	return lock, publicError("keep the lock of the limits", err)
}

// unlock gives a lock back, if the program still has it. It costs one conditional write.
func (s *ManagedService) unlock(ctx context.Context, lock managedLock) error {
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
	ctx context.Context, lock *managedLock, lease time.Duration, condition expr.Bound, taken func(layout.ProvisionerLock) error,
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

func lockOf(it *layout.ProvisionerLock) managedLock {
	return managedLock{it.Lock, it.Holder, layout.ParseTime(it.AcquiredAt), time.Unix(it.ExpiresAt, 0).UTC()}
}

// heldBy returns [ErrLockLost] unless the item of the lock is that of this one.
func (m *managedLock) heldBy(item expr.Item) error {
	if item == nil {
		return ErrLockLost
	}
	found, err := layout.DecodeProvisionerLock(item)
	if err == nil && found.Lock != m.ID {
		err = ErrLockLost
	}
	return err
}

// with adds to writes the condition that the program has the lock.
func (s *ManagedService) with(lock *managedLock, writes ...store.Write) ([]store.Write, error) {
	held, err := layout.HoldProvisionerLock(lock.ID)
	return append(writes, store.Write{Kind: store.Check, Key: s.lockKey(), Expr: held}), err
}

// replace is [ManagedRun.Replace] under a lock.
func (s *ManagedService) replace(ctx context.Context, lock managedLock, before, want Stored) (after Stored, err error) {
	if before.Level != want.Level {
		return Stored{}, &ValidationError{Field: "level", Value: want.Level.String(), Reason: "must be the one before, " + before.Level.String()}
	}
	if err := want.Level.validate(); err != nil {
		return Stored{}, err
	}
	if err := want.refused(); err != nil {
		return Stored{}, err
	}
	if err := want.Config.check(want.Level, "limits of "+want.Level.String()); err != nil {
		return Stored{}, err
	}
	if err := s.l.Limits.checkSlots(want.Config.Limits); err != nil {
		return Stored{}, err
	}
	if within := want.Config.Within; within != "" && within != before.Config.Within {
		if err := s.l.Limits.checkFleet(within); err != nil {
			return Stored{}, err
		}
	}
	next, err := s.l.Limits.rewrite(ctx, want.Level, &lock, func(i *configItem, by author) (*cachedLevel, []store.Write, error) {
		found, err := i.config()
		if err != nil {
			return nil, nil, err
		}
		if *i.version != before.Version || !found.Same(&before.Config) {
			return nil, nil, fmt.Errorf("%w: %v", ErrLevelChanged, want.Level)
		}
		return i.become(want.Config, i.managed, by)
	})
	if err != nil {
		return Stored{}, err
	}
	return Stored{Level: want.Level, Config: want.Config, Version: next.version, Managed: next.version > 0}, nil
}
