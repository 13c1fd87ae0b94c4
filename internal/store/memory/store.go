// Package memory keeps items in the memory of one process: in Go maps, sharded by partition key, and sorted lists for
// queries.
//
// Package expr evaluates conditions and updates on the stored item, as it does for SQLite. A write puts a new version
// in the place of the stored one, so a returned image never changes. A caller that releases the result of a write gives
// the memory of its image back, for a version to come.
//
// A call locks the shards of the keys that it names, out of a few hundred, and calls on other shards go on beside it.
// No call waits for anything but these locks, and the package starts no goroutine.
package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A Store is a [store.Store] in the memory of this process, which ends with it. It is safe for concurrent use. Close
// gives its memory back.
type Store struct {
	schema *store.Schema
	now    func() time.Time

	table   atomic.Pointer[table] // nil before Setup and after Close
	opening sync.Mutex            // guards changes of table and closed
	closed  atomic.Bool
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Expirer  = (*Store)(nil)
	_ store.Streamer = (*Store)(nil)
)

// An Option changes how a [Store] works.
type Option func(*Store)

// Clock sets the clock for the time of a change, and its age. It is time.Now by default.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// New returns a store without a table: until [Store.Setup], calls fail with [store.ErrTableNotFound]. It returns an error
// for a description with two indexes of one name.
func New(description store.Table, options ...Option) (*Store, error) {
	schema, err := store.NewSchema(description)
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	s := &Store{schema: schema, now: time.Now}
	for _, option := range options {
		option(s)
	}
	return s, nil
}

// Setup makes the table. It does nothing when there is one.
func (s *Store) Setup(ctx context.Context) error {
	const op = "setup"
	if err := ctx.Err(); err != nil {
		return failure(op, err)
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.closed.Load() {
		return failure(op, store.ErrClosed)
	}
	if s.table.Load() == nil {
		s.table.Store(newTable(s.schema))
	}
	return nil
}

// Ping looks whether the table exists.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.begin(ctx)
	return failure("ping", err)
}

// Partitioned returns false: a key takes as many writes as a processor makes.
func (*Store) Partitioned() bool { return false }

// Identity returns the name of the user of the operating system that the process runs as.
func (*Store) Identity(context.Context) (string, error) { return store.CurrentUser() }

// Close drops the table. Calls under way end as if they had come before. A second Close does nothing; other calls fail
// with [store.ErrClosed].
func (s *Store) Close() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.closed.Store(true)
	s.table.Store(nil)
	return nil
}

func (s *Store) begin(ctx context.Context) (*table, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := s.table.Load()
	switch {
	case t != nil:
		return t, nil
	case s.closed.Load():
		return nil, store.ErrClosed
	default:
		return nil, store.ErrTableNotFound
	}
}

// failure returns the error of a call as package store defines it, nil for nil.
func failure(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // before the call did anything
		return fmt.Errorf("memory %s: %w", op, err)
	default:
		return &store.Error{Op: "memory " + op, Err: err}
	}
}

// invalid returns the error of a write that is at fault itself.
func invalid(op string, err error) error {
	return &store.Error{Op: "memory " + op, Invalid: true, Err: err}
}

// Immediate says that no call waits.
func (s *Store) Immediate() {}
