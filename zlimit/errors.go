package zlimit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Errors without data. Distinguish them with [errors.Is].
var (
	// ErrNoLimits says that no level has limits for the entity and resource, or the requested level has none. If levels have limits,
	// but none of the requested name, the error is a [*ValidationError], too.
	ErrNoLimits = errors.New("zlimit: no limits configured")
	// ErrLeaseClosed says that a lease was committed or rolled back before.
	ErrLeaseClosed = errors.New("zlimit: lease closed")
	// ErrSettled says that the token of a lease was settled before with other amounts. The error in its chain is a [*SettledError].
	ErrSettled = errors.New("zlimit: lease settled with other amounts")
	// ErrReusedID says that an entity has made another request with the same [Request.ID]. The error in its chain is a [*ReusedIDError].
	ErrReusedID = errors.New("zlimit: request id used by another request")
	// ErrTokenExpired says that the lifetime of a lease's token has ended, see [Lease.Token]. Nothing was written.
	ErrTokenExpired = errors.New("zlimit: token of the lease expired")
	// ErrTableNotFound says that the table does not exist. [WithSetup] creates it.
	ErrTableNotFound = errors.New("zlimit: table not found")
	// ErrNamespaceNotFound says that the namespace is not registered.
	ErrNamespaceNotFound = errors.New("zlimit: namespace not found")
	// ErrNamespaceState says that the state of the namespace does not allow the call, such as purging one in use.
	ErrNamespaceState = errors.New("zlimit: namespace in another state")
	// ErrEntityExists says that the entity exists.
	ErrEntityExists = errors.New("zlimit: entity exists")
	// ErrEntityNotFound says that the entity, or its parent, was not created.
	ErrEntityNotFound = errors.New("zlimit: entity not found")
	// ErrEntityChanged says that an entity was updated since it was read, or deleted and created again.
	ErrEntityChanged = errors.New("zlimit: entity changed since it was read")
	// ErrEntityHasChildren says that an entity is the parent of others. Delete these first.
	ErrEntityHasChildren = errors.New("zlimit: entity has children")
	// ErrContended says that other writers changed the item first, more often than the limiter tries. Nothing was written.
	// No failure policy admits such a request.
	ErrContended = errors.New("zlimit: too many concurrent writers")
	// ErrClock says that the time is not known as exactly as slots need it, which is a tenth of their term. Either the replies of the store
	// take too long for the term, and a longer term helps, or the clock of this machine is behind the clock of another process. Nothing was
	// taken. No failure policy admits such a request.
	ErrClock = errors.New("zlimit: clock not exact enough")
	// ErrDisabled says that an operator rejects requests, see [LimitService.Disable]. The error in its chain is a [*DisabledError].
	ErrDisabled = errors.New("zlimit: disabled")
	// ErrClosed says that the limiter was closed.
	ErrClosed = errors.New("zlimit: limiter closed")
)

// A ValidationError reports input that breaks a rule. Nothing was written.
type ValidationError struct {
	Field  string `json:"field"`  // the wrong field, such as "entity" or "consume[tpm]"
	Value  string `json:"value"`  // its value
	Reason string `json:"reason"` // the rule that it breaks

	missing bool // no level that was asked has the limit, so that the mistake is in what is stored, too
}

// Is reports whether the error is about missing limits: a request that names a limit which none of its levels has is also an [ErrNoLimits].
func (e *ValidationError) Is(target error) bool { return e.missing && target == ErrNoLimits }

// Error returns field, value and rule. It shortens a long value; Value is complete.
func (e *ValidationError) Error() string {
	return fmt.Sprintf("zlimit: invalid %s %s: %s", e.Field, quoted(e.Value), e.Reason)
}

// longestValue is the number of bytes of a value that an error shows.
const longestValue = 100

// quoted returns a value as an error shows it.
func quoted(value string) string {
	if len(value) <= longestValue {
		return strconv.Quote(value)
	}
	end := longestValue
	for end > longestValue-utf8.UTFMax && !utf8.RuneStart(value[end]) {
		end--
	}
	return fmt.Sprintf("%q… (%d bytes)", value[:end], len(value))
}

// The values of [UnavailableError.Op] for requests and their leases. Every other call has a description, such as
// "available" or "set limits".
//
// [RateLimiter.Do] fails with OpAcquire when the request was not admitted and its function was not called. It fails
// with OpCommit or OpRollback when the function has returned, and its corrections or its refund could not be written.
const (
	OpAcquire    = "acquire"
	OpAcquireAll = "acquire all" // of several requests
	OpWait       = "wait"        // of a request that may wait for its tokens
	OpReserve    = "reserve"     // of a request whose caller sleeps on its own
	OpConsume    = "consume"     // a lease takes more; after a failure it keeps its tokens
	OpCommit     = "commit"
	OpRollback   = "rollback"
	OpSettle     = "settle" // of a lease that was handed on as a token
)

