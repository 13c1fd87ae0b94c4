package quota

import (
	"context"
	"sync/atomic"
	"time"
)

// Store keeps windows outside the process, shared with other processes. A
// Limiter on a store decides nothing itself: every call is one call of the
// store, which must decide and record in one transaction, with
// [ModelQuota.Exceeded]. Package quota/quotasqlite has the one this module
// ships.
//
// Methods are safe for concurrent use. Check and Reserve return an
// *ExceededError where a limit refuses. Arguments were validated.
type Store interface {
	Check(ctx context.Context, c Charge) error
	Reserve(ctx context.Context, c Charge) (Ticket, error)
	Record(ctx context.Context, c Charge) error
	Settle(ctx context.Context, t Ticket, input, output int64) error
	Cancel(ctx context.Context, t Ticket) error
	TimeUntil(ctx context.Context, c Charge) (time.Duration, error)

	// Snapshot returns what a name's windows hold. Its Quota is the stored one
	// where Stored is set, else zero.
	Snapshot(ctx context.Context, sc Scope, name string) (Snapshot, error)
	Snapshots(ctx context.Context, sc Scope) (map[string]Snapshot, error)
	// SetQuotas stores quotas; with keep, only for names that have none stored.
	SetQuotas(ctx context.Context, sc Scope, quotas map[string]ModelQuota, keep bool) error
	// Reset forgets the usage of a name, and with an empty name of all names of
	// both scopes.
	Reset(ctx context.Context, sc Scope, name string) error

	// State reads and validates everything stored.
	State(ctx context.Context) (State, error)
	// Replace puts a state in place of all stored usage; its quotas are added to
	// those stored.
	Replace(ctx context.Context, s State) error
	Close() error
}

// Charge is a request together with the quotas that apply where the store has
// none for the names.
type Charge struct {
	Request
	Quota    ModelQuota
	KeyQuota ModelQuota
}

// Ticket is what a store needs to find a reservation again.
type Ticket any

// Snapshot is the usage and quota of one name.
type Snapshot struct {
	Usage
	DayStart time.Time // zero while no day is running
	Quota    ModelQuota
	Stored   bool // the store has a quota of its own for the name
}

// OpenStore opens a store at a path and creates it where it is missing. clock
// is nil for the machine's clock.
type OpenStore func(ctx context.Context, path string, clock func() time.Time) (Store, error)

var sqliteOpener atomic.Pointer[OpenStore]

// RegisterSQLite makes the engine behind [NewWithSQLite] known. Package
// quota/quotasqlite calls it when it is imported.
func RegisterSQLite(open OpenStore) { sqliteOpener.Store(&open) }

func openSQLite(ctx context.Context, path string, clock func() time.Time) (Store, error) {
	open := sqliteOpener.Load()
	if open == nil {
		return nil, ErrNoSQLite
	}
	return (*open)(ctx, path, clock)
}
