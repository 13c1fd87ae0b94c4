package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Errors that a caller distinguishes. An [*Error] wraps one of them where it applies.
var (
	// ErrTableNotFound says that the table, or the schema in a database file, does not exist.
	ErrTableNotFound = errors.New("table not found")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store closed")
	// ErrConflict reports a write or a transaction that met another transaction on the same item. Nothing was
	// written. It may be tried again.
	ErrConflict = errors.New("transaction conflict")
)

// An Error is a call that failed for another reason than its condition.
type Error struct {
	// Op is the operation in the store's own terms, such as UpdateItem.
	Op string
	// Unavailable marks outages: the store did not answer, or answered that it cannot serve for now. Denied
	// permission, a missing table and malformed requests are no outages.
	Unavailable bool
	// Throttled marks outages in which the store answered that it has too many calls.
	Throttled bool
	// Throttles says which limits a throttled call met, as far as the store reported.
	Throttles []Throttle
	// Unknown marks writes that may have happened: sent, but not answered. Every other error of a write proves that
	// nothing was written.
	Unknown bool
	// Invalid marks writes that are at fault themselves, and fail whenever they are tried on the item as it is. They would
	// make it too large, or give it a value that it must not hold.
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

// An ItemError reports an item that does not fit its record: another program wrote it, or a person did.
type ItemError struct {
	Key       Key    // of the item
	Attribute string // "" where the item as a whole is wrong
	Err       error  // the mistake, with the name of the attribute
}

// Error returns the mistake in words.
func (e *ItemError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *ItemError) Unwrap() error { return e.Err }

// An Outcome is the meaning of an error of a store: the fate of the call, and the caller's options.
type Outcome uint8

// The outcomes of a call.
const (
	Done        Outcome = iota // no error
	Refused                    // denied, malformed, or the table is missing: it would fail again, and is no outage
	Conflicted                 // another transaction held an item, nothing was written: it may be tried again
	Throttled                  // the store was asked too often, nothing was written: it may be tried again later
	Unavailable                // the store was not reached, or could not serve: an outage in which nothing was written
	Unknown                    // the write was sent and not clearly answered: it may have happened, and must not be repeated
	Ended                      // the caller's context ended, and nothing was written
)

// OutcomeOf returns the outcome of a call by its error from a [Store]. It is the one place where errors of stores are
// distinguished; a failed condition is a [Result], and never an error.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Done
	}
	var failed *Error
	known := errors.As(err, &failed)
	switch {
	case known && failed.Unknown:
		return Unknown
	case errors.Is(err, ErrConflict):
		return Conflicted
	case known && failed.Throttled:
		return Throttled
	case known && failed.Unavailable:
		return Unavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Ended
	default:
		return Refused
	}
}

// ErrorsIn returns the errors of stores in an error, which may be several joined.
func ErrorsIn(err error) (found []*Error) {
	switch e := err.(type) { //nolint:errorlint // every error of the tree is looked at
	case nil:
	case *Error:
		found = []*Error{e}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			found = append(found, ErrorsIn(inner)...)
		}
	default:
		found = ErrorsIn(errors.Unwrap(err))
	}
	return found
}

// A Limit is a kind of limit on how often a store may be asked.
type Limit uint8

// The limits of DynamoDB.
const (
	OfUnknown Limit = iota // one that this package does not know
	OfKey                  // of a range of keys, down to a single one: 1,000 writes or 3,000 reads per second
	OfTable                // of the whole table or index, as it is configured
	OfAccount              // of the account for each table or index
)

// A Throttle is a limit that a throttled call met.
type Throttle struct {
	Limit Limit
	Index bool // the limit is of an index, not of the table
	Write bool // it is of writes, not of reads
	// Reason and Resource are the store's own words: a name such as TableWriteKeyRangeThroughputExceeded, and the ARN of
	// the table or index.
	Reason, Resource string
}

// IndexThrottled reports whether the store said that an index takes no more changes of its entries for now. Writes that change no
// entry may be served meanwhile. It is false if the store gave no reason.
func (e *Error) IndexThrottled() bool {
	return slices.ContainsFunc(e.Throttles, func(t Throttle) bool { return t.Index && t.Write })
}

// KeyThrottled reports whether the store said that the keys of the call in the table itself are used too often.
// Splitting an item among several keys would then help. It is false if the store gave no reason.
func (e *Error) KeyThrottled() bool {
	return slices.ContainsFunc(e.Throttles, func(t Throttle) bool { return t.Limit == OfKey && !t.Index })
}
