package quota

import (
	"context"
	"sync/atomic"
	"time"
)

// Store keeps windows outside the process, shared with other processes. A
// Limiter on a store decides nothing itself. Every decision is one call of the
// store, which must decide and record in one transaction, with
// [ModelQuota.Exceeded]. Package quota/quotasqlite has the one this module
// ships.
//
// Methods are safe for concurrent use. Check and Reserve return an
// *ExceededError where a limit refuses; [Refusal] makes it. Arguments were
// validated.
type Store interface {
	Check(ctx context.Context, c Charge) error
	Reserve(ctx context.Context, c Charge) (Ticket, error)
	Record(ctx context.Context, c Charge) error
	Settle(ctx context.Context, t Ticket, input, output int64) error
	Cancel(ctx context.Context, t Ticket) error

	// History returns the records of a name, perhaps with aged-out entries, and its stored quota, nil where there is
	// none.
	History(ctx context.Context, sc Scope, name string) (UsageStats, *ModelQuota, error)
	// Quota returns the stored quota of a name, and whether there is one.
	Quota(ctx context.Context, sc Scope, name string) (ModelQuota, bool, error)
	// State returns everything stored, validated.
	State(ctx context.Context) (State, error)
	// Verify checks the whole store.
	Verify(ctx context.Context) error
	// Replace puts a state in place of all stored usage; its quotas are added to
	// those stored.
	Replace(ctx context.Context, s State) error
	// SetQuotas stores quotas; with keep, only for names that have none stored.
	SetQuotas(ctx context.Context, sc Scope, quotas map[string]ModelQuota, keep bool) error
	// Reset forgets the usage of a name, and with an empty name of all names of
	// both scopes.
	Reset(ctx context.Context, sc Scope, name string) error
	Close() error
}

// Charge is a request together with the quotas that apply where the store has
// none for the names.
type Charge struct {
	Request
	Quota    ModelQuota `json:"quota"`
	KeyQuota ModelQuota `json:"key_quota"`
}

// Ticket identifies a reservation for a store.
type Ticket any

// Refusal returns the error for a request that passes limit l of q.
func Refusal(sc Scope, name string, q ModelQuota, l Limit, input, output int64) *ExceededError {
	impossible := q.Impossible(input, output)
	if impossible != LimitNone {
		l = impossible
	}
	return &ExceededError{Scope: sc, Name: name, Limit: l, Max: q.Max(l), Impossible: impossible != LimitNone}
}

// OpenStore opens a store at a path and creates it if it is missing. clock
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
