package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/zlimit/zlimit-go/internal/store"
)

// code returns the primary result code of SQLite's error, 0 when err is none.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// isBusy reports whether another connection's lock stopped a statement.
func isBusy(err error) bool { return err != nil && code(err) == lib.SQLITE_BUSY }

// isMoved reports whether SQLite noticed that the file is not at its path any more, which it calls read-only.
func isMoved(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == lib.SQLITE_READONLY_DBMOVED
}

// rolledBack returns the error of a transaction, nil for none, joined with the one of its rollback. After some errors, such as that of a full
// disk, SQLite has ended the transaction itself: the rollback then fails by SQLITE_ERROR, which means nothing.
func rolledBack(err, rollback error) error {
	if err != nil && code(rollback) == lib.SQLITE_ERROR {
		return err
	}
	return errors.Join(err, rollback)
}

// An invalid is the error of a write that is at fault itself.
type invalid struct{ error }

func (e invalid) Unwrap() error { return e.error }

// failure returns the error of a call as package store defines it, nil for nil.
func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	op = "sqlite " + op
	if code(err) == lib.SQLITE_READONLY && !isMoved(err) {
		err = fmt.Errorf("the file, or a file beside it, cannot be opened for writing: %w", err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) { // while waiting: nothing was done
		return fmt.Errorf("%s: %w", op, err)
	}
	result := &store.Error{Op: op, Err: err, Invalid: errors.As(err, new(invalid))}
	switch code(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_NOMEM, lib.SQLITE_CANTOPEN, lib.SQLITE_PROTOCOL:
		result.Unavailable = true
	}
	return result
}