// An UnavailableError reports an outage: the store did not answer, or answered that it cannot serve the call now.
type UnavailableError struct {
	Op string `json:"op"` // the operation of the limiter, such as [OpAcquire]
	// Unknown says that a write was sent and not answered, or not by DynamoDB. It may have happened, and counts as charged.
	Unknown bool  `json:"unknown"`
	Err     error `json:"-"` // the error of the store
}

// Error returns the operation and the cause.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("zlimit: %s: store unavailable: %v", e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// A DisabledError reports a request that was rejected because an operator has disabled the entity, the resource, or the entity for the
// resource: see [LimitService.Disable]. Nothing was consumed. No failure policy admits such a request.
type DisabledError struct {
	Entity   string `json:"entity"` // of the request, or the parent that is disabled
	Resource string `json:"resource"`
}

// Error names the entity and the resource.
func (e *DisabledError) Error() string {
	return fmt.Sprintf("%v: entity %q, resource %q", ErrDisabled, e.Entity, e.Resource)
}

// Is reports whether the other error is [ErrDisabled].
func (*DisabledError) Is(other error) bool { return other == ErrDisabled }

// An ItemError reports an item that breaks the rules of its record: another program wrote it, or a person did. The call
// needed the item to decide, and wrote nothing that depends on it. No failure policy admits such a request. Calls
// succeed again when the attribute is set right or removed.
type ItemError struct {
	PK        string `json:"pk"`        // partition key of the item
	SK        string `json:"sk"`        // sort key
	Attribute string `json:"attribute"` // "" where the item as a whole is wrong
	Reason    string `json:"reason"`    // the mistake

	op string
}

// Error names the call, the item, and the mistake.
func (e *ItemError) Error() string {
	return fmt.Sprintf("zlimit: %s: item %q, %q cannot be read: %s", e.op, e.PK, e.SK, e.Reason)
}

// An ExceededError reports a request that was rejected by at least one limit. Nothing was consumed.
type ExceededError struct {
	// Statuses holds the status of every limit of the request's resource, passed and exceeded, the strictest first. They
	// are the limits of the entity and of the parents that it cascades to.
	Statuses Statuses
}

// Error names the limits that were exceeded.
func (e *ExceededError) Error() string {
	var b strings.Builder
	b.WriteString("zlimit: rate limit exceeded")
	separator := ": "
	for _, s := range e.Violations() {
		kept := ""
		switch {
		case s.Kept > 0 && s.Limit.Term > 0:
			kept = fmt.Sprintf(", %d kept for the first one who waits", s.Kept)
		case s.Kept > 0:
			kept = fmt.Sprintf(", %s kept for other priorities", amountText(s.Limit.Name, s.Kept))
		}
		name := s.Limit.Name
		fmt.Fprintf(&b, "%s%s/%s %s (requested %s, available %s of %s%s)", separator, s.Entity, s.Resource, name,
			amountText(name, s.Requested), amountText(name, s.Available), amountText(name, s.Now().Capacity), kept)
		separator = "; "
	}
	switch {
	case !e.Possible():
		b.WriteString(", more than the capacity: it can never succeed")
	case e.NeedsTopUp():
		b.WriteString(", not enough until a top-up")
	default:
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter())
	}
	return b.String()
}

// NeedsTopUp reports whether the request can succeed only after a top-up: a prepaid limit has too little, and no limit
// makes the request impossible. RetryAfter is [Never], and the header is empty. Answer such a request with the status 429
// without Retry-After, or with 402 to a customer who can pay.
func (e *ExceededError) NeedsTopUp() bool {
	return e.Possible() && slices.ContainsFunc(e.Violations(), Status.NeedsTopUp)
}

// RetryAfter returns the time after which the request would be admitted if nothing else happened: the first one at which
// all its limits have enough. It is [Never] when the request is not [ExceededError.Possible], or [ExceededError.NeedsTopUp].
//
// If no window ever allows the amount, or several limits never have enough at the same time, the time is [Never]. The limits are followed from
// event to event until all days of the calendar that their windows and resets distinguish have passed, for one year to thirteen. A time that
// is not found by then, or within 20,000 events, is [Never] as well.
func (e *ExceededError) RetryAfter() time.Duration {
	if !e.Possible() {
		return Never
	}
	return e.Statuses.retryAfter()
}

