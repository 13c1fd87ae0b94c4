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
	// ErrContended reports that other writers came first in every try. Nothing was written.
	ErrContended = table.ErrContended
	// ErrClosed reports that the engine was closed.
	ErrClosed = errors.New("engine closed")
)

// An UndecidedError reports that the context of a request ended before the request was decided, although the store answered: other writers
// came first, or other requests of this process are still in the queue. Nothing was taken.
type UndecidedError struct{ Err error }

// Error says so.
func (e *UndecidedError) Error() string {
	return "not decided by the store's answers: " + e.Err.Error()
}

// Unwrap returns the error of the context.
func (e *UndecidedError) Unwrap() error { return e.Err }

// A RejectedError reports that a request was rejected. Nothing was taken.
type RejectedError struct{ Levels []LevelStatus }

// A LevelStatus has the state of the limits of one level of a request.
type LevelStatus struct {
	Entity, Resource string
	Ancestor         int // how many parents the entity is above the request's own
	Wider            int // how many steps the resource is wider than the request's own
	Statuses         []bucket.Status
}

// Error describes what happened; callers report the statuses.
func (e *RejectedError) Error() string { return "a limit falls short" }

// A NoLimitsError reports that there are no limits for an entity and resource.
type NoLimitsError struct {
	Entity, Resource string
	Asked            []string // the levels that were checked, as entity/resource; nil if only the entity's own was
}

// Error names entity and resource.
func (e *NoLimitsError) Error() string {
	return fmt.Sprintf("no limits for entity %q, resource %q", e.Entity, e.Resource)
}

// An UnknownLimitError reports that a limit of a request is not configured.
type UnknownLimitError struct {
	Limit string
	Known []bucket.Params
	Asked []string // the levels that were checked, as entity/resource
	Slots bool     // it is a limit of slots, and the operation needs one of tokens
}

// Error names the limit.
func (e *UnknownLimitError) Error() string { return fmt.Sprintf("limit %q is not configured", e.Limit) }

// A DisabledError reports that an operator has disabled a bucket. Nothing was taken.
type DisabledError struct{ Entity, Resource string }

// Error names the bucket.
func (e *DisabledError) Error() string {
	return fmt.Sprintf("entity %q is disabled for resource %q", e.Entity, e.Resource)
}

// A DepthError reports that an entity has too many ancestors.
type DepthError struct{ Entity string }

// Error names the entity.
func (e *DepthError) Error() string {
	return fmt.Sprintf("entity %q has more than %d ancestors", e.Entity, MaxDepth-1)
}

// A WidthError reports that a resource lies within too many others, or within itself.
type WidthError struct {
	Resources []string // each within the next; the last one exceeds the bound
}

// Error names the resources.
func (e *WidthError) Error() string {
	return fmt.Sprintf("resource %q lies within itself or more than %d others: %s", e.Resources[0], MaxWidth-1, strings.Join(e.Resources, " within "))
}

// A LevelsError reports that a request would be charged to too many buckets.
type LevelsError struct {
	Entity, Resource string
	Levels           int
}

// Error names entity and resource.
func (e *LevelsError) Error() string {
	return fmt.Sprintf("entity %q, resource %q: %d buckets of parents and wider resources, more than %d", e.Entity, e.Resource, e.Levels, MaxLevels)
}

// A CrowdedError reports that an item would have more limits than fit into a write.
type CrowdedError struct{ Entity, Resource string }

// Error names the bucket.
func (e *CrowdedError) Error() string {
	return fmt.Sprintf("the bucket of entity %q, resource %q has more than %d limits in use", e.Entity, e.Resource, bucket.MaxLimits)
}

// Outcomes that an engine handles itself.
var (
	errShort     = errors.New("a shard falls short")          // in an image from after the arrival of the request
	errElsewhere = errors.New("this shard falls short")       // of the callers that chose it; another one may have enough
	errNoShard   = errors.New("no such shard")                // it was merged or split: the lot belongs to another one
	errOutdated  = errors.New("the limits changed")           // the level must be built again
	errUnaligned = errors.New("the shards change together")   // their limits differ from the level's, or they open a session
	errRoom      = errors.New("the view shows enough tokens") // though a shard fell short before
)

// Joined returns several errors as one, nil if there are none. If calls of several buckets ended because their caller gave up, it reports
// that once.
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

// IsThrottled reports whether an error is a throttle of the store.
func IsThrottled(err error) bool { return store.OutcomeOf(err) == store.Throttled }

// isKeyThrottled reports whether an error is a throttle of the keys of a call, or one without a reason.
func isKeyThrottled(err error) bool {
	return IsThrottled(err) && slices.ContainsFunc(store.ErrorsIn(err), func(e *store.Error) bool {
		return e.KeyThrottled() || e.Throttled && len(e.Throttles) == 0
	})
}

// isHotKey reports whether an error is a throttle that names the keys of the call as the reason.
func isHotKey(err error) bool {
	return IsThrottled(err) && slices.ContainsFunc(store.ErrorsIn(err), (*store.Error).KeyThrottled)
}

// isWriteThrottled reports whether an error is a throttle of the keys of a write. Nothing was written.
func isWriteThrottled(err error) bool { return isKeyWriteThrottled(err, false) }

// isIndexThrottled reports whether an error is a throttle of keys of an index, which many buckets share. Nothing was written.
func isIndexThrottled(err error) bool { return isKeyWriteThrottled(err, true) }

func isKeyWriteThrottled(err error, index bool) bool {
	return IsThrottled(err) && slices.ContainsFunc(store.ErrorsIn(err), func(e *store.Error) bool {
		return slices.ContainsFunc(e.Throttles, func(t store.Throttle) bool { return t.Limit == store.OfKey && t.Write && t.Index == index })
	})
}

// isOutage reports whether an error is an outage: the store did not answer, or failed.
func isOutage(err error) bool {
	switch store.OutcomeOf(err) {
	case store.Throttled, store.Unavailable, store.Unknown:
		return true
	default:
		return false
	}
}
