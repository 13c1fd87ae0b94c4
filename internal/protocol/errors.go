package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Errors of an engine, other than the errors of the store.
var (
	// ErrContended says that other writers came first in every try. Nothing was written.
	ErrContended = table.ErrContended
	// ErrClosed says that the engine was closed.
	ErrClosed = errors.New("engine closed")
)

// An UndecidedError says that the context of a request ended before it was decided, although the store answered: other writers were first, or
// other requests of this process are still in the queue. Nothing was taken.
type UndecidedError struct{ Err error }

// Error says so.
func (e *UndecidedError) Error() string {
	return "not decided by the store's answers: " + e.Err.Error()
}

// Unwrap returns the error of the context.
func (e *UndecidedError) Unwrap() error { return e.Err }

// A RejectedError says that a request was rejected: all of it, with nothing taken.
type RejectedError struct{ Levels []LevelStatus }

// A LevelStatus is where the limits of one level of a request stand.
type LevelStatus struct {
	Entity, Resource string
	Ancestor         int // how far the entity is above that of the request
	Wider            int // how many resources wider than that of the request the resource is
	Statuses         []bucket.Status
}

// Error says what happened; callers report the statuses.
func (e *RejectedError) Error() string { return "a limit falls short" }

// A NoLimitsError says that no limits hold for an entity and resource.
type NoLimitsError struct {
	Entity, Resource string
	Asked            []string // the levels that were asked, as entity/resource; nil for that of the entity alone
}

// Error names entity and resource.
func (e *NoLimitsError) Error() string {
	return fmt.Sprintf("no limits for entity %q, resource %q", e.Entity, e.Resource)
}

// An UnknownLimitError says that a limit of a request is not configured.
type UnknownLimitError struct {
	Limit string
	Known []bucket.Params
	Asked []string // the levels that were asked, as entity/resource
	Slots bool     // it is one of slots, which an operation on tokens does not know
}

// Error names the limit.
func (e *UnknownLimitError) Error() string { return fmt.Sprintf("limit %q is not configured", e.Limit) }

// A DisabledError says that an operator has disabled a bucket. Nothing was taken.
type DisabledError struct{ Entity, Resource string }

// Error names the bucket.
func (e *DisabledError) Error() string {
	return fmt.Sprintf("entity %q is disabled for resource %q", e.Entity, e.Resource)
}

// A DepthError says that an entity has too many ancestors.
type DepthError struct{ Entity string }

// Error names the entity.
func (e *DepthError) Error() string {
	return fmt.Sprintf("entity %q has more than %d ancestors", e.Entity, MaxDepth-1)
}

// A WidthError says that a resource lies within too many others, or within itself.
type WidthError struct {
	Resources []string // each within the next one; the last one is one too many
}

// Error names the resources.
func (e *WidthError) Error() string {
	return fmt.Sprintf("resource %q lies within itself or more than %d others: %s", e.Resources[0], MaxWidth-1, strings.Join(e.Resources, " within "))
}

// A LevelsError says that a request would be charged to too many buckets.
type LevelsError struct {
	Entity, Resource string
	Levels           int
}

// Error names entity and resource.
func (e *LevelsError) Error() string {
	return fmt.Sprintf("entity %q, resource %q: %d buckets of parents and wider resources, more than %d", e.Entity, e.Resource, e.Levels, MaxLevels)
}

// A CrowdedError says that an item would have more limits than fit a write.
type CrowdedError struct{ Entity, Resource string }

// Error names the bucket.
func (e *CrowdedError) Error() string {
	return fmt.Sprintf("the bucket of entity %q, resource %q has more than %d limits in use", e.Entity, e.Resource, bucket.MaxLimits)
}

// Outcomes that an engine handles itself.
var (
	errShort     = errors.New("a shard falls short")          // of the demand, as seen since the request came
	errElsewhere = errors.New("this shard falls short")       // of those who came for it; another one may have what they ask for
	errNoShard   = errors.New("no such shard")                // it was merged, or split: the lot has another one
	errOutdated  = errors.New("the limits changed")           // so that the level has to be built again
	errUnaligned = errors.New("the shards change together")   // they have other limits than the level, or open a session
	errRoom      = errors.New("the view shows enough tokens") // though a shard fell short before
)

// Joined returns several errors as one, nil if there are none. Calls of several buckets that end because their caller has given up say so
// once.
func Joined(errs ...error) error {
	var said []error
	for _, err := range errs {
		again := func(other error) bool {
			return store.OutcomeOf(other) == store.Ended && errors.Is(other, context.Canceled) == errors.Is(err, context.Canceled)
		}
		if err != nil && (store.OutcomeOf(err) != store.Ended || !slices.ContainsFunc(said, again)) {
			said = append(said, err)
		}
	}
	return errors.Join(said...)
}

// IsUnknown reports whether an error leaves open whether a write happened.
func IsUnknown(err error) bool {
	return slices.ContainsFunc(store.ErrorsIn(err), func(e *store.Error) bool { return e.Unknown })
}

// IsThrottled reports whether an error says that the store is asked too often.
func IsThrottled(err error) bool { return store.OutcomeOf(err) == store.Throttled }

// isKeyThrottled reports whether an error says that the keys of a call have too many calls, or names no reason.
func isKeyThrottled(err error) bool {
	return IsThrottled(err) && slices.ContainsFunc(store.ErrorsIn(err), func(e *store.Error) bool {
		return e.KeyThrottled() || e.Throttled && len(e.Throttles) == 0
	})
}

// isHotKey reports whether an error says that the keys of a call are used too often, and names them as the reason.
func isHotKey(err error) bool {
	return IsThrottled(err) && slices.ContainsFunc(store.ErrorsIn(err), (*store.Error).KeyThrottled)
}

// isWriteThrottled reports whether an error says that the keys of a write are written too often. Nothing was written.
func isWriteThrottled(err error) bool { return isKeyWriteThrottled(err, false) }

// isIndexThrottled reports whether an error blames keys of an index: they have too many writes. Nothing was written.
// The keys are shared by many buckets.
func isIndexThrottled(err error) bool { return isKeyWriteThrottled(err, true) }

func isKeyWriteThrottled(err error, index bool) bool {
	return IsThrottled(err) && slices.ContainsFunc(store.ErrorsIn(err), func(e *store.Error) bool {
		return slices.ContainsFunc(e.Throttles, func(t store.Throttle) bool { return t.Limit == store.OfKey && t.Write && t.Index == index })
	})
}

// isOutage reports whether an error says that the store did not answer, or could not serve.
func isOutage(err error) bool {
	switch store.OutcomeOf(err) {
	case store.Throttled, store.Unavailable, store.Unknown:
		return true
	default:
		return false
	}
}