// SpreadRetryAfter returns [ExceededError.RetryAfter], plus a spread if the request waits for a quota to reset. All
// callers rejected by the quotas of a time zone get the same reset time. If they all came back then, the store would
// throttle their writes. The spread is at most a minute, and at most a hundredth of the period that begins. It depends
// on the entity and on RetryAfter, so that callers of one entity come apart, too. The same error always returns the
// same time. A caller that comes at RetryAfter is served as well. Use it for callers that do not sleep by
// [Status.ResetsAt] themselves.
func (e *ExceededError) SpreadRetryAfter() time.Duration {
	wait := e.RetryAfter()
	if wait == Never {
		return wait
	}
	for _, s := range e.Violations() {
		if spread := min(s.nextPeriod()/spreadPart, longestSpread); s.RetryAfter == wait && spread > 0 && wait < longestWait-spread {
			return wait + stagger(s.Entity, int64(wait), spread)
		}
	}
	return wait
}

// Callers are spread over this part of a period, and over no longer than this time.
const (
	spreadPart    = 100
	longestSpread = time.Minute
)

// RetryAfterHeader returns the value of an HTTP Retry-After header: [ExceededError.SpreadRetryAfter] in whole seconds,
// rounded up, and "" when RetryAfter is [Never]: no time makes the request succeed.
func (e *ExceededError) RetryAfterHeader() string {
	wait := e.SpreadRetryAfter()
	if wait == Never {
		return ""
	}
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return strconv.FormatInt(seconds, 10)
}

// Violations returns the statuses of the limits that were exceeded.
func (e *ExceededError) Violations() Statuses {
	var violations Statuses
	for _, s := range e.Statuses {
		if s.Exceeded {
			violations = append(violations, s)
		}
	}
	return violations
}

// Possible reports whether the request can succeed at some time: no amount is above the capacity of its limit, or more than its windows
// ever allow, see [ExceededError.RetryAfter]. A request that a prepaid limit rejects is possible, since a top-up makes it
// succeed: see [ExceededError.NeedsTopUp].
func (e *ExceededError) Possible() bool {
	for _, s := range e.Statuses {
		if s.Exceeded && !s.Possible() {
			return false
		}
	}
	return true
}

// MarshalJSON returns the error as an object for an API's answer.
func (e *ExceededError) MarshalJSON() ([]byte, error) {
	type body struct {
		Error             string      `json:"error"`
		Possible          bool        `json:"possible"`
		NeedsTopUp        bool        `json:"needs_top_up,omitempty"`
		RetryAfterSeconds secondsJSON `json:"retry_after_seconds"`
		Limits            Statuses    `json:"limits"`
	}
	return json.Marshal(body{"rate_limit_exceeded", e.Possible(), e.NeedsTopUp(), secondsJSON(e.RetryAfter()), e.Statuses})
}

