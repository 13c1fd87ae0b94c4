package store

import (
	"errors"
	"fmt"
)

// Errors that a caller tells apart. An [*Error] wraps one of them where it applies.
var (
	// ErrTableNotFound says that the table, or the schema in a database file, does not exist.
	ErrTableNotFound = errors.New("table not found")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store closed")
	// ErrConflict says that a transaction met another one on the same item and did nothing. It may be tried again.
	ErrConflict = errors.New("transaction conflict")
)

// An Error is a call that failed for another reason than its condition.
type Error struct {
	// Op is the operation in the store's own terms, such as UpdateItem.
	Op string
	// Unavailable marks outages: the store did not answer, or answered that it cannot serve for now. Denied
	// permission, a missing table and malformed requests are no outages.
	Unavailable bool
	// Throttled marks outages in which the store answered that it is asked too often.
	Throttled bool
	// Unknown marks writes that may have happened: sent, but not answered. Every other error of a write proves that
	// nothing was written.
	Unknown bool
	// Invalid marks writes that are at fault themselves, and fail whenever they are tried on the item as it is: it would be
	// too large, or hold what it must not.
	Invalid bool
	// Err is the cause.
	Err error
}

// Error returns the operation and the cause.
func (e *Error) Error() string {
	if e.Unknown {
		return fmt.Sprintf("%s: outcome unknown: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