// isPublic reports whether an error is one of this package that needs nothing added.
func isPublic(err error) bool {
	for _, sentinel := range []error{
		ErrNoLimits, ErrContended, ErrClock, ErrClosed, ErrLeaseClosed, ErrNamespaceNotFound, ErrNamespaceState,
		ErrEntityExists, ErrEntityNotFound, ErrEntityChanged, ErrEntityHasChildren, ErrDisabled, ErrSettled, ErrTokenExpired, ErrReusedID,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return errors.As(err, new(*ValidationError)) || errors.As(err, new(*VersionError)) || errors.As(err, new(*ExceededError)) ||
		errors.As(err, new(*ItemError)) || errors.As(err, new(*UnsupportedError))
}

// publicError turns an error of the engine or the store into one of this package, and names the operation once.
func publicError(op string, err error) error {
	if err == nil {
		return nil
	}
	err = decisionError(op, err)
	switch {
	case isPublic(err):
		return err
	case errors.Is(err, store.ErrTableNotFound):
		return fmt.Errorf("%w: %s: %w", ErrTableNotFound, op, err)
	case errors.Is(err, store.ErrClosed):
		return fmt.Errorf("%w: %s", ErrClosed, op)
	case unavailable(err):
		return &UnavailableError{Op: op, Unknown: protocol.IsUnknown(err), Err: err}
	default:
		return fmt.Errorf("zlimit: %s: %w", op, err)
	}
}

// decisionError returns the error of this package for an error by which the engine decides about a request. It returns
// other errors as they are.
func decisionError(op string, err error) error {
	var rejected *protocol.RejectedError
	var none *protocol.NoLimitsError
	var unknown *protocol.UnknownLimitError
	var crowded *protocol.CrowdedError
	var many *protocol.BucketsError
	var differ *protocol.OwnLimitsError
	var disabled *protocol.DisabledError
	var clock *protocol.ClockError
	var overflow *bucket.OverflowError
	var projects *store.ProjectionError
	var item *store.ItemError
	var refused *layout.RefusedError
	switch {
	case protocol.IsOnceSlots(err):
		return &ValidationError{Field: "id", Value: "", Reason: "must be empty for a request of slots, which end with their process"}
	case errors.As(err, &refused) && refused.Err == nil:
		return unsupported(refused)
	case errors.As(err, &rejected):
		return exceeded(statusesOfLevels(rejected.Levels))
	case errors.As(err, &disabled):
		return &DisabledError{disabled.Entity, disabled.Resource}
	case errors.As(err, &none):
		if len(none.Asked) > 1 {
			return fmt.Errorf("%w; asked were %s", noLimits(none.Entity, none.Resource), strings.Join(none.Asked, ", "))
		}
		return noLimits(none.Entity, none.Resource)
	case errors.As(err, &unknown):
		return unknownLimit("consume", unknown.Limit, unknown.Known, unknown.Asked...)
	case errors.As(err, &many):
		return &ValidationError{Field: "requests", Value: strconv.Itoa(many.Buckets) + " buckets", Reason: many.Rule()}
	case errors.As(err, &differ):
		return &ValidationError{Field: "limits", Value: differ.Entity + "/" + differ.Resource, Reason: differ.Rule()}
	case errors.As(err, &crowded):
		reason := fmt.Sprintf("the bucket has too many limits in use that other requests brought; at most %d", bucket.MaxLimits)
		return &ValidationError{Field: "limits", Value: crowded.Entity + "/" + crowded.Resource, Reason: reason}
	case errors.As(err, &item):
		return &ItemError{PK: item.Key.PK, SK: item.Key.SK, Attribute: item.Attribute, Reason: item.Error(), op: op}
	case errors.Is(err, protocol.ErrContended):
		return ErrContended
	case errors.As(err, &clock):
		return fmt.Errorf("%w: %s: %w", ErrClock, op, clock)
	case errors.Is(err, protocol.ErrClosed):
		return ErrClosed
	case errors.As(err, &projects):
		return &ValidationError{Field: "mixed fleet", Value: "true", Reason: projects.Error()}
	case errors.As(err, &overflow):
		reason := "the lease would hold more than " + tokensText(overflow.Limit, maxTokens)
		return &ValidationError{Field: op + "[" + overflow.Limit + "]", Value: amountText(overflow.Limit, overflow.Tokens/millis), Reason: reason}
	default:
		return err
	}
}

// unknownLimit returns the error for a limit that is not configured, with those that are, and with the levels that were asked.
func unknownLimit(field, limit string, known []bucket.Params, asked ...string) error {
	return &ValidationError{Field: field, Value: limit, Reason: whyUnknown(known, asked...), missing: len(asked) > 0}
}

// whyUnknown says that a limit is not among those that are configured, for levels or for the resource of a lease.
func whyUnknown(known []bucket.Params, asked ...string) string {
	names := make([]string, len(known))
	for i := range known {
		names[i] = known[i].Name
	}
	of, has := "the resource", "has"
	if len(asked) > 0 {
		of = strings.Join(asked, ", ")
	}
	if len(asked) > 1 {
		has = "have"
	}
	return fmt.Sprintf("no limit of that name is configured for %s, which %s %s", of, has, cmp.Or(strings.Join(names, ", "), "no limits"))
}

// noLimits returns an ErrNoLimits that names the entity, the resource or both, or the system without either.
func noLimits(entity, resource string) error {
	switch {
	case entity != "":
		return fmt.Errorf("%w: entity %q, resource %q", ErrNoLimits, entity, resource)
	case resource != "":
		return fmt.Errorf("%w: resource %q", ErrNoLimits, resource)
	default:
		return ErrNoLimits
	}
}

// exceeded returns the error of a rejection, the strictest limit first. Limits that can never admit the request come
// first, then the longest waits.
func exceeded(statuses Statuses) *ExceededError {
	slices.SortStableFunc(statuses, func(a, b Status) int {
		return cmp.Compare(b.RetryAfter, a.RetryAfter)
	})
	return &ExceededError{statuses}
}

// unavailable reports whether the store failed, and did so in outages alone.
func unavailable(err error) bool {
	failures := store.ErrorsIn(err)
	return len(failures) > 0 && !slices.ContainsFunc(failures, func(e *store.Error) bool { return !e.Unavailable })
}
